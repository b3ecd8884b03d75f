package bridge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

type said struct {
	Text string `json:"text"`
}

// polite is an SDK server with the tools echo, huge and never.
func polite(t *testing.T) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "polite", Version: "1"}, nil)
	answer := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in said) (*mcp.CallToolResult, any, error) {
		return answer(in.Text), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "huge"}, func(context.Context, *mcp.CallToolRequest, said) (*mcp.CallToolResult, any, error) {
		return answer(strings.Repeat("a", bridgewire.MaxMessage)), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "never"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ said) (*mcp.CallToolResult, any, error) {
		select {
		case <-ctx.Done():
		case <-t.Context().Done():
		}
		return nil, nil, ctx.Err()
	})
	return s
}

// remoteAt starts a bridge to a handler over TLS, which it trusts by a file as in a slot, with a header.
func remoteAt(t *testing.T, h http.Handler, start bridgewire.Start) *broker {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	start.URL = server.URL + "/mcp"
	start.Env = map[string]string{"SSL_CERT_FILE": ca}
	start.Headers = map[string]string{"Authorization": "Bearer X_AUTH_TOKEN"}
	return begin(t, start)
}

// withHeader refuses requests without the configured header.
func withHeader(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer X_AUTH_TOKEN" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func TestRemote(t *testing.T) {
	type get = func(*http.Request) *mcp.Server
	streams := func(o mcp.StreamableHTTPOptions) func(get) http.Handler {
		return func(g get) http.Handler { return mcp.NewStreamableHTTPHandler(g, &o) }
	}
	events := func(g get) http.Handler { return mcp.NewSSEHandler(g, nil) }
	for name, c := range map[string]struct {
		handler  func(get) http.Handler
		start    bridgewire.Start
		protocol string
	}{
		"streams":   {streams(mcp.StreamableHTTPOptions{}), bridgewire.Start{}, "2025-11-25"},
		"json":      {streams(mcp.StreamableHTTPOptions{JSONResponse: true}), bridgewire.Start{}, "2025-11-25"},
		"stateless": {streams(mcp.StreamableHTTPOptions{Stateless: true}), bridgewire.Start{}, "2026-07-28"},
		"forced":    {streams(mcp.StreamableHTTPOptions{Stateless: true}), bridgewire.Start{Protocol: "2025-06-18"}, "2025-06-18"},
		"sse":       {events, bridgewire.Start{Transport: "sse"}, "2025-11-25"},
		"sse too":   {events, bridgewire.Start{Transport: "auto"}, "2025-11-25"},
	} {
		t.Run(name, func(t *testing.T) {
			b := remoteAt(t, withHeader(c.handler(func(*http.Request) *mcp.Server { return polite(t) })), c.start)
			if r := b.ready(); r.Protocol != c.protocol {
				t.Errorf("%+v", r)
			}
			if names := b.names(); len(names) != 3 {
				t.Errorf("tools: %v", names)
			}
			for range 2 {
				if got := b.call("echo", `{"text":"hi"}`); got != "hi" {
					t.Errorf("echo: %s", got)
				}
			}
			if got := b.call("huge", `{"text":""}`); !strings.HasPrefix(got, bridgewire.ResultTooLarge) && !strings.Contains(c.start.Transport, "sse") && name != "sse too" {
				t.Errorf("huge: %.80s", got)
			}
			id, answer := b.send(bridgewire.CallMethod, bridgewire.Call{Name: "never", Arguments: json.RawMessage(`{"text":""}`)})
			time.Sleep(50 * time.Millisecond)
			if err := b.to.Write(bridgewire.ToBridge{Cancel: id}); err != nil {
				t.Fatal(err)
			}
			if f := b.wait(answer); f.Error == nil || f.Error.Code != bridgewire.Cancelled {
				t.Errorf("never: %s %v", f.Result, f.Error)
			}
			if got := b.call("echo", `{"text":"after"}`); got != "after" {
				t.Errorf("after: %s", got)
			}
		})
	}
}

// TestSlowRemote: a server that refuses initialize is connected although its first answer takes longer than three seconds.
func TestSlowRemote(t *testing.T) {
	current := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return polite(t) },
		&mcp.StreamableHTTPOptions{Stateless: true})
	var requests atomic.Int32
	b := remoteAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || bytes.Contains(body, []byte(`"initialize"`)) {
			http.Error(w, "initialize is not supported", http.StatusBadRequest)
			return
		}
		if requests.Add(1) == 1 {
			time.Sleep(3500 * time.Millisecond)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		current.ServeHTTP(w, r)
	}), bridgewire.Start{})
	if r := b.ready(); r.Protocol != "2026-07-28" {
		t.Errorf("%+v", r)
	}
	if got := b.call("echo", `{"text":"hi"}`); got != "hi" {
		t.Errorf("echo: %s", got)
	}
}

// TestRefused: 401 and 403 are final. No other transport is tried.
func TestRefused(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		var gets atomic.Int32
		b := remoteAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				gets.Add(1)
			}
			http.Error(w, "the key is wrong", status)
		}), bridgewire.Start{})
		f := <-b.first
		if f.Failed == nil || f.Failed.Code != bridgewire.Refused || !strings.Contains(f.Failed.Message, "the key is wrong") || gets.Load() != 0 {
			t.Errorf("%d: %+v, %d tries of SSE", status, f.Failed, gets.Load())
		}
	}
}

// TestSessionLost: a server that forgot its session is connected to again, once a call, and the call is repeated.
func TestSessionLost(t *testing.T) {
	var current atomic.Pointer[http.Handler]
	renew := func() {
		s := polite(t)
		h := http.Handler(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
		current.Store(&h)
	}
	renew()
	b := remoteAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*current.Load()).ServeHTTP(w, r) }), bridgewire.Start{})
	b.ready()
	for range 3 {
		renew()
		if got := b.call("echo", `{"text":"hi"}`); got != "hi" {
			t.Errorf("after the server forgot: %s", got)
		}
	}
	forget := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "tools/call") {
			http.Error(w, "session not found", http.StatusNotFound)
			return
		}
		if strings.Contains(string(body), `"initialize"`) {
			w.Header().Set("Mcp-Session-Id", "x")
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	current.Store(&forget)
	if got := b.call("echo", `{"text":"hi"}`); got == "hi" {
		t.Errorf("a server that always forgets: %s", got)
	}
}

// TestQuestionAfterLostSession: a question does not belong to the request for which the bridge connected again. That
// request may be of another user, or have ended.
// Promise: questions-reach-their-user
func TestQuestionAfterLostSession(t *testing.T) {
	var current atomic.Pointer[http.Handler]
	renew := func() {
		s := polite(t)
		mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ said) (*mcp.CallToolResult, any, error) {
			a, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Which?"})
			if err != nil {
				return nil, nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Action}}}, nil, nil
		})
		h := http.Handler(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
		current.Store(&h)
	}
	renew()
	b := remoteAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*current.Load()).ServeHTTP(w, r) }), bridgewire.Start{})
	b.ready()
	for _, lost := range []bool{false, true} {
		if lost {
			renew()
			if got := b.call("echo", `{"text":"hi"}`); got != "hi" {
				t.Fatalf("echo: %s", got)
			}
		}
		id, answer := b.send(bridgewire.CallMethod, bridgewire.Call{Name: "ask", Arguments: json.RawMessage(`{"text":""}`)})
		select {
		case q := <-b.asked:
			if q.Request != 0 && q.Request != id {
				t.Errorf("lost %v: the question of request %d counts as one of %d", lost, id, q.Request)
			}
			if err := b.to.Write(bridgewire.ToBridge{Answer: &bridgewire.Answer{ID: q.ID, Action: "decline"}}); err != nil {
				t.Fatal(err)
			}
		case f := <-answer:
			t.Fatalf("lost %v: no question: %s %v", lost, f.Result, f.Error)
		}
		if got := text(b.wait(answer)); got != "decline" {
			t.Errorf("lost %v: %s", lost, got)
		}
	}
}

// TestHostileRemote: bodies and streams without end, silence, redirects.
func TestHostileRemote(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("another host was sent the header")
		}
	}))
	defer elsewhere.Close()
	endless := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := fmt.Fprint(w, strings.Repeat("a", 64<<10)); err != nil {
				return
			}
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"an endless error": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			endless(w, r)
		},
		"endless JSON": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			endless(w, r)
		},
		"an endless event": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: ")
			endless(w, r)
		},
		"silence": func(_ http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil { // else the context does not end with the connection
				<-r.Context().Done()
			}
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := remoteAt(t, h, bridgewire.Start{ConnectTimeoutMS: 5000})
			select {
			case f := <-b.first:
				if f.Failed == nil || f.Failed.Code != bridgewire.NotConnected {
					t.Errorf("%+v %+v", f.Ready, f.Failed)
				}
			case <-time.After(testkit.Patience):
				t.Error("neither ready nor failed")
			}
		})
	}
}

// TestExactRemote: a result of a remote server arrives as the server wrote it, with numbers of any size and unknown members.
func TestExactRemote(t *testing.T) {
	const exact = `{"content":[{"type":"text","text":"<b>"}],"structuredContent":{"n":12345678901234567890},"more":1}`
	for _, kind := range []string{"application/json", "text/event-stream"} {
		b := remoteAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			_ = json.NewDecoder(r.Body).Decode(&m) // the answer below is for a valid message
			result := exact
			switch {
			case r.Method != http.MethodPost:
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			case m.ID == nil:
				w.WriteHeader(http.StatusAccepted)
				return
			case m.Method == "initialize":
				result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
			case m.Method != "tools/call":
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
				return
			}
			w.Header().Set("Content-Type", kind)
			answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
			if kind == "text/event-stream" {
				answer = "event: message\ndata: " + answer + "\n\n"
			}
			fmt.Fprint(w, answer)
		}), bridgewire.Start{})
		b.ready()
		_, answer := b.send(bridgewire.CallMethod, bridgewire.Call{Name: "t", Arguments: json.RawMessage(`{}`)})
		if f := b.wait(answer); string(f.Result) != exact {
			t.Errorf("%s: %s %v", kind, f.Result, f.Error)
		}
	}
}
