// Package egress carries one request from the sandbox to its upstream, and the response back.
//
// The steps are in exchange.serve; each step relies on the steps before it. Contract: the proxy denies by default
// before it dials. Every path through this package ends in one receipt entry and one log line. If a response breaks off
// upstream, the client never receives it as complete. One exception: net/http resets a stream that is not valid HTTP/2
// before this package sees it.
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

// errReloaded is the cause of an exchange that Egress.Cut ended.
var errReloaded = errors.New("the catalog changed")

// Config holds the parts that an Egress needs.
type Config struct {
	// Current is the snapshot in force; an exchange keeps the one it began with.
	Current func() *reload.Snapshot
	Pool    *upstream.Pool
	// Broker forwards calls to MCP servers.
	Broker  *broker.Broker
	Journal *receipt.Journal
	// Room holds requests that a person must approve.
	Room *hold.Room
	// Memory bounds the buffers of all runs together: see lease.Config. This budget serves the leases of plans.
	Memory *membudget.Budget
	// Budget counts the use of APIs that have limits.
	Budget *budget.Ledger
	// Keys makes the idempotency keys of requests. If nil, the proxy adds no keys.
	Keys   *attempt.Keys
	Redact *redact.Redactor
	// Checkpoint returns the ledger's checkpoint that covers all entries of a run so far, or "". Nil means that there is
	// no ledger.
	Checkpoint func(run string) string
	// Sending writes an intent to the ledger before a request leaves that may change something. After an error the request
	// must not leave. Nil means that the ledger gets only the entries of finished requests.
	Sending func(ledger.Sending) error
	// Mint obtains minted credentials. Nil means that there are no such credentials.
	Mint Minter
	// UserAgent is sent in place of the sandbox's.
	UserAgent string
	// Debug logs payloads, before swapping and after scrubbing.
	Debug bool
	Log   *slog.Logger
}

// Minter obtains the credentials that change; mint.Minter implements it.
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

// Cut ends the exchanges that a reload made stale. If the reload brought new credentials, it ends all exchanges with an
// earlier snapshot, because their scrubbers do not know the new values. Otherwise it ends only those that use a removed
// API.
func (e *Egress) Cut(c reload.Change) {
	e.conf.Pool.Retire()
	e.mu.Lock()
	defer e.mu.Unlock()
	for x := range e.flight {
		// An exchange that asks a person takes the new snapshot afterwards.
		if !x.asking && x.snap != c.Now && (c.NewValues || x.uses(c.Removed)) {
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
	snap   *reload.Snapshot // Cut reads it: only refresh changes it
	asking bool             // it waits for a person; guarded by mu
	ctx    context.Context
	cancel context.CancelCauseFunc
	w      *responseWriter
	began  time.Time
	note   receipt.Note
	host   catalog.Host // the zero Host until parse knows it

	held        *membudget.Account // the memory budget; nil until the lease admits the exchange
	guard       *swap.Swapper      // the snapshot's, with the run's canaries
	out         *http.Request      // the request that leaves; nil until outgoing makes it
	guarded     bool               // guard has searched out, and may have put credentials into it
	rest        io.ReadCloser      // the part of out's body that guard had not read when it finished; nil without a body
	alarm       sync.Once
	verdict     policy.Verdict
	compression compression
	byMessage   bool             // all APIs of the host set MessageFraming: each message leaves when it is complete
	watches     []*lateness      // one for each watched body
	late        atomic.Bool      // a complete message was held back for too long
	insecure    bool             // plain HTTP
	approved    bool             // a person approved it, for one sending
	attempted   func(known bool) // ends the attempt of its idempotency key; nil without a key
	answered    int              // the status of the upstream's answer, or 0
	left        atomic.Bool      // a part of the request, its head at least, may have been sent to the upstream
	giveBack    func()           // returns the reserved units of limits; nil if no units were reserved
	unused      []func()         // give back the approvals for it
	toBroker    bool             // a call of an MCP server's tool
	recorded    int              // the number of the plan step that replaced the sending, or 0
	replay      *replay          // set if a plan, not a run, sends the request
	callStep    *plan.Step       // a call that the plan may record
	read        *plan.Step       // a dry run's read, for the plan
	// seen is the beginning of the answer to read.
	seen     *bytes.Buffer
	up       *counted
	redacted *redact.Report
	swapped  swapReport
	minted   mintedUse
	ranged   bool // a Range header was removed
	scrubbed *scrub.Report
	unsigned *scrub.Report // the report on signatures of requests
	ws       *wsrelay.Report
	debug    *payloads
	bodyErr  error // the upstream's body broke off
	whole    bool  // the upstream's body was read to its end
	cut      error // why the exchange was cut short, or nil
}

// ServeHTTP implements http.Handler.
func (e *Egress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn := entrance.FromContext(r.Context())
	if conn == nil {
		panic(http.ErrAbortHandler) // not from the entrance, so no run owns the request
	}
	x := &exchange{Egress: e, conn: conn, lease: conn.Lease(), origin: conn.Lease().Origin(), began: time.Now()}
	x.w = &responseWriter{ResponseWriter: w}
	x.note = receipt.Note{Slot: int(x.lease.Slot), Recorder: x.lease.Recorder}
	x.note.Exchange = controlapi.Exchange{
		At: x.began.UTC(), Run: x.lease.Run, Tenant: x.lease.Tenant, CausedBy: x.origin.Cause, Method: r.Method,
	}
	// roundTrip gets only a request from goproxy: the context carries the exchange.
	x.ctx, x.cancel = context.WithCancelCause(context.WithValue(r.Context(), exchangeKey{}, x))
	defer x.cancel(nil)
	// The end of the run also cuts off requests that are under way.
	defer context.AfterFunc(x.lease.Context(), func() { x.cancel(lease.ErrEnded) })()
	// The strict check counts requests, so Next comes before any refusal.
	bad := conn.Next()
	if conn.HTTP1() {
		// An upstream may answer before it has read the whole request; HTTP/2 always allows that.
		_ = http.NewResponseController(w).EnableFullDuplex()
		x.w.conn = conn
	} else {
		defer dropHead(r) // net/http keeps r until the client has read the answer's end, after the memory budget was released
	}

	// Refused entries are not tracked: they use no snapshot that a reload could make stale.
	leave, err := x.enter(r)
	if err != nil {
		x.refuseEntry(err)
		x.finish(nil)
		return
	}
	defer leave()
	x.snap = e.conf.Current()
	// The snapshot stays the same until the end, so a reload cannot change rules between two checks.
	x.guard = Guarded(x.snap, x.lease)
	x.track()
	defer x.untrack()
	defer func() { x.finish(recover()) }()
	x.serve(r, bad)
	x.searchRefused(r)
}

// dropHead frees the memory of a request's head. Copies of the request keep their heads.
func dropHead(r *http.Request) {
	*r = http.Request{Method: r.Method}
}

type exchangeKey struct{}

// exchangeOf returns the exchange that a request belongs to.
func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// enter waits until the lease admits the exchange. The caller must call leave at the end of the exchange.
func (x *exchange) enter(r *http.Request) (leave func(), err error) {
	x.held, leave, err = x.lease.Enter(x.ctx, int(headSize(r)))
	x.ctx = membudget.NewContext(x.ctx, x.held)
	return leave, err
}

// refuseEntry answers a request that came after the end of the run or exceeds the run's limit of parallel requests.
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
	// Refuse early: a request that only its head condemns needs no body, and no decoder memory.
	q.Early = true
	v := x.snap.Rules.Decide(x.lease, q)
	q.Early = false
	if v.Allow && !x.takeWindows(coding.Parse(r.Header)) {
		v = policy.Refuse(policy.CodeTooMany, q.Host, nil)
	}
	if v.Allow && x.conf.Redact.Host(chosen(q.Host.String(), v.APIs)) {
		v = policy.Refuse(policy.CodeRedactedHost, catalog.Host{}, nil)
		x.note.Host = redact.Mark // URL and log may spell the host in another case than the redacted string
	}
	out := r
	if v.Allow {
		out = x.outgoing(r, q.Upgrade)
		x.useFraming()
		x.redacted = x.conf.Redact.Request(out, x.framingOf(out.Header))
		// Redaction may have changed names and values, so the first verdict no longer covers this request.
		v = x.judgeFinal(q, out)
	}
	x.leave(v, q, out)
}

// leave sends a judged request, or answers with the refusal.
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
	// Cut looks at verdicts. A reload between track and setVerdict saw no verdict, so it could not cut this exchange.
	if x.conf.Current() != x.snap {
		x.cancel(errReloaded)
	}
	// The intent must be on disk first: a crash after sending would leave a write without a ledger entry.
	//defence:ledger-required
	if err := x.announce(q, out); err != nil {
		x.refuse(policy.Refuse(policy.CodeAuditUnavailable, q.Host, v.APIs), err)
		return
	}
	// Debug output shows token names, so this stands before complete swaps them.
	x.debugRequest(out)
	x.reads(q, out)
	if err := x.attempt(q, out); err != nil {
		x.fail(err)
		return
	}
	// keep copies the request before complete swaps: a retry swaps again, with the renewed value.
	x.minted.keep(x, out)
	x.compression = compressionOf(x.snap.Rules.Catalog.Match(q.Host))
	if err := x.complete(out); err != nil {
		x.fail(err)
		return
	}
	x.watchRequest(out)
	// An upstream proxy resolves the name itself, so the addresses are checked before it can.
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

// announce writes an intent to the ledger before the request leaves. A request needs one if its method writes, or if it
// has a body, which may contain another operation than the method suggests.
func (x *exchange) announce(q policy.Request, out *http.Request) error {
	if x.conf.Sending == nil || !q.Writes() && out.ContentLength == 0 {
		return nil
	}
	return x.conf.Sending(ledger.Sending{
		Run: x.note.Run, Tenant: x.note.Tenant, CausedBy: x.note.CausedBy, Method: x.note.Method, URL: x.note.URL,
	})
}

// takeWindows reserves memory for the windows of a body's decoders. It returns false if the run has used up its share
// of the budget.
func (x *exchange) takeWindows(encodings []string, err error) bool {
	return err != nil || x.held.Take(coding.Windows(encodings)) // a body with an unknown encoding stays encoded
}
