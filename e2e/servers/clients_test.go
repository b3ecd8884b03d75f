package servers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// maxSize bounds the bytes that a client puts into a model's context, however many servers there are. mcp-server's
// TestTokens counts their tokens.
const maxSize = 3000

// seen is what a client shows a model: the tools and the instructions.
type seen struct {
	Tools []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"inputSchema"`
		Input       json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	Instructions string `json:"instructions"`
	Text         string `json:"text"`
}

func (s seen) size() int {
	n := len(s.Instructions)
	for _, t := range s.Tools {
		n += len(t.Name + t.Description + string(t.Schema) + string(t.Input))
	}
	return n
}

// TestClients: forty servers with 840 tools cost a client's model no more than none, and each real client calls them.
func TestClients(t *testing.T) {
	world.RunInOneMode(t, "mcp-server decides it")
	modules, node := testkit.InstallClients(t), testkit.NodeBinary(t)
	program, err := world.Program("hostile")
	testkit.Must(t, err)
	var apis []world.API
	for n := range 40 {
		apis = append(apis, misbehaving(fmt.Sprintf("server%d", n), "", nil))
	}
	w := world.Start(t, world.Config{APIs: apis, Env: map[string]string{"SANDBOX_PROGRAMS": filepath.Dir(program)}})
	run := func(name string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 4*testkit.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "HOME="+t.TempDir())
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	code := func(client string) string {
		return fmt.Sprintf(`console.log(await mcp.server7.echo({ text: "called by %s" }));`, client)
	}
	judge := func(t *testing.T, s seen, client string) {
		t.Helper()
		if n := s.size(); n > maxSize || n < 800 || len(s.Tools) != 6 {
			t.Errorf("%d tools, %d bytes", len(s.Tools), n)
		}
		if !strings.Contains(s.Text, "called by "+client) {
			t.Errorf("the call answered %q", s.Text)
		}
	}
	t.Run("claude-code", func(t *testing.T) {
		var s seen
		out := run(node, "testdata/client.cjs", w.URL, code("claude-code"))
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		judge(t, s, "claude-code")
	})
	t.Run("inspector", func(t *testing.T) {
		inspector := func(args ...string) string {
			return run(node, append([]string{
				filepath.Join(modules, "@modelcontextprotocol/inspector/clients/launcher/build/index.js"),
				"--cli", w.URL, "--transport", "http", "--format", "json",
			}, args...)...)
		}
		var listed struct{ Result seen }
		out := inspector("--method", "tools/list")
		if err := json.Unmarshal([]byte(out), &listed); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		s := listed.Result
		s.Text = inspector("--method", "tools/call", "--tool-name", "execute_code", "--tool-arg", "code="+code("inspector"))
		judge(t, s, "inspector")
	})
	t.Run("mcp-remote", func(t *testing.T) {
		s := throughRemote(t, node, filepath.Join(modules, "mcp-remote/dist/proxy.js"), w.URL, code("mcp-remote"))
		judge(t, s, "mcp-remote")
	})
}

// throughRemote lists and calls as Claude Desktop does, over mcp-remote's standard input and output.
func throughRemote(t *testing.T, node, script, url, code string) (s seen) {
	t.Helper()
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), node, script, strings.Replace(url, "127.0.0.1", "localhost", 1))
	cmd.Env = append(os.Environ(), "HOME="+home, "MCP_REMOTE_CONFIG_DIR="+home)
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	ask := func(id int, method string, params any, into any) {
		t.Helper()
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
		testkit.Must(t, err)
		fmt.Fprintf(in, "%s\n", line)
		for lines.Scan() {
			var m struct {
				ID     int             `json:"id"`
				Result json.RawMessage `json:"result"`
			}
			if json.Unmarshal(lines.Bytes(), &m) == nil && m.ID == id {
				testkit.Must(t, json.Unmarshal(m.Result, into))
				return
			}
		}
		t.Fatalf("mcp-remote ended before it answered %s", method)
	}
	ask(1, "initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": struct{}{}, "clientInfo": map[string]string{"name": "claude-ai", "version": "0.1.0"},
	}, &s)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	ask(2, "tools/list", struct{}{}, &s)
	var r struct{ Content []struct{ Text string } }
	ask(3, "tools/call", map[string]any{"name": "execute_code", "arguments": map[string]string{"code": code}}, &r)
	for _, c := range r.Content {
		s.Text += c.Text
	}
	return s
}
