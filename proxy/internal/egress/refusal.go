package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/codeforge-mcp/codeforge/internal/dialguard"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/internal/brokerlink"
	"github.com/codeforge-mcp/codeforge/proxy/internal/charset"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// refusedError refuses a request by a verdict. cause is for the log and may be nil.
type refusedError struct {
	verdict policy.Verdict
	cause   error
}

func (e *refusedError) Error() string { return e.verdict.Refusal.Error }

// bodyError is for a request's body that a step before the swap could not read.
type bodyError struct{ error }

func (e bodyError) Unwrap() error { return e.error }

// deny sets the verdict, describes the request and returns the error that refuses it.
func (x *exchange) deny(v policy.Verdict) error {
	x.setVerdict(v)
	_ = x.describeRequest()
	return &refusedError{verdict: v}
}

// denyBody is deny for a body that could not be judged.
func (x *exchange) denyBody(err error) error { return x.deny(x.verdictOf(bodyError{err})) }

// answerRefusal answers the client of a request that a step ended.
func (x *exchange) answerRefusal(err error) {
	if err == errAnswered { //nolint:errorlint // never wrapped
		return
	}
	x.w.send(x.refusal(err)) //nolint:bodyclose // send closes it
}

// refusal records why there is no answer of the upstream, and returns the proxy's answer.
func (x *exchange) refusal(err error) *http.Response {
	v := x.verdictOf(err).ForRun(x.lease)
	n := &x.note
	n.Outcome, n.Code, n.Cause = proxyapi.OutcomeFailed, v.Refusal.Code, err
	hints := []proxyapi.Hint{v.NewHint()}
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		n.Outcome, n.Cause = proxyapi.OutcomeDenied, refused.cause
	} else {
		x.cut = context.Cause(x.ctx)
		// Refusals by the proxy are denials. Only failures of the upstream or of the network count as failed.
		if v.Status == http.StatusForbidden || v.Status == http.StatusBadRequest || errors.Is(err, dialguard.ErrRefused) ||
			errors.Is(err, membudget.ErrFull) {
			n.Outcome = proxyapi.OutcomeDenied
		}
		if v.Refusal.Code == upstream.CodeBroken && x.cut != nil {
			hints = x.hintUnanswered() // the client disconnected or the run ended: the connection is not at fault
			if errors.Is(x.cut, errReloaded) {
				hints = nil // setting the outcome adds this hint
			}
		}
	}
	n.Hints = append(n.Hints, hints...)
	body, err := json.Marshal(v.Refusal)
	if err != nil {
		body = []byte(`{"error":"The request was refused."}`)
	}
	resp := jsonResponse(v.Status, append(body, '\n'))
	if v.RetryAfter != "" {
		resp.Header.Set("Retry-After", v.RetryAfter)
	}
	return resp
}

// verdictOf returns the verdict for an error. Only this function maps errors to refusals.
func (x *exchange) verdictOf(err error) policy.Verdict {
	var (
		refused   *refusedError
		missing   *mint.Error
		ambiguity *swap.Ambiguity
		ambiguous *formdata.Error
		body      bodyError
	)
	// The order matters: an error that code caused is answered as such, before the rest counts as the upstream's failure.
	switch {
	case errors.As(err, &refused):
		return refused.verdict
	case errors.Is(err, membudget.ErrFull):
		return policy.Refuse(policy.CodeTooMany, x.host, nil)
	case errors.As(err, &missing):
		return policy.RefuseCredential(missing.Code, missing.Name, x.host)
	case x.toBroker && x.scrubbed == nil:
		return x.callFailure(err)
	case errors.As(err, &ambiguity):
		return policy.RefuseAmbiguous(ambiguity.Reason, x.host)
	case errors.As(err, &ambiguous):
		return policy.RefuseAmbiguous(ambiguous.Sentence(), x.host)
	case errors.Is(err, swap.ErrCarriesValue):
		return policy.Refuse(policy.CodeCredentialSent, x.host, nil)
	case x.scrubbed == nil && isUnreadable(err):
		return policy.Refuse(policy.CodeBodyUnreadable, x.host, nil)
	case errors.As(err, &body):
		return policy.RefuseOverride(err, x.host, x.holders())
	case errors.Is(err, policy.ErrOverrideUnseen):
		return policy.RefuseOverride(err, x.host, x.verdict.APIs)
	}
	return x.upstreamFailure(err)
}

// isUnreadable reports whether an error says that a body does not match its headers. Before there is a response, the
// body is the request's.
func isUnreadable(err error) bool {
	return errors.Is(err, swap.ErrEncoding) || errors.Is(err, coding.ErrBroken) || errors.Is(err, coding.ErrRatio)
}

// callFailure returns the verdict for a call without an answer.
func (x *exchange) callFailure(err error) policy.Verdict {
	code := policy.CodeCallBroken
	var long *http.MaxBytesError
	switch {
	case errors.Is(err, brokerlink.ErrNone):
		code = policy.CodeServerUnavailable
	case errors.As(err, &long):
		code = policy.CodeArgumentsTooLarge
	case errors.Is(err, swap.ErrCarriesValue):
		code = policy.CodeCredentialSent
	case errors.Is(err, errEncoded):
		code = policy.CodeArgumentsEncoded
	}
	v := policy.Refuse(code, x.host, nil)
	v.Refusal.Retryable = code == policy.CodeServerUnavailable
	for _, a := range x.verdict.APIs {
		v.Refusal.Server = a.Name
	}
	return v
}

// upstreamFailure returns the verdict for an upstream without a usable answer.
func (x *exchange) upstreamFailure(err error) policy.Verdict {
	code := upstream.ClassifyError(err)
	switch {
	case errors.Is(err, scrub.ErrEncoding):
		code = upstream.CodeEncoding
	case errors.Is(err, charset.ErrUnknown):
		code = upstream.CodeCharset
	case errors.Is(err, errCompressed):
		code = upstream.CodeCompressed
	}
	failure := upstream.Failure{Code: code, Host: x.note.Host, Cause: err}
	if len(x.verdict.APIs) > 0 {
		failure.API = x.verdict.APIs[0].Name
	}
	v := policy.Verdict{Status: upstream.StatusFor(code), Refusal: failure.NewRefusal()}
	if x.lease.Kind() == policy.KindInstall {
		hint := installHint(code, err, readertext.Text{Model: v.Refusal.Hint, Person: v.Refusal.Person})
		v.Refusal.Hint, v.Refusal.Person = hint.Model, hint.Person
	}
	return v
}

// jsonResponse makes an answer of the proxy.
func jsonResponse(status int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type":   {"application/json"},
			"Content-Length": {strconv.Itoa(len(body))},
		},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
}
