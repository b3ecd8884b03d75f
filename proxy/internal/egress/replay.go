package egress

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// replay is the step of a plan for which an exchange sends a request.
type replay struct {
	step approval.Step
	read bool // an unapproved read, repeated before a step
	// version is that of the catalog under which the plan was approved.
	version string
}

// stepSender sends the steps of one plan. It implements approval.Sender.
type stepSender struct {
	*Egress
	plan, version string
	lease         *lease.Lease
	close         func()
}

// OpenSender begins to send the steps of a plan. The caller must call Close.
func (e *Egress) OpenSender(id, run, tenant, version string, apis []string) approval.Sender {
	l, end := lease.NewDetached(run, tenant, apis, e.conf.Memory)
	return &stepSender{Egress: e, plan: id, version: version, lease: l, close: end}
}

func (s *stepSender) Close() string {
	s.close()
	if s.conf.Checkpoint == nil {
		return ""
	}
	return s.conf.Checkpoint(s.lease.Run)
}

// Send sends one request, through the same checks as a run's request, and returns its answer.
func (s *stepSender) Send(
	ctx context.Context, step approval.Step, isRead bool, most int,
) (reply approvalapi.Reply, body []byte) {
	r := &replay{step: step, version: s.version, read: isRead}
	w := &excerptWriter{header: http.Header{}, body: bodyStart{most: most}}
	x, stop := s.newExchange(ctx, w, s.lease)
	defer x.cancel(nil)
	defer stop()
	x.request.Host, x.request.TLS, x.plan.replay, x.settlement.approved = r.step.Host, r.step.TLS, r, !r.read
	x.note.Method, x.note.Host = r.step.Method, r.step.Host.String()
	x.note.Plan, x.note.Step = s.plan, r.step.Shown.N
	// Deferred before finishExchange, so that it runs afterwards: the reply states the outcome that finishExchange sets.
	defer func() { reply, body = newReply(&x.note, w) }()
	x.carry(&http.Request{URL: r.step.URL, Header: r.step.Header}, x.serveRequest)
	return reply, body
}

// loadStep sets the recorded request of a replay.
func (m *requestMessage) loadStep(ctx context.Context, r *replay, q *policy.Request) error {
	out := r.newRequest(ctx)
	m.setOut(out)
	q.Methods, q.Path, q.OtherPath = listMethods(out), out.URL.EscapedPath(), policy.HasOtherPath(out.Header)
	return nil
}

// newRequest returns the recorded request.
func (r *replay) newRequest(ctx context.Context) *http.Request {
	s := r.step
	// Swapping rewrites URL and headers in place: the stored step must keep its token names.
	address := *s.URL
	out := (&http.Request{
		Method: s.Method, URL: &address, Host: s.Host.String(), Header: s.Header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody, ContentLength: int64(len(s.Shown.Body)),
	}).WithContext(ctx)
	if s.Shown.Body != "" {
		out.Body = io.NopCloser(strings.NewReader(s.Shown.Body))
	}
	return out
}

// listOverrides returns the overrides in a body, as policy.BodyOverrides does. r is nil for a request of a run. The
// search may rewrite head and body, so it gets a copy of a replay's request: exactly the approved bytes leave.
func (r *replay) listOverrides(out *http.Request, permits func(method string) bool) ([]string, error) {
	if r == nil {
		return policy.BodyOverrides(out, permits)
	}
	searched := r.newRequest(out.Context())
	methods, err := policy.BodyOverrides(searched, permits)
	if err == nil {
		_, err = io.Copy(io.Discard, searched.Body) // the search runs while the body is read
	}
	return methods, err
}

// newReply converts the receipt entry of a replay to its result.
func newReply(n *receipt.Note, w *excerptWriter) (approvalapi.Reply, []byte) {
	body := w.body.data
	out := approvalapi.Reply{Milliseconds: n.Milliseconds, Code: n.Code, Bytes: w.n}
	if n.Outcome == proxyapi.OutcomeServed {
		out.Status = n.Status
		for cut := 0; w.n > int64(len(body)) && cut < utf8.UTFMax && !utf8.Valid(body); cut++ {
			body = body[:len(body)-1] // a part of the last character
		}
		if !utf8.Valid(body) {
			return out, nil
		}
		return out, body
	}
	var r proxyapi.Refusal
	if json.Unmarshal(body, &r) == nil {
		out.Why = r.Error
	}
	out.Code = cmp.Or(out.Code, n.Outcome)
	return out, nil
}

// excerptWriter is a response writer that keeps the first bytes of a body and counts all.
type excerptWriter struct {
	header http.Header
	body   bodyStart
	n      int64
}

func (w *excerptWriter) Header() http.Header { return w.header }

func (w *excerptWriter) WriteHeader(int) {}

func (w *excerptWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	w.body.addBytes(p)
	return len(p), nil
}

func (w *excerptWriter) Flush() {}
