package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// both serves the protocol with and without sessions by the SDK's own handlers, and records each request's headers.
type both struct {
	stateful, stateless http.Handler
	mu                  sync.Mutex
	methods             []string
	deleted             bool
}

func (b *both) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	b.methods = append(b.methods, r.Header.Get("Mcp-Method")+" "+r.Header.Get("Mcp-Name"))
	b.deleted = b.deleted || r.Method == http.MethodDelete
	b.mu.Unlock()
	if r.Header.Get(versionHeader) >= sessionless {
		b.stateless.ServeHTTP(w, r)
		return
	}
	b.stateful.ServeHTTP(w, r)
}

func startServer(t *testing.T) (*both, string) {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	type in struct {
		Text string `json:"text"`
	}
	meet := make(chan struct{})
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "echoes"}, func(ctx context.Context, req *mcp.CallToolRequest, a in) (*mcp.CallToolResult, any, error) {
		if a.Text == "meet" { // ends when another such call is under way
			select {
			case meet <- struct{}{}:
			case <-meet:
			case <-time.After(testkit.Patience):
				a.Text = "alone"
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "said " + a.Text}}}, nil, nil
	})
	get := func(*http.Request) *mcp.Server { return s }
	b := &both{
		stateful:  mcp.NewStreamableHTTPHandler(get, nil),
		stateless: mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true}),
	}
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	return b, srv.URL
}

// converse sends lines and returns the answers by id.
func converse(t *testing.T, url string, lines ...string) map[string]string {
	t.Helper()
	var out bytes.Buffer
	b := &stdioTranslator{url: url, client: http.DefaultClient, to: &out}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if err := b.translateMessages(ctx, strings.NewReader(strings.Join(lines, "\n")), func() bool { return false }); err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{}
	for line := range strings.Lines(out.String()) {
		var m rpcMessage
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("not one message per line: %q", line)
		}
		answers[string(m.ID)] = line
	}
	return answers
}

const (
	initialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// TestBridgeSessions: a protocol version with sessions. Calls run concurrently, and all are answered before the end.
func TestBridgeSessions(t *testing.T) {
	srv, url := startServer(t)
	answers := converse(t, url, initialize, initialized,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"meet"}}}`,
		`{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"echo","arguments":{"text":"meet"}}}`,
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"echo","arguments":{"text":"fast"}}}`,
		`{"jsonrpc":"2.0","id":5,"method":"no/such","params":{}}`,
	)
	for id, want := range map[string]string{"1": `"protocolVersion":"2025-06-18"`, "2": "said meet", `"b"`: "said meet", "4": "said fast", "5": `"error"`} {
		if !strings.Contains(answers[id], want) {
			t.Errorf("answer to %s is %q, want %s", id, answers[id], want)
		}
	}
	if !srv.deleted {
		t.Error("the session was not deleted")
	}
}

// TestBridgeModern: the protocol version without sessions requires parts of the message in headers.
func TestBridgeModern(t *testing.T) {
	srv, url := startServer(t)
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	answers := converse(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"},`+meta+`}}`)
	if !strings.Contains(answers["1"], "said x") {
		t.Errorf("answer %q", answers["1"])
	}
	if len(srv.methods) != 1 || srv.methods[0] != "tools/call echo" {
		t.Errorf("headers %q", srv.methods)
	}
}

// TestBridgeFailures: whatever the server does, a request gets an answer.
func TestBridgeFailures(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"plain text":    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "session not found", 404) },
		"empty":         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"broken stream": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		"not a message": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502); _, _ = io.WriteString(w, "<html>") },
		"ended stream":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/event-stream") },
		"a question, and no answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"foreign content": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(403)
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(handler)
			defer srv.Close()
			answers := converse(t, srv.URL, `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, `{"jsonrpc":"2.0","method":"notifications/x"}`, `garbage`)
			delete(answers, `"q"`)
			if len(answers) != 1 || !strings.Contains(answers["7"], `"code":-32603`) {
				t.Errorf("answers %v", answers)
			}
		})
	}
	answers := converse(t, "http://127.0.0.1:1/mcp", `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`)
	if !strings.Contains(answers["7"], "cannot be reached") {
		t.Errorf("answers %v", answers)
	}
}

// TestBridgeRestart: while CodeForge restarts, messages wait for it; a call that it had already begun is answered with an
// error and is not sent again.
func TestBridgeRestart(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	var calls atomic.Int32
	begun := make(chan struct{}, 1)
	serve := func(handler http.HandlerFunc) *http.Server {
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: handler}
		go func() { _ = s.Serve(l) }()
		return s
	}
	first := serve(func(_ http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		begun <- struct{}{}
		<-r.Context().Done()
	})
	in, feed := io.Pipe()
	answers := make(chan string, 10)
	b := &stdioTranslator{url: "http://codeforge/mcp", client: client, reconnect: testkit.Patience, to: lineWriter(answers)}
	ended := make(chan error, 1)
	go func() { ended <- b.translateMessages(t.Context(), in, func() bool { return false }) }()
	say := func(id int) {
		_, _ = fmt.Fprintf(feed, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`+"\n", id)
	}
	say(1)
	<-begun
	_ = first.Close()
	if got := <-answers; !strings.Contains(got, `"id":1`) || !strings.Contains(got, "check before you run it again") {
		t.Errorf("the call in flight: %s", got)
	}
	say(2)
	time.Sleep(time.Second)
	second := serve(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 2 { // still starting, or stopping again
			w.Header().Set("Retry-After", "1")
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	})
	defer second.Close()
	if got := <-answers; got != `{"jsonrpc":"2.0","id":2,"result":{}}`+"\n" {
		t.Errorf("the call during the restart: %s", got)
	}
	_ = feed.Close()
	if err := <-ended; err != nil || calls.Load() != 3 {
		t.Errorf("%v, %d requests arrived, want 3", err, calls.Load())
	}
}

// lineWriter sends what is written to a channel.
type lineWriter chan<- string

func (c lineWriter) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

func TestEvents(t *testing.T) {
	text := ": comment\r\n\r\nevent: message\r\ndata: {\"a\":1}\r\n\r\ndata: {\"b\":\ndata: 2}\n\nid: 3\n\ndata:{\"c\":3}"
	var got []string
	if err := eachEvent(strings.NewReader(text), func(b []byte) { got = append(got, string(b)) }); err != nil {
		t.Fatal(err)
	}
	want := []string{`{"a":1}`, "{\"b\":\n2}", `{"c":3}`}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHeaderValue(t *testing.T) {
	for in, want := range map[string]string{
		"echo": "echo", "a b": "a b", " a": "=?base64?IGE=?=", "ä": "=?base64?w6Q=?=", "x\r\nEvil: 1": "=?base64?eA0KRXZpbDogMQ==?=",
		"=?base64?eA==?=": "=?base64?PT9iYXNlNjQ/ZUE9PT89?=",
	} {
		if got := headerValue(in); got != want {
			t.Errorf("headerValue(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestBridgeHungUp: when a client has gone, its calls are cancelled; when it closed only its sending end, they are not.
func TestBridgeHungUp(t *testing.T) {
	cancelled := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the end of the connection is noticed only after the body
		select {
		case <-r.Context().Done():
			close(cancelled)
		case <-time.After(2 * testkit.Patience):
		}
	}))
	defer srv.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	b := &stdioTranslator{url: srv.URL, client: http.DefaultClient, to: io.Discard}
	ended := make(chan error, 1)
	go func() {
		ended <- b.translateMessages(t.Context(), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`), func() bool { return hasHungUp(write) })
	}()
	select {
	case <-cancelled:
		t.Error("cancelled although the client still reads")
	case <-time.After(500 * time.Millisecond):
	}
	_ = read.Close()
	select {
	case <-cancelled:
	case <-time.After(testkit.Patience):
		t.Error("the call continues although the client has gone")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
