package bridge_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridge"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

// npmServers are MCP servers from npm, pinned.
var npmServers = []string{
	"@modelcontextprotocol/server-everything@2026.8.31",
	"@modelcontextprotocol/server-memory@2026.8.31",
	"@modelcontextprotocol/server-sequential-thinking@2026.8.31",
	"@modelcontextprotocol/server-filesystem@2026.8.31",
}

// broker is the other end of a bridge.
type broker struct {
	t    *testing.T
	in   *io.PipeWriter
	to   *bridgewire.Writer
	done chan error

	mu      sync.Mutex
	answers map[uint64]chan bridgewire.FromBridge
	first   chan bridgewire.FromBridge // ready or failed
	failed  chan bridgewire.Failed
	changes chan bool
	asked   chan bridgewire.Question
	logs    strings.Builder
	id      uint64
}

// begin starts a bridge and sends it the start frame.
func begin(t *testing.T, start bridgewire.Start) *broker {
	t.Helper()
	in, inWrite := io.Pipe()
	out, outWrite := io.Pipe()
	b := &broker{
		t: t, in: inWrite, to: bridgewire.NewWriter(inWrite), done: make(chan error, 1), answers: map[uint64]chan bridgewire.FromBridge{},
		first: make(chan bridgewire.FromBridge, 1), failed: make(chan bridgewire.Failed, 1), changes: make(chan bool, 100),
		asked: make(chan bridgewire.Question, 16),
	}
	br := bridge.New(bridge.Config{In: in, Out: outWrite, Env: os.Environ(), Version: "test"})
	go func() {
		b.done <- br.Run(t.Context())
		outWrite.Close()
	}()
	go b.follow(bridgewire.NewReader(out))
	t.Cleanup(func() { b.end() })
	if err := b.to.Write(bridgewire.ToBridge{Start: &start}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *broker) follow(r *bridgewire.Reader) {
	for {
		var f bridgewire.FromBridge
		if err := r.Read(&f); err != nil {
			return
		}
		switch {
		case f.Ready != nil:
			b.first <- f
		case f.Failed != nil:
			select {
			case b.first <- f:
			default:
			}
			b.failed <- *f.Failed
		case f.Log != "":
			b.mu.Lock()
			b.logs.WriteString(f.Log + "\n")
			b.mu.Unlock()
		case f.Changed:
			b.changes <- true
		case f.Question != nil:
			b.asked <- *f.Question
		default:
			b.mu.Lock()
			c := b.answers[f.ID]
			delete(b.answers, f.ID)
			b.mu.Unlock()
			if c == nil {
				b.t.Errorf("an answer that nobody waits for: %d", f.ID)
				continue
			}
			c <- f
		}
	}
}

// end ends the bridge and waits for it.
func (b *broker) end() {
	b.in.Close()
	select {
	case err := <-b.done:
		if err != nil {
			b.t.Errorf("the bridge ended: %v", err)
		}
		b.done <- nil
	case <-time.After(testkit.Patience):
		b.t.Error("the bridge does not end")
	}
}

func (b *broker) ready() *bridgewire.Ready {
	b.t.Helper()
	select {
	case f := <-b.first:
		if f.Failed != nil {
			b.t.Fatalf("failed: %+v", f.Failed)
		}
		return f.Ready
	case <-time.After(testkit.Patience):
		b.t.Fatal("neither ready nor failed")
	}
	return nil
}

// send sends a request and gives its number and where its answer comes.
func (b *broker) send(method string, params any) (uint64, <-chan bridgewire.FromBridge) {
	b.t.Helper()
	var raw json.RawMessage
	if params != nil {
		var err error
		if raw, err = json.Marshal(params); err != nil {
			b.t.Fatal(err)
		}
	}
	b.mu.Lock()
	b.id++
	id, c := b.id, make(chan bridgewire.FromBridge, 1)
	b.answers[id] = c
	b.mu.Unlock()
	if err := b.to.Write(bridgewire.ToBridge{ID: id, Method: method, Params: raw}); err != nil {
		b.t.Fatal(err)
	}
	return id, c
}

func (b *broker) wait(c <-chan bridgewire.FromBridge) bridgewire.FromBridge {
	b.t.Helper()
	select {
	case f := <-c:
		return f
	case <-time.After(testkit.Patience):
		b.t.Fatal("no answer")
	}
	return bridgewire.FromBridge{}
}

// call calls a tool and gives the answer as text, or the error.
func (b *broker) call(name, arguments string) string {
	b.t.Helper()
	_, c := b.send(bridgewire.CallMethod, bridgewire.Call{Name: name, Arguments: json.RawMessage(arguments)})
	return text(b.wait(c))
}

// text is the texts of a tool's answer, or the error's code.
func text(f bridgewire.FromBridge) string {
	if f.Error != nil {
		return f.Error.Code + ": " + f.Error.Message
	}
	var r struct {
		Content []struct{ Text string }
		IsError bool
	}
	if err := json.Unmarshal(f.Result, &r); err != nil {
		return err.Error()
	}
	var all []string
	for _, c := range r.Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "\n")
}

// names is the names of the server's tools.
func (b *broker) names() []string {
	b.t.Helper()
	_, c := b.send(bridgewire.ToolsMethod, nil)
	f := b.wait(c)
	if f.Error != nil {
		b.t.Fatal(f.Error)
	}
	var list bridgewire.Tools
	if err := json.Unmarshal(f.Result, &list); err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, raw := range list.Tools {
		var tool struct{ Name string }
		if err := json.Unmarshal(raw, &tool); err != nil {
			b.t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	return names
}

// TestRealServers: servers from npm, each under Node and under Deno.
func TestRealServers(t *testing.T) {
	modules := testkit.InstallPackages(t, "servers", npmServers...)
	interpreters := map[string][]string{
		"node": {testkit.NodeBinary(t)},
		"deno": {testkit.DenoPath(t), "run", "-A", "--node-modules-dir=manual"},
	}
	for _, c := range []struct {
		name, arg, tool, args, want string
		least                       int
	}{
		{"everything", "stdio", "echo", `{"message":"hi"}`, "hi", 8},
		{"memory", "", "read_graph", `{}`, "entities", 9},
		{
			"sequential-thinking", "", "sequentialthinking",
			`{"thought":"a","thoughtNumber":1,"totalThoughts":1,"nextThoughtNeeded":false}`, "totalThoughts", 1,
		},
		{"filesystem", "HOME", "list_directory", `{"path":"HOME"}`, "a-file", 10},
	} {
		for with, argv := range interpreters {
			t.Run(c.name+" with "+with, func(t *testing.T) {
				home := t.TempDir()
				if err := os.WriteFile(filepath.Join(home, "a-file"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				script := filepath.Join(modules, "@modelcontextprotocol/server-"+c.name, "dist/index.js")
				command := append(slices.Clone(argv), script, strings.ReplaceAll(c.arg, "HOME", home))
				b := begin(t, bridgewire.Start{
					Command: command, Env: map[string]string{"HOME": home, "MEMORY_FILE_PATH": filepath.Join(home, "m.jsonl")},
				})
				r := b.ready()
				names := b.names()
				if len(names) < c.least {
					t.Errorf("%+v has tools %v", r, names)
				}
				if got := b.call(c.tool, strings.ReplaceAll(c.args, "HOME", home)); !strings.Contains(got, c.want) {
					t.Errorf("%s: %s", c.tool, got)
				}
			})
		}
	}
}
