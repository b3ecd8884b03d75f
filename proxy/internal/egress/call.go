package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/brokerlink"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

var errEncoded = errors.New("the arguments of a call are encoded")

// brokerCall is a call of an MCP server's tool, which the broker sends.
type brokerCall struct {
	leaves bool           // the request goes to the broker
	unfit  error          // why the broker cannot read the arguments
	path   string         // for the broker
	step   *approval.Step // the call, if a plan may record it
}

// noteUnfit notes why the broker could not read the arguments of a call, before redaction changes encoding and length.
func (c *brokerCall) noteUnfit(out *http.Request) {
	switch {
	case len(out.Header["Content-Encoding"]) > 0: // redaction decodes a body and removes the header
		c.unfit = errEncoded // the broker reads arguments as plain JSON
	case out.ContentLength > proxyapi.MaxArguments: // redaction makes the length unknown
		c.unfit = &http.MaxBytesError{Limit: proxyapi.MaxArguments}
	}
}

// judgeCall decides on a call, and waits for a person if a rule requires approval.
func (x *exchange) judgeCall() error {
	l, out := x.from.lease, x.msg.out
	v, path := x.snap.Rules.DecideCall(l, x.request, out.URL)
	if v.Unread || v.Hold != nil {
		// readContent decodes, so a rule or a person would see other bytes than the broker gets.
		if len(out.Header["Content-Encoding"]) > 0 {
			return x.deny(policy.Refuse(policy.CodeArgumentsEncoded, x.request.Host, v.APIs))
		}
		out.Header.Set("Content-Type", "application/json") // the broker parses the arguments as JSON
		x.setVerdict(v)                                    // names the server in a refusal
		if err := readContent(&x.request, out); err != nil {
			return x.deny(x.verdictOf(err))
		}
		// Unread verdicts depend on the arguments: decide again now that they are known.
		v, path = x.snap.Rules.DecideCall(l, x.request, out.URL)
	}
	x.call.path = path
	switch q := x.request; {
	case v.Hold == nil:
	case l.Plan == nil:
		q.Methods = []string{"CALL"}
		return x.askPerson(v, q, strings.TrimPrefix(path, "/"), nil)
	default:
		_, v.Allow = q.Content.BodyText() // the plan records it, even if the tool claims to only read
		if !v.Allow {
			v = policy.Refuse(policy.CodePlanUnreadable, q.Host, v.APIs)
		}
	}
	if !v.Allow {
		return x.deny(v)
	}
	x.setVerdict(v)
	return nil
}

// setAddress sets the path for the broker, and headers that identify the run. It drops code's headers, so code cannot
// forge any of the broker's. isHeld means that a rule holds the call. r is the plan's step that makes it, or nil.
func (c *brokerCall) setAddress(out *http.Request, l *lease.Lease, isHeld bool, r *replay) error {
	// DecideCall has escaped the path, so unescaping cannot fail.
	plain, _ := url.PathUnescape(c.path)
	out.URL = &url.URL{Scheme: "https", Host: proxyapi.ServersHost, Path: plain, RawPath: c.path}
	timeout := out.Header[proxyapi.HeaderTimeout]
	out.Header = http.Header{
		proxyapi.HeaderRun:        {l.Run},
		proxyapi.HeaderSlot:       {strconv.Itoa(int(l.Slot))},
		proxyapi.HeaderGeneration: {strconv.FormatUint(l.Generation, 10)},
	}
	switch plan := out.Header; {
	// Rules held this call, so it is recorded even if the tool claims to only read. The broker only checks it.
	case c.step != nil && isHeld:
		plan.Set(proxyapi.HeaderPlan, proxyapi.PlanCheck)
	case c.step != nil:
		plan.Set(proxyapi.HeaderPlan, proxyapi.PlanRecord)
	case r != nil:
		plan.Set(proxyapi.HeaderPlan, proxyapi.PlanSend)
		plan.Set(proxyapi.HeaderSession, r.step.Session)
	}
	if body := coding.BodyOf(out); body != nil {
		out.Header.Set("Content-Type", "application/json")
		body.AddReader(func(src io.Reader) io.Reader {
			return http.MaxBytesReader(nil, io.NopCloser(src), proxyapi.MaxArguments)
		})
	}
	// Code controls only this header: at most nine digits, in milliseconds.
	if len(timeout) == 1 && len(timeout[0]) > 0 && len(timeout[0]) <= 9 && strings.Trim(timeout[0], "0123456789") == "" {
		out.Header[proxyapi.HeaderTimeout] = timeout
	}
	return nil
}

// sendRequest makes the round trip of an exchange, to its upstream or to the broker.
func (x *exchange) sendRequest(out *http.Request) (*http.Response, error) {
	if x.call.leaves {
		resp, err := x.call.send(x.conf.Broker, out, &x.note)
		if err == nil && x.note.Code == proxyapi.CodePlanned && x.from.lease.Plan != nil {
			return x.addCallToPlan(resp)
		}
		return resp, err
	}
	resp, err := sendUpstream(x.conf.Pool, out, x.creds.want, &x.answer.left)
	if err != nil {
		return nil, err
	}
	if x.answer.status = resp.StatusCode; resp.StatusCode != http.StatusUnauthorized {
		return resp, nil
	}
	again := x.creds.minted.takeRetry(x.ctx, x.conf.Mint)
	if again == nil {
		return resp, nil
	}
	_ = resp.Body.Close()
	x.msg.out = again
	if err := x.putCredentials(); err != nil {
		return nil, err
	}
	return sendUpstream(x.conf.Pool, again, x.creds.want, &x.answer.left)
}

// send makes the round trip to the broker, and notes the code of the answer.
func (c *brokerCall) send(b *brokerlink.Broker, out *http.Request, n *receipt.Note) (*http.Response, error) {
	resp, err := b.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	// The code goes into the receipt, so only a short plain word passes.
	code := resp.Header.Get(proxyapi.HeaderCode)
	if len(code) <= 40 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") == "" {
		n.Code = code
	}
	if c.step != nil {
		c.step.Session = resp.Header.Get(proxyapi.HeaderSession)
	}
	// Headers between broker and proxy are internal: code must not see them, or rely on them.
	for name := range resp.Header {
		if strings.HasPrefix(name, "Codeforge-") {
			delete(resp.Header, name)
		}
	}
	return resp, nil
}

// sendUpstream makes one round trip to the upstream. It sets left on the first header field: the answer, or the
// client's end, can come before the transport calls WroteHeaders.
func sendUpstream(
	pool *upstream.Pool, out *http.Request, want upstream.Want, left *atomic.Bool,
) (*http.Response, error) {
	trace := &httptrace.ClientTrace{WroteHeaderField: func(string, []string) { left.Store(true) }}
	resp, err := pool.RoundTrip(out.WithContext(httptrace.WithClientTrace(out.Context(), trace)), want)
	// The head may arrive after the exchange has ended: see observedBody.Read.
	if cause := context.Cause(out.Context()); cause != nil && err == nil {
		_ = resp.Body.Close()
		return nil, cause
	}
	return resp, err
}
