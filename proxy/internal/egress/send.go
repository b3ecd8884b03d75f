package egress

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// endIfReloaded cuts the exchange off if its snapshot is not in force. Cut looks at verdicts: it could not cut this
// exchange before setVerdict.
func (x *exchange) endIfReloaded() error {
	if x.conf.Current() != x.snap {
		x.cancel(errReloaded)
	}
	return nil
}

// announceWrite writes an intent to the ledger before the request leaves. A request needs one if its method writes, or
// if it has a body, which may contain another operation than the method suggests.
func (x *exchange) announceWrite() error {
	if x.conf.Sending == nil || !x.request.CanWrite() && x.out.ContentLength == 0 {
		return nil
	}
	err := x.conf.Sending(ledger.Sending{
		Run: x.note.Run, Tenant: x.note.Tenant, CausedBy: x.note.CausedBy, Method: x.note.Method, URL: x.note.URL,
	})
	//defence:ledger-required
	if err != nil {
		return &refusedError{policy.Refuse(policy.CodeAuditUnavailable, x.host, x.verdict.APIs), err}
	}
	return nil
}

// checkAddress checks the addresses that an upstream's name resolves to.
func (x *exchange) checkAddress() error {
	return x.conf.Pool.CheckTarget(x.ctx, x.newWant(x.out), x.out.URL)
}

// forwardRequest sends the request and passes the answer on. goproxy calls roundTrip.
func (x *exchange) forwardRequest() error {
	if x.request.Upgrade != "" {
		return x.serveWebSocket(x.out)
	}
	x.proxy.ServeHTTP(x.w, x.out)
	return nil
}

// putCredentials replaces token names by credentials, sets the headers that the proxy controls, and signs, in this
// order: a signature must cover the request that leaves.
func (x *exchange) putCredentials() error {
	out := x.out
	x.compression = compressionOf(x.holders())
	x.note.HeadUp = headSize(out)
	o := x.newSwapOptions()
	o.Framing = x.framingOf(out.Header)
	var signs *catalog.Credential
	// Signing follows the rule for swaps: over plain HTTP every API must allow it.
	if !o.Insecure {
		signs = mint.ClaimSigner(out, o.Allowed)
	}
	// From here on the request holds credentials, so searchRefused must not search it again.
	x.guarded, x.rest = true, coding.SplitBody(out)
	// Swapping removes a Range header if the response may show a credential; the hint tells the code why.
	ranged := len(swap.ListRangeHeaders(out)) > 0
	defer func() { x.ranged = ranged && len(swap.ListRangeHeaders(out)) == 0 }()
	report, err := x.guard.SwapRequest(out, o)
	x.swapped = report
	if err != nil {
		return err
	}
	out.Header.Set("User-Agent", x.conf.UserAgent)
	x.compression.setAcceptHeaders(out.Header)
	if x.newWant(out).HTTP2 {
		out.Header.Set("Te", "trailers") // tells a gRPC server that every hop keeps trailers
	}
	if signs == nil {
		return nil
	}
	signature, err := x.conf.Mint.SignRequest(x.ctx, *signs, out, x.host.Name())
	if err != nil {
		return err
	}
	x.minted.noteSignature(signs.Name, signature)
	x.minted.token = out.Header.Get("X-Amz-Security-Token") != ""
	return nil
}

// headSize returns the size of a request's head in HTTP/1, in bytes, without the headers that the proxy adds.
func headSize(r *http.Request) int64 {
	n := len(r.Method) + len(r.URL.RequestURI()) + len(" HTTP/1.1 \r\nHost: \r\n\r\n") + len(r.Host)
	return int64(n + headBytes(r.Header))
}

// headBytes returns the size of a head's fields in HTTP/1, in bytes.
func headBytes(h http.Header) (n int) {
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

// newSwapOptions returns the credentials that the exchange may swap in. Over plain HTTP every API must allow it.
func (x *exchange) newSwapOptions() swap.Options {
	o := swap.Options{Host: chosenHostPart(x.note.Host, x.verdict.APIs), Obtain: x.obtainValue, Found: x.raiseAlarmOnce}
	for _, a := range x.verdict.APIs {
		o.Insecure = o.Insecure || x.insecure && !a.AllowHTTP
		if o.Allowed == nil {
			o.Allowed = slices.Clip(a.Credentials) // a slice of the catalog: appending must copy it
			continue
		}
		o.Allowed = append(o.Allowed, a.Credentials...)
	}
	return o
}

// chosenHostPart returns the part of a host name that the code chose. It is "" if an API names the host in full. If a
// wildcard of an API matched, it is the first label. If the host is in no API, it is the whole name.
func chosenHostPart(host string, apis []*catalog.API) string {
	for _, a := range apis {
		// A fixed name holds no data of the code, so it cannot carry a secret out.
		if slices.ContainsFunc(a.Hosts, func(h catalog.HostPattern) bool { return h.String() == host }) {
			return ""
		}
	}
	if len(apis) > 0 {
		host, _, _ = strings.Cut(host, ".")
	}
	return host
}

// wantsConnLogin reports whether a request may authenticate its whole connection. Servers read a second value, or a
// list, in different ways, so the word anywhere counts.
func wantsConnLogin(h http.Header) bool {
	// NTLM and Negotiate authenticate the connection: upstream.Want.Login keeps later requests off it.
	for _, v := range h["Authorization"] {
		for _, word := range strings.FieldsFunc(v, func(c rune) bool { return c == ' ' || c == '\t' || c == ',' }) {
			if strings.EqualFold(word, "NTLM") || strings.EqualFold(word, "Negotiate") {
				return true
			}
		}
	}
	return false
}

// newWant describes the connection that a request needs.
func (x *exchange) newWant(out *http.Request) upstream.Want {
	return upstream.Want{
		APIs: x.verdict.APIs, Version: x.snap.Public.Version, Owner: x.lease,
		HTTP2:   !x.insecure && isGRPC(out.Header.Get("Content-Type")),
		Upgrade: out.Header.Get("Upgrade") != "", Login: wantsConnLogin(out.Header), Once: x.approved,
	}
}

// isGRPC reports whether a content type is that of gRPC, such as application/grpc+proto. The types of gRPC-Web, which
// is made for HTTP/1, do not match.
func isGRPC(kind string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(kind), "application/grpc")
	return ok && (rest == "" || strings.ContainsAny(rest[:1], "+; "))
}

// noteReports copies the reports of the steps into the receipt entry.
func (x *exchange) noteReports() {
	n := &x.note
	n.Swapped = toSwaps(x.swapped.Swapped())
	if len(x.minted.signed) > 0 {
		n.Swapped = append(n.Swapped, proxyapi.Swap{Name: x.minted.signed[0].Name, In: "signature"})
	}
	// A refusal may come before the step that makes a report.
	if x.swapped != nil {
		n.Hints = append(n.Hints, x.hintUnswapped(x.swapped)...)
	}
	if x.redacted != nil {
		n.Redacted = x.redacted.Count()
	}
	if x.scrubbed != nil {
		n.Sanitized = x.scrubbed.Count() + x.unsigned.Count()
		for _, f := range x.scrubbed.ListFound() {
			n.Scrubbed = append(n.Scrubbed, proxyapi.Swap{Name: f.Name, In: f.In, Count: f.Count})
		}
	}
	if x.up != nil {
		n.BytesUp = x.up.n.Load()
	}
	n.BytesDown = x.w.bytes
	if !x.w.first.IsZero() {
		n.FirstMS = toMilliseconds(x.w.first.Sub(x.began))
	}
	if x.ws != nil {
		scrubbed, redacted, up, down := x.ws.Counts()
		n.Sanitized, n.Redacted = n.Sanitized+scrubbed, n.Redacted+redacted
		n.BytesUp, n.BytesDown = n.BytesUp+up, n.BytesDown+down
		n.Swapped = append(n.Swapped, toSwaps(x.ws.Swapped())...)
		n.Hints = append(n.Hints, x.hintUnswapped(x.ws)...)
	}
	n.Hints = slices.Concat(n.Hints, x.hintRejected(), x.hintRemovedHeaders(), x.hintLate())
	x.addMethodToHints()
}

// toSwaps converts a report of package swap to the form that receipts use.
func toSwaps(list []swap.Swap) []proxyapi.Swap {
	return convert.Each(list, func(w swap.Swap) proxyapi.Swap { return proxyapi.Swap{Name: w.Name, In: w.In} })
}

// countedBody counts the bytes of a request's body.
type countedBody struct {
	io.ReadCloser
	n    byteCounter
	late *lateWatch
}

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	c.late.countArrived(p[:n])
	return n, err
}
