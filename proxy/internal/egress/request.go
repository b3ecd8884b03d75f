package egress

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
)

// requestMessage is the request as it came and as it leaves.
type requestMessage struct {
	in        *http.Request // as it came; nil for a plan's step
	bad       error         // the strict check's error
	out       *http.Request // the request that leaves; nil until prepareRequest makes it
	received  atomic.Int64  // bytes of out's body, as it came
	redacted  *redact.Report
	byMessage bool // all APIs of the host set MessageFraming: each message leaves when it is complete
	debug     *debugPayloads
	late      lateness
}

// countReceived counts the bytes of out's body as they come.
func (m *requestMessage) countReceived(p []byte) {
	m.received.Add(int64(len(p)))
	m.late.request.countArrived(p)
}

// setOut makes out the request that leaves.
func (m *requestMessage) setOut(out *http.Request) {
	m.out = out
	if body := coding.BodyOf(out); body != nil {
		body.AddObserver(m.countReceived)
	}
}

// readHead turns a request into the form that policy judges.
func (x *exchange) readHead() error {
	r, bad, conn := x.msg.in, x.msg.bad, x.from.conn
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
		x.note.Host = conn.Host().String()
		return &refusedError{policy.Refuse(policy.CodeBadRequest, conn.Host(), nil), bad}
	}
	host, code := findAgreedHost(conn, r)
	x.request.Host, x.request.TLS, x.note.Host = host, conn.IsTLS(), host.String()
	if code != "" {
		return x.deny(policy.Refuse(code, host, nil))
	}
	x.request.Methods, x.request.Path, x.request.Upgrade = listMethods(r), r.URL.EscapedPath(), protocol
	x.request.OtherPath = policy.HasOtherPath(r.Header)
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
func findAgreedHost(conn *entrance.Conn, r *http.Request) (catalog.Host, string) {
	at := conn.Port()
	// HTTP/2 has :authority. A Host beside it must be equal, or the upstream could read another host than policy.
	if extra := r.Header["Host"]; len(extra) > 1 || len(extra) == 1 && extra[0] != r.Host {
		return conn.Host(), policy.CodeHostMismatch
	}
	delete(r.Header, "Host")
	// The usual case needs no parsing: the name of the handshake, with or without the connection's port.
	named, ported := strings.CutSuffix(r.Host, ":"+strconv.Itoa(int(at)))
	if conn.IsTLS() && named == conn.Host().Name() && (ported || conn.Host().Port() == 0) {
		return conn.Host(), ""
	}
	host, err := catalog.ParseHost(named)
	host = host.AtPort(at)
	switch {
	case err != nil:
		return conn.Host(), policy.CodeHostInvalid
	//defence:host-agreement
	case !ported && host.Port() != 0, conn.IsTLS() && host != conn.Host():
		return conn.Host(), policy.CodeHostMismatch
	}
	return host, ""
}

// judgeHead refuses a request that only its head condemns.
func (x *exchange) judgeHead() error {
	q := x.request
	q.Early = true
	v := x.snap.Rules.Decide(x.from.lease, q)
	switch {
	case !v.Allow:
		return x.deny(v)
	case !takeWindows(x.ctx, x.msg.in.Header, coding.Parse):
		return x.deny(policy.Refuse(policy.CodeTooMany, q.Host, nil))
	case x.conf.Redact.MatchHost(findChosenHostPart(q.Host.String(), v.APIs)):
		x.note.Host = redact.Mark // URL and log may spell the host in another case than the redacted string
		return x.deny(policy.Refuse(policy.CodeRedactedHost, catalog.Host{}, nil))
	}
	return nil
}

// takeWindows reserves memory for the windows of a body's decoders, from the account of ctx. It returns false if the
// run has used up its share of the budget.
func takeWindows(ctx context.Context, h http.Header, parse func(http.Header) ([]string, error)) bool {
	encodings, err := parse(h)
	// A body with an unknown encoding stays encoded.
	return err != nil || membudget.FromContext(ctx).TryTake(coding.SumWindows(encodings))
}

// redact replaces the operator's strings. holders are the APIs that decide about the request.
func (m *requestMessage) redact(r *redact.Redactor, holders []*catalog.API) error {
	m.byMessage = len(holders) > 0 &&
		!slices.ContainsFunc(holders, func(a *catalog.API) bool { return !a.MessageFraming })
	m.redacted = r.RedactRequest(m.out, m.framingOf(m.out.Header))
	return nil
}

// readOverrides reads the methods of the request as it will leave: redaction may have rewritten the query or a header
// that overrides the method. If an API restricts methods, it also searches the body.
func (x *exchange) readOverrides() error {
	q, out := &x.request, x.msg.out
	q.Methods, q.Path = listMethods(out), out.URL.EscapedPath()
	//defence:body-override
	if policy.NeedsMethodCheck(x.holders()) {
		judged := *q // the body may be read while later steps change the request
		permits := func(method string) bool {
			judged := judged
			judged.Methods = []string{method}
			return x.snap.Rules.Decide(x.from.lease, judged).Allow // Hold does not count here: the body is not whole yet
		}
		more, err := x.plan.replay.listOverrides(out, permits)
		if err != nil {
			return x.deny(x.verdictOf(bodyError{err}))
		}
		q.Methods = append(q.Methods, more...)
	}
	return nil
}

// judgeRequest decides about the request as it will leave.
func (x *exchange) judgeRequest() error {
	v := x.snap.Rules.Decide(x.from.lease, x.request)
	if v.Allow {
		_, known := policy.ListNeeds(x.request, x.holders())
		v.Unread = known.Unread
	}
	// Rules and limits that read the body need the whole body, so it is read only for them.
	if v.Unread || v.Hold != nil || v.Allow && mustPlan(x.from.lease, x.request, x.msg.out) {
		if err := readContent(&x.request, x.msg.out); err != nil {
			return x.deny(x.verdictOf(err))
		}
		v = x.snap.Rules.Decide(x.from.lease, x.request)
	}
	if !v.Allow && v.Hold == nil {
		return x.deny(v)
	}
	x.setVerdict(v)
	return nil
}

// readContent reads the body for rules and people, unless a step has read it. It returns a bodyError.
func readContent(q *policy.Request, out *http.Request) error {
	if q.Content != nil {
		return nil
	}
	content, err := policy.ReadContent(out)
	if err != nil {
		return bodyError{err}
	}
	q.Content = content
	return nil
}

// releaseContent returns the memory of readContent.
func releaseContent(q *policy.Request) error {
	if q.Content != nil {
		q.Content.ReleaseMemory()
		q.Content = nil
	}
	return nil
}

// prepareRequest makes the request in the form that leaves, before any swap. It has an absolute URL, no header of the
// client's connection and no trailers. The request of a plan's step already has this form.
func (x *exchange) prepareRequest() error {
	if x.plan.replay != nil {
		return nil
	}
	r := x.msg.in
	out := r.WithContext(x.ctx)
	u := *r.URL
	u.Scheme, u.Host, u.User, u.Fragment = schemeOf(x.request), x.note.Host, nil, ""
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
	x.msg.setOut(out)
	if x.request.IsCall() {
		x.call.noteUnfit(out)
		x.msg.redacted = x.conf.Redact.RedactRequest(out, framing.None)
	}
	return nil
}

func schemeOf(q policy.Request) string {
	if q.TLS {
		return "https"
	}
	return "http"
}

// describeRequest notes method and URL as the sandbox wrote them, without query values.
func (x *exchange) describeRequest() error {
	r := x.msg.in
	if x.msg.out != nil {
		r = x.msg.out
	}
	text := schemeOf(x.request) + "://" + x.note.Host + r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		names := strings.FieldsFunc(r.URL.RawQuery, func(c rune) bool { return c == '&' })
		for i, pair := range names {
			names[i], _, _ = strings.Cut(pair, "=")
		}
		text += "?" + strings.Join(names, "&")
	}
	const most = 2048
	if text = cleanForLog(x.conf.Redact, x.snap.Snapshot, text); len(text) > most {
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
func cleanForLog(r *redact.Redactor, snap *reload.Snapshot, text string) string {
	return r.String(snap.Scrub.CleanForLog(text))
}
