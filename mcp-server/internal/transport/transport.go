// Package transport serves MCP over Streamable HTTP, with and without sessions, for one mcp.Server.
//
// A handler of the SDK serves either the protocol versions with sessions (until 2025-11-25) or those without (from
// 2026-07-28). So there are two handlers, and a header selects one. This package adds the parts that the SDK leaves to
// its users:
//
//   - It cancels a call when its client disconnects, when its session is deleted, and when the server stops.
//   - It bounds bodies, batches and sessions.
//   - It never ends a session with an open request for being idle.
//   - It keeps silent streams alive.
package transport

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/task"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tools"
)

const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	// callHeader carries a request's ID to the middleware. A client's value is overwritten.
	callHeader = "X-Codeforge-Call"
	// sessionless is the first protocol version without sessions. It has listenMethod, which opens a stream.
	sessionless, listenMethod = "2026-07-28", "subscriptions/listen"
)

// Config configures a Handler. Zero fields get the defaults that their comments name.
type Config struct {
	Server *mcp.Server
	Log    *slog.Logger
	// Elsewhere, if not nil, reports whether a session belongs to another handler and thus to another client. Such a
	// session is not resumed here.
	Elsewhere func(id string) bool
	// Answers bounds the memory for answers that clients have not read. All handlers share it. Nil means no bound.
	Answers *membudget.Budget
	// MaxBody bounds a request, in bytes. Zero means 16 MiB.
	MaxBody int64
	// MaxBatch bounds the messages in one request. Zero means 32.
	MaxBatch int
	// MaxSessions bounds the sessions. At the bound, a new session ends the one that has been idle longest. Zero means
	// 2,000.
	MaxSessions int
	// SessionIdle is how long a session without an open request lasts. Zero means 24 h.
	SessionIdle time.Duration
	// Comment is the silence of an event stream after which a comment is sent. Zero means 20 s.
	Comment time.Duration
	// WriteTime is how long a client may take to read 64 KiB. Zero means 30 s.
	WriteTime time.Duration
	// ReadTime is how long a client may take to send a request. Zero means 60 s.
	ReadTime time.Duration
}

// Handler is the endpoint /mcp. Create it with New and end it with Close.
type Handler struct {
	cfg    Config
	legacy http.Handler // with sessions
	modern http.Handler // without
	book   *sessionTable

	posts    sync.Map // id -> *openRequest
	calls    atomic.Int64
	held     atomic.Int64 // bytes of the bodies of all requests in flight
	draining atomic.Bool
	used     atomic.Bool // a client has sent a message

	resuming  sync.Mutex // held while a lost session is resumed
	measuring sync.Mutex // held while measureJSON encodes a value

	mu       sync.Mutex
	inFlight map[*openRequest]struct{}

	stop context.CancelFunc
	done chan struct{}
}

// New returns the handler of a server, and adds its middleware to the server.
func New(cfg Config) *Handler {
	cfg.MaxBody = cmp.Or(cfg.MaxBody, 16<<20)
	cfg.MaxBatch = cmp.Or(cfg.MaxBatch, 32)
	cfg.MaxSessions = cmp.Or(cfg.MaxSessions, 2000)
	cfg.SessionIdle = cmp.Or(cfg.SessionIdle, 24*time.Hour)
	cfg.Comment = cmp.Or(cfg.Comment, 20*time.Second)
	cfg.WriteTime = cmp.Or(cfg.WriteTime, 30*time.Second)
	cfg.ReadTime = cmp.Or(cfg.ReadTime, 60*time.Second)
	h := &Handler{cfg: cfg, book: newBook(), inFlight: map[*openRequest]struct{}{}, done: make(chan struct{})}
	options := mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes:          -1,   // readBody bounds it before the SDK parses it
		DisableLocalhostProtection:   true, // package guard checks the Host on every address
		PropagateRequestCancellation: true,
	}
	server := func(*http.Request) *mcp.Server { return cfg.Server }
	h.legacy = mcp.NewStreamableHTTPHandler(server, &options)
	stateless := options
	stateless.Stateless = true
	h.modern = mcp.NewStreamableHTTPHandler(server, &stateless)
	cfg.Server.AddReceivingMiddleware(h.cancelAbandoned, h.takeAnswerMemory)
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go h.reapIdle(ctx)
	return h
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := &responseStream{w: w, rc: http.NewResponseController(w), header: http.Header{}, cfg: &h.cfg}
	defer s.endStream()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if h.cfg.Answers != nil {
		s.memory = h.cfg.Answers.OpenAccount(h)
		defer s.memory.Close()
	}
	c := &openRequest{cancel: cancel, ctx: ctx, memory: s.memory}
	h.trackRequest(c, true) // from now on Close cancels it, or this function refuses it
	defer h.trackRequest(c, false)
	body := &weighedBody{held: &h.held, most: bodiesAtOnce * h.cfg.MaxBody}
	defer body.releaseBytes()
	// Checked again after reading, which may take ReadTime: Drain counts only calls that have started.
	if h.refuseIfDraining(s) || !h.readBody(s, w, r, body) || h.refuseIfDraining(s) {
		return
	}

	id := rand.Text()
	r.Header.Set(callHeader, id)
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	r.Header.Set(tools.CallerHeader, host) // empty on a unix socket
	// The guard has checked it. Behind this point it could only leak.
	r.Header.Del("Authorization")
	// Only this package may set it: a client could otherwise act under another session's name.
	r.Header.Del(tools.SessionHeader)
	r.Header.Del(task.Header)
	if wantsTask(s.body) {
		r.Header.Set(task.Header, "1")
	}
	h.posts.Store(id, c)
	defer h.posts.Delete(id)

	h.used.Store(true)
	s.startComments()
	// ISO dates compare like text.
	if r.Header.Get(versionHeader) >= sessionless {
		h.modern.ServeHTTP(s, r)
		return
	}
	h.serveSession(s, r, c)
}

// refuseIfDraining refuses a request if the handler is draining, and reports whether it did.
func (h *Handler) refuseIfDraining(s *responseStream) bool {
	if !h.draining.Load() {
		return false
	}
	s.Header().Set("Retry-After", "5")
	http.Error(s, "the server is stopping", http.StatusServiceUnavailable)
	return true
}

// serveSession serves a request of a protocol version with sessions.
func (h *Handler) serveSession(s *responseStream, r *http.Request, c *openRequest) {
	user := userOf(r)
	switch id := r.Header.Get(sessionHeader); {
	//defence:session-user
	case h.book.isOthersSession(id, user):
		http.Error(s, "session not found", http.StatusNotFound)
		return
	//defence:tenant-sessions
	case id != "" && h.cfg.Elsewhere != nil && h.cfg.Elsewhere(id):
		http.Error(s, "session not found", http.StatusNotFound)
		return
	case r.Method == http.MethodDelete:
		live, _ := h.book.resolveName(id)
		r.Header.Set(sessionHeader, live)
		// Before the SDK ends the session, which waits for the session's handlers.
		h.book.cancelRequests(live)
		h.legacy.ServeHTTP(s, r)
		h.book.deleteSession(live)
		if isSessionID(id) { // other IDs are never resumed
			h.book.markDeleted(id)
		}
		return
	case id == "" && r.Method == http.MethodPost:
		if !h.makeRoom() {
			http.Error(s, errNoRoom.Error(), http.StatusServiceUnavailable)
			return
		}
		s.announced = func(id string) { h.book.addSession(id, user) }
	case id != "":
		r.Header.Set(tools.SessionHeader, id)
		if err := h.resumeSession(s, r); err != nil {
			http.Error(s, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	end := h.book.beginRequest(r.Header.Get(sessionHeader), c)
	defer end()
	h.legacy.ServeHTTP(s, r)
}

// userOf returns the user of a request's token, or "" if its token belongs to no single user.
func userOf(r *http.Request) string {
	if info := auth.TokenInfoFromContext(r.Context()); info != nil {
		return info.UserID
	}
	return ""
}

// trackRequest maintains the set of requests in flight.
func (h *Handler) trackRequest(c *openRequest, in bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if in {
		h.inFlight[c] = struct{}{}
	} else {
		delete(h.inFlight, c)
	}
}

// bodiesAtOnce is the number of largest bodies that one handler, and thus one tenant, may have in memory.
const bodiesAtOnce = 4

var errHeld = errors.New("the requests in flight are too large together")

// cancelAbandoned is a middleware that cancels a tool call, or the wait for a task's result, when its request ends
// early: the client disconnected, its session was deleted, or the server stops. Otherwise the run would go on without a
// reader. Each method's context has the memory account of its request.
func (h *Handler) cancelAbandoned(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		var post *openRequest
		if extra := req.GetExtra(); extra != nil {
			// The SDK serves this method in older versions too. Package guard ends a stream with its token only if a header
			// names the method, and older versions have no such header.
			//defence:listen-version
			if method == listenMethod && extra.Header.Get(versionHeader) < sessionless {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: method + " is not in this protocol version"}
			}
			if p, ok := h.posts.Load(extra.Header.Get(callHeader)); ok {
				post = p.(*openRequest)
				ctx = membudget.NewContext(ctx, post.memory)
			}
		}
		if method != "tools/call" && method != "tasks/result" {
			return next(ctx, method, req)
		}
		h.calls.Add(1)
		defer h.calls.Add(-1)
		// For protocol versions with sessions, the SDK does not cancel a call if its HTTP request ends.
		if post != nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			stop := context.AfterFunc(post.ctx, cancel)
			defer stop()
		}
		return next(ctx, method, req)
	}
}

// takeAnswerMemory is a middleware that takes the memory for a tool's result before the SDK encodes the result. Many
// calls may wait for the end of one run, and get its images at the same moment. Readers of resources take their memory.
func (h *Handler) takeAnswerMemory(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if err != nil {
			return res, err
		}
		//defence:answer-memory permits
		hasRoom := membudget.FromContext(ctx).TryTake(tools.AnswerCopies * h.sizeOf(res))
		if !hasRoom {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: errUnread.Error()}
		}
		return res, nil
	}
}

// sizeOf returns the size of a tool's result in bytes, or 0 for other results.
func (h *Handler) sizeOf(res mcp.Result) (n int64) {
	if t, ok := res.(interface{ ToolResult() *mcp.CallToolResult }); ok {
		res = t.ToolResult()
	}
	r, ok := res.(*mcp.CallToolResult)
	if !ok || r == nil {
		return 0
	}
	// A receipt has 200 requests, whose URLs code can make six times as long in JSON.
	if r.Meta != nil {
		n += h.measureJSON(r.Meta)
	}
	if r.StructuredContent != nil {
		n += h.measureJSON(r.StructuredContent)
	}
	for _, c := range r.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			n += int64(len(c.Text))
		case *mcp.ImageContent:
			n += int64(len(c.Data))
		case *mcp.AudioContent:
			n += int64(len(c.Data))
		default:
			n += h.measureJSON(c)
		}
	}
	return n
}

// measureJSON returns the size of a value in JSON, in bytes. It encodes one value at a time.
func (h *Handler) measureJSON(v any) int64 {
	h.measuring.Lock()
	defer h.measuring.Unlock()
	var n byteCount
	_ = json.NewEncoder(&n).Encode(v) // the SDK reports the error
	return int64(n)
}

// byteCount is a Writer that counts bytes.
type byteCount int64

func (n *byteCount) Write(p []byte) (int, error) {
	*n += byteCount(len(p))
	return len(p), nil
}

// makeRoom reports whether one more session may start. It ends an idle session if necessary.
func (h *Handler) makeRoom() bool {
	if h.book.countSessions() < h.cfg.MaxSessions {
		return true
	}
	live := map[string]bool{}
	for s := range h.cfg.Server.Sessions() {
		live[s.ID()] = true
	}
	// The SDK may have ended sessions that the book still counts.
	h.book.keepOnly(live)
	if h.book.countSessions() < h.cfg.MaxSessions {
		return true
	}
	ids := h.book.listIdle(time.Now(), 1)
	h.endSessions(ids)
	return len(ids) > 0
}

func (h *Handler) endSessions(ids []string) {
	if len(ids) == 0 {
		return
	}
	gone := map[string]bool{}
	for _, id := range ids {
		gone[id] = true
		// Close, below, waits for the handlers of a session, so its requests must end first.
		h.book.cancelRequests(id)
		h.book.deleteSession(id)
	}
	for s := range h.cfg.Server.Sessions() {
		if gone[s.ID()] {
			_ = s.Close()
		}
	}
	h.cfg.Log.Info("sessions ended", logline.Tag("mcp"), slog.Int("count", len(ids)),
		slog.Int("left", h.book.countSessions()))
}

// reapIdle ends idle sessions until ctx ends.
func (h *Handler) reapIdle(ctx context.Context) {
	defer close(h.done)
	for range timing.EachTick(ctx, min(time.Minute, h.cfg.SessionIdle/2)) {
		h.endSessions(h.book.listIdle(time.Now().Add(-h.cfg.SessionIdle), 0))
	}
}

// IsKnownSession reports whether a client uses, or has deleted, a session with this ID.
func (h *Handler) IsKnownSession(id string) bool {
	_, known := h.book.resolveName(id)
	return known
}

// CountSessions returns the number of sessions.
func (h *Handler) CountSessions() int { return h.book.countSessions() }

// WasUsed reports whether a client has sent a message.
func (h *Handler) WasUsed() bool { return h.used.Load() }

// CountCalls returns the number of running tool calls, including calls over other transports.
func (h *Handler) CountCalls() int { return int(h.calls.Load()) }

// Drain refuses new requests and waits for running tool calls until ctx ends.
func (h *Handler) Drain(ctx context.Context) {
	h.draining.Store(true)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for h.calls.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close refuses new requests, cancels running ones, waits for them until ctx ends, and ends every session.
func (h *Handler) Close(ctx context.Context) {
	h.draining.Store(true)
	h.stop()
	<-h.done
	h.mu.Lock()
	for c := range h.inFlight {
		c.cancel()
	}
	h.mu.Unlock()
	h.Drain(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for s := range h.cfg.Server.Sessions() {
			_ = s.Close() // waits for the handlers of the session
		}
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
