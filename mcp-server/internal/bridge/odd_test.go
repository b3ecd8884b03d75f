package bridge_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

// oddServer is a remote server that writes its answers with write. Lost, if not nil, answers a request of a session that
// the server has lost, and reports whether it has.
func oddServer(write func(w http.ResponseWriter, answer string), lost func(w http.ResponseWriter, id json.RawMessage) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &m)
		result := ""
		switch {
		case r.Method != http.MethodPost:
			http.Error(w, "no streams", http.StatusMethodNotAllowed)
			return
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
			return
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s1")
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}`
		case lost != nil && lost(w, m.ID):
			return
		case m.Method == "tools/list":
			result = `{"tools":[{"name":"a","inputSchema":{"type":"object"},"annotations":"none"},{"name":"b","inputSchema":7,"icons":"x","title":7}]}`
		case m.Method == "tools/call":
			result = `{"content":"hi","_meta":7}`
		case m.Method == "ping":
			result = `{}`
		default:
			write(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID))
			return
		}
		write(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
	}
}

// as writes answers with a Content-Type, in a format.
func as(kind, format string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, answer string) {
		w.Header()["Content-Type"] = nil
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		fmt.Fprintf(w, format, answer)
	}
}

// TestOddRemote: answers in a form that the protocol does not have are read if they can be, and so are definitions and
// results with members of a wrong type.
func TestOddRemote(t *testing.T) {
	for name, write := range map[string]func(http.ResponseWriter, string){
		"json":                    as("application/json", "%s"),
		"events":                  as("text/event-stream", ": ping\n\nevent: message\ndata: %s\n\n"),
		"a byte order mark":       as("application/json", "\uFEFF%s"),
		"events with a mark":      as("text/event-stream", "\uFEFFdata: %s\n\n"),
		"a batch":                 as("application/json; charset=utf-8", "[%s]"),
		"a batch with a notice":   as("application/json", `[{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}},%s]`),
		"the wrong Content-Type":  as("text/plain; charset=utf-8", "\n%s\n"),
		"another Content-Type":    as("text/html", "%s"),
		"no Content-Type":         as("", "%s"),
		"a windows line, no type": as("", "%s\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := remoteAt(t, oddServer(write, nil), bridgewire.Start{})
			b.ready()
			if got := b.names(); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("tools: %v", got)
			}
			_, answer := b.send(bridgewire.CallMethod, bridgewire.Call{Name: "a", Arguments: json.RawMessage(`{}`)})
			if f := b.wait(answer); f.Error != nil || string(f.Result) != `{"content":"hi","_meta":7}` {
				t.Errorf("%s %v", f.Result, f.Error)
			}
		})
	}
}

// TestRemoteCause: why a server could not be connected is what was wrong with its own answer, and not that it does not
// serve the older transport.
func TestRemoteCause(t *testing.T) {
	for name, c := range map[string]struct {
		write func(http.ResponseWriter, string)
		want  string
	}{
		"a page":          {as("text/html", "<html>%.0sSign in</html>"), `HTTP 200 with Content-Type "text/html", and no message of MCP: <html>Sign in`},
		"broken JSON":     {as("application/json", `{"jsonrpc":"2.0",%.0s`), `HTTP 200 with Content-Type "application/json", and no message of MCP: {"jsonrpc"`},
		"an odd envelope": {as("application/json", `{"data":%s}`), `no message of MCP: {"data"`},
		"a broken event":  {as("text/event-stream", "data: {%.0s\n\n"), `HTTP 200 with Content-Type "text/event-stream", and no message of MCP: {`},
		"an error": {func(w http.ResponseWriter, _ string) {
			http.Error(w, "the database is down", http.StatusInternalServerError)
		}, "HTTP 500 the database is down"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := remoteAt(t, oddServer(c.write, nil), bridgewire.Start{ConnectTimeoutMS: 10_000})
			f := <-b.first
			if f.Failed == nil || !strings.HasPrefix(f.Failed.Message, "connecting to the server: HTTP") || !strings.Contains(f.Failed.Message, c.want) {
				t.Errorf("%+v, want %s", f.Failed, c.want)
			}
		})
	}
}

// TestRateLimited: a call that the server answers with 429 has a code of its own, because the server did not carry it out.
func TestRateLimited(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	b := remoteAt(t, oddServer(as("application/json", "%s"), func(w http.ResponseWriter, _ json.RawMessage) bool {
		s := status.Load()
		if s != 0 {
			http.Error(w, "slow down", int(s))
		}
		return s != 0
	}), bridgewire.Start{Protocol: "2025-11-25"})
	b.ready()
	for s, want := range map[int]string{http.StatusTooManyRequests: bridgewire.Limited, http.StatusServiceUnavailable: bridgewire.ServerError} {
		status.Store(int32(s))
		_, answer := b.send(bridgewire.CallMethod, bridgewire.Call{Name: "a", Arguments: json.RawMessage(`{}`)})
		if f := b.wait(answer); f.Error == nil || f.Error.Code != want || !strings.Contains(f.Error.Message, "slow down") {
			t.Errorf("%d: %+v", s, f.Error)
		}
	}
}

// TestSessionLostOddly: a lost session is known whatever status tells of it, and a tool's own sessions are not taken for
// it: then the session goes on.
func TestSessionLostOddly(t *testing.T) {
	say := func(status int, kind, format string) func(http.ResponseWriter, json.RawMessage) {
		return func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			fmt.Fprintf(w, format, id)
		}
	}
	const refusal = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`
	for name, forget := range map[string]func(http.ResponseWriter, json.RawMessage){
		"inside a 200":      say(http.StatusOK, "application/json", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"Session not found"}}`),
		"in an event":       say(http.StatusOK, "text/event-stream", "data: "+refusal+"\n\n"),
		"inside a 400":      say(http.StatusBadRequest, "application/json", refusal),
		"400 without an id": say(http.StatusBadRequest, "application/json", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Invalid session"},"id":null}%.0s`),
		"a text":            say(http.StatusBadRequest, "text/plain", "unknown session%.0s"),
		"410":               say(http.StatusGone, "text/plain", "session expired%.0s"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var left atomic.Int32 // requests until a session is lost
			left.Store(1 << 30)
			var begun atomic.Int32
			h := oddServer(as("application/json", "%s"), func(w http.ResponseWriter, id json.RawMessage) bool {
				if left.Add(-1) >= 0 {
					return false
				}
				forget(w, id)
				return true
			})
			b := remoteAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Session-Id") == "" && r.Method == http.MethodPost { // greeted anew
					begun.Add(1)
					left.Store(1 << 30)
				}
				h(w, r)
			}), bridgewire.Start{Protocol: "2025-11-25"})
			b.ready()
			for range 2 {
				left.Store(0)
				_, answer := b.send(bridgewire.CallMethod, bridgewire.Call{Name: "a", Arguments: json.RawMessage(`{}`)})
				if f := b.wait(answer); f.Error != nil || !strings.Contains(string(f.Result), "hi") {
					t.Errorf("%s %v", f.Result, f.Error)
				}
			}
			if n := begun.Load(); n != 3 {
				t.Errorf("%d sessions", n)
			}
		})
	}
	t.Run("a tool's session", func(t *testing.T) {
		var begun, calls atomic.Int32
		once := func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Mcp-Session-Id") == "" {
				begun.Add(1)
			}
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			if strings.Contains(string(body), "tools/call") {
				calls.Add(1)
				var m struct{ ID json.RawMessage }
				_ = json.Unmarshal(body, &m)
				say(http.StatusOK, "application/json", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"browser session not found"}}`)(w, m.ID)
				return
			}
			oddServer(as("application/json", "%s"), nil)(w, r)
		}
		b := remoteAt(t, http.HandlerFunc(once), bridgewire.Start{Protocol: "2025-11-25"})
		b.ready()
		if got := b.call("a", `{}`); !strings.Contains(got, "browser session not found") {
			t.Errorf("%s", got)
		}
		if begun.Load() != 1 || calls.Load() != 1 {
			t.Errorf("%d sessions, %d calls", begun.Load(), calls.Load())
		}
	})
}
