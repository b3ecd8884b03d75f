package egress

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/internal/brokerlink"
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
	x.noteReports()
	abort := x.setOutcome(p)
	for _, do := range endSteps {
		do(x)
	}
	if x.conn == nil {
		return
	}
	if !abort {
		// See smallHead.
		if !x.conn.IsHTTP1() && headBytes(x.w.Header()) > smallHead {
			x.w.Flush()
		}
		return
	}
	// HTTP/1.0 has no other way to tell a client that a response is incomplete.
	if x.conn.IsHTTP1() {
		x.conn.Reset()
	}
	panic(http.ErrAbortHandler)
}

// returnUnused returns what a request that did not leave would have used: units of limits, and approvals.
func (x *exchange) returnUnused() {
	n := &x.note
	// A request that never left sent no credential.
	if n.Left = !x.isUnsent(); !n.Left {
		n.Swapped, n.HeadUp = nil, 0
		if n.Outcome == proxyapi.OutcomePlanned {
			n.BytesUp = 0
		}
		if x.limits.giveBack != nil {
			x.limits.giveBack()
		}
	}
	// After ErrNone no byte of a call left the proxy.
	if !n.Left || errors.Is(n.Cause, brokerlink.ErrNone) {
		for _, giveBack := range x.unused {
			giveBack()
		}
	}
}

// recordExchange writes the receipt's entry.
func (x *exchange) recordExchange() {
	x.note.Status = x.w.status
	x.note.Milliseconds = toMilliseconds(time.Since(x.began))
	x.conf.Journal.RecordExchange(x.note)
}

// smallHead is how many bytes of an answer's head net/http may keep for HTTP/2 after the exchange has returned its
// memory. net/http keeps them until the client has read the end of the answer. With a larger head the exchange itself
// waits for the client.
const smallHead = 4 << 10

func toMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// isUnsent reports whether no part of a request left, and so no credential either.
func (x *exchange) isUnsent() bool {
	n := &x.note
	switch {
	case n.Outcome == proxyapi.OutcomePlanned:
		return true
	case x.toBroker:
		return n.Outcome == proxyapi.OutcomeDenied && n.BytesUp == 0
	}
	return !x.left.Load()
}

// setOutcome sets the outcome and reports whether the connection must be aborted.
func (x *exchange) setOutcome(p any) (abort bool) {
	n := &x.note
	if x.cut == nil && !x.whole && n.Outcome == "" {
		x.cut = context.Cause(x.ctx)
	}
	switch {
	case p != nil && p != http.ErrAbortHandler: //nolint:errorlint // a panic value
		n.Outcome, n.Code, n.Cause = proxyapi.OutcomeFailed, "internal", errPanic
		x.conf.Log.LogAttrs(x.ctx, slog.LevelError, "panic in an exchange", logline.Tag("error"),
			slog.String("at", formatStack()))
		return true
	// This comes before bodyErr: cancelling the exchange also breaks its bodies off.
	case x.cut != nil:
		if x.lease.Context().Err() != nil { // the end of the run also closed the connection, so either cause may come first
			x.cut = lease.ErrEnded
		}
		n.Outcome, n.Code, n.Cause = proxyapi.OutcomeAborted, abortCode(x.cut), nil
		if n.Code == codeReloaded {
			n.Hints = append(n.Hints, newHint(codeReloaded, n.Host,
				readertext.NewText("was cut off, because {the user changed a "+
					"credential or an API meanwhile|a credential or an API was changed meanwhile}. Send it again if it only reads; "+
					"a write may have been carried out.")))
			x.addMethodToHints()
		}
		return true
	case x.bodyErr != nil:
		n.Outcome, n.Code, n.Cause = proxyapi.OutcomeFailed, upstream.ClassifyError(x.bodyErr), x.bodyErr
		return true
	case x.w.err != nil && n.Outcome == "":
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
