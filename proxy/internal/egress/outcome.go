package egress

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// finishExchange ends the exchange, and aborts the connection if the response is incomplete. p is the value that serve
// panicked with, or nil.
func (x *exchange) finishExchange(p any) {
	n, a := &x.note, &x.answer
	n.BytesUp, n.BytesDown, n.Redacted = x.msg.received.Load(), x.w.bytes, x.msg.redacted.Count()
	if !x.w.first.IsZero() {
		n.FirstMS = toMilliseconds(x.w.first.Sub(x.from.began))
	}
	x.creds.noteReport(n, x.request.Host, x.snap.Snapshot, x.from.lease)
	a.noteReport(n, x.request.Host, x.snap.Snapshot, x.from.lease)
	if !x.call.leaves && n.Outcome == "" {
		n.Hints = append(n.Hints, hintRejected(n, x.w, x.snap.Snapshot, x.verdict.APIs)...)
	}
	n.Hints = slices.Concat(n.Hints, hintRemovedHeaders(n, x.creds.ranged, a), x.msg.late.hintHeld(n.Host, x.verdict.APIs))
	if p != nil && p != http.ErrAbortHandler { //nolint:errorlint // a panic value
		x.conf.Log.LogAttrs(x.ctx, slog.LevelError, "panic in an exchange", logline.Tag("error"),
			slog.String("at", formatStack()))
	}
	abort := a.setOutcome(n, p, x.ctx, x.from.lease.Context(), x.w.err)
	addMethodToHints(n, x.request.Host)
	n.Status, n.Milliseconds = x.w.status, toMilliseconds(time.Since(x.from.began))
	for _, do := range endSteps {
		do(x)
	}
	conn := x.from.conn
	if conn == nil {
		return
	}
	if !abort {
		// See smallHead.
		if !conn.IsHTTP1() && headBytes(x.w.Header()) > smallHead {
			x.w.Flush()
		}
		return
	}
	// HTTP/1.0 has no other way to tell a client that a response is incomplete.
	if conn.IsHTTP1() {
		conn.Reset()
	}
	panic(http.ErrAbortHandler)
}

// noteLeft notes whether a part of the request left. A request that never left sent no credential. started means that
// the upstream may have got a part, toBroker that the request was a call for the broker.
func noteLeft(n *receipt.Note, toBroker, started bool) {
	switch {
	case n.Outcome == proxyapi.OutcomePlanned:
		n.BytesUp = 0
	case toBroker:
		n.Left = n.Outcome != proxyapi.OutcomeDenied || n.BytesUp != 0
	default:
		n.Left = started
	}
	if !n.Left {
		n.Swapped, n.HeadUp = nil, 0
	}
}

// smallHead is how many bytes of an answer's head net/http may keep for HTTP/2 after the exchange has returned its
// memory. net/http keeps them until the client has read the end of the answer. With a larger head the exchange itself
// waits for the client.
const smallHead = 4 << 10

func toMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// setOutcome sets the outcome and reports whether the connection must be aborted. ctx is that of the exchange, run that
// of its run. clientErr says why the answer did not reach the client.
func (a *upstreamAnswer) setOutcome(n *receipt.Note, p any, ctx, run context.Context, clientErr error) (abort bool) {
	if a.cut == nil && !a.whole && n.Outcome == "" {
		a.cut = context.Cause(ctx)
	}
	switch {
	case p != nil && p != http.ErrAbortHandler: //nolint:errorlint // a panic value
		n.Outcome, n.Code, n.Cause = proxyapi.OutcomeFailed, "internal", errPanic
		return true
	// This comes before bodyErr: cancelling the exchange also breaks its bodies off.
	case a.cut != nil:
		if run.Err() != nil { // the end of the run also closed the connection, so either cause may come first
			a.cut = lease.ErrEnded
		}
		n.Outcome, n.Code, n.Cause = proxyapi.OutcomeAborted, abortCode(a.cut), nil
		if n.Code == codeReloaded {
			n.Hints = append(n.Hints, newHint(codeReloaded, n.Host,
				readertext.NewText("was cut off, because {the user changed a credential or an API|the configuration changed}. "+
					"If it only reads, send it again. A write may already have taken effect.")))
		}
		return true
	case a.bodyErr != nil:
		n.Outcome, n.Code, n.Cause = proxyapi.OutcomeFailed, upstream.ClassifyError(a.bodyErr), a.bodyErr
		return true
	case clientErr != nil && n.Outcome == "":
		n.Outcome, n.Code = proxyapi.OutcomeAborted, codeClientGone
		return true
	case n.Outcome == "":
		n.Outcome = proxyapi.OutcomeServed
	}
	return p != nil
}

// The codes of exchanges that were cut short.
const (
	codeClientGone = "client_gone"
	codeReloaded   = "catalog_changed"
	codeHandshake  = "handshake_failed"
)

// abortCode returns the code for the cause that cut an exchange off.
func abortCode(cause error) string {
	switch {
	case errors.Is(cause, lease.ErrEnded):
		return policy.CodeRunEnded
	case errors.Is(cause, errReloaded):
		return codeReloaded
	}
	return codeClientGone
}

// NewHandshakeNote returns the receipt entry of a TLS handshake that did not lead to a request.
func NewHandshakeNote(l *lease.Lease, h *entrance.HandshakeError) receipt.Note {
	v := policy.Refuse(policy.CodeHostInvalid, catalog.Host{}, nil)
	n := receipt.Note{Slot: int(l.Slot), Recorder: l.Recorder, Cause: h}
	n.Exchange = proxyapi.Exchange{
		At: time.Now().UTC(), Run: l.Run, Tenant: l.Tenant, CausedBy: l.CurrentOrigin().Cause,
		Outcome: proxyapi.OutcomeAborted, Code: codeHandshake,
	}
	if h.HasNoHost() {
		n.Outcome, n.Code, n.Hints = proxyapi.OutcomeDenied, v.Refusal.Code, []proxyapi.Hint{v.NewHint()}
	}
	return n
}
