package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// scripted is what the drivers' code does: "slow" prints in two halves, "write:" writes a skill, "forever" never ends.
func scripted(p *program) fakepeers.Script {
	return func(ctx context.Context, r sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		switch r.Code {
		case "slow":
			emit(sandboxapi.Event{Stdout: "half\n"})
			time.Sleep(3 * time.Second) // the first half is told meanwhile
			emit(sandboxapi.Event{Stdout: "whole\n"})
		case "write:/skills/made.ts":
			if err := os.WriteFile(filepath.Join(p.skills, "made.ts"), []byte("// @description Made\nexport const n = 1;\n"), 0o600); err != nil {
				emit(sandboxapi.Event{Stderr: err.Error()})
			}
			emit(sandboxapi.Event{Stdout: "written"})
		case "forever":
			<-ctx.Done()
			return sandboxapi.Exit{Reason: sandboxapi.Cancelled}
		case "fails":
			return sandboxapi.Exit{Reason: sandboxapi.Exited, Code: 1}
		}
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
}

// driven is what every driver must have seen.
var driven = map[string]any{
	"tools":        "delete_skill,execute_code,get_instructions,get_run,list_apis,update_skill",
	"apis":         `[{"name":"stripe","description":"Stripe payments","domains":["api.stripe.com"],"credentials":["STRIPE_AUTH_TOKEN"],"reference":"https://docs.stripe.com/api","restricted_methods":["DELETE"]}]`,
	"instructions": "# How to use CodeForge",
	"run":          "half\nwhole\n",
	"progress":     "half",
	"mistake":      true,
	"write":        "written|Skills changed during this run: made (new).",
	"update":       "Skill made was updated and now has 41 bytes.",
	"resources":    true,
	"templates":    3.0,
	"read":         true,
	"prompts":      "run_skill",
	"prompt":       true,
	"complete":     "made",
	"cancel":       "cancelled",
	"delete":       "Skill made was deleted.",
}

// expect compares what a driver saw.
func expect(t *testing.T, got map[string]any) {
	t.Helper()
	for key, want := range driven {
		if got[key] != want {
			t.Errorf("%s: got %v, want %v", key, got[key], want)
		}
	}
	if got["error"] != nil {
		t.Error(got["error"])
	}
}

// TestTypeScriptSDK drives everything with both versions of the SDK and both eras, and restarts the server under each: a
// client goes on as if nothing had happened.
func TestTypeScriptSDK(t *testing.T) {
	modules := testkit.InstallClients(t)
	script, err := filepath.Abs("testdata/client.cjs")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"v1", "v2", "v2-auto"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := start(t, 2, nil)
			p.sandbox.SetScript(scripted(p))
			cmd := exec.CommandContext(t.Context(), testkit.NodeBinary(t), script, p.url(), kind)
			cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
			cmd.Stderr = t.Output()
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			lines.Buffer(nil, 1<<20)
			next := func() map[string]any {
				if !lines.Scan() {
					t.Fatal("the driver ended")
				}
				var got map[string]any
				if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
					t.Fatalf("%v: %s", err, lines.Text())
				}
				return got
			}
			expect(t, next())
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
			p.launch(t, nil)
			_, _ = io.WriteString(in, "\n")
			got := next()
			expect(t, got)
			if got["recovered"] != "by itself" {
				t.Errorf("after the restart it recovered %v", got["recovered"])
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if n := p.sandbox.WaitForReleases(); n != 0 {
				t.Errorf("%d leases are left", n)
			}
		})
	}
}

// drive does with the Go SDK what the drivers do.
func drive(t *testing.T, s *mcp.ClientSession, progress chan string) map[string]any {
	t.Helper()
	got := map[string]any{}
	do := func(tool, args string) string {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
		if err != nil {
			return "failed: " + err.Error()
		}
		return strings.Join(texts(res), "|")
	}
	var names []string
	for tool, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	got["tools"] = strings.Join(names, ",")
	got["apis"] = do("list_apis", "{}")
	got["instructions"] = do("get_instructions", "{}")[:22]
	params := &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "slow"}}
	params.SetProgressToken("slow")
	if res, err := s.CallTool(t.Context(), params); err == nil {
		got["run"] = strings.Join(texts(res), "|")
	}
	select {
	case got["progress"] = <-progress:
	case <-time.After(testkit.Patience):
	}
	got["mistake"] = strings.Contains(do("execute_code", `{"cod": "x"}`), "did you mean")
	got["write"] = do("execute_code", `{"code": "write:/skills/made.ts"}`)
	got["update"] = do("update_skill", `{"name": "made", "patch": "<<<<<<< SEARCH\nexport const n = 1;\n=======\nexport const n = 2;\n>>>>>>> REPLACE"}`)
	for r, err := range s.Resources(t.Context(), nil) {
		if err == nil && r.URI == "skill://made" {
			got["resources"] = true
		}
	}
	if res, err := s.ListResourceTemplates(t.Context(), nil); err == nil {
		got["templates"] = float64(len(res.ResourceTemplates))
	}
	if res, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "skill://made"}); err == nil {
		got["read"] = strings.Contains(res.Contents[0].Text, "export const n = 2;")
	}
	if res, err := s.ListPrompts(t.Context(), nil); err == nil {
		got["prompts"] = res.Prompts[0].Name
	}
	if res, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "run_skill", Arguments: map[string]string{"name": "made"}}); err == nil {
		got["prompt"] = strings.Contains(res.Messages[0].Content.(*mcp.TextContent).Text, "Use the skill made")
	}
	if res, err := s.Complete(t.Context(), &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "run_skill"}, Argument: mcp.CompleteParamsArgument{Name: "name", Value: "mad"}}); err == nil {
		got["complete"] = strings.Join(res.Completion.Values, ",")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	got["cancel"] = "cancelled"
	if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "forever"}}); err == nil {
		got["cancel"] = "finished"
	}
	got["delete"] = do("delete_skill", `{"name": "made"}`)
	return got
}

// driver makes a client of the Go SDK and the channel on which it hears of progress.
func driver() (*mcp.Client, chan string) {
	progress := make(chan string, 100)
	return mcp.NewClient(&mcp.Implementation{Name: "driver", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Message },
	}), progress
}

func TestGoSDK(t *testing.T) {
	t.Parallel()
	p := start(t, 2, nil)
	p.sandbox.SetScript(scripted(p))
	for _, version := range []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"} {
		c, progress := driver()
		s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: p.url()}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		if got := s.InitializeResult().ProtocolVersion; got != version {
			t.Errorf("protocol %s, want %s", got, version)
		}
		expect(t, drive(t, s, progress))
		_ = s.Close()
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p.launch(t, nil)
	c, progress := driver()
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: p.url()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, drive(t, s, progress))
	_ = s.Close()
}

// TestMCPRemote drives the server through mcp-remote, as Claude Desktop does, also over a restart.
func TestMCPRemote(t *testing.T) {
	t.Parallel()
	modules := testkit.InstallClients(t)
	p := start(t, 2, nil)
	p.sandbox.SetScript(scripted(p))
	cmd := exec.CommandContext(t.Context(), testkit.NodeBinary(t), filepath.Join(modules, "mcp-remote/dist/proxy.js"), p.url())
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.Stderr = io.Discard
	c, progress := driver()
	s, err := c.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	expect(t, drive(t, s, progress))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p.launch(t, nil)
	expect(t, drive(t, s, progress))
}

// TestInspector drives the server with the Inspector's command line. TestTypeScriptSDK drives the rest with the SDK that
// the Inspector uses.
func TestInspector(t *testing.T) {
	modules := testkit.InstallClients(t)
	p := start(t, 4, nil)
	p.sandbox.SetScript(scripted(p))
	t.Setenv("HOME", t.TempDir())
	for _, c := range []struct{ args, want string }{
		{"--method tools/list --strict", "execute_code"},
		{"--method tools/call --tool-name execute_code --tool-arg code=write:/skills/made.ts", "written"},
		{"--method tools/call --tool-name execute_code --tool-arg code=slow --protocol-era modern", "whole"},
		{"--method resources/read --uri skill://made", "export const n"},
		{"--method prompts/get --prompt-name run_skill --prompt-args name=made", "Use the skill made"},
		{"--method skills/list --verify", "page-through"},
		{"--method tools/call --tool-name list_apis --load --load-concurrency 16 --load-requests 64", "64"},
	} {
		args := append([]string{filepath.Join(modules, "@modelcontextprotocol/inspector/clients/launcher/build/index.js"), "--cli", p.url(), "--transport", "http"}, strings.Fields(c.args)...)
		out, err := fakepeers.RunNode(t, t.TempDir(), args...)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s", c.args, err, out)
		}
	}
}

// TestSocket drives the server over its unix socket, which asks for no token, several clients at once.
// Promise: operators-socket
func TestSocket(t *testing.T) {
	t.Parallel()
	p := start(t, 4, map[string]string{"MCP_AUTH_TOKEN": "not-asked-for-on-the-socket"})
	p.sandbox.SetScript(scripted(p))
	if info, err := os.Stat(p.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", err, info.Mode())
	}
	local := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.socket)
	}}}
	for range 2 {
		c, progress := driver()
		s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://localhost/mcp", HTTPClient: local}, nil)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, drive(t, s, progress))
		_ = s.Close()
	}
	testkit.WaitFor(t, func() bool { return p.sandbox.CountLeased() == 0 })
	resp, err := http.Post(p.url(), "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token the address answers %s", resp.Status)
	}

	// A client that dies takes its calls with it.
	dying, err := net.Dial("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"forever"},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	fmt.Fprintf(dying, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: execute_code\r\nContent-Length: %d\r\n\r\n%s", len(call), call)
	testkit.WaitFor(t, func() bool { return p.sandbox.CountLeased() == 1 })
	_ = dying.Close()
	testkit.WaitFor(t, func() bool { return p.sandbox.CountLeased() == 0 })
}
