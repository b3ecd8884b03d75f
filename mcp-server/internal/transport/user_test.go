package transport_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tools"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/transport"
)

// asUser makes the bearer token of a request its user, as a guard does with a login.
func asUser(next http.Handler) http.Handler {
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
	}
	known := auth.RequireBearerToken(verify, nil)(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			next.ServeHTTP(w, r)
			return
		}
		known.ServeHTTP(w, r)
	})
}

// requestAs makes a request of a user, who may be empty, in a session.
func (f *fixture) requestAs(t *testing.T, user, method, session, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.URL, strings.NewReader(body))
	testkit.Must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", oldVersion)
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	if user != "" {
		req.Header.Set("Authorization", "Bearer "+user)
	}
	return req
}

// sendAs sends a request of requestAs.
func (f *fixture) sendAs(t *testing.T, user, method, session, body string) (int, http.Header, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(f.requestAs(t, user, method, session, body))
	testkit.Must(t, err)
	defer resp.Body.Close()
	if method == http.MethodGet && resp.StatusCode == http.StatusOK {
		return resp.StatusCode, resp.Header, "" // a stream, which does not end
	}
	text, err := io.ReadAll(resp.Body)
	testkit.Must(t, err)
	return resp.StatusCode, resp.Header, string(text)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// TestSessionsOfUsers: a session belongs to the user of its first token, also after it was lost. To others it does not
// exist: they cannot use it, listen to it or end it.
// Promise: session-users
func TestSessionsOfUsers(t *testing.T) {
	f := serve(t, transport.Config{})
	_, h, _ := f.sendAs(t, "ann", http.MethodPost, "", initialize)
	own := h.Get("Mcp-Session-Id")
	if code, _, body := f.sendAs(t, "ann", http.MethodPost, lost, call(2, "sleep")); code != http.StatusOK || own == "" {
		t.Fatalf("%d %s %q", code, body, own)
	}
	for _, id := range []string{own, lost} {
		for _, user := range []string{"bob", ""} {
			for _, c := range []struct{ method, body string }{
				{http.MethodPost, call(3, "sleep")}, {http.MethodGet, ""}, {http.MethodDelete, ""},
			} {
				if code, _, body := f.sendAs(t, user, c.method, id, c.body); code != http.StatusNotFound {
					t.Errorf("%s by %q: %d %s", c.method, user, code, body)
				}
			}
		}
		if code, h, _ := f.sendAs(t, "ann", http.MethodGet, id, ""); code != http.StatusOK || h.Get("X-Accel-Buffering") != "no" {
			t.Errorf("its own user listens: %d %v", code, h)
		}
		if code, _, body := f.sendAs(t, "ann", http.MethodPost, id, call(4, "sleep")); code != http.StatusOK || !strings.Contains(body, "slept") {
			t.Errorf("its own user: %d %s", code, body)
		}
	}
	if how := deleteOthers(t); how != "" {
		t.Errorf("the call of another user ended: %s", how)
	}
}

// deleteOthers lets a user delete the session of another, and returns how the other's call ended, or "" if it goes on.
func deleteOthers(t *testing.T) string {
	t.Helper()
	f := serve(t, transport.Config{})
	_, h, _ := f.sendAs(t, "ann", http.MethodPost, "", initialize)
	id := h.Get("Mcp-Session-Id")
	waits := f.requestAs(t, "ann", http.MethodPost, id, call(2, "wait"))
	go func() {
		if resp, err := http.DefaultClient.Do(waits); err == nil { // it may fail, because the test ends first
			_ = resp.Body.Close()
		}
	}()
	receive(t, f.began, "the call")
	_, _, _ = f.sendAs(t, "bob", http.MethodDelete, id, "")
	select {
	case how := <-f.ended:
		return how
	case <-time.After(time.Second):
		f.handler.Close(t.Context()) // ends the call
		receive(t, f.ended, "the end of the call")
		return ""
	}
}

// TestTokenStaysOutside: no tool sees the token of a request.
// Promise: access-tokens
func TestTokenStaysOutside(t *testing.T) {
	f := serve(t, transport.Config{})
	seen := make(chan string, 1)
	f.mcp.AddTool(&mcp.Tool{Name: "headers", InputSchema: map[string]any{"type": "object"}},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			seen <- strings.Join(req.Extra.Header.Values("Authorization"), "") + req.Extra.Header.Get(tools.CallerHeader)
			return &mcp.CallToolResult{}, nil
		})
	if code, _, body := f.sendAs(t, "ann-and-her-token", http.MethodPost, lost, call(2, "headers")); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	if got := receive(t, seen, "the call"); got != "127.0.0.1" {
		t.Errorf("%q", got)
	}
}
