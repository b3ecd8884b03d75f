package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/plan"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/planapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// replay is the step of a plan for which an exchange sends a request.
type replay struct {
	step plan.Step
	read bool // an unapproved read, repeated before a step
}

// sender sends the steps of one plan. It implements plan.Sender.
type sender struct {
	*Egress
	plan  string
	lease *lease.Lease
	close func()
}

// Open begins to send the steps of a plan. The caller must call Close.
func (e *Egress) Open(_ context.Context, id, run, tenant string, apis []string) plan.Sender {
	l, end := lease.Apart(run, tenant, apis, e.conf.Memory)
	return &sender{Egress: e, plan: id, lease: l, close: end}
}

func (s *sender) Close() string {
	s.close()
	if s.conf.Checkpoint == nil {
		return ""
	}
	return s.conf.Checkpoint(s.lease.Run)
}

func (s *sender) Send(ctx context.Context, step plan.Step, version string, most int) (planapi.Reply, []byte) {
	return s.exchange(ctx, &replay{step: step}, version, most)
}

func (s *sender) Read(ctx context.Context, step plan.Step, version string) (planapi.Reply, []byte) {
	return s.exchange(ctx, &replay{step: step, read: true}, version, plan.MaxRead)
}

// exchange sends one request, through the same checks as a run's request, and returns its answer.
func (s *sender) exchange(ctx context.Context, r *replay, version string, most int) (planapi.Reply, []byte) {
	w := &excerpt{header: http.Header{}, most: most}
	x := &exchange{
		Egress: s.Egress, lease: s.lease, began: time.Now(), host: r.step.Host, insecure: !r.step.TLS, replay: r,
		approved: !r.read, w: &responseWriter{ResponseWriter: w},
	}
	x.note = receipt.Note{Slot: int(s.lease.Slot), Recorder: s.lease.Recorder}
	x.note.Exchange = proxyapi.Exchange{
		At: x.began.UTC(), Run: s.lease.Run, Tenant: s.lease.Tenant, Method: r.step.Method, Host: r.step.Host.String(),
		Plan: s.plan, Step: r.step.N,
	}
	x.ctx, x.cancel = context.WithCancelCause(context.WithValue(ctx, exchangeKey{}, x))
	defer x.cancel(nil)
	defer context.AfterFunc(s.lease.Context(), func() { x.cancel(lease.ErrEnded) })()
	x.resend(version)
	return x.reply(w)
}

// resend sends the request of a replay.
func (x *exchange) resend(version string) {
	leave, err := x.enter(&http.Request{URL: x.replay.step.URL, Header: x.replay.step.Header})
	if err != nil {
		x.cut = err
		x.finish(nil)
		return
	}
	defer leave()
	x.snap = x.conf.Current()
	x.guard = Guarded(x.snap, x.lease)
	x.track()
	defer x.untrack()
	defer func() { x.finish(recover()) }()
	out := x.stored()
	q := policy.Request{
		Host: x.host, TLS: !x.insecure, Methods: methods(out), Moved: policy.MovesPath(out.Header),
		Path: out.URL.EscapedPath(),
	}
	switch {
	// The approver saw a plan under the old catalog.
	case x.snap.Public.Version != version:
		x.leave(policy.Refuse(policy.CodePlanStale, x.host, nil), q, out)
	case x.replay.step.Server != "":
		v, path := x.judgeCall(q, out)
		x.setVerdict(v)
		x.describe(out)
		if !v.Allow {
			x.refuse(v, nil)
			return
		}
		x.dispatch(out, path)
	default:
		x.leave(x.judgeFinal(q, out), q, out)
	}
}

// stored returns the recorded request of a replay.
func (x *exchange) stored() *http.Request {
	s := x.replay.step
	address := *s.URL
	out := (&http.Request{
		Method: s.Method, URL: &address, Host: s.Host.String(), Header: s.Header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(x.ctx)
	x.up = &counted{}
	x.body(out)
	return out
}

// body sets the recorded body on a request.
func (x *exchange) body(out *http.Request) {
	stored := x.replay.step.Body
	out.Body, out.ContentLength = http.NoBody, int64(len(stored))
	if len(stored) > 0 {
		x.up.ReadCloser = io.NopCloser(bytes.NewReader(stored))
		out.Body = x.up
	}
}

// restore sets the recorded headers and body on a replay's request again: the search for overrides may have rewritten
// them. It returns the error of this search, which ends with the body.
func (x *exchange) restore(out *http.Request) error {
	if x.replay == nil || out.Body == nil || out.Body == http.NoBody {
		return nil
	}
	// The search runs while the body is read, so read the whole body first.
	if _, err := io.Copy(io.Discard, out.Body); err != nil {
		return err
	}
	out.Header = x.replay.step.Header.Clone()
	x.up.n.Store(0)
	x.body(out)
	return nil
}

// consent decides on a held request of a plan. The approval of the plan covers the steps, but not the reads that the
// plan repeats.
func (x *exchange) consent(v policy.Verdict) policy.Verdict {
	if !x.replay.read {
		v.Allow, v.Hold = true, nil
	}
	return v
}

// reply converts the receipt entry of a replay to its result.
func (x *exchange) reply(w *excerpt) (planapi.Reply, []byte) {
	out := planapi.Reply{Milliseconds: x.note.Milliseconds, Code: x.note.Code, Bytes: w.n}
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
	if out.Code == "" {
		out.Code = x.note.Outcome
	}
	return out, nil
}

// excerpt is a response writer that keeps the first bytes of a body, at most most, and counts all.
type excerpt struct {
	header http.Header
	body   []byte
	n      int64
	most   int
}

func (w *excerpt) Header() http.Header { return w.header }

func (w *excerpt) WriteHeader(int) {}

func (w *excerpt) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	w.body = append(w.body, p[:min(len(p), w.most-len(w.body))]...)
	return len(p), nil
}

func (w *excerpt) Flush() {}
