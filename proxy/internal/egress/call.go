package egress

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/broker"
	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

var (
	errArguments = errors.New("the arguments of a call are too large")
	errEncoded   = errors.New("the arguments of a call are encoded")
)

// call passes a tool call to the broker, which reaches the MCP server. Token names are not swapped on this hop: the
// proxy swaps them when the server sends them in a request. The answer is scrubbed like any other.
func (x *exchange) call(r *http.Request, q policy.Request) {
	out := x.outgoing(r, "")
	length := out.ContentLength                        // redaction makes the length unknown
	encoded := len(out.Header["Content-Encoding"]) > 0 // redaction decodes a body and removes the header
	x.redacted = x.conf.Redact.Request(out, framing.None)
	v, path := x.judgeCall(q, out)
	x.setVerdict(v)
	x.describe(out)
	if !v.Allow {
		x.refuse(v, nil)
		return
	}
	// Cut looks at verdicts: a reload between track and setVerdict could not cut this exchange.
	if x.conf.Current() != x.snap {
		x.cancel(errReloaded)
	}
	switch {
	case encoded:
		// The broker reads arguments as plain JSON.
		x.toBroker = true
		x.fail(errEncoded)
		return
	case length > proxyapi.MaxArguments:
		x.toBroker = true
		x.fail(errArguments)
		return
	}
	x.dispatch(out, path)
}

// judgeCall decides on a call, and waits for a person if a rule requires approval. It returns the path for the broker.
func (x *exchange) judgeCall(q policy.Request, out *http.Request) (policy.Verdict, string) {
	v, path := x.snap.Rules.DecideCall(x.lease, q, out.URL)
	if !v.Unread && v.Hold == nil {
		return v, path
	}
	// ReadContent decodes, so a rule or a person would see other bytes than the broker gets.
	if len(out.Header["Content-Encoding"]) > 0 {
		return policy.Refuse(policy.CodeArgumentsEncoded, q.Host, v.APIs), path
	}
	out.Header.Set("Content-Type", "application/json") // the broker parses the arguments as JSON
	content, err := policy.ReadContent(out)
	if err != nil {
		return bodyRefusal(err, q.Host, v.APIs), path
	}
	defer content.Release()
	q.Content = content
	// Unread verdicts depend on the arguments: decide again now that they are known.
	v, path = x.snap.Rules.DecideCall(x.lease, q, out.URL)
	switch _, shows := content.Text(); {
	case v.Hold == nil:
	case x.lease.Plan == nil:
		q.Methods = []string{"CALL"}
		v = x.hold(v, q, strings.TrimPrefix(path, "/"), nil)
	case shows:
		v.Allow = true // the plan records it, even if the tool claims to only read
	default:
		v = policy.Refuse(policy.CodePlanUnreadable, q.Host, v.APIs)
	}
	return v, path
}

// dispatch sends a judged call to the broker.
func (x *exchange) dispatch(out *http.Request, path string) {
	x.debugRequest(out)
	x.toBroker = true
	x.compression = compression{accepted: true}
	// No credential is swapped in here. The search stops a credential that code has got hold of.
	if _, err := x.guard.Request(out, swap.Options{Found: x.raise}); err != nil {
		x.fail(err)
		return
	}
	if err := x.recordsCall(out, path); err != nil {
		x.fail(err)
		return
	}
	x.address(out, path)
	x.proxy.ServeHTTP(x.w, out)
}

// address sets the path for the broker, and headers that identify the run. It drops code's headers, so code cannot
// forge any of the broker's.
func (x *exchange) address(out *http.Request, path string) {
	plain, _ := url.PathUnescape(path)
	out.URL = &url.URL{Scheme: "https", Host: proxyapi.ServersHost, Path: plain, RawPath: path}
	timeout := out.Header[proxyapi.HeaderTimeout]
	out.Header = http.Header{
		proxyapi.HeaderRun:        {x.lease.Run},
		proxyapi.HeaderSlot:       {strconv.Itoa(int(x.lease.Slot))},
		proxyapi.HeaderGeneration: {strconv.FormatUint(x.lease.Generation, 10)},
	}
	x.addressPlan(out.Header)
	if out.Body != nil && out.Body != http.NoBody {
		out.Header.Set("Content-Type", "application/json")
		out.Body = &atMost{ReadCloser: out.Body, left: proxyapi.MaxArguments}
	}
	// Code controls only this header: at most nine digits, in milliseconds.
	if len(timeout) == 1 && len(timeout[0]) > 0 && len(timeout[0]) <= 9 && strings.Trim(timeout[0], "0123456789") == "" {
		out.Header[proxyapi.HeaderTimeout] = timeout
	}
}

// send makes the round trip of an exchange, to its upstream or to the broker.
func (x *exchange) send(out *http.Request) (*http.Response, error) {
	if !x.toBroker {
		resp, err := x.toUpstream(out)
		if err == nil {
			x.answered = resp.StatusCode
		}
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			return resp, err
		}
		return x.unauthorized(resp)
	}
	resp, err := x.conf.Broker.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	code := resp.Header.Get(proxyapi.HeaderCode)
	// The code goes into the receipt, so only a short plain word passes.
	if len(code) <= 40 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") == "" {
		x.note.Code = code
	}
	if code == proxyapi.CodePlanned && x.lease.Plan != nil {
		return x.recordCall(resp)
	}
	// Headers between broker and proxy are internal: code must not see them, or rely on them.
	for name := range resp.Header {
		if strings.HasPrefix(name, "Codeforge-") {
			delete(resp.Header, name)
		}
	}
	return resp, nil
}

// toUpstream makes one round trip to the upstream. It sets left on the first header field: the answer, or the client's
// end, can come before the transport calls WroteHeaders.
func (x *exchange) toUpstream(out *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{WroteHeaderField: func(string, []string) { x.left.Store(true) }}
	out = out.WithContext(httptrace.WithClientTrace(out.Context(), trace))
	return x.conf.Pool.RoundTrip(out, x.want(out))
}

// callFailure returns the verdict for a call without an answer.
func (x *exchange) callFailure(err error) policy.Verdict {
	code := policy.CodeCallBroken
	switch {
	case errors.Is(err, broker.ErrNone):
		code = policy.CodeServerUnavailable
	case errors.Is(err, errArguments):
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

// atMost is a body that fails with errArguments after left bytes.
type atMost struct {
	io.ReadCloser
	left int64
}

func (b *atMost) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errArguments
	}
	// One byte more than allowed, to tell a body of exactly the limit from a longer one.
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	b.left -= int64(n)
	if b.left < 0 {
		return 0, errArguments
	}
	return n, err
}
