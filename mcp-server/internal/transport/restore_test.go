package transport_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/transport"
)

// lost is an id as this server makes them, of a session that it does not know: its own before a restart.
const lost = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// TestLostSession: a client whose session was lost with a restart goes on under its id, by which tools know it too, in one
// new session however many requests come at once.
// Promise: canaries
func TestLostSession(t *testing.T) {
	f := serve(t, transport.Config{})
	var requests sync.WaitGroup
	for n := range 8 {
		requests.Go(func() {
			if code, body := f.answer(t, oldVersion, lost, call(n, "sleep")); code != http.StatusOK || !strings.Contains(body, "slept") {
				t.Errorf("%d %s", code, body)
			}
		})
	}
	requests.Wait()
	if n := f.handler.CountSessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if got := f.whose(t, lost); got != lost {
		t.Errorf("tools know the session as %q", got)
	}
	if _, stop := f.listenStream(t, lost); f.handler.CountSessions() != 1 {
		t.Error("listening began another session")
	} else {
		stop()
	}
	if code := f.send(t, http.MethodDelete, lost); code != http.StatusNoContent || f.handler.CountSessions() != 0 {
		t.Errorf("deleting it: %d, %d sessions", code, f.handler.CountSessions())
	}
	if code, _ := f.answer(t, oldVersion, lost, call(3, "sleep")); code != http.StatusNotFound {
		t.Errorf("the session after its client deleted it: %d", code)
	}
}

// TestLostSessionVersions: a session of each version with sessions is begun anew; a client that names none has the
// oldest.
func TestLostSessionVersions(t *testing.T) {
	for _, version := range []string{"", "2025-03-26", "2025-06-18", "2025-11-25"} {
		f := serve(t, transport.Config{})
		if code, body := f.answer(t, version, lost, call(2, "sleep")); code != http.StatusOK || !strings.Contains(body, "slept") {
			t.Errorf("version %q: %d %s", version, code, body)
		}
		for s := range f.mcp.Sessions() {
			want := version
			if want == "" {
				want = "2025-03-26"
			}
			if got := s.InitializeParams().ProtocolVersion; got != want {
				t.Errorf("version %q: the session has %q", version, got)
			}
		}
	}
}

// TestNotASession: only what this server could have given out is begun anew, and only while there is room.
func TestNotASession(t *testing.T) {
	f := serve(t, transport.Config{MaxSessions: 1})
	for _, id := range []string{"x", strings.ToLower(lost), lost + "A", "../" + lost[3:], lost[1:] + "1"} {
		if code, _ := f.answer(t, oldVersion, id, call(2, "sleep")); code != http.StatusNotFound {
			t.Errorf("%q: %d", id, code)
		}
	}
	for _, id := range []string{"x", strings.Repeat("A", 60<<10)} {
		if code := f.send(t, http.MethodDelete, id); code != http.StatusNotFound {
			t.Errorf("deleting %.20q: %d", id, code)
		}
	}
	if n := f.handler.Deleted(); n != 0 {
		t.Errorf("%d names that were no session's are remembered", n)
	}
	_, stop := f.listenStream(t, f.begin(t))
	defer stop()
	if code, body := f.answer(t, oldVersion, lost, call(2, "sleep")); code != http.StatusServiceUnavailable {
		t.Errorf("without room: %d %s", code, body)
	}
}

// TestRestartUnderSDK: a client of the SDK goes on after mcp-server was replaced at the same address.
func TestRestartUnderSDK(t *testing.T) {
	f := serve(t, transport.Config{})
	at := &moving{to: f.URL}
	client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://moving.test/", HTTPClient: &http.Client{Transport: at},
	}, &mcp.ClientSessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for n := range 3 {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "sleep"})
		if err != nil || result.IsError {
			t.Fatalf("call %d: %v %v", n, result, err)
		}
		next := serve(t, transport.Config{})
		f.handler.Close(context.WithoutCancel(t.Context()))
		at.move(next.URL)
		f.CloseClientConnections()
		f = next
	}
}

// moving sends requests to an address that changes.
type moving struct {
	mu sync.Mutex
	to string
}

func (m *moving) move(to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.to = to
}

func (m *moving) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	to := m.to
	m.mu.Unlock()
	var body io.Reader
	if r.Body != nil {
		body = r.Body
	}
	again, err := http.NewRequestWithContext(r.Context(), r.Method, to, body)
	if err != nil {
		return nil, err
	}
	again.Header = r.Header
	return http.DefaultTransport.RoundTrip(again)
}

// TestWasUsed: a message of a client counts in each version, also of a client without a session.
func TestWasUsed(t *testing.T) {
	for _, version := range []string{oldVersion, "2026-07-28"} {
		f := serve(t, transport.Config{})
		if f.handler.WasUsed() {
			t.Errorf("version %s: used before the first message", version)
		}
		if f.answer(t, version, lost, call(2, "sleep")); !f.handler.WasUsed() {
			t.Errorf("version %s: not used after a message", version)
		}
	}
}
