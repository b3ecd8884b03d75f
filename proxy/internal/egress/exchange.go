package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/internal/wsrelay"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// exchange is one request and response. The steps fill the parts from top to bottom.
type exchange struct {
	*Egress
	ctx    context.Context
	cancel context.CancelCauseFunc
	w      *responseWriter
	note   receipt.Note
	held   *membudget.Account // the memory budget; nil until the lease admits the exchange

	arrival
	judgement
	planUse
	debts
	transfer
	minted mintedUse
	streaming
	reports
	debug *debugPayloads
}

// arrival says who sends the request.
type arrival struct {
	conn     *entrance.Conn // nil for a plan's step
	lease    *lease.Lease
	origin   lease.Origin
	began    time.Time
	in       *http.Request // as it came
	bad      error         // the strict check's error
	host     catalog.Host  // the zero Host until readHead knows it
	insecure bool          // plain HTTP
}

// judgement says what decides about the request.
type judgement struct {
	snap     *reload.Snapshot // Cut reads it: only refresh changes it
	guard    *swap.Swapper    // the snapshot's, with the run's canaries
	asking   bool             // it waits for a person; guarded by mu
	request  policy.Request
	verdict  policy.Verdict
	approved bool // a person approved it, for one sending
	alarm    sync.Once
}

// debts are the things that the end of the exchange settles.
type debts struct {
	limits    reservation
	unused    []func()         // give back the approvals for it
	attempted func(known bool) // ends the attempt of its idempotency key; nil without a key
}

// transfer says what was sent and received.
type transfer struct {
	out         *http.Request // the request that leaves; nil until prepareRequest makes it
	guarded     bool          // guard has searched out, and may have put credentials into it
	rest        io.ReadCloser // the part of out's body that guard had not read when it finished; nil without a body
	compression compression
	toBroker    bool   // a call of an MCP server's tool
	unfitCall   error  // why the broker cannot read the arguments of a call
	callPath    string // the path of a call for the broker
	up          *countedBody
	answered    int         // the status of the upstream's answer, or 0
	left        atomic.Bool // a part of the request, its head at least, may have been sent to the upstream
	bodyErr     error       // the upstream's body broke off
	whole       bool        // the upstream's body was read to its end
	cut         error       // why the exchange was cut short, or nil
}

// reports are the results of the steps that change the request or the answer.
type reports struct {
	redacted *redact.Report
	swapped  *swap.Report
	ranged   bool // a Range header was removed
	scrubbed *scrub.Report
	unsigned *scrub.Report // the report on signatures of requests
	ws       *wsrelay.Report
}

// newExchange begins an exchange of a lease. The caller must call cancel and stop at its end.
func (e *Egress) newExchange(
	ctx context.Context, w http.ResponseWriter, l *lease.Lease,
) (x *exchange, stop func() bool) {
	x = &exchange{Egress: e, w: &responseWriter{ResponseWriter: w}, arrival: arrival{lease: l, began: time.Now()}}
	x.note = receipt.Note{Slot: int(l.Slot), Recorder: l.Recorder}
	x.note.Exchange = proxyapi.Exchange{At: x.began.UTC(), Run: l.Run, Tenant: l.Tenant}
	// roundTrip gets only a request from goproxy: the context carries the exchange.
	x.ctx, x.cancel = context.WithCancelCause(context.WithValue(ctx, exchangeKey{}, x))
	// The end of the run also cuts off requests that are under way.
	return x, context.AfterFunc(l.Context(), func() { x.cancel(lease.ErrEnded) })
}

// ServeHTTP implements http.Handler.
func (e *Egress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn := entrance.FromContext(r.Context())
	if conn == nil {
		panic(http.ErrAbortHandler) // not from the entrance, so no run owns the request
	}
	x, stop := e.newExchange(r.Context(), w, conn.Lease())
	defer x.cancel(nil)
	defer stop()
	x.conn, x.origin, x.in = conn, x.lease.CurrentOrigin(), r
	x.note.CausedBy, x.note.Method = x.origin.Cause, r.Method
	// The strict check counts requests, so Next comes before any refusal.
	x.bad = conn.CheckNext()
	if conn.IsHTTP1() {
		// An upstream may answer before it has read the whole request; HTTP/2 always allows that.
		_ = http.NewResponseController(w).EnableFullDuplex()
		x.w.conn = conn
	} else {
		// net/http keeps r until the client has read the answer's end, after the memory budget was released.
		defer dropHead(r)
	}
	x.carry(r, func() {
		x.serveRequest()
		x.searchRefused(r)
	})
}

// carry takes an exchange with such a head from its lease's admission to its end.
func (x *exchange) carry(head *http.Request, serve func()) {
	leave, err := x.enterLease(head)
	if err != nil {
		x.refuseEntry(err)
		x.finishExchange(nil)
		return
	}
	defer leave()
	defer x.stopTracking()
	defer func() { x.finishExchange(recover()) }()
	serve()
}

// dropHead frees the memory of a request's head. Copies of the request keep their heads.
func dropHead(r *http.Request) {
	*r = http.Request{Method: r.Method}
}

type exchangeKey struct{}

// exchangeOf returns the exchange that a request belongs to.
func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// enterLease waits until the lease admits the exchange, and tracks it. The caller must call leave and untrack at the
// end of the exchange. The snapshot stays the same until the end, so a reload cannot change rules between two checks.
func (x *exchange) enterLease(r *http.Request) (leave func(), err error) {
	size := int(headSize(r))
	switch {
	case r.ProtoMajor == 1: // the unread body stays in the kernel
	case r.ContentLength < 0:
		size += lease.MaxUnread
	default: // the server ends a stream with a longer body
		size += int(min(r.ContentLength, lease.MaxUnread))
	}
	x.held, leave, err = x.lease.BeginExchange(x.ctx, size)
	x.ctx = membudget.NewContext(x.ctx, x.held)
	if err != nil { // refused entries use no snapshot that a reload could make stale
		return leave, err
	}
	x.snap = x.conf.Current()
	x.guard = NewRunSwapper(x.snap, x.lease)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flight[x] = struct{}{}
	return leave, nil
}

// refuseEntry answers a request that came after the end of the run or exceeds the run's limit of parallel requests.
func (x *exchange) refuseEntry(err error) {
	if x.conn == nil { // a plan's step
		x.cut = err
		return
	}
	x.note.Host = x.conn.Host().String()
	switch {
	case errors.Is(err, lease.ErrFull):
		x.answerRefusal(&refusedError{policy.Refuse(policy.CodeTooMany, x.conn.Host(), nil), err})
	case errors.Is(err, lease.ErrEnded):
		x.answerRefusal(&refusedError{policy.Refuse(policy.CodeRunEnded, x.conn.Host(), nil), err})
	default:
		x.cut = err // the client disconnected while it waited
	}
}

func (x *exchange) stopTracking() {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.flight, x)
}

// needsAny reports whether the exchange relies on one of the APIs. The caller holds mu.
func (x *exchange) needsAny(names map[string]bool) bool {
	return slices.ContainsFunc(x.verdict.APIs, func(a *catalog.API) bool { return names[a.Name] })
}

// setVerdict stores the verdict where Cut sees it.
func (x *exchange) setVerdict(v policy.Verdict) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.verdict = v
}

// holders lists the active APIs that decide about the request.
func (x *exchange) holders() []*catalog.API {
	if x.request.IsCall() {
		return x.verdict.APIs
	}
	return x.snap.Rules.Catalog.ListHolders(x.host)
}
