package egress

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// exchange is one request and response. It has the values that many steps share. The state of a feature is a type in
// the feature's file, whose methods take all other values as arguments.
type exchange struct {
	*Egress
	ctx        context.Context // has the exchange's account of the memory budget
	cancel     context.CancelCauseFunc
	w          *responseWriter
	note       receipt.Note
	from       requestSource
	snap       runSnapshot    // CutStale reads it: only carry and refresh change it
	request    policy.Request // as policy judges it. Its Host is zero until readHead knows it
	verdict    policy.Verdict // CutStale reads it: only setVerdict changes it
	msg        requestMessage
	plan       planUse
	settlement settlement
	call       brokerCall
	creds      credentialUse
	answer     upstreamAnswer
}

// requestSource says who sends the request.
type requestSource struct {
	conn   *entrance.Conn // nil for a plan's step
	lease  *lease.Lease
	origin lease.Origin
	began  time.Time
	alarm  sync.Once // the exchange has raised an alarm
}

// runSnapshot is a snapshot as one run uses it.
type runSnapshot struct {
	*reload.Snapshot
	guard  *swap.Swapper // the snapshot's, with the run's canaries
	asking bool          // the exchange waits for a person
}

// newExchange begins an exchange of a lease. The caller must call cancel and stop at its end.
func (e *Egress) newExchange(
	ctx context.Context, w http.ResponseWriter, l *lease.Lease,
) (x *exchange, stop func() bool) {
	x = &exchange{Egress: e, w: &responseWriter{ResponseWriter: w}, from: requestSource{lease: l, began: time.Now()}}
	x.note = receipt.Note{Slot: int(l.Slot), Recorder: l.Recorder}
	x.note.Exchange = proxyapi.Exchange{At: x.from.began.UTC(), Run: l.Run, Tenant: l.Tenant}
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
	x.from.conn, x.from.origin, x.msg.in = conn, x.from.lease.CurrentOrigin(), r
	x.note.CausedBy, x.note.Method = x.from.origin.Cause, r.Method
	// The strict check counts requests, so Next comes before any refusal.
	x.msg.bad = conn.CheckNext()
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

// carry takes an exchange with such a head from its lease's admission to its end. The snapshot stays the same until the
// end, so a reload cannot change rules between two checks. Only an exchange that waits for a person takes a new one.
func (x *exchange) carry(head *http.Request, serve func()) {
	held, leave, err := x.from.lease.BeginExchange(x.ctx, waitingSize(head))
	x.ctx = membudget.NewContext(x.ctx, held)
	if err != nil { // refused entries use no snapshot that a reload could make stale
		conn, code := x.from.conn, entryCode(err)
		if conn != nil {
			x.note.Host = conn.Host().String()
		}
		if conn == nil || code == "" {
			x.answer.cut = err // a plan's step, or the client disconnected while it waited
		} else {
			x.w.send(x.refusal(&refusedError{policy.Refuse(code, conn.Host(), nil), err})) //nolint:bodyclose // send closes it
		}
		x.finishExchange(nil)
		return
	}
	defer leave()
	snap := x.conf.Current()
	x.snap = runSnapshot{Snapshot: snap, guard: NewRunSwapper(snap, x.from.lease)}
	x.trackExchange(x, true)
	defer x.trackExchange(x, false)
	defer func() { x.finishExchange(recover()) }()
	serve()
}

// waitingSize returns the size of a request's head and of the part of its body that the proxy may have to keep unread.
func waitingSize(r *http.Request) int {
	size := int(headSize(r))
	switch {
	case r.ProtoMajor == 1: // the unread body stays in the kernel
	case r.ContentLength < 0:
		size += lease.MaxUnread
	default: // the server ends a stream with a longer body
		size += int(min(r.ContentLength, lease.MaxUnread))
	}
	return size
}

// entryCode returns the refusal code for a request that a lease did not admit, or "".
func entryCode(err error) string {
	switch {
	case errors.Is(err, lease.ErrFull):
		return policy.CodeTooMany
	case errors.Is(err, lease.ErrEnded):
		return policy.CodeRunEnded
	}
	return ""
}

// dropHead frees the memory of a request's head. Copies of the request keep their heads.
func dropHead(r *http.Request) {
	*r = http.Request{Method: r.Method}
}

type exchangeKey struct{}

// exchangeOf returns the exchange that a request belongs to.
func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// setVerdict stores the verdict where CutStale sees it.
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
	return x.snap.Rules.Catalog.ListHolders(x.request.Host)
}
