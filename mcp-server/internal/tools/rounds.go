package tools

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/countdown"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/progress"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// Clients without sessions, from 2026-07-28, are asked by a result that requests input: the call has ended then, and the
// client makes it again with the answers and with the state that the result had. The run goes on meanwhile.

// gather is how long a result waits for further questions after the first.
const gather = 50 * time.Millisecond

// rounds are the runs between two calls, by their state. A state is used once.
type rounds struct{ byState sync.Map }

// round is a run whose client is asked by results.
type round struct {
	caller    string
	questions chan question
	open      map[string]question // those that the client has been asked, by id
	done      chan struct{}       // closed when result is there
	result    *mcp.CallToolResult
	cancel    context.CancelFunc

	notify atomic.Pointer[func(context.Context, float64, string)] // of the call that there is now
}

type question struct {
	form   *mcp.ElicitParams
	id     string
	answer chan execution.Answer
}

// asksByResult reports whether a client is asked by results, and can ask its user.
func asksByResult(req *mcp.CallToolRequest) bool {
	p := req.Session.InitializeParams()
	return p != nil && p.ProtocolVersion >= sessionless && asks(req.ClientCapabilities())
}

// sessionless is the first protocol version without sessions.
const sessionless = "2026-07-28"

// begin executes code for a client that is asked by results.
func (s *Surface) begin(ctx context.Context, req *mcp.CallToolRequest, r execution.Request) (*mcp.CallToolResult, error) {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d := &round{caller: caller(req), questions: make(chan question), open: map[string]question{}, done: make(chan struct{}),
		cancel: cancel}
	r.Ask = d.ask
	go func() {
		defer cancel()
		defer close(d.done)
		defer func() {
			if p := recover(); p != nil {
				s.cfg.Log.Error("panic in a run", logline.Tag("mcp"), slog.String("panic", fmt.Sprint(p)))
				d.result = failure("Internal error; the server's log has the details.")
			}
		}()
		d.result = s.execute(run, r, progress.Start(run, progress.Config{Send: d.tell}))
	}()
	return s.next(ctx, req, d)
}

// ask is execution.Request's.
func (d *round) ask(ctx context.Context, h approvalapi.Held) execution.Answer {
	form, ok := approvalForm(h)
	if !ok {
		return execution.Unanswered
	}
	q := question{form: form, id: h.ID, answer: make(chan execution.Answer, 1)}
	select {
	case d.questions <- q:
	case <-ctx.Done():
		return execution.Unanswered
	}
	select {
	case a := <-q.answer:
		return a
	case <-ctx.Done():
		return execution.Unanswered
	}
}

// tell is progress.Config's Send.
func (d *round) tell(ctx context.Context, done float64, message string) {
	if send := d.notify.Load(); send != nil && *send != nil {
		(*send)(ctx, done, message)
	}
}

// next waits until the run has ended or has a question, and returns the result that says so.
func (s *Surface) next(ctx context.Context, req *mcp.CallToolRequest, d *round) (*mcp.CallToolResult, error) {
	send := notifier(req)
	d.notify.Store(&send)
	defer d.notify.Store(nil)
	select {
	case <-d.done:
		return d.result, nil
	case <-ctx.Done():
		d.cancel()
		<-d.done
		return d.result, nil
	case q := <-d.questions:
		d.open[q.id] = q
	}
	for wait := time.After(gather); ; {
		select {
		case q := <-d.questions:
			d.open[q.id] = q
			continue
		case <-wait:
		}
		break
	}
	res := &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{}, RequestState: rand.Text()}
	for id, q := range d.open {
		res.InputRequests[id] = q.form
	}
	s.rounds.byState.Store(res.RequestState, d)
	time.AfterFunc(countdown.MostPaused, func() {
		if _, there := s.rounds.byState.LoadAndDelete(res.RequestState); there {
			d.cancel() // the client has gone
		}
	})
	return res, nil
}

// resume is a call with the answers to the questions of an earlier result.
func (s *Surface) resume(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	v, ok := s.rounds.byState.LoadAndDelete(req.Params.RequestState)
	d, _ := v.(*round)
	if !ok || d.caller != caller(req) {
		return failure("This call was answered already, or is too old. Nothing was run. Call execute_code anew."), nil
	}
	for id, q := range d.open {
		res, _ := req.Params.InputResponses[id].(*mcp.ElicitResult)
		q.answer <- answered(res)
	}
	clear(d.open)
	return s.next(ctx, req, d)
}
