// Package egress carries one request from the sandbox to its upstream, and the response back.
//
// The steps are in exchange.serve; each relies on those before it. Contract: default deny before any dial; every path
// through here ends in one receipt entry and one log line; a response that breaks off upstream never reaches the client
// as a complete one. A stream that is not valid HTTP/2 is reset by net/http before it gets here, and has neither.
package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/attempt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/broker"
	"github.com/codeforge-mcp/codeforge/proxy/internal/budget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/hold"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/plan"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/internal/wsrelay"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

// errReloaded is why a reload cut an exchange off: see Egress.Cut.
var errReloaded = errors.New("the catalog changed")

// Config holds what an Egress needs.
type Config struct {
	// Current is the snapshot in force; an exchange keeps the one it began with.
	Current func() *reload.Snapshot
	Pool    *upstream.Pool
	// Broker is the way to MCP servers.
	Broker  *broker.Broker
	Journal *receipt.Journal
	// Room holds requests that a person must approve.
	Room *hold.Room
	// Memory bounds the buffers of all runs together: see lease.Config.
	Memory *membudget.Budget
	// Budget counts what APIs with limits are used for.
	Budget *budget.Ledger
	// Keys are the idempotency keys of requests. Nil means that none gets one.
	Keys   *attempt.Keys
	Redact *redact.Redactor
	// Checkpoint is the checkpoint of the ledger that covers what was sent for a run until now, or nothing. Nil means that
	// there is no ledger.
	Checkpoint func(run string) string
	// Sending writes a request down that is about to leave and may change something. It does not leave after an error.
	// Nil means that requests are written down when they are over.
	Sending func(ledger.Sending) error
	// Mint obtains the credentials that change. Nil means none.
	Mint Minter
	// UserAgent is sent in place of the sandbox's.
	UserAgent string
	// Debug logs payloads, before swapping and after scrubbing.
	Debug bool
	Log   *slog.Logger
}

// Minter is what obtains credentials: mint.Minter.
type Minter interface {
	Value(ctx context.Context, c catalog.Credential) (string, error)
	Renewed(ctx context.Context, c catalog.Credential, value string) bool
	Sign(ctx context.Context, c catalog.Credential, req *http.Request, host string) (signature []byte, err error)
}

// Egress handles every request of the entrance. Make one with New.
type Egress struct {
	conf  Config
	proxy http.Handler

	mu     sync.Mutex
	flight map[*exchange]struct{}
}

// New makes the handler.
func New(c Config) *Egress {
	return &Egress{conf: c, proxy: newProxy(), flight: map[*exchange]struct{}{}}
}

// InFlight counts the exchanges under way.
func (e *Egress) InFlight() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.flight)
}

// Cut ends the exchanges that a reload has made stale: those of removed APIs, and all of them when there are new
// credentials, which their scrubbers do not know.
func (e *Egress) Cut(c reload.Change) {
	e.conf.Pool.Retire()
	e.mu.Lock()
	defer e.mu.Unlock()
	for x := range e.flight {
		if c.NewValues || x.uses(c.Removed) {
			x.cancel(errReloaded)
		}
	}
}

// exchange is one request and response.
type exchange struct {
	*Egress
	conn   *entrance.Conn
	lease  *lease.Lease
	origin lease.Origin
	snap   *reload.Snapshot
	ctx    context.Context
	cancel context.CancelCauseFunc
	w      *responseWriter
	began  time.Time
	note   receipt.Note
	host   catalog.Host // the zero Host until parse knows it

	held        *membudget.Account // the memory of the exchange, once it is in flight
	guard       *swap.Swapper      // the snapshot's, with the run's canaries
	out         *http.Request      // as it leaves, once there is such
	guarded     bool               // guard has searched it, and may have put credentials in
	rest        io.ReadCloser      // what guard had not read of the body then; nil if there is none
	alarm       sync.Once
	verdict     policy.Verdict
	compression compression
	byMessage   bool             // the API's messages leave one by one
	watches     []*lateness      // of its bodies
	late        atomic.Bool      // a complete message was held back for too long
	insecure    bool             // plain HTTP
	approved    bool             // by a person, to be sent once
	attempted   func(known bool) // ends the attempt of its idempotency key. Nil if it has none
	answered    int              // the status of the upstream's answer, or 0
	left        atomic.Bool      // a part of the request, its head at least, may have been sent to the upstream
	giveBack    func()           // what was reserved of limits. Nil if nothing was
	toBroker    bool             // a call of an MCP server's tool
	recorded    int              // the step of a plan that it has become, and nothing was sent
	replay      *replay          // the plan for which it is sent, or nil if a run sends it
	callStep    *plan.Step       // a call that may be recorded
	read        *plan.Step       // what a dry run reads, and seen of the answer
	seen        *bytes.Buffer
	up          *counted
	redacted    *redact.Report
	swapped     swapReport
	minted      mintedUse
	ranged      bool // a Range header was removed
	scrubbed    *scrub.Report
	unsigned    *scrub.Report // of signatures
	ws          *wsrelay.Report
	debug       *payloads
	bodyErr     error // the upstream's body broke off
	whole       bool  // the upstream's body was read to its end
	cut         error // why the exchange was cut short, when it was
}

// ServeHTTP implements http.Handler.
func (e *Egress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn := entrance.FromContext(r.Context())
	if conn == nil {
		panic(http.ErrAbortHandler) // not from the entrance: it belongs to no run
	}
	x := &exchange{Egress: e, conn: conn, lease: conn.Lease(), origin: conn.Lease().Origin(), began: time.Now()}
	x.w = &responseWriter{ResponseWriter: w}
	x.note = receipt.Note{Slot: int(x.lease.Slot), Recorder: x.lease.Recorder}
	x.note.Exchange = controlapi.Exchange{
		At: x.began.UTC(), Run: x.lease.Run, Tenant: x.lease.Tenant, CausedBy: x.origin.Cause, Method: r.Method,
	}
	x.ctx, x.cancel = context.WithCancelCause(context.WithValue(r.Context(), exchangeKey{}, x))
	defer x.cancel(nil)
	defer context.AfterFunc(x.lease.Context(), func() { x.cancel(lease.ErrEnded) })()
	bad := conn.Next()
	if conn.HTTP1() {
		// An upstream may answer before it has read the whole request; HTTP/2 always allows that.
		_ = http.NewResponseController(w).EnableFullDuplex()
		x.w.conn = conn
	} else {
		defer dropHead(r) // net/http keeps r until the client has taken the answer's end, when it is on no budget
	}

	leave, err := x.enter(r)
	if err != nil {
		x.refuseEntry(err)
		x.finish(nil)
		return
	}
	defer leave()
	x.snap = e.conf.Current()
	x.guard = Guarded(x.snap, x.lease)
	x.track()
	defer x.untrack()
	defer func() { x.finish(recover()) }()
	x.serve(r, bad)
	x.searchRefused(r)
}

// dropHead lets the memory of a request's head go. Copies of the request keep theirs.
func dropHead(r *http.Request) {
	*r = http.Request{Method: r.Method}
}

type exchangeKey struct{}

// exchangeOf returns the exchange that a request belongs to.
func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// enter waits until the lease admits the exchange. The caller calls leave at the end of the exchange.
func (x *exchange) enter(r *http.Request) (leave func(), err error) {
	x.held, leave, err = x.lease.Enter(x.ctx, int(headSize(r)))
	x.ctx = membudget.NewContext(x.ctx, x.held)
	return leave, err
}

// refuseEntry answers a request that came after the run's end, or is one too many at once.
func (x *exchange) refuseEntry(err error) {
	x.note.Host = x.conn.Host().String()
	switch {
	case errors.Is(err, lease.ErrFull):
		x.refuse(policy.Refuse(policy.CodeTooMany, x.conn.Host(), nil), err)
	case errors.Is(err, lease.ErrEnded):
		x.refuse(policy.Refuse(policy.CodeRunEnded, x.conn.Host(), nil), err)
	default:
		x.cut = err // the client disconnected while it waited
	}
}

func (x *exchange) track() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flight[x] = struct{}{}
}

func (x *exchange) untrack() {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.flight, x)
}

// uses reports whether the exchange relies on one of the APIs. The caller holds mu.
func (x *exchange) uses(names map[string]bool) bool {
	for _, a := range x.verdict.APIs {
		if names[a.Name] {
			return true
		}
	}
	return false
}

// setVerdict stores the verdict where Cut sees it.
func (x *exchange) setVerdict(v policy.Verdict) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.verdict = v
}

// serve takes a request through every step.
func (x *exchange) serve(r *http.Request, bad error) {
	q, ok := x.parse(r, bad)
	if !ok {
		return
	}
	if q.IsCall() {
		x.call(r, q)
		return
	}
	q.Early = true
	v := x.snap.Rules.Decide(x.lease, q) // what is refused now needs no more work
	q.Early = false
	if v.Allow && !x.takeWindows(coding.Parse(r.Header)) {
		v = policy.Refuse(policy.CodeTooMany, q.Host, nil)
	}
	if v.Allow && x.conf.Redact.Host(chosen(q.Host.String(), v.APIs)) {
		v = policy.Refuse(policy.CodeRedactedHost, catalog.Host{}, nil)
		x.note.Host = redact.Mark // the string may be in another case there
	}
	out := r
	if v.Allow {
		out = x.outgoing(r, q.Upgrade)
		x.useFraming()
		x.redacted = x.conf.Redact.Request(out, x.framingOf(out.Header))
		v = x.judgeFinal(q, out)
	}
	x.leave(v, q, out)
}

// leave sends a request that was judged, or answers why it is not sent.
func (x *exchange) leave(v policy.Verdict, q policy.Request, out *http.Request) {
	x.setVerdict(v)
	x.describe(out)
	if x.recorded > 0 {
		x.answerPlanned()
		return
	}
	if !v.Allow {
		x.refuse(v, nil)
		return
	}
	if x.conf.Current() != x.snap { // a reload between here and track saw no verdict to cut by
		x.cancel(errReloaded)
	}
	//defence:ledger-required
	if err := x.announce(q, out); err != nil {
		x.refuse(policy.Refuse(policy.CodeAuditUnavailable, q.Host, v.APIs), err)
		return
	}
	x.debugRequest(out)
	x.reads(q, out)
	if err := x.attempt(q, out); err != nil {
		x.fail(err)
		return
	}
	x.minted.keep(x, out)
	x.compression = compressionOf(x.snap.Rules.Catalog.Match(q.Host))
	if err := x.complete(out); err != nil {
		x.fail(err)
		return
	}
	x.watchRequest(out)
	if err := x.conf.Pool.Check(x.ctx, x.want(out), out.URL); err != nil {
		x.fail(err)
		return
	}
	if q.Upgrade != "" {
		x.websocket(out)
		return
	}
	x.proxy.ServeHTTP(x.w, out)
}

// announce writes a request down before it leaves, where that is required: one that writes, or that has a body, which
// may say what the method does not.
func (x *exchange) announce(q policy.Request, out *http.Request) error {
	if x.conf.Sending == nil || !q.Writes() && out.ContentLength == 0 {
		return nil
	}
	return x.conf.Sending(ledger.Sending{
		Run: x.note.Run, Tenant: x.note.Tenant, CausedBy: x.note.CausedBy, Method: x.note.Method, URL: x.note.URL,
	})
}

// takeWindows takes memory for the windows of a body's decoders. It is false if the run has used up its share of the
// budget.
func (x *exchange) takeWindows(encodings []string, err error) bool {
	return err != nil || x.held.Take(coding.Windows(encodings)) // an unknown encoding is not decoded
}
