package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridge"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
)

// asClient makes this test binary the client that a conformance suite starts: a bridge, and a broker that does what the
// scenario asks for.
const asClient = "CODEFORGE_CONFORMANCE_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(asClient) == "1" {
		if err := conform(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(fakepeers.RunTests(m))
}

// leftOut are the client scenarios of the suites that the bridge does not support, each with the reason. Scenarios of
// extensions belong to no version and are not run: the bridge uses no skills of upstream servers.
var leftOut = map[string]string{
	"auth/": "the proxy logs in and puts the token in: mint.TestLoginConformance",
}

// measured is the scenario in which the suite measures how late the client reconnects. A busy machine is late.
const measured = "sse-retry"

// TestClientSuites runs the client scenarios of both suites, which know the two eras of the protocol. One process of Node
// runs all scenarios of a version, because it takes longer to load a suite than to run a scenario.
func TestClientSuites(t *testing.T) {
	modules := testkit.InstallClients(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asClient, "1")
	ran, used := 0, map[string]bool{}
	for suite, versions := range map[string][]string{
		"@modelcontextprotocol/conformance": {"2025-06-18", "2025-11-25"},
		"conformance-next":                  {"2025-11-25", "2026-07-28"},
	} {
		for _, version := range versions {
			t.Run(suite+" "+version, func(t *testing.T) {
				run := func(which ...string) (string, error) {
					args := append([]string{filepath.Join(modules, suite, "dist/index.js"), "client", "--command", self, "--spec-version", version,
						"--timeout", strconv.FormatInt(testkit.Patience.Milliseconds(), 10)}, which...)
					return fakepeers.RunNode(t, t.TempDir(), args...)
				}
				out, _ := run("--suite", "all") // an error if any scenario fails, also one that is left out
				for line := range strings.Lines(out) {
					mark, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
					scenario, result, ok := strings.Cut(rest, ": ")
					if !ok || mark != "✓" && mark != "✗" {
						continue
					}
					if prefix := without(scenario); prefix != "" {
						used[prefix] = true
						continue
					}
					ran++
					passed := mark == "✓" && !strings.HasPrefix(result, "0 passed")
					tries := 1 // beside the others, a suite's server may answer too late to a client that looks for its version
					if scenario == measured {
						tries = 5
					}
					for ; !passed && tries > 0; tries-- {
						alone, err := run("--scenario", scenario)
						passed = err == nil && !strings.Contains(alone, "FAILURE") && strings.Contains(alone, "SUCCESS")
						result = alone
					}
					if !passed {
						t.Errorf("%s: %s\n%s", scenario, result, out)
					}
				}
			})
		}
	}
	if ran < 15 || len(used) != len(leftOut) {
		t.Errorf("%d scenarios were run, and of what is left out the suites have only %v", ran, used)
	}
}

// without is the entry of leftOut that a scenario falls under, or empty.
func without(scenario string) string {
	for prefix := range leftOut {
		if strings.HasPrefix(scenario, prefix) {
			return prefix
		}
	}
	return ""
}

// session is a bridge for a conformance scenario.
type session struct {
	to   *bridgewire.Writer
	from *bridgewire.Reader
	id   uint64
}

// conform does what the suite's scenario asks of a client.
func conform(url string) error {
	name := os.Getenv("MCP_CONFORMANCE_SCENARIO")
	if without(name) != "" {
		return errors.New("left out")
	}
	in, inWrite := io.Pipe()
	out, outWrite := io.Pipe()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- bridge.New(bridge.Config{In: in, Out: outWrite, Env: os.Environ(), Version: "1"}).Run(ctx)
		outWrite.Close()
	}()
	s := &session{to: bridgewire.NewWriter(inWrite), from: bridgewire.NewReader(out)}
	if err := s.to.Write(bridgewire.ToBridge{Start: &bridgewire.Start{URL: url, ConnectTimeoutMS: 50_000}}); err != nil {
		return err
	}
	err := s.scenario(name)
	go io.Copy(io.Discard, out)
	inWrite.Close()
	return errors.Join(err, <-done)
}

// ask makes one request.
func (s *session) ask(method string, params, result any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	s.id++
	if err := s.to.Write(bridgewire.ToBridge{ID: s.id, Method: method, Params: raw}); err != nil {
		return err
	}
	for {
		var f bridgewire.FromBridge
		if err := s.from.Read(&f); err != nil {
			return err
		}
		switch {
		case f.Failed != nil:
			return errors.New(f.Failed.Message)
		case f.Question != nil:
			yes := &bridgewire.Answer{ID: f.Question.ID, Action: "accept", Content: json.RawMessage(accepted(f.Question.Schema))}
			if err := s.to.Write(bridgewire.ToBridge{Answer: yes}); err != nil {
				return err
			}
		case f.ID == s.id && f.Error != nil:
			return f.Error
		case f.ID == s.id && result != nil:
			return json.Unmarshal(f.Result, result)
		case f.ID == s.id:
			return nil
		}
	}
}

func (s *session) call(name string, arguments any) error {
	raw, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	return s.ask(bridgewire.CallMethod, bridgewire.Call{Name: name, Arguments: raw}, nil)
}

type definition struct {
	Name        string          `json:"name"`
	URI         string          `json:"uri"`
	InputSchema json.RawMessage `json:"inputSchema"`
}

// scenario does one scenario. Errors of calls are the suite's to judge.
func (s *session) scenario(name string) error {
	var list struct{ Tools, Resources, Prompts []definition }
	if err := s.ask(bridgewire.ToolsMethod, nil, &list); err != nil {
		return err
	}
	switch name {
	case "tools_call":
		return s.call("add_numbers", map[string]int{"a": 5, "b": 3})
	case "elicitation-sep1034-client-defaults", "sep-2322-client-request-state":
		for _, d := range list.Tools {
			_ = s.call(d.Name, struct{}{})
		}
	case "sse-retry":
		return s.call("test_reconnection", map[string]int{})
	case "json-schema-2020-12-preservation":
		for _, d := range list.Tools {
			if d.Name == "json_schema_2020_12_tool" {
				return s.call("json_schema_echo", map[string]json.RawMessage{"schema": d.InputSchema})
			}
		}
		return errors.New("no tool to echo")
	case "http-custom-headers":
		var given struct {
			ToolCalls []struct {
				Name      string
				Arguments json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &given); err != nil {
			return err
		}
		for _, c := range given.ToolCalls {
			_ = s.call(c.Name, c.Arguments)
		}
	case "http-invalid-tool-headers":
		for _, d := range list.Tools {
			_ = s.call(d.Name, map[string]string{"region": "us-west1"})
		}
	case "http-standard-headers":
		_ = s.call(list.Tools[0].Name, struct{}{})
		if err := errors.Join(s.ask(bridgewire.ResourcesMethod, nil, &list), s.ask(bridgewire.PromptsMethod, nil, &list)); err != nil {
			return err
		}
		for _, d := range list.Resources {
			_ = s.ask(bridgewire.ReadMethod, bridgewire.Read{URI: d.URI}, nil)
		}
		for _, d := range list.Prompts {
			_ = s.ask(bridgewire.PromptMethod, bridgewire.Prompt{Name: d.Name}, nil)
		}
	}
	return nil
}

// accepted is what the user of the tests fills in: what the form requires and has no default, as true or as a text.
func accepted(form json.RawMessage) string {
	var f struct {
		Properties map[string]struct {
			Type    string
			Default any
		}
	}
	_ = json.Unmarshal(form, &f) // an empty form
	content := map[string]any{}
	for name, p := range f.Properties {
		switch {
		case p.Default != nil:
		case p.Type == "boolean":
			content[name] = true
		default:
			content[name] = "text"
		}
	}
	line, _ := json.Marshal(content)
	return string(line)
}
