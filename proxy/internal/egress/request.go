package egress

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
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
		OtherPath: policy.HasOtherPath(r.Header),
		Path:      r.URL.EscapedPath(), Upgrade: protocol}
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
