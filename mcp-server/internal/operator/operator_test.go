package operator

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestPeersErrors: an error of sandboxd or the proxy reaches the operator as a sentence, without its status and code.
func TestPeersErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{operatorapi.ErrNoServer, `404 {"code":"no_server","error":"there is no such MCP server, or it is not active"}`},
		{fmt.Errorf("starting: %w", &rpc.Error{API: "sandboxd", Status: 404, Code: "no_server", Text: "no"}), `409 {"code":"refused","error":"starting: no"}`},
		{&rpc.Error{API: "sandboxd", Status: 404, Text: "no such path"}, `409 {"code":"refused","error":"no such path"}`},
	} {
		w := httptest.NewRecorder()
		writeAnswer(w, nil, c.err)
		if got := fmt.Sprintf("%d %s", w.Code, w.Body); got != c.want+"\n" {
			t.Errorf("%v: %s", c.err, got)
		}
	}
}

// TestInputSize: the largest input fits, with every byte in base64. A body of 24 MB is refused.
func TestInputSize(t *testing.T) {
	n := 0
	h := NewHandler(Config{AddInput: func(in *sandboxapi.Input) (string, error) { n = len(in.Stdin); return "i1", nil }})
	post := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", operatorapi.Prefix+"input", strings.NewReader(body)))
		return w
	}
	stdin := base64.StdEncoding.EncodeToString(make([]byte, sandboxapi.MaxInput))
	if w := post(`{"stdin":"` + stdin + `"}`); w.Code != 200 || n != sandboxapi.MaxInput || !strings.Contains(w.Body.String(), `"i1"`) {
		t.Errorf("the largest input: %d %s, %d bytes", w.Code, w.Body, n)
	}
	for _, body := range []string{strings.Repeat(" ", 24_000_000) + "{}", "{"} {
		n = -1
		if w := post(body); w.Code != 400 || n != -1 {
			t.Errorf("%d bytes: %d %s", len(body), w.Code, w.Body)
		}
	}
}

// TestNoLogins: without an authorization server, the paths about logins name the settings that it needs.
func TestNoLogins(t *testing.T) {
	h := NewHandler(Config{})
	for _, path := range []string{"GET clients", "POST clients/revoke", "POST clients/code"} {
		method, name, _ := strings.Cut(path, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, operatorapi.Prefix+name, nil))
		if w.Code != 409 || !strings.Contains(w.Body.String(), "it needs PUBLIC_URL") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"input", "console", "server/approve"} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", operatorapi.Prefix+path, nil)); w.Code != 404 {
			t.Errorf("%s exists: %d %s", path, w.Code, w.Body)
		}
	}
}
