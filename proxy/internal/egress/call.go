package egress

import (
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

var errEncoded = errors.New("the arguments of a call are encoded")

// prepareCall makes the request for the broker. A plan's step is already one.
func (x *exchange) prepareCall() error {
	if x.replay != nil {
		return nil
	}
	if err := x.prepareRequest(); err != nil {
		return err
	}
	switch {
	case len(x.out.Header["Content-Encoding"]) > 0: // redaction decodes a body and removes the header
		x.unfitCall = errEncoded // the broker reads arguments as plain JSON
	case x.out.ContentLength > proxyapi.MaxArguments: // redaction makes the length unknown
		x.unfitCall = &http.MaxBytesError{Limit: proxyapi.MaxArguments}
	}
	x.redacted = x.conf.Redact.RedactRequest(x.out, framing.None)
	return nil
}

// judgeCall decides on a call, and waits for a person if a rule requires approval.
func (x *exchange) judgeCall() error {
	out := x.out
	v, path := x.snap.Rules.DecideCall(x.lease, x.request, out.URL)
	if v.Unread || v.Hold != nil {
		// readContent decodes, so a rule or a person would see other bytes than the broker gets.
		if len(out.Header["Content-Encoding"]) > 0 {
			return x.deny(policy.Refuse(policy.CodeArgumentsEncoded, x.host, v.APIs))
		}
		out.Header.Set("Content-Type", "application/json") // the broker parses the arguments as JSON
		x.setVerdict(v)                                    // names the server in a refusal
		if err := x.readContent(); err != nil {
			return err
		}
		// Unread verdicts depend on the arguments: decide again now that they are known.
		v, path = x.snap.Rules.DecideCall(x.lease, x.request, out.URL)
	}
	switch q := x.request; {
	case v.Hold == nil:
	case x.lease.Plan == nil:
		q.Methods = []string{"CALL"}
		v = x.waitForApproval(v, q, strings.TrimPrefix(path, "/"), nil)
	default:
		_, v.Allow = q.Content.BodyText() // the plan records it, even if the tool claims to only read
		if !v.Allow {
			v = policy.Refuse(policy.CodePlanUnreadable, q.Host, v.APIs)
		}
	}
	if !v.Allow {
		return x.deny(v)
	}
	x.callPath = path
	x.setVerdict(v)
	return nil
}

// checkArguments refuses arguments that the broker cannot read.
func (x *exchange) checkArguments() error {
	x.toBroker = true
	return x.unfitCall
}

// searchCall searches a call for credentials. No credential is swapped in here.
func (x *exchange) searchCall() error {
	x.compression = compression{accepted: true}
	_, err := x.guard.SwapRequest(x.out, swap.Options{Found: x.raiseAlarmOnce})
	return err
}

// addressBroker sets the path for the broker, and headers that identify the run. It drops code's headers, so code
// cannot forge any of the broker's.
func (x *exchange) addressBroker() error {
	// DecideCall has escaped the path, so unescaping cannot fail.
	out, path := x.out, x.callPath
	plain, _ := url.PathUnescape(path)
	out.URL = &url.URL{Scheme: "https", Host: proxyapi.ServersHost, Path: plain, RawPath: path}
	timeout := out.Header[proxyapi.HeaderTimeout]
	out.Header = http.Header{
		proxyapi.HeaderRun:        {x.lease.Run},
		proxyapi.HeaderSlot:       {strconv.Itoa(int(x.lease.Slot))},
		proxyapi.HeaderGeneration: {strconv.FormatUint(x.lease.Generation, 10)},
	}
	x.setPlanHeaders(out.Header)
	if out.Body != nil && out.Body != http.NoBody {
		out.Header.Set("Content-Type", "application/json")
		out.Body = http.MaxBytesReader(nil, out.Body, proxyapi.MaxArguments)
	}
	// Code controls only this header: at most nine digits, in milliseconds.
	if len(timeout) == 1 && len(timeout[0]) > 0 && len(timeout[0]) <= 9 && strings.Trim(timeout[0], "0123456789") == "" {
		out.Header[proxyapi.HeaderTimeout] = timeout
	}
	return nil
}

// sendRequest makes the round trip of an exchange, to its upstream or to the broker.
func (x *exchange) sendRequest(out *http.Request) (*http.Response, error) {
	if !x.toBroker {
		resp, err := x.sendUpstream(out)
		if err == nil {
			x.answered = resp.StatusCode
		}
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			return resp, err
		}
		return x.retryUnauthorized(resp)
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
		return x.addCallToPlan(resp)
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
func (x *exchange) sendUpstream(out *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{WroteHeaderField: func(string, []string) { x.left.Store(true) }}
	out = out.WithContext(httptrace.WithClientTrace(out.Context(), trace))
	return x.conf.Pool.RoundTrip(out, x.newWant(out))
}
