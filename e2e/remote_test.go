package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestMCPRemote drives tools/list and execute_code over stdio through mcp-remote, as Claude Desktop does.
func TestMCPRemote(t *testing.T) {
	world.RunInOneMode(t, "mcp-server decides it")
	argv, err := world.MCPRemote()
	if err != nil {
		testkit.SkipBecause(t, err.Error())
	}
	w := world.Start(t, world.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	address := strings.Replace(w.URL, "127.0.0.1", "localhost", 1)
	c := startRemote(ctx, t, append(argv, address))
	c.call(t, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}`)
	c.notify(t, "notifications/initialized")
	list := c.call(t, "tools/list", `{}`)
	for _, tool := range []string{"execute_code", "list_apis", "get_instructions", "update_skill", "delete_skill"} {
		if !strings.Contains(string(list), `"name":"`+tool+`"`) {
			t.Errorf("tools/list has no %s: %s", tool, list)
		}
	}
	args, _ := json.Marshal(map[string]any{
		"name": "execute_code", "arguments": map[string]any{"code": fmt.Sprintf(script, "remote"), "apis": []string{"httpbin"}},
	})
	res := c.call(t, "tools/call", string(args))
	if !strings.Contains(string(res), `200 HTTPBIN_TOKEN\n`) {
		t.Errorf("execute_code answered %s", res)
	}
	if where := w.Leak(string(res)); where != "" {
		t.Errorf("the result holds a credential: %s", where)
	}
	if seen := w.Upstream.Seen("remote"); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+w.Canaries["HTTPBIN_TOKEN"].Value() {
		t.Errorf("the upstream saw %+v", seen)
	}
}

// remote is a client of mcp-remote's stdio: JSON-RPC, one message per line.
type remote struct {
	in   io.Writer
	out  *bufio.Scanner
	next int
}

func startRemote(ctx context.Context, t *testing.T, argv []string) *remote {
	t.Helper()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home, "MCP_REMOTE_CONFIG_DIR="+home, "NO_COLOR=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil && t.Failed() {
			t.Logf("mcp-remote: %v\n%s", err, complaints.String())
		}
	})
	s := bufio.NewScanner(out)
	s.Buffer(nil, 16<<20)
	return &remote{in: in, out: s}
}

func (c *remote) notify(t *testing.T, method string) {
	t.Helper()
	if _, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","method":%q}`+"\n", method); err != nil {
		t.Fatal(err)
	}
}

// call sends a request and returns its result, skipping notifications.
func (c *remote) call(t *testing.T, method, params string) json.RawMessage {
	t.Helper()
	c.next++
	if _, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.next, method, params); err != nil {
		t.Fatal(err)
	}
	for c.out.Scan() {
		var m struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(c.out.Bytes(), &m); err != nil {
			t.Fatalf("mcp-remote wrote %q to stdout", c.out.Text())
		}
		if m.ID != c.next {
			continue
		}
		if m.Error != nil {
			t.Fatalf("%s: %s", method, m.Error)
		}
		return m.Result
	}
	t.Fatalf("mcp-remote ended before it answered %s: %v", method, c.out.Err())
	return nil
}
