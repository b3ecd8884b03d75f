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
	w := &excerptWriter{header: http.Header{}, most: most}
	x, stop := s.newExchange(ctx, w, s.lease)
	defer x.cancel(nil)
	defer stop()
	x.host, x.insecure, x.replay, x.approved = r.step.Host, !r.step.TLS, r, !r.read
	x.note.Method, x.note.Host = r.step.Method, r.step.Host.String()
	x.note.Plan, x.note.Step = s.plan, r.step.Shown.N
	// Deferred before finishExchange, so that it runs afterwards: the reply states the outcome that finishExchange sets.
	defer func() { reply, body = x.newReply(w) }()
	x.carry(&http.Request{URL: r.step.URL, Header: r.step.Header}, x.serveStep)
	return reply, body
}

// loadStep sets the recorded request of a replay.
func (x *exchange) loadStep() error {
	x.out = x.newReplayRequest()
	x.request = policy.Request{
		Host: x.host, TLS: !x.insecure, Methods: listMethods(x.out), OtherPath: policy.HasOtherPath(x.out.Header),
		Path: x.out.URL.EscapedPath(),
	}
	// The approver saw a plan under the old catalog.
	if x.snap.Public.Version != x.replay.version {
		return x.deny(policy.Refuse(policy.CodePlanStale, x.host, nil))
	}
	return nil
}

func (x *exchange) newReplayRequest() *http.Request {
	s := x.replay.step
	// Swapping rewrites URL and headers in place: the stored step must keep its token names.
	address := *s.URL
	out := (&http.Request{
		Method: s.Method, URL: &address, Host: s.Host.String(), Header: s.Header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(x.ctx)
	x.up = &countedBody{}
	x.setReplayBody(out)
	return out
}

func (x *exchange) setReplayBody(out *http.Request) {
	stored := x.replay.step.Shown.Body
	out.Body, out.ContentLength = http.NoBody, int64(len(stored))
	if len(stored) > 0 {
		x.up.ReadCloser = io.NopCloser(strings.NewReader(stored))
		out.Body = x.up
	}
}

// restoreStep sets the recorded headers and body on a replay's request again: the search for overrides may have
// rewritten them.
func (x *exchange) restoreStep() error {
	out := x.out
	if x.replay == nil || out.Body == nil || out.Body == http.NoBody {
		return nil
	}
	// The search runs while the body is read, so read the whole body first.
	if _, err := io.Copy(io.Discard, out.Body); err != nil {
		return x.denyBody(err)
	}
	out.Header = x.replay.step.Header.Clone()
	x.up.n.Store(0)
	x.setReplayBody(out)
	return nil
}

// approveByPlan decides on a held request of a plan. The approval of the plan covers the steps, but not the reads that
// the plan repeats.
func (x *exchange) approveByPlan(v policy.Verdict) policy.Verdict {
	if !x.replay.read {
		v.Allow, v.Hold = true, nil
	}
	return v
}

// newReply converts the receipt entry of a replay to its result.
func (x *exchange) newReply(w *excerptWriter) (approvalapi.Reply, []byte) {
	out := approvalapi.Reply{Milliseconds: x.note.Milliseconds, Code: x.note.Code, Bytes: w.n}
	if x.note.Outcome == proxyapi.OutcomeServed {
		out.Status = x.note.Status
		for cut := 0; w.n > int64(len(w.body)) && cut < utf8.UTFMax && !utf8.Valid(w.body); cut++ {
			w.body = w.body[:len(w.body)-1] // a part of the last character
		}
		if !utf8.Valid(w.body) {
			return out, nil
		}
		return out, w.body
	}
	var r proxyapi.Refusal
	if json.Unmarshal(w.body, &r) == nil {
		out.Why = r.Error
	}
	out.Code = cmp.Or(out.Code, x.note.Outcome)
	return out, nil
}

// excerptWriter is a response writer that keeps the first bytes of a body, at most most, and counts all.
type excerptWriter struct {
	header http.Header
	body   []byte
	n      int64
	most   int
}

func (w *excerptWriter) Header() http.Header { return w.header }

func (w *excerptWriter) WriteHeader(int) {}

func (w *excerptWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	w.body = append(w.body, p[:min(len(p), w.most-len(w.body))]...)
	return len(p), nil
}

func (w *excerptWriter) Flush() {}
