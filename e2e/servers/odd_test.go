package servers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// odd is a call of an odd server in both languages, and how the line begins that it prints.
type odd struct{ name, deno, python, want string }

// TestOddServers: servers that do not keep to the protocol are used as they are meant, and an error names what is wrong.
func TestOddServers(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the bridge decide it")
	program, err := world.Program("hostile")
	if err != nil {
		t.Fatal(err)
	}
	w := world.Start(t, world.Config{
		TrustCA: true,
		Env:     map[string]string{"SANDBOX_PROGRAMS": filepath.Dir(program)},
		Hosts: map[string]http.Handler{
			"b.wild.test": forgetful(t),
			"c.wild.test": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					http.Error(w, "no streams", http.StatusMethodNotAllowed)
					return
				}
				w.Header().Set("Content-Type", "text/html")
				_, _ = io.WriteString(w, "<html>Sign in</html>")
			}),
		},
		Change: func(apis []world.API) []world.API {
			remote := func(name, host string) world.API {
				config := map[string]any{"description": "an odd server", "mcp": map[string]any{"url": "https://" + host + "/mcp"}}
				for _, key := range []string{"allow_private", "ca_file"} {
					config[key] = apis[0].Config[key]
				}
				return world.API{Name: name, Config: config}
			}
			return []world.API{
				misbehaving("odd", "odd-tools", nil), remote("forgetful", "b.wild.test"), remote("page", "c.wild.test"),
				misbehaving("silent", "silent-at-initialize", map[string]any{"connect_timeout": 5}),
			}
		},
	})
	for _, c := range []odd{
		{"types that JSON Schema does not know", `mcp.odd.typed({ n: 1, file: { path: "a" } })`, `mcp.odd.typed(n=1, file={"path": "a"})`, "typed"},
		{"a wrong type", `mcp.odd.typed({ n: "1" })`, `mcp.odd.typed(n="1")`, "bad_arguments odd.typed: n: found string, want integer"},
		{"a misspelt name", `mcp.odd.typed({ n: 1, page_size: 5 })`, `mcp.odd.typed(n=1, page_size=5)`,
			`bad_arguments odd.typed: page_size: there is no such argument; did you mean "page-size"?`},
		{"a string for blocks", `mcp.odd.string()`, `mcp.odd.string()`, "a string"},
		{"a block for blocks", `mcp.odd.block()`, `mcp.odd.block()`, "a block"},
		{"an outputSchema that is null", `mcp.odd.json().then((v) => v.a)`, `mcp.odd.json()["a"]`, "1"},
		{"a remote one", `mcp.forgetful.string()`, `mcp.forgetful.string()`, "a string"},
		{"a lost session", `mcp.forgetful.string()`, `mcp.forgetful.string()`, "a string"},
		{"no server at all", `mcp.page.string()`, `mcp.page.string()`, `server_unavailable page.string: connecting to the server: HTTP 200 with Content-Type "text/html"`},
		{"a silent one", `mcp.silent.string()`, `mcp.silent.string()`, "server_unavailable silent.string: connecting to the server: it did not answer within 5s"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			res := w.MustExecute(t, fmt.Sprintf("console.log(await %s.catch((e) => e.code + ' ' + e.message));", c.deno))
			if !strings.HasPrefix(res.Out, c.want) {
				t.Errorf("TypeScript: %q %q, want %q", res.Out, res.Notes, c.want)
			}
			res = w.MustPython(t, fmt.Sprintf("try: print(%s)\nexcept McpError as e: print(e.code, e)\n", c.python))
			if !strings.HasPrefix(res.Out, c.want) && !strings.Contains(res.Out, "is not called until") {
				t.Errorf("Python: %q %q, want %q", res.Out, res.Notes, c.want)
			}
		})
	}
	t.Run("an unknown method of ours", func(t *testing.T) {
		const body = `{"jsonrpc":"2.0","id":7,"method":"tools/frobnicate"}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		resp, err := w.HTTP().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"id":7`) || !strings.Contains(string(text), "-32601") {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
	})
}

// forgetful is a remote server that forgets each session after one call and says so with status 200. It answers as
// text/plain, with a byte order mark.
func forgetful(t *testing.T) http.Handler {
	var sessions, calls atomic.Int32
	t.Cleanup(func() {
		if sessions.Load() < 2 {
			t.Errorf("%d sessions: none was lost", sessions.Load())
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &m)
		member := `"error":{"code":-32601,"message":"no such method"}`
		switch {
		case r.Method != http.MethodPost:
			http.Error(w, "no streams", http.StatusMethodNotAllowed)
			return
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
			return
		case m.Method == "initialize":
			calls.Store(0)
			w.Header().Set("Mcp-Session-Id", fmt.Sprintf("s%d", sessions.Add(1)))
			member = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}`
		case calls.Load() > 0:
			member = `"error":{"code":-32001,"message":"Session not found"}`
		case m.Method == "tools/list":
			member = `"result":{"tools":[{"name":"string","annotations":"none"}]}`
		case m.Method == "tools/call":
			calls.Add(1)
			member = `"result":{"content":"a string"}`
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = fmt.Fprintf(w, "\uFEFF"+`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, member)
	})
}
