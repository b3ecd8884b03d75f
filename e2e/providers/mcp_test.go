package providers

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestServerLogin: a user adds a remote MCP server with a login by its address alone, logs in and calls a tool. The proxy
// finds the authorization server, registers, exchanges the code, and renews the token with a refresh token that is good
// once, for the server and for what code sends.
// Promise: scrubbed-before-use
func TestServerLogin(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "mcp.sock")
	s := start(t, socket, node(t, dir, "mcp.mjs", "mcp"), "node", "mcp.mjs", "https://"+issuer, socket)
	w := world.Start(t, world.Config{TrustCA: true, APIs: []world.API{}, Hosts: map[string]http.Handler{issuer: s}})
	apis := filepath.Join(w.Dir, "apis")
	mcp := func(exit int, args ...string) string {
		t.Helper()
		out, code, err := world.Tool(t.Context(), command(t, w, append([]string{"mcp"}, args...)...))
		if err != nil || code != exit {
			t.Fatalf("codeforge mcp %q: %d, %v\n%s", args, code, err, out)
		}
		return out
	}
	if out := mcp(2, "add", "guarded", "--apis", apis, "--oauth", "--", "npx", "x"); !strings.Contains(out, "--oauth is for a remote server") {
		t.Errorf("a program with a login: %s", out)
	}
	if out := mcp(0, "add", "guarded", "--apis", apis, "--oauth", "--url", "https://"+issuer+"/mcp"); !strings.Contains(out, "codeforge mcp login guarded") {
		t.Errorf("added: %s", out)
	}
	private(t, filepath.Join(apis, "guarded", "config.json"))
	testkit.WaitFor(t, func() bool { return strings.Contains(w.MustExecute(t, `console.log(typeof mcp)`).Out, "object") })
	call := func() string {
		t.Helper()
		return w.MustExecute(t, `console.log(await mcp.guarded.whoami({ echo: true }).catch((e) => e.code + " " + e.message));`).Out
	}
	if got := call(); strings.Contains(got, "knows you") || !strings.Contains(got, "login") {
		t.Errorf("before the login: %s", got)
	}
	page := login(t, w, newPerson(t, nil), "GUARDED_AUTH_TOKEN", "mcp", "login", "guarded", "--no-browser", "--apis", apis)
	if !strings.Contains(page, "CodeForge is logged in") {
		t.Errorf("the last page: %s", page)
	}
	if got := s.said("registered"); len(got) != 1 || got[0] != "CodeForge none" {
		t.Errorf("registered as %q", got)
	}
	if got := s.said("asked"); len(got) != 1 || got[0] != "https://"+issuer+"/mcp mcp:tools" {
		t.Errorf("asked for %q", got)
	}
	const want = "the server knows you, with Bearer GUARDED_AUTH_TOKEN\n"
	mcp(0, "restart", "guarded", "--apis", apis)
	if got := call(); got != want {
		t.Errorf("logged in: %s", got)
	}
	s.post(t, "/revoke", nil) // the call after it is a POST, which is not repeated: the one after that has the new token
	_ = call()
	testkit.WaitFor(t, func() bool { return len(s.said("refresh_token")) == 2 })
	if got := call(); got != want {
		t.Errorf("after a refusal: %s", got)
	}
	if out := mcp(0, "call", "guarded", "whoami", "--apis", apis); !strings.Contains(out, "the server knows you") {
		t.Errorf("mcp call: %s", out)
	}
	if out := mcp(1, "login", "nobody", "--apis", apis); !strings.Contains(out, `no MCP server "nobody"`) {
		t.Errorf("of no server: %s", out)
	}
	nowhere(t, w, append(s.said("access_token"), s.said("refresh_token")...), call())
}

// private lets an API reach the tests' own upstream.
func private(t *testing.T, config string) {
	t.Helper()
	text, err := os.ReadFile(config)
	testkit.Must(t, err)
	changed := strings.Replace(string(text), "{", `{"allow_private": ["`+upstream.Embedded.Private.String()+`/32"],`, 1)
	testkit.Must(t, os.WriteFile(config, []byte(changed), 0o600))
}
