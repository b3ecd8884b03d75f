package egress

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// readHead turns a request into the form that policy judges.
func (x *exchange) readHead() error {
	r, bad := x.in, x.bad
	x.insecure = !x.conn.IsTLS()
	if bad == nil && !strings.HasPrefix(r.RequestURI, "/") {
		bad = errors.New("the target is not a path")
	}
	// HTTP/2 only: package strict refuses these in HTTP/1.
	if bad == nil && strings.ContainsFunc(r.RequestURI, func(c rune) bool { return c <= ' ' || c > '~' || c == '#' }) {
		bad = errors.New("the target has a fragment, or characters that must be escaped")
	}
	if e := r.Header["Expect"]; bad == nil && len(e) > 0 && (len(e) > 1 || !strings.EqualFold(e[0], "100-continue")) {
		bad = errors.New("an Expect other than 100-continue")
	}
	protocol := ""
	if bad == nil {
		protocol, bad = stripConnection(r.Header)
	}
	if bad != nil {
		// A malformed request may quote anything, so its method and URL stay out of the receipt.
		x.note.Method, x.note.URL = "", ""
		x.note.Host = x.conn.Host().String()
		return &refusedError{policy.Refuse(policy.CodeBadRequest, x.conn.Host(), nil), bad}
	}
	host, code := x.findAgreedHost(r)
	x.host, x.note.Host = host, host.String()
	if code != "" {
		_ = x.describeRequest()
		return &refusedError{verdict: policy.Refuse(code, host, nil)}
	}
	x.request = policy.Request{Host: host, TLS: x.conn.IsTLS(), Methods: listMethods(r),
		Moved: policy.HasMovedPath(r.Header),
		Path:  r.URL.EscapedPath(), Upgrade: protocol}
	return nil
}

// listMethods returns the method of a request and the overrides in its head.
func listMethods(r *http.Request) []string {
	out := []string{r.Method}
	out = append(out, policy.HeaderOverrides(r.Header)...)
	out = append(out, policy.ParameterOverrides(r.URL.RawQuery)...)
	out = append(out, policy.PathOverrides(r.URL.EscapedPath())...)
	//defence:override instead out[:1]
	return out
}

// findAgreedHost returns the host that the TLS handshake, the request and the port of the connection agree on, or a
// refusal code.
func (x *exchange) findAgreedHost(r *http.Request) (catalog.Host, string) {
	at := x.conn.Port()
	// HTTP/2 has :authority. A Host beside it must be equal, or the upstream could read another host than policy.
	if extra := r.Header["Host"]; len(extra) > 1 || len(extra) == 1 && extra[0] != r.Host {
		return x.conn.Host(), policy.CodeHostMismatch
	}
	delete(r.Header, "Host")
	// The usual case needs no parsing: the name of the handshake, with or without the connection's port.
	named, ported := strings.CutSuffix(r.Host, ":"+strconv.Itoa(int(at)))
	if x.conn.IsTLS() && named == x.conn.Host().Name() && (ported || x.conn.Host().Port() == 0) {
		return x.conn.Host(), ""
	}
	host, err := catalog.ParseHost(named)
	host = host.AtPort(at)
	switch {
	case err != nil:
		return x.conn.Host(), policy.CodeHostInvalid
	//defence:host-agreement
	case !ported && host.Port() != 0, x.conn.IsTLS() && host != x.conn.Host():
		return x.conn.Host(), policy.CodeHostMismatch
	}
	return host, ""
}

// judgeHead refuses a request that only its head condemns.
func (x *exchange) judgeHead() error {
	q := x.request
	q.Early = true
	v := x.snap.Rules.Decide(x.lease, q)
	switch {
	case !v.Allow:
		return x.deny(v)
	case !x.takeWindows(coding.Parse(x.in.Header)):
		return x.deny(policy.Refuse(policy.CodeTooMany, q.Host, nil))
	case x.conf.Redact.MatchHost(chosenHostPart(q.Host.String(), v.APIs)):
		x.note.Host = redact.Mark // URL and log may spell the host in another case than the redacted string
		return x.deny(policy.Refuse(policy.CodeRedactedHost, catalog.Host{}, nil))
	}
	return nil
}

// takeWindows reserves memory for the windows of a body's decoders. It returns false if the run has used up its share
// of the budget.
func (x *exchange) takeWindows(encodings []string, err error) bool {
	return err != nil || x.held.TryTake(coding.SumWindows(encodings)) // a body with an unknown encoding stays encoded
}

// redactRequest replaces the operator's strings.
func (x *exchange) redactRequest() error {
	x.useFraming()
	x.redacted = x.conf.Redact.RedactRequest(x.out, x.framingOf(x.out.Header))
	return nil
}

// readOverrides reads the methods of the request as it will leave: redaction may have rewritten the query or a header
// that overrides the method. If an API restricts methods, it also searches the body.
func (x *exchange) readOverrides() error {
	q := &x.request
	q.Methods, q.Path = listMethods(x.out), x.out.URL.EscapedPath()
	//defence:body-override
	if policy.NeedsMethodCheck(x.holders()) {
		judged := *q // the body may be read while later steps change the request
		permits := func(method string) bool {
			judged := judged
			judged.Methods = []string{method}
			return x.snap.Rules.Decide(x.lease, judged).Allow // Hold does not count here: the body is not whole yet
		}
		more, err := policy.BodyOverrides(x.out, permits)
		if err != nil {
			return x.denyBody(err)
		}
		q.Methods = append(q.Methods, more...)
	}
	return nil
}

// judgeRequest decides about the request as it will leave.
func (x *exchange) judgeRequest() error {
	v := x.snap.Rules.Decide(x.lease, x.request)
	if v.Allow {
		_, known := policy.ListNeeds(x.request, x.holders())
		v.Unread = known.Unread
	}
	// Rules and limits that read the body need the whole body, so it is read only for them.
	if v.Unread || v.Hold != nil || v.Allow && x.mustPlan() {
		if err := x.readContent(); err != nil {
			return err
		}
		v = x.snap.Rules.Decide(x.lease, x.request)
	}
	if !v.Allow && v.Hold == nil {
		return x.deny(v)
	}
	x.setVerdict(v)
	return nil
}

// readContent reads the body for rules and people, unless a step has read it.
func (x *exchange) readContent() error {
	if x.request.Content != nil {
		return nil
	}
	content, err := policy.ReadContent(x.out)
	if err != nil {
		return x.denyBody(err)
	}
	x.request.Content = content
	return nil
}

// releaseContent returns the memory of readContent.
func (x *exchange) releaseContent() error {
	if c := x.request.Content; c != nil {
		c.ReleaseMemory()
		x.request.Content = nil
	}
	return nil
}

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

// prepareRequest makes the request in the form that leaves, before any swap. It has an absolute URL, no header of the
// client's connection and no trailers.
func (x *exchange) prepareRequest() error {
	r := x.in
	out := r.WithContext(x.ctx)
	x.out = out
	scheme := "https"
	if x.insecure {
		scheme = "http"
	}
	u := *r.URL
	u.Scheme, u.Host, u.User, u.Fragment = scheme, x.note.Host, nil, ""
	out.URL, out.Host, out.RequestURI = &u, x.note.Host, ""
	// Trailers arrive after the judgement, and GetBody would resend a body that was not searched.
	out.Close, out.Trailer, out.TransferEncoding, out.GetBody = false, nil, nil, nil
	if x.request.Upgrade != "" && !x.request.IsCall() {
		// stripConnection removed both headers. Only WebSocket passes policy, so the value is a constant.
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", "websocket")
	}
	if out.ContentLength == 0 && out.Body != nil {
		out.Body = http.NoBody // HTTP/2 requests have an empty body instead, and net/http does not retry a GET with a body
	}
	x.up = &countedBody{}
	if out.Body != nil && out.Body != http.NoBody {
		x.up.ReadCloser = out.Body
		out.Body = x.up
	}
	return nil
}

// describeRequest notes method and URL as the sandbox wrote them, without query values.
func (x *exchange) describeRequest() error {
	r := x.in
	if x.out != nil {
		r = x.out
	}
	scheme := "https://"
	if x.insecure {
		scheme = "http://"
	}
	text := scheme + x.note.Host + r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		names := strings.FieldsFunc(r.URL.RawQuery, func(c rune) bool { return c == '&' })
		for i, pair := range names {
			names[i], _, _ = strings.Cut(pair, "=")
		}
		text += "?" + strings.Join(names, "&")
	}
	const most = 2048
	if text = x.cleanForLog(text); len(text) > most {
		text = text[:most] + "..."
	}
	x.note.Method, x.note.URL = r.Method, text
	for _, a := range x.verdict.APIs {
		x.note.APIs = append(x.note.APIs, a.Name)
	}
	return nil
}

// cleanForLog removes credentials and redacted strings from a text that the caller will truncate. Cleaning after the
// cut would miss a string that the cut splits.
func (x *exchange) cleanForLog(text string) string {
	return x.conf.Redact.String(x.snap.Scrub.CleanForLog(text))
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
	if !o.Insecure && x.conf.Mint != nil {
		signs = mint.ClaimSigner(out, o.Allowed)
	}
	// From here on the request holds credentials, so searchRefused must not search it again.
	x.guarded, x.rest = true, out.Body
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
		Upgrade: out.Header.Get("Upgrade") != "", Login: wantsConnLogin(out.Header),
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
	var out []proxyapi.Swap
	for _, w := range list {
		out = append(out, proxyapi.Swap{Name: w.Name, In: w.In})
	}
	return out
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
