package transport

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"log/slog"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tools"
)

// TestMessageBounds: nothing in a message is long but the arguments of a tool, whatever keeps it: a session keeps what
// initialize says, and a subscription the id of its request.
// Promise: bounded-work
func TestMessageBounds(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	h := New(Config{Server: tools.NewServer(tools.ServerConfig{Log: log}), Log: log})
	t.Cleanup(func() { h.Close(t.Context()) })
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	post := func(body string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	const n = 8 << 20
	long, deep := strings.Repeat("x", n), strings.Repeat("[", n/2)+strings.Repeat("]", n/2)
	client := func(name string) string {
		return `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"` + name + `","version":"1"}}`
	}
	initialize := func(id, params string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"initialize","params":` + params + `}`
	}
	call := func(id, arguments string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"none","arguments":` + arguments + `}}`
	}
	for _, c := range []struct {
		name, body string
		refused    bool
	}{
		{"an ordinary start", initialize("1", client("x")), false},
		{"a long name of the client", initialize("1", client(long)), true},
		{"a long name in escapes", initialize("1", client(strings.Repeat(`\u0078`, n/6))), true},
		{"a long id", initialize(`"`+long+`"`, client("x")), true},
		{"a long id of a call", call(`"`+long+`"`, `{}`), true},
		{"a long method", strings.Replace(initialize("1", client("x")), `"initialize"`, `"`+long+`"`, 1), true},
		{"long white space", initialize("1", client("x")) + strings.Repeat(" ", n), true},
		{"a member nobody reads", strings.Replace(initialize("1", client("x")), `"id"`, `"other":"`+long+`","id"`, 1), true},
		{"a second method", `{"method":"tools/call",` + initialize("1", client(long))[1:], true},
		{"a method in capitals besides", `{"Method":"tools/call",` + initialize("1", client(long))[1:], true},
		{"an answer to nothing", `{"jsonrpc":"2.0","id":1,"result":"` + long + `"}`, true},
		{"a batch with one long message", `[` + call("1", `{}`) + `,` + initialize("1", client(long)) + `]`, true},
		{"deep arguments", call("1", deep), false},
		{"long arguments", call("1", `{"code":"`+long+`"}`), false},
	} {
		start := time.Now()
		status := post(c.body)
		if refused := status == http.StatusRequestEntityTooLarge; refused != c.refused {
			t.Errorf("%s: status %d after %s", c.name, status, time.Since(start))
		}
	}
}

// TestLinear: what a body costs before the SDK sees it grows with its size, whatever is in it.
func TestLinear(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	h := New(Config{Server: tools.NewServer(tools.ServerConfig{Log: log}), Log: log})
	t.Cleanup(func() { h.Close(t.Context()) })
	for name, shape := range map[string]func(n int) string{
		"brackets":      func(n int) string { return strings.Repeat("[", n) },
		"objects":       func(n int) string { return strings.Repeat(`{"a":`, n/5) },
		"empty batches": func(n int) string { return "[" + strings.Repeat("[],", n/3) + "[]]" },
		"numbers":       func(n int) string { return "[" + strings.Repeat("1,", n/2) + "1]" },
		"one string":    func(n int) string { return `["` + strings.Repeat(`\"`, n/2) + `"]` },
		"open string":   func(n int) string { return `{"a":"` + strings.Repeat("x", n) },
		"members":       func(n int) string { return "{" + strings.Repeat(`"a":1,`, n/6) + `"b":1}` },
	} {
		t.Run(name, func(t *testing.T) {
			costtest.RequireLinear(t, 1<<20, func(n int) func() {
				body := []byte(shape(n))
				return func() { h.explainTooLarge(body) }
			})
		})
	}
}

// TestWantsTask: only an object counts as the parameter task, and its parts are not decoded.
// Promise: bounded-work
func TestWantsTask(t *testing.T) {
	for task, want := range map[string]bool{`{}`: true, ` { "ttl": 1 }`: true, `null`: false, `"x"`: false, `[{}]`: false, `1`: false} {
		if got := wantsTask([]byte(`{"method":"tools/call","params":{"task":` + task + `}}`)); got != want {
			t.Errorf("%s: %v", task, got)
		}
	}
	body := []byte(`{"params":{"task":{"a":[` + strings.Repeat("[],", 1<<18) + `[]]}}}`)
	if n := testing.AllocsPerRun(1, func() { wantsTask(body) }); n > 100 {
		t.Errorf("%.0f allocations", n)
	}
}
