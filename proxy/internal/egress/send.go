package egress

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// endStale cuts an exchange off if its snapshot is not in force. CutStale looks at verdicts: it could not cut this
// exchange before setVerdict.
func endStale(own, current *reload.Snapshot, cancel context.CancelCauseFunc) error {
	if own != current {
		cancel(errReloaded)
	}
	return nil
}

// announceWrite writes an intent to the ledger before the request leaves. A request needs one if its method writes, or
// if it has a body, which may contain another operation than the method suggests. A nil send means no ledger.
func announceWrite(
	send func(ledger.Sending) error, n *receipt.Note, q policy.Request, v policy.Verdict, out *http.Request,
) error {
	if send == nil || !q.CanWrite() && out.ContentLength == 0 {
		return nil
	}
	err := send(ledger.Sending{Run: n.Run, Tenant: n.Tenant, CausedBy: n.CausedBy, Method: n.Method, URL: n.URL})
	//defence:ledger-required
	if err != nil {
		return &refusedError{policy.Refuse(policy.CodeAuditUnavailable, q.Host, v.APIs), err}
	}
	return nil
}

// searchCall searches a call for credentials. No credential is swapped in here.
func (u *credentialUse) searchCall(guard *swap.Swapper, out *http.Request, found func(swap.CarriedValue)) error {
	u.compression = compression{accepted: true}
	_, err := guard.SwapRequest(out, swap.Options{Found: found})
	return err
}

// putCredentials replaces token names by credentials, sets the headers that the proxy controls, and signs, in this
// order: a signature must cover the request that leaves.
func (x *exchange) putCredentials() error {
	u, out := &x.creds, x.msg.out
	u.compression = compressionOf(x.holders())
	x.note.HeadUp = headSize(out)
	o := newSwapOptions(x.note.Host, x.request.TLS, x.verdict.APIs)
	o.Obtain, o.Found = u.minted.newObtainer(x.ctx, x.conf.Mint), x.raiseAlarm
	u.messages = o // a WebSocket's messages have another framing than the body
	o.Framing = x.msg.framingOf(out.Header)
	var signs *catalog.Credential
	// Signing follows the rule for swaps: over plain HTTP every API must allow it.
	if !o.Insecure {
		signs = mint.ClaimSigner(out, o.Allowed)
	}
	u.rest = coding.BodyOf(out).Split()
	// Swapping removes a Range header if the response may show a credential; the hint tells the code why.
	ranged := len(swap.ListRangeHeaders(out)) > 0
	defer func() { u.ranged = ranged && len(swap.ListRangeHeaders(out)) == 0 }()
	var err error
	if u.swapped, err = x.snap.guard.SwapRequest(out, o); err != nil {
		return err
	}
	out.Header.Set("User-Agent", x.conf.UserAgent)
	u.compression.setAcceptHeaders(out.Header)
	u.want = upstream.Want{
		APIs: x.verdict.APIs, Version: x.snap.Public.Version, Owner: x.from.lease, Once: x.settlement.approved,
		HTTP2:   x.request.TLS && isGRPC(out.Header.Get("Content-Type")),
		Upgrade: out.Header.Get("Upgrade") != "", Login: wantsConnLogin(out.Header),
	}
	if u.want.HTTP2 {
		out.Header.Set("Te", "trailers") // tells a gRPC server that every hop keeps trailers
	}
	if signs == nil {
		return nil
	}
	signature, err := x.conf.Mint.SignRequest(x.ctx, *signs, out, x.request.Host.Name())
	if err != nil {
		return err
	}
	u.signature = newRequestSignature(signs.Name, signature, out.Header.Get("X-Amz-Security-Token") != "")
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

// newSwapOptions returns the credentials of these APIs as those that the exchange may swap in. host is the whole name.
// Over plain HTTP every API must allow it.
func newSwapOptions(host string, isTLS bool, apis []*catalog.API) swap.Options {
	o := swap.Options{Host: findChosenHostPart(host, apis)}
	for _, a := range apis {
		o.Insecure = o.Insecure || !isTLS && !a.AllowHTTP
		if o.Allowed == nil {
			o.Allowed = slices.Clip(a.Credentials) // a slice of the catalog: appending must copy it
			continue
		}
		o.Allowed = append(o.Allowed, a.Credentials...)
	}
	return o
}

// findChosenHostPart returns the part of a host name that the code chose. It is "" if an API names the host in full. If
// a wildcard of an API matched, it is the first label. If the host is in no API, it is the whole name.
func findChosenHostPart(host string, apis []*catalog.API) string {
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

// isGRPC reports whether a content type is that of gRPC, such as application/grpc+proto. The types of gRPC-Web, which
// is made for HTTP/1, do not match.
func isGRPC(kind string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(kind), "application/grpc")
	return ok && (rest == "" || strings.ContainsAny(rest[:1], "+; "))
}

// noteReport notes the credentials in the receipt entry.
func (u *credentialUse) noteReport(n *receipt.Note, host catalog.Host, snap *reload.Snapshot, run policy.Run) {
	n.Swapped = toSwaps(u.swapped.Swapped())
	if name := u.signature.name; name != "" {
		n.Swapped = append(n.Swapped, proxyapi.Swap{Name: name, In: "signature"})
	}
	// A refusal may come before the step that makes a report.
	if u.swapped != nil {
		n.Hints = append(n.Hints, hintUnswapped(host, snap.Rules.Catalog, run, u.swapped)...)
	}
}

// toSwaps converts a report of package swap to the form that receipts use.
func toSwaps(list []swap.Swap) []proxyapi.Swap {
	return convert.Each(list, func(w swap.Swap) proxyapi.Swap { return proxyapi.Swap{Name: w.Name, In: w.In} })
}
