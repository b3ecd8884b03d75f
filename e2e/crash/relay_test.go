package crash

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// step is one of the messages of mcp-server that make up a call of execute_code.
type step string

const (
	lease      step = "lease"      // POST /v1/leases to sandboxd, unless one is held from ahead
	register   step = "register"   // PUT /v1/slots/N to the proxy
	run        step = "run"        // POST /v1/runs to sandboxd
	unregister step = "unregister" // DELETE /v1/slots/N to the proxy
	release    step = "release"    // DELETE /v1/leases/G to sandboxd
	ahead      step = "ahead"      // POST /v1/leases to sandboxd, for the next call
)

var steps = []step{lease, register, run, unregister, release, ahead}

// stepOf is the step that a request belongs to, empty for other requests.
func stepOf(r *http.Request, body []byte) step {
	for _, s := range []struct {
		method, path string
		step         step
	}{
		{"POST", "/v1/leases", lease}, {"PUT", "/v1/slots/", register}, {"POST", "/v1/runs", run},
		{"DELETE", "/v1/slots/", unregister}, {"DELETE", "/v1/leases/", release},
	} {
		if r.Method != s.method || !strings.HasPrefix(r.URL.Path, s.path) {
			continue
		}
		var asked sandboxapi.LeaseRequest
		if s.step == lease && json.Unmarshal(body, &asked) == nil && asked.Ahead {
			return ahead
		}
		return s.step
	}
	return ""
}

// point is a point in a call: before a message is delivered, or after its response arrived and before it is passed on.
// A run counts as answered with its first output.
type point struct {
	step     step
	answered bool
}

func (p point) String() string {
	if p.answered {
		return "after " + string(p.step)
	}
	return "before " + string(p.step)
}

// late reports whether the step comes after the response to the caller.
func (p point) late() bool { return p.step == release || p.step == ahead }

// stop holds one message at a point until it is released.
type stop struct {
	at      point
	reached chan struct{}
	letGo   chan struct{}
	// delivered is closed when a message that was held before its delivery has been answered, with this status.
	delivered chan struct{}
	status    int
}

// registration is a PUT or DELETE that the proxy answered.
type registration struct {
	proxyapi.Registration
	step   step
	slot   string
	status int
}

// watch sees every message that passes through the relays.
type watch struct {
	mu      sync.Mutex
	stops   []*stop
	journal []registration
}

// stopAt holds the next message that comes to this point.
func (w *watch) stopAt(at point) *stop {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &stop{at: at, reached: make(chan struct{}), letGo: make(chan struct{}), delivered: make(chan struct{})}
	w.stops = append(w.stops, s)
	return s
}

// hold waits at a point if the message is to be held there.
func (w *watch) hold(at point) *stop {
	w.mu.Lock()
	var found *stop
	for i, s := range w.stops {
		if s.at == at {
			found = s
			w.stops = append(w.stops[:i], w.stops[i+1:]...)
			break
		}
	}
	w.mu.Unlock()
	if found != nil {
		close(found.reached)
		<-found.letGo
	}
	return found
}

// note records the proxy's response.
func (w *watch) note(s step, r *http.Request, body []byte, status int) {
	n := registration{step: s, slot: r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], status: status}
	if s == register {
		_ = json.Unmarshal(body, &n.Registration)
	} else {
		n.Generation, _ = strconv.ParseUint(r.URL.Query().Get("generation"), 10, 64)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = append(w.journal, n)
}

// registered lists the registrations of runs that were limited to this API, oldest first.
func (w *watch) registered(api string) []registration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []registration
	for _, n := range w.journal {
		if n.step == register && len(n.APIs) == 1 && n.APIs[0] == api {
			out = append(out, n)
		}
	}
	return out
}

// forget empties the journal.
func (w *watch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = nil
}

// relay is between mcp-server and the socket of another daemon, and is closed when that daemon is killed. Then its
// socket refuses, its connections break, and the messages that it held are lost, as in a crash. A message whose sender
// has died is still delivered when it is released: that is a late message.
type relay struct {
	t        *testing.T
	watch    *watch
	from, to string // sockets
	http2    bool

	life   context.Context
	end    context.CancelFunc
	server *http.Server
	done   sync.WaitGroup
}

// open makes the relay's socket.
func (r *relay) open() {
	r.t.Helper()
	_ = os.Remove(r.from)
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", r.from)
	if err != nil {
		r.t.Fatal(err)
	}
	r.life, r.end = context.WithCancel(context.Background())
	life := r.life
	r.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.pass(life, w, req) })}
	if r.http2 {
		r.server.Protocols = new(http.Protocols)
		r.server.Protocols.SetUnencryptedHTTP2(true)
		r.server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, lineKey{}, c.(*line).up)
		}
		l = lines{l, r.to}
	}
	server := r.server
	r.done.Go(func() { _ = server.Serve(l) })
}

// close closes the relay immediately.
func (r *relay) close() {
	r.end()
	_ = r.server.Close()
	r.done.Wait()
	_ = os.Remove(r.from)
}

// pass carries one message.
func (r *relay) pass(life context.Context, w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s := stepOf(req, body)
	held := r.watch.hold(point{s, false})
	if life.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	resp, err := r.forward(life, req, body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	if s == register || s == unregister {
		r.watch.note(s, req, body, resp.StatusCode)
	}
	if held != nil {
		held.status = resp.StatusCode
		close(held.delivered)
	}
	r.watch.hold(point{s, true})
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	_ = http.NewResponseController(w).Flush() // the stream of events may begin with a long silence
	if err := copyNow(w, resp.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// forward passes the message on. Over HTTP/1 it arrives even if its sender has died.
func (r *relay) forward(life context.Context, req *http.Request, body []byte) (*http.Response, error) {
	ctx := life
	if r.http2 {
		ctx = req.Context()
	}
	out := req.Clone(ctx)
	out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", "daemon"
	out.Body = io.NopCloser(strings.NewReader(string(body)))
	out.ContentLength = int64(len(body))
	if up, ok := req.Context().Value(lineKey{}).(*http.ClientConn); ok {
		return up.RoundTrip(out)
	}
	once := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.to)
	}}
	if !strings.HasSuffix(req.URL.Path, "/events") {
		return once.RoundTrip(out)
	}
	// The stream of events ends when its reader does.
	ctx, cancel := context.WithCancel(life)
	context.AfterFunc(req.Context(), cancel)
	return once.RoundTrip(out.WithContext(ctx))
}

// copyNow copies without buffering.
func copyNow(w http.ResponseWriter, from io.Reader) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			_ = http.NewResponseController(w).Flush()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// lines accepts connections and opens one to the daemon for each, because sandboxd binds leases to connections.
type lines struct {
	net.Listener
	to string
}

type lineKey struct{}

// line is one connection with the connection behind it, which is closed with it.
type line struct {
	net.Conn
	up *http.ClientConn
}

// Accept implements net.Listener.
func (l lines) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		up, err := connect(context.Background(), l.to)
		if err == nil {
			return &line{c, up}, nil
		}
		_ = c.Close()
	}
}

// Close implements net.Conn.
func (l *line) Close() error { return errors.Join(l.Conn.Close(), l.up.Close()) }

// connect opens an HTTP/2 connection to sandboxd's socket.
func connect(ctx context.Context, socket string) (*http.ClientConn, error) {
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	return tr.NewClientConn(ctx, "http", "sandboxd:80")
}
