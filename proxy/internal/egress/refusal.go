package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/codeforge-mcp/codeforge/catalog"
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

// refusal records why there is no answer of the upstream, and returns the proxy's answer.
func (x *exchange) refusal(err error) *http.Response {
	v := x.verdictOf(err).ForRun(x.from.lease)
	n := &x.note
	n.Outcome, n.Code, n.Cause = proxyapi.OutcomeFailed, v.Refusal.Code, err
	hints := []proxyapi.Hint{v.NewHint()}
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		n.Outcome, n.Cause = proxyapi.OutcomeDenied, refused.cause
	} else {
		cut := context.Cause(x.ctx)
		x.answer.cut = cut
		// Refusals by the proxy are denials. Only failures of the upstream or of the network count as failed.
		if v.Status == http.StatusForbidden || v.Status == http.StatusBadRequest || errors.Is(err, dialguard.ErrRefused) ||
			errors.Is(err, membudget.ErrFull) {
			n.Outcome = proxyapi.OutcomeDenied
		}
		if v.Refusal.Code == upstream.CodeBroken && cut != nil {
			// The client disconnected or the run ended: the connection is not at fault.
			hints = hintUnanswered(n.Host, x.from.began)
			if errors.Is(cut, errReloaded) {
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
	host, apis, answered := x.request.Host, x.verdict.APIs, x.answer.scrubbed != nil
	// The order matters: an error that code caused is answered as such, before the rest counts as the upstream's failure.
	switch {
	case errors.As(err, &refused):
		return refused.verdict
	case errors.Is(err, membudget.ErrFull):
		return policy.Refuse(policy.CodeTooMany, host, nil)
	case errors.As(err, &missing):
		return policy.RefuseCredential(missing.Code, missing.Name, host)
	case x.call.leaves && !answered:
		return refuseCall(err, host, apis)
	case errors.As(err, &ambiguity):
		return policy.RefuseAmbiguous(ambiguity.Reason, host)
	case errors.As(err, &ambiguous):
		return policy.RefuseAmbiguous(ambiguous.Sentence(), host)
	case errors.Is(err, swap.ErrCarriesValue):
		return policy.Refuse(policy.CodeCredentialSent, host, nil)
	case !answered && isUnreadable(err):
		return policy.Refuse(policy.CodeBodyUnreadable, host, nil)
	case errors.As(err, &body):
		return policy.RefuseOverride(err, host, x.holders())
	case errors.Is(err, policy.ErrOverrideUnseen):
		return policy.RefuseOverride(err, host, apis)
	}
	return refuseAnswer(err, x.note.Host, apis, x.from.lease.ClientType())
}

// isUnreadable reports whether an error says that a body does not match its headers. Before there is a response, the
// body is the request's.
func isUnreadable(err error) bool {
	return errors.Is(err, swap.ErrEncoding) || errors.Is(err, coding.ErrBroken) || errors.Is(err, coding.ErrRatio)
}

// refuseCall returns the verdict for a call without an answer.
func refuseCall(err error, host catalog.Host, apis []*catalog.API) policy.Verdict {
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
	v := policy.Refuse(code, host, nil)
	v.Refusal.Retryable = code == policy.CodeServerUnavailable
	for _, a := range apis {
		v.Refusal.Server = a.Name
	}
	return v
}

// refuseAnswer returns the verdict for an upstream without a usable answer. kind is that of the client.
func refuseAnswer(err error, host string, apis []*catalog.API, kind policy.ClientType) policy.Verdict {
	code := upstream.ClassifyError(err)
	switch {
	case errors.Is(err, scrub.ErrEncoding):
		code = upstream.CodeEncoding
	case errors.Is(err, charset.ErrUnknown):
		code = upstream.CodeCharset
	case errors.Is(err, errCompressed):
		code = upstream.CodeCompressed
	}
	failure := upstream.Failure{Code: code, Host: host, Cause: err}
	if len(apis) > 0 {
		failure.API = apis[0].Name
	}
	v := policy.Verdict{Status: upstream.StatusFor(code), Refusal: failure.NewRefusal()}
	if kind == policy.ClientInstall {
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
