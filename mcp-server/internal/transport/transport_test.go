package transport_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tools"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/transport"
)

// fixture is a handler on a real listener, with tools that wait, panic, print and flood.
type fixture struct {
	*httptest.Server
	handler *transport.Handler
	mcp     *mcp.Server
	began   chan string // a waiting tool began
	ended   chan string // and how it ended
}

func serve(t *testing.T, cfg transport.Config) *fixture {
	t.Helper()
	f := &fixture{began: make(chan string, 100), ended: make(chan string, 100)}
	cfg.Log = logline.New(t.Output(), "text", nil)
	cfg.Server = tools.NewServer(tools.ServerConfig{Version: "1", Log: cfg.Log})
	object := json.RawMessage(`{"type":"object"}`)
	cfg.Server.AddTool(&mcp.Tool{Name: "wait", InputSchema: object}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		f.began <- req.Session.ID()
		select {
		case <-ctx.Done():
			f.ended <- "cancelled"
		case <-time.After(2 * testkit.Patience):
			f.ended <- "finished"
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "waited"}}}, nil
	})
	cfg.Server.AddTool(&mcp.Tool{Name: "panic", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		panic("a bug")
	})
	cfg.Server.AddTool(&mcp.Tool{Name: "sleep", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		time.Sleep(400 * time.Millisecond)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "slept"}}}, nil
	})
	cfg.Server.AddTool(&mcp.Tool{Name: "who", InputSchema: object}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("%q", req.Extra.Header[tools.SessionHeader])}}}, nil
	})
	f.handler, f.mcp = transport.New(cfg), cfg.Server
	f.Server = httptest.NewServer(asUser(f.handler))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		f.handler.Close(ctx)
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

const (
	oldVersion = "2025-11-25"
	newVersion = "2026-07-28"
)

// post sends one message. The version decides the era; a session may be empty.
func (f *fixture) post(ctx context.Context, t *testing.T, version, session, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if version != "" {
		req.Header.Set("Mcp-Protocol-Version", version)
	}
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	if version == newVersion {
		req.Header.Set("Mcp-Method", "tools/call")
		req.Header.Set("Mcp-Name", "wait")
	}
	return http.DefaultClient.Do(req)
}

// answer gives the status and body of a message.
func (f *fixture) answer(t *testing.T, version, session, body string) (int, string) {
	t.Helper()
	resp, err := f.post(t.Context(), t, version, session, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// begin begins a session.
func (f *fixture) begin(t *testing.T) string {
	t.Helper()
	resp, err := f.post(t.Context(), t, "", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	id := resp.Header.Get("Mcp-Session-Id")
	if id == "" {
		t.Fatalf("no session: %s", resp.Status)
	}
	if code, _ := f.answer(t, oldVersion, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); code != http.StatusAccepted {
		t.Fatalf("initialized: %d", code)
	}
	return id
}

func call(id int, tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, id, tool)
}

func newCall(tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%q,"arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, tool)
}

func receive(t *testing.T, c chan string, what string) string {
	t.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(testkit.Patience):
		t.Fatalf("%s did not happen", what)
		return ""
	}
}

// TestDisconnect: when a client goes away, its call is cancelled, in both eras.
func TestDisconnect(t *testing.T) {
	f := serve(t, transport.Config{})
	for _, version := range []string{oldVersion, newVersion} {
		session, body := "", newCall("wait")
		if version == oldVersion {
			session, body = f.begin(t), call(2, "wait")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			resp, err := f.post(ctx, t, version, session, body)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		receive(t, f.began, "the call")
		cancel()
		if how := receive(t, f.ended, "its end"); how != "cancelled" {
			t.Errorf("%s: %s", version, how)
		}
	}
}

// TestCloseWhileBodyComes: a request whose body is on its way when the handler is closed, because a token was taken away
// for instance, is not served.
// Promise: tenant-tokens
func TestCloseWhileBodyComes(t *testing.T) {
	for _, version := range []string{oldVersion, newVersion} {
		f := serve(t, transport.Config{})
		session, text := "", newCall("wait")
		if version == oldVersion {
			session, text = f.begin(t), call(2, "wait")
		}
		c, err := net.Dial("tcp", f.Listener.Addr().String())
		testkit.Must(t, err)
		defer c.Close()
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Mcp-Protocol-Version: %s\r\nMcp-Session-Id: %s\r\nMcp-Method: tools/call\r\nMcp-Name: wait\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
			version, session, len(text))
		in := bufio.NewReader(c)
		if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "100") { // it is being read
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = in.ReadString('\n')
		f.handler.Close(t.Context())
		_, _ = io.WriteString(c, text)
		resp, err := http.ReadResponse(in, nil)
		testkit.Must(t, err)
		if resp.StatusCode != http.StatusServiceUnavailable || len(f.began) > 0 {
			t.Errorf("%s: %s, %d tools began", version, resp.Status, len(f.began))
		}
	}
}

// TestBodiesAtOnce: bodies that are still coming, of however many connections, take a bounded amount of memory, and give
// it back.
// Promise: tenant-tokens
func TestBodiesAtOnce(t *testing.T) {
	const size = 1 << 20
	f := serve(t, transport.Config{MaxBody: size})
	part := strings.Repeat(" ", size-1)
	var all []net.Conn
	for range 4 {
		c, err := net.Dial("tcp", f.Listener.Addr().String())
		testkit.Must(t, err)
		defer c.Close()
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", size, part)
		all = append(all, c)
	}
	long := newCall("sleep")
	long += strings.Repeat(" ", 1000-len(long))
	testkit.WaitFor(t, func() bool {
		code, _ := f.answer(t, newVersion, "", long)
		return code == http.StatusServiceUnavailable
	})
	for _, c := range all {
		_ = c.Close()
	}
	testkit.WaitFor(t, func() bool {
		code, _ := f.answer(t, newVersion, "", long)
		return code != http.StatusServiceUnavailable
	})
}

func (f *fixture) send(t *testing.T, method, session string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Mcp-Session-Id", session)
	req.Header.Set("Mcp-Protocol-Version", oldVersion)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestDelete(t *testing.T) {
	f := serve(t, transport.Config{})
	id := f.begin(t)
	go func() {
		resp, err := f.post(t.Context(), t, oldVersion, id, call(2, "wait"))
		if err == nil {
			resp.Body.Close()
		}
	}()
	receive(t, f.began, "the call")
	if code := f.send(t, http.MethodDelete, id); code != http.StatusNoContent {
		t.Errorf("DELETE: %d", code)
	}
	if how := receive(t, f.ended, "its end"); how != "cancelled" {
		t.Errorf("the call was %s", how)
	}
	if code, _ := f.answer(t, oldVersion, id, call(3, "sleep")); code != http.StatusNotFound {
		t.Errorf("the session after its end: %d, want 404 so that clients begin a new one", code)
	}
	if n := f.handler.CountSessions(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

func TestCancelNotification(t *testing.T) {
	f := serve(t, transport.Config{})
	id := f.begin(t)
	go func() {
		resp, err := f.post(t.Context(), t, oldVersion, id, call(2, "wait"))
		if err == nil {
			resp.Body.Close()
		}
	}()
	receive(t, f.began, "the call")
	f.answer(t, oldVersion, id, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	if how := receive(t, f.ended, "its end"); how != "cancelled" {
		t.Errorf("the call was %s", how)
	}
}

func TestPanic(t *testing.T) {
	f := serve(t, transport.Config{})
	id := f.begin(t)
	if code, body := f.answer(t, oldVersion, id, call(2, "panic")); code != http.StatusOK || !strings.Contains(body, "internal error") || strings.Contains(body, "a bug") {
		t.Errorf("%d %s", code, body)
	}
	if _, body := f.answer(t, oldVersion, id, call(3, "sleep")); !strings.Contains(body, "slept") {
		t.Errorf("the next call: %s", body)
	}
}

// Promise: mcp-endpoint
func TestBadInput(t *testing.T) {
	f := serve(t, transport.Config{MaxBody: 1 << 20, MaxBatch: 3})
	id := f.begin(t)
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, c := range []struct {
		name, version, session, body string
		want                         int
	}{
		{"too large", oldVersion, id, `"` + strings.Repeat("x", 1<<20) + `"`, http.StatusRequestEntityTooLarge},
		{"large batch", "2025-03-26", id, "[" + strings.Repeat(ping+",", 3) + ping + "]", http.StatusRequestEntityTooLarge},
		{"large batch behind white space", "2025-03-26", id, " \n[" + strings.Repeat(ping+",", 20_000) + ping + "]", http.StatusRequestEntityTooLarge},
		{"batch where there are none", oldVersion, id, "[" + ping + "]", http.StatusBadRequest},
		{"empty", oldVersion, id, "", http.StatusBadRequest},
		{"no JSON", oldVersion, id, "{", http.StatusBadRequest},
		{"a number", oldVersion, id, "42", http.StatusBadRequest},
		{"deep", oldVersion, id, strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000), http.StatusBadRequest},
		{"deep parameters", oldVersion, id, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000) + "}", http.StatusBadRequest},
		{"another's session", oldVersion, "no-such-session", ping, http.StatusNotFound},
		{"an unknown version", "1999-01-01", id, ping, http.StatusBadRequest},
		{"a version of the future", "zzzz", "", ping, http.StatusBadRequest},
	} {
		if code, body := f.answer(t, c.version, c.session, c.body); code != c.want {
			t.Errorf("%s: %d, want %d: %.200s", c.name, code, c.want, body)
		}
	}
	if _, body := f.answer(t, oldVersion, id, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"sl\xff\xfeeep\"}}"); !strings.Contains(body, "error") {
		t.Errorf("invalid UTF-8: %s", body)
	}
	if code, body := f.answer(t, "2025-03-26", id, "["+ping+","+strings.Replace(ping, "1,", "2,", 1)+"]"); code != http.StatusOK || strings.Count(body, "result") != 2 {
		t.Errorf("a batch of two: %d %s", code, body)
	}
	if code, body := f.answer(t, oldVersion, id, call(9, "sleep")); code != http.StatusOK || !strings.Contains(body, "slept") {
		t.Errorf("afterwards: %d %s", code, body)
	}
}

// listenStream opens the event stream of a session and gives its lines.
func (f *fixture) listenStream(t *testing.T, id string) (*bufio.Scanner, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", id)
	req.Header.Set("Mcp-Protocol-Version", oldVersion)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET: %s", resp.Status)
	}
	return bufio.NewScanner(resp.Body), func() {
		cancel()
		resp.Body.Close()
	}
}

// TestComments: a silent stream carries comments, on the session's stream and on that of a call, and the SDK's own
// client reads over them.
func TestComments(t *testing.T) {
	f := serve(t, transport.Config{Comment: 60 * time.Millisecond})
	id := f.begin(t)
	lines, stop := f.listenStream(t, id)
	defer stop()
	comments := 0
	for deadline := time.Now().Add(time.Minute); comments < 4 && time.Now().Before(deadline) && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), ":") {
			comments++
		}
	}
	if comments < 4 {
		t.Errorf("%d comments on the session's stream", comments)
	}
	code, body := f.answer(t, oldVersion, id, call(2, "sleep"))
	if n := strings.Count(body, "\n:") + strings.Count(body[:1], ":"); code != http.StatusOK || n < 1 || !strings.Contains(body, "slept") {
		t.Errorf("a call: %d with %d comments: %q", code, n, body)
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: f.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "sleep"}); err != nil {
		t.Errorf("the SDK's client: %v", err)
	}
}

// whose is the session that tools are told of.
func (f *fixture) whose(t *testing.T, session string) string {
	t.Helper()
	_, body := f.answer(t, oldVersion, session, call(2, "who"))
	_, name, _ := strings.Cut(body, `"text":"[\"`)
	name, _, _ = strings.Cut(name, `\"]"`)
	return name
}

// TestForgedHeaders: a client cannot name another request, another caller or another session.
// Promise: canaries
func TestForgedHeaders(t *testing.T) {
	f := serve(t, transport.Config{})
	id := f.begin(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL, strings.NewReader(call(2, "who")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {id}, "Mcp-Protocol-Version": {oldVersion},
		"X-Codeforge-Call": {"x", "y"}, "X-Codeforge-Caller": {"another", "z"}, tools.SessionHeader: {"another", "z"},
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), `[\"`+id+`\"]`) {
		t.Errorf("%s", body)
	}
	sessionless := req.Clone(t.Context())
	sessionless.Header.Set("Mcp-Protocol-Version", newVersion)
	sessionless.Header.Set("Mcp-Method", "tools/call")
	sessionless.Header.Set("Mcp-Name", "who")
	sessionless.Body, sessionless.ContentLength = io.NopCloser(strings.NewReader(newCall("who"))), -1
	if resp, err = http.DefaultClient.Do(sessionless); err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), `"text":"[]"`) {
		t.Errorf("without sessions: %s", body)
	}
	// Nor does a forged name keep a call alive when its client has gone.
	ctx, cancel := context.WithCancel(t.Context())
	again := req.Clone(ctx)
	again.Body = io.NopCloser(strings.NewReader(call(3, "wait")))
	again.ContentLength = int64(len(call(3, "wait")))
	go func() {
		if resp, err := http.DefaultClient.Do(again); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	receive(t, f.began, "the call")
	cancel()
	if how := receive(t, f.ended, "its end"); how != "cancelled" {
		t.Errorf("the call with a forged name %s", how)
	}
}

// TestUnreadAnswers: answers that a client does not read take a bounded amount of memory. Another tenant gets its answer
// meanwhile.
// Promise: tenant-shares
func TestUnreadAnswers(t *testing.T) {
	if n := countRefused(t); n < 3 {
		t.Errorf("of 6 unread answers, %d were refused", n)
	}
}

// countRefused reads a long resource over six connections that do not read the answer, and returns the number of refused
// answers. Then another tenant reads the resource.
func countRefused(t *testing.T) (refused int) {
	t.Helper()
	const size = 8 << 20
	budget := membudget.New(10 * size) // one handler may have 20 MiB
	add := func(f *fixture) *fixture {
		f.mcp.AddResource(&mcp.Resource{Name: "long", URI: "x:long"},
			func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				text := &mcp.ResourceContents{URI: "x:long", Text: strings.Repeat("x", size)}
				return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{text}}, nil
			})
		return f
	}
	f, other := add(serve(t, transport.Config{Answers: budget})), add(serve(t, transport.Config{Answers: budget}))
	status := make(chan string, 6)
	for range cap(status) {
		c, err := net.Dial("tcp", f.Listener.Addr().String())
		testkit.Must(t, err)
		defer c.Close()
		body := strings.NewReplacer("tools/call", "resources/read", `"name":"long"`, `"uri":"x:long"`, `"arguments":{},`, "").Replace(newCall("long"))
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
			"Accept: application/json, text/event-stream\r\nMcp-Protocol-Version: %s\r\nMcp-Method: resources/read\r\n"+
			"Mcp-Name: x:long\r\nContent-Length: %d\r\n\r\n%s", newVersion, len(body), body)
		testkit.Must(t, err)
		go func() {
			line := make([]byte, len("HTTP/1.1 200"))
			_, _ = io.ReadFull(c, line)
			status <- string(line)
		}()
	}
	for range cap(status) {
		if line := receive(t, status, "the status"); strings.HasSuffix(line, " 503") {
			refused++
		}
	}
	const read = `{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"x:long"}}`
	if code, body := other.answer(t, oldVersion, other.begin(t), read); code != http.StatusOK || len(body) < size {
		t.Errorf("another tenant: %d, %d bytes", code, len(body))
	}
	return refused
}

// TestListenInOlderVersion: only the version with a header for the method has streams that a POST opens.
// Promise: session-users, hosted-logins
func TestListenInOlderVersion(t *testing.T) {
	if got := listenInOlderVersion(t); !strings.Contains(got, "method not found") {
		t.Errorf("%q", got)
	}
}

// listenInOlderVersion opens a stream of notifications in a session of an older version. It returns the beginning of the
// answer.
func listenInOlderVersion(t *testing.T) string {
	t.Helper()
	f := serve(t, transport.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := f.post(ctx, t, oldVersion, f.begin(t),
		`{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: {") {
			return lines.Text()
		}
	}
	return ""
}

// TestAnswersAtOnce: many calls that get one result at the same moment take a bounded amount of memory. The result is not
// lost: the next call gets it.
// Promise: tenant-shares
func TestAnswersAtOnce(t *testing.T) {
	for part, res := range longResults() {
		if peak, whole := answerAtOnce(t, res); peak > mostAtOnce || whole == 0 {
			t.Errorf("%s: %d MiB, %d whole answers", part, peak>>20, whole)
		}
	}
}

// longPart is the size of the long part of each of longResults, in bytes.
const longPart = 2 << 20

// longResults are results with a long part in each place where a result can have one.
func longResults() map[string]*mcp.CallToolResult {
	short, text := &mcp.TextContent{Text: "x"}, strings.Repeat("&", longPart/6) // an ampersand has six bytes in JSON
	return map[string]*mcp.CallToolResult{
		"an image":  {Content: []mcp.Content{&mcp.ImageContent{Data: make([]byte, longPart), MIMEType: "image/png"}}},
		"_meta":     {Content: []mcp.Content{short}, Meta: mcp.Meta{"receipt": []string{text}}},
		"structure": {Content: []mcp.Content{short}, StructuredContent: map[string]any{"a": text}},
		"a link":    {Content: []mcp.Content{&mcp.ResourceLink{URI: "x:y", Name: text}}},
	}
}

// mostAtOnce is less than the memory for the answers of answerAtOnce without a bound, in bytes.
const mostAtOnce = 100 << 20

// answerAtOnce lets 64 calls wait for one of longResults, which all get at the same moment. It returns the largest heap
// meanwhile, and the number of calls that got the result.
func answerAtOnce(t *testing.T, res *mcp.CallToolResult) (peak uint64, whole int) {
	t.Helper()
	const calls = 64
	f := serve(t, transport.Config{Answers: membudget.New(64 << 20)})
	session := f.begin(t)
	ready := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Add(calls)
	f.mcp.AddTool(&mcp.Tool{Name: "long", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			waiting.Done()
			<-ready
			one := *res // the SDK may complete it
			return &one, nil
		})
	var answers sync.WaitGroup
	var complete atomic.Int32
	for i := range calls {
		answers.Go(func() {
			resp, err := f.post(t.Context(), t, oldVersion, session, call(i+2, "long"))
			if err != nil {
				return
			}
			defer resp.Body.Close()
			if n, err := io.Copy(io.Discard, resp.Body); err == nil && n > longPart*9/10 {
				complete.Add(1)
			}
		})
	}
	waiting.Wait()
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // so that the heap is about what is in use
	runtime.GC()                                     // the garbage of other tests
	done := make(chan struct{})
	go func() { answers.Wait(); close(done) }()
	close(ready)
	for tick := time.NewTicker(2 * time.Millisecond); ; <-tick.C {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
		select {
		case <-done:
			return peak, int(complete.Load())
		default:
		}
	}
}

// TestStuckClient: a client that stops reading loses its connection after a while; others are not held up.
func TestStuckClient(t *testing.T) {
	f := serve(t, transport.Config{WriteTime: 2 * time.Second})
	flooded := make(chan error, 1)
	f.mcp.AddTool(&mcp.Tool{Name: "flood", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var err error
		for i := 0; i < 1_000_000 && err == nil && ctx.Err() == nil; i++ {
			err = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "t", Progress: float64(i), Message: strings.Repeat("x", 4000)})
		}
		select { // the write fails a moment before the request ends
		case <-ctx.Done():
		case <-time.After(time.Minute):
		}
		flooded <- ctx.Err()
		return &mcp.CallToolResult{}, nil
	})
	id := f.begin(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(f.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"flood","arguments":{},"_meta":{"progressToken":"t"}}}`
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Protocol-Version: %s\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", oldVersion, id, len(body), body)
	if _, body := f.answer(t, oldVersion, id, call(3, "sleep")); !strings.Contains(body, "slept") {
		t.Errorf("another call meanwhile: %s", body)
	}
	select {
	case err := <-flooded:
		if err == nil {
			t.Error("the call of a client that does not read was not cancelled")
		}
	case <-time.After(2 * time.Minute):
		t.Error("the call of a client that does not read never ended")
	}
}
