package sandboxapi

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

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// Sandbox is implemented by the pool of sandboxd. Its errors are, or wrap, ErrBusy, ErrLeaseGone, ErrPermissions,
// ErrBadRequest, ErrUnready and ErrNotInstalled.
type Sandbox interface {
	// Acquire takes a lease. The lease ends when owner is done, which happens when the requesting connection closes.
	Acquire(owner context.Context, r LeaseRequest) (Lease, error)
	Release(generation uint64) error
	// Run returns an Exit or an error. The errors above come before the first event, other errors at any time.
	Run(ctx context.Context, r RunRequest, out Output) (Exit, error)
	// Pause stops or resumes the time limit of a lease's run.
	Pause(generation uint64, p Pause) error
	// Server runs the program of an MCP server until the program ends. Cancelling ctx ends it. When Server returns, no
	// process of the slot is left.
	Server(ctx context.Context, generation uint64, h ServerHead, d Duplex) (Exit, error)
	SetPermissions(Permissions) (PermissionSet, error)
	// Tidy removes installed packages that are not wanted.
	Tidy(Packages) (Tidied, error)
	Health() Health
	Stats() Stats
}

// Output carries the events of one run.
type Output interface {
	// Send sends an event. It blocks while the client is slow.
	Send(Event) error
	// ReportEnd reports that the run has ended. From then on the server drops a client that does not read for a few
	// seconds.
	ReportEnd()
}

// ServerConfig configures a Server.
type ServerConfig struct {
	Sandbox Sandbox
	// Log receives refused connections and failed runs.
	Log *slog.Logger
}

// Server serves the contract over byte streams.
type Server struct {
	cfg  ServerConfig
	http *http.Server
}

const (
	// maxBody bounds a request. JSON escapes at most double the size of code, except for control characters.
	maxBody = 2*(MaxCode+MaxEnviron+MaxServers+MaxModules+MaxSkills) + MaxInput/3*4 + 64<<10
	// stalledFor limits how long a write may block after its run has ended.
	stalledFor = 5 * time.Second
	// maxStreams limits the open requests of one connection.
	maxStreams = 512
	// maxUnread bounds the unread bytes of a request's body that the server receives; beyond it the client waits. A
	// program that does not read its input must not block other requests, so the bound of a whole connection is higher:
	// the server reads a run's body at once, and there are at most slot.MaxServers programs.
	maxUnread    = 256 << 10
	maxUnreadAll = 4 * slot.MaxServers * maxUnread
	// flushTime is how long output is buffered. Most runs print just before they end, so output and Exit can leave in one
	// frame.
	flushTime = 10 * time.Millisecond
)

// NewServer makes a server.
func NewServer(cfg ServerConfig) *Server {
	s := &Server{cfg: cfg}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/leases", s.handleAcquire)
	mux.HandleFunc("DELETE /v1/leases/{generation}", s.handleRelease)
	mux.HandleFunc("POST /v1/runs", s.handleRun)
	mux.HandleFunc("POST /v1/runs/{generation}/pause", s.handlePause)
	mux.HandleFunc("POST /v1/servers/{generation}", s.serveProgram)
	mux.HandleFunc("PUT /v1/permissions", newJSONHandler(cfg.Sandbox.SetPermissions))
	mux.HandleFunc("PUT /v1/packages", newJSONHandler(cfg.Sandbox.Tidy))
	mux.HandleFunc("GET /v1/health", s.handleHealth)
	mux.HandleFunc("GET /v1/stats", s.handleStats)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		rpc.WriteError(w, http.StatusNotFound, "no such resource")
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler:   mux,
		Protocols: protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second,
			MaxReceiveBufferPerStream: maxUnread, MaxReceiveBufferPerConnection: maxUnreadAll,
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

// Serve serves connections of a listener until Shutdown, and then returns http.ErrServerClosed. accept checks a
// connection before the server reads from it; its error refuses the connection. A nil accept accepts all.
func (s *Server) Serve(l net.Listener, accept func(net.Conn) error) error {
	return s.http.Serve(&ownedListener{Listener: l, server: s, accept: accept})
}

// Shutdown stops accepting and waits for the requests in flight. If ctx ends first, it closes their connections.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	return err
}

// ownedListener gives every connection a lifetime: a context that is cancelled when the connection closes.
type ownedListener struct {
	net.Listener
	server *Server
	accept func(net.Conn) error
}

func (l *ownedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.accept != nil {
			if err := l.accept(c); err != nil {
				l.server.cfg.Log.Warn("refused a connection", "error", err)
				_ = c.Close()
				continue
			}
		}
		life, end := context.WithCancel(context.Background())
		return &ownedConn{Conn: c, life: life, end: sync.OnceFunc(end)}, nil
	}
}

// lifeKey is the key of the connection's lifetime in a request's context.
type lifeKey struct{}

type ownedConn struct {
	net.Conn
	life context.Context
	end  func()
}

func (c *ownedConn) Close() error {
	err := c.Conn.Close()
	// The lifetime ends with the connection, and all leases of the connection with it.
	c.end()
	return err
}

func (s *Server) handleAcquire(w http.ResponseWriter, r *http.Request) {
	var req LeaseRequest
	if !readBody(w, r, &req) {
		return
	}
	// The connection, not the request, owns the lease: the lease outlives the request that takes it.
	owner, _ := r.Context().Value(lifeKey{}).(context.Context)
	lease, err := s.cfg.Sandbox.Acquire(owner, req)
	writeAnswer(w, lease, err)
}

func (s *Server) handleRelease(w http.ResponseWriter, r *http.Request) {
	handleGeneration(w, r, s.cfg.Sandbox.Release)
}

func (s *Server) handlePause(w http.ResponseWriter, r *http.Request) {
	var p Pause
	if !readBody(w, r, &p) {
		return
	}
	handleGeneration(w, r, func(generation uint64) error { return s.cfg.Sandbox.Pause(generation, p) })
}

// handleGeneration calls do with the generation in the path, and answers.
func handleGeneration(w http.ResponseWriter, r *http.Request, do func(generation uint64) error) {
	generation, err := strconv.ParseUint(r.PathValue("generation"), 10, 64)
	if err != nil {
		rpc.WriteError(w, http.StatusBadRequest, "the generation is not a number")
		return
	}
	if err := do(generation); err != nil {
		rpc.WriteRefusal(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// newJSONHandler returns a handler that answers with do's result for the body.
func newJSONHandler[In, Out any](do func(In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		if readBody(w, r, &in) {
			out, err := do(in)
			writeAnswer(w, out, err)
		}
	}
}

func (s *Server) handleHealth(w http.ResponseWriter, _ *http.Request) {
	rpc.WriteAnswer(w, http.StatusOK, s.cfg.Sandbox.Health())
}

func (s *Server) handleStats(w http.ResponseWriter, _ *http.Request) {
	rpc.WriteAnswer(w, http.StatusOK, s.cfg.Sandbox.Stats())
}

// handleRun streams the events of a run. After the first byte only an aborted stream can report an error: the client
// then receives no Exit.
func (s *Server) handleRun(w http.ResponseWriter, r *http.Request) {
	var req RunRequest
	if !readBody(w, r, &req) {
		return
	}
	out := &eventStream{w: w, stallBound: stallBound{ctl: http.NewResponseController(w)}}
	defer out.stopStream()
	exit, err := s.cfg.Sandbox.Run(r.Context(), req, out)
	if err == nil {
		err = out.Send(Event{Exit: &exit})
	}
	if err == nil {
		return
	}
	if !out.started {
		rpc.WriteRefusal(w, err)
		return
	}
	s.cfg.Log.Warn("a run was aborted", "run", req.Run, "error", err)
	panic(http.ErrAbortHandler)
}

// eventStream is the Output of one request.
type eventStream struct {
	stallBound

	writing sync.Mutex // guards the fields below; w must not be used after over is set
	w       http.ResponseWriter
	started bool
	over    bool
	due     *time.Timer // the pending flush; nil: the buffer is empty
	failed  error       // the error of a flush
}

// Send implements Output. It flushes an event after flushTime at the latest. The Exit leaves with the end of the
// response.
func (o *eventStream) Send(e Event) error {
	o.writing.Lock()
	defer o.writing.Unlock()
	// An earlier flush found the client gone: sending more has no effect.
	if o.failed != nil {
		return o.failed
	}
	o.setSending(true)
	if e.Exit == nil { // the deadline of an Exit stays until the response has ended
		defer o.setSending(false)
	}
	if !o.started {
		o.started = true
		o.w.Header().Set("Content-Type", "application/octet-stream")
		o.w.WriteHeader(http.StatusOK)
	}
	if err := writeEvent(o.w, e); err != nil {
		return err
	}
	// The Exit ends the response, which flushes everything.
	if e.Exit == nil && o.due == nil {
		o.due = time.AfterFunc(flushTime, o.flushEvents)
	}
	return nil
}

// flushEvents sends the buffered events. The next Send returns its error.
func (o *eventStream) flushEvents() {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.due = nil
	// The handler has returned, and w must not be used any more.
	if o.over {
		return
	}
	o.setSending(true)
	defer o.setSending(false)
	o.failed = o.ctl.Flush()
}

// stopStream stops writing and flushing. Buffered events leave with the end of the response.
func (o *eventStream) stopStream() {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.over = true
	if o.due != nil {
		o.due.Stop()
	}
}

// readBody decodes a request's body. If that fails, it writes the error response and returns false.
func readBody(w http.ResponseWriter, r *http.Request, into any) bool {
	if ct, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); r.Header.Get("Content-Type") != "" &&
		(err != nil || ct != "application/json") {
		rpc.WriteError(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		return false
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	// A misspelt field would silently have its default.
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		// Data after the value would be ignored silently: reject it.
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one value")
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		rpc.WriteError(w, http.StatusRequestEntityTooLarge, "the body is too large")
	case err != nil:
		rpc.WriteError(w, http.StatusBadRequest, "reading the body: "+err.Error())
	}
	return err == nil
}

func writeAnswer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		rpc.WriteRefusal(w, err)
		return
	}
	rpc.WriteAnswer(w, http.StatusOK, value)
}
