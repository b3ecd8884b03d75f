package egress

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/broker"
	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

var (
	errArguments = errors.New("the arguments of a call are too large")
	errEncoded   = errors.New("the arguments of a call are encoded")
)

// call takes code's call of an MCP server's tool to the broker. Token names stay names on this hop: they are swapped
// where the server itself sends them, as one of its own requests. The answer is scrubbed like every other.
func (x *exchange) call(r *http.Request, q policy.Request) {
	out := x.outgoing(r, "")
	length := out.ContentLength                        // redaction makes it unknown
	encoded := len(out.Header["Content-Encoding"]) > 0 // redaction would leave it as it is
	x.redacted = x.conf.Redact.Request(out, framing.None)
	v, path := x.judgeCall(q, out)
	x.setVerdict(v)
	x.describe(out)
	if !v.Allow {
		x.refuse(v, nil)
		return
	}
	if x.conf.Current() != x.snap { // a reload between here and track saw no verdict to cut by
		x.cancel(errReloaded)
	}
	switch {
	case encoded:
		x.toBroker = true
		x.fail(errEncoded)
		return
	case length > controlapi.MaxArguments:
		x.toBroker = true
		x.fail(errArguments)
		return
	}
	x.dispatch(out, path)
}

// judgeCall decides on a call, and waits for a person where a rule asks one. It returns the path for the broker.
func (x *exchange) judgeCall(q policy.Request, out *http.Request) (policy.Verdict, string) {
	v, path := x.snap.Rules.DecideCall(x.lease, q, out.URL)
	if !v.Unread && v.Hold == nil {
		return v, path
	}
	if len(out.Header["Content-Encoding"]) > 0 {
		return policy.Refuse(policy.CodeArgumentsEncoded, q.Host, v.APIs), path
	}
	out.Header.Set("Content-Type", "application/json") // what the broker takes them for
	content, err := policy.ReadContent(out)
	if err != nil {
		return bodyRefusal(err, q.Host, v.APIs), path
	}
	defer content.Release()
	q.Content = content
	v, path = x.snap.Rules.DecideCall(x.lease, q, out.URL)
	switch _, shows := content.Text(); {
	case v.Hold == nil:
	case x.lease.Plan == nil:
		q.Methods = []string{"CALL"}
		v = x.hold(v, q, strings.TrimPrefix(path, "/"), nil)
	case shows:
		v.Allow = true // to become a step, whatever the tool says of itself
	default:
		v = policy.Refuse(policy.CodePlanUnreadable, q.Host, v.APIs)
	}
	return v, path
}

// dispatch sends a call that was judged to the broker.
func (x *exchange) dispatch(out *http.Request, path string) {
	x.debugRequest(out)
	x.toBroker = true
	x.compression = compression{accepted: true}
	// Nothing may be swapped in, but a credential that code has got hold of travels no further.
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

// address gives a call the path for the broker, and headers that say for whom it is. Code's own headers do not leave:
// none can be taken for one of these.
func (x *exchange) address(out *http.Request, path string) {
	plain, _ := url.PathUnescape(path)
	out.URL = &url.URL{Scheme: "https", Host: controlapi.ServersHost, Path: plain, RawPath: path}
	timeout := out.Header[controlapi.HeaderTimeout]
	out.Header = http.Header{
		controlapi.HeaderRun:        {x.lease.Run},
		controlapi.HeaderSlot:       {strconv.Itoa(int(x.lease.Slot))},
		controlapi.HeaderGeneration: {strconv.FormatUint(x.lease.Generation, 10)},
	}
	x.addressPlan(out.Header)
	if out.Body != nil && out.Body != http.NoBody {
		out.Header.Set("Content-Type", "application/json")
		out.Body = &atMost{ReadCloser: out.Body, left: controlapi.MaxArguments}
	}
	if len(timeout) == 1 && len(timeout[0]) > 0 && len(timeout[0]) <= 9 && strings.Trim(timeout[0], "0123456789") == "" {
		out.Header[controlapi.HeaderTimeout] = timeout
	}
}

// send is the round trip of an exchange, to its upstream or to the broker.
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
	code := resp.Header.Get(controlapi.HeaderCode)
	if len(code) <= 40 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") == "" {
		x.note.Code = code
	}
	if code == controlapi.CodePlanned && x.lease.Plan != nil {
		return x.recordCall(resp)
	}
	for name := range resp.Header {
		if strings.HasPrefix(name, "Codeforge-") {
			delete(resp.Header, name)
		}
	}
	return resp, nil
}

// toUpstream is one round trip to the upstream. It notes whether the request, or a part of it, may have left: from its
// first header on, since the answer, or the client's end, can come before WroteHeaders is called.
func (x *exchange) toUpstream(out *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{WroteHeaderField: func(string, []string) { x.left.Store(true) }}
	out = out.WithContext(httptrace.WithClientTrace(out.Context(), trace))
	return x.conf.Pool.RoundTrip(out, x.want(out))
}

// callFailure is the verdict for a call that did not get an answer.
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

// atMost is a body that fails when it is too long.
type atMost struct {
	io.ReadCloser
	left int64
}

func (b *atMost) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errArguments
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	b.left -= int64(n)
	if b.left < 0 {
		return 0, errArguments
	}
	return n, err
}
