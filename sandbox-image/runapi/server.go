package runapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// ErrBadRequest is what a Sandbox answers to a request that can never work.
var ErrBadRequest = errors.New("bad request")

// ErrUnready is what a Sandbox answers while it cannot serve runs at all.
var ErrUnready = errors.New("the sandbox is not ready")

// Sandbox is what a Server serves. Its errors are, or wrap, ErrBusy, ErrLeaseGone, ErrPermissions, ErrBadRequest and
// ErrUnready.
type Sandbox interface {
	// Acquire takes a lease. It ends by itself when owner does: owner is the connection it was asked for on.
	Acquire(owner context.Context, r LeaseRequest) (Lease, error)
	Release(generation uint64) error
	// Run ends with an Exit, or with an error: one of the above before the first event, another one at any time.
	Run(ctx context.Context, r RunRequest, out Output) (Exit, error)
	SetPermissions(Permissions) (PermissionSet, error)
	Health() Health
	Stats() Stats
}

// Output carries the events of one run.
type Output interface {
	// Send sends an event, and waits for a reader that is slow.
	Send(Event) error
	// Ended says that the run has ended: a reader that still does not read is given up soon.
	Ended()
}

// ServerConfig configures a Server.
type ServerConfig struct {
	Sandbox Sandbox
	// Accept looks at a connection before a byte is read of it; an error refuses it. Nil accepts all.
	Accept func(net.Conn) error
	// Log gets refused connections and failed runs.
	Log *slog.Logger
}

// Server serves the contract over byte streams.
type Server struct {
	cfg  ServerConfig
	http *http.Server
}

const (
	// maxBody bounds a request: code doubles at most when JSON escapes it, but for control characters.
	maxBody = 2*MaxCode + 64<<10
	// stalledFor is how long a reader may still take when its run has ended.
	stalledFor = 5 * time.Second
	// maxStreams is how many requests one connection may have open.
	maxStreams = 512
	// flushTime is how long output waits for more of it, and for the end of the run: most runs print last what they
	// print, and one frame then does for all.
	flushTime = 10 * time.Millisecond
)

// NewServer makes a server.
func NewServer(cfg ServerConfig) *Server {
	s := &Server{cfg: cfg}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/leases", s.acquire)
	mux.HandleFunc("DELETE /v1/leases/{generation}", s.release)
	mux.HandleFunc("POST /v1/runs", s.run)
	mux.HandleFunc("PUT /v1/permissions", s.permissions)
	mux.HandleFunc("GET /v1/health", s.health)
	mux.HandleFunc("GET /v1/stats", s.stats)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "no such resource")
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler:   mux,
		Protocols: protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second,
		},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
		ConnContext: func(_ context.Context, c net.Conn) context.Context {
			life := c.(*ownedConn).life
			return context.WithValue(life, lifeKey{}, life)
		},
	}
	return s
}

// Serve serves connections of a listener until Shutdown; then its error is http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	return s.http.Serve(&ownedListener{Listener: l, server: s})
}

// Shutdown stops accepting and waits for the requests under way; when ctx ends first they are cut.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	return err
}

// ownedListener gives every connection a life: a context that ends when the connection is closed.
type ownedListener struct {
	net.Listener
	server *Server
}

// Accept implements net.Listener.
func (l *ownedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if check := l.server.cfg.Accept; check != nil {
			if err := check(c); err != nil {
				l.server.cfg.Log.Warn("refused a connection", "error", err)
				_ = c.Close()
				continue
			}
		}
		life, end := context.WithCancel(context.Background())
		return &ownedConn{Conn: c, life: life, end: sync.OnceFunc(end)}, nil
	}
}

// lifeKey finds the connection's life in a request's context.
type lifeKey struct{}

type ownedConn struct {
	net.Conn
	life context.Context
	end  func()
}

// Close implements net.Conn.
func (c *ownedConn) Close() error {
	err := c.Conn.Close()
	c.end()
	return err
}

func (s *Server) acquire(w http.ResponseWriter, r *http.Request) {
	var req LeaseRequest
	if !read(w, r, &req) {
		return
	}
	owner, _ := r.Context().Value(lifeKey{}).(context.Context)
	lease, err := s.cfg.Sandbox.Acquire(owner, req)
	answer(w, lease, err)
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	generation, err := strconv.ParseUint(r.PathValue("generation"), 10, 64)
	if err != nil {
		refuse(w, http.StatusBadRequest, "the generation is no number")
		return
	}
	switch err := s.cfg.Sandbox.Release(generation); {
	case errors.Is(err, ErrLeaseGone):
		refuse(w, http.StatusNotFound, err.Error())
	case err != nil:
		refuse(w, status(err), err.Error())
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) permissions(w http.ResponseWriter, r *http.Request) {
	var p Permissions
	if !read(w, r, &p) {
		return
	}
	set, err := s.cfg.Sandbox.SetPermissions(p)
	answer(w, set, err)
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	h := s.cfg.Sandbox.Health()
	code := http.StatusOK
	if !h.Ready {
		code = http.StatusServiceUnavailable
	}
	write(w, code, h)
}

func (s *Server) stats(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, s.cfg.Sandbox.Stats())
}

// run streams the events of a run. After the first byte an error can only be told by cutting the stream short: the
// client sees that no Exit came.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	var req RunRequest
	if !read(w, r, &req) {
		return
	}
	out := &eventStream{w: w, ctl: http.NewResponseController(w), enc: json.NewEncoder(w)}
	out.enc.SetEscapeHTML(false)
	defer out.close()
	exit, err := s.cfg.Sandbox.Run(r.Context(), req, out)
	if err == nil {
		err = out.Send(Event{Exit: &exit})
	}
	if err == nil {
		return
	}
	if !out.started {
		refuse(w, status(err), err.Error())
		return
	}
	s.cfg.Log.Warn("a run broke off", "run", req.Run, "error", err)
	panic(http.ErrAbortHandler)
}

// eventStream is the Output of one request.
type eventStream struct {
	ctl *http.ResponseController

	writing sync.Mutex // to w, which no longer may be when over
	w       http.ResponseWriter
	enc     *json.Encoder
	started bool
	over    bool
	due     *time.Timer // until what was written is flushed; nil: all is
	failed  error       // of a flush

	mu             sync.Mutex
	sending, ended bool
}

// Send implements Output. The event leaves after flushTime at the latest, the Exit with the end of the answer.
func (o *eventStream) Send(e Event) error {
	o.writing.Lock()
	defer o.writing.Unlock()
	if o.failed != nil {
		return o.failed
	}
	o.limit(true)
	if e.Exit == nil { // else it is bound until it has left
		defer o.limit(false)
	}
	if !o.started {
		o.started = true
		o.w.Header().Set("Content-Type", "application/x-ndjson")
		o.w.WriteHeader(http.StatusOK)
	}
	if err := o.enc.Encode(e); err != nil {
		return err
	}
	if e.Exit == nil && o.due == nil {
		o.due = time.AfterFunc(flushTime, o.flush)
	}
	return nil
}

// flush sends what was written. An error is that of the next Send.
func (o *eventStream) flush() {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.due = nil
	if o.over {
		return
	}
	o.limit(true)
	defer o.limit(false)
	o.failed = o.ctl.Flush()
}

// close ends the writing; what is left leaves with the end of the answer.
func (o *eventStream) close() {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.over = true
	if o.due != nil {
		o.due.Stop()
	}
}

// limit bounds the time of what is being sent when the run has ended. Between two events there is no bound: to clear up
// after a run may take long.
func (o *eventStream) limit(sending bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sending = sending
	if o.ended {
		o.bound()
	}
}

// Ended implements Output.
func (o *eventStream) Ended() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.bound()
}

// bound sets the deadline that is due. o.mu is held.
func (o *eventStream) bound() {
	var deadline time.Time
	if o.sending {
		deadline = time.Now().Add(stalledFor)
	}
	_ = o.ctl.SetWriteDeadline(deadline)
}

// read decodes a request's body, and answers the request itself when that fails.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if ct, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); r.Header.Get("Content-Type") != "" &&
		(err != nil || ct != "application/json") {
		refuse(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		return false
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one value")
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, "the body is too large")
	case err != nil:
		refuse(w, http.StatusBadRequest, "reading the body: "+err.Error())
	}
	return err == nil
}

// status is what a client sees of an error.
func status(err error) int {
	switch {
	case errors.Is(err, ErrBusy):
		return http.StatusTooManyRequests
	case errors.Is(err, ErrLeaseGone):
		return http.StatusGone
	case errors.Is(err, ErrPermissions):
		return http.StatusConflict
	case errors.Is(err, ErrBadRequest):
		return http.StatusBadRequest
	case errors.Is(err, ErrUnready):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		refuse(w, status(err), err.Error())
		return
	}
	write(w, http.StatusOK, value)
}

func refuse(w http.ResponseWriter, code int, why string) {
	write(w, code, struct {
		Error string `json:"error"`
	}{why})
}

func write(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}
