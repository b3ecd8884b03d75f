package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/task"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

const (
	// leaveRetry is the pause before a call tries again to leave its run. It waits if a question is open, or if too many
	// runs are in the background.
	leaveRetry = time.Second
	// maxEndWait bounds the wait of a call whose client asks for the run's end. It is longer than any run.
	maxEndWait = 48 * time.Hour
)

// runKey in the _meta of a result names a run that still goes on. patientKey in the _meta of a call asks for the answer
// at the run's end: the client waits as long as the run takes.
const (
	runKey     = "codeforge/run"
	patientKey = "codeforge/patient"
)

// longRun is a run, from its call to its last look.
type longRun struct {
	id     string
	user   string // see task.UserOf
	began  time.Time
	stop   context.CancelCauseFunc
	done   chan struct{} // closed after result is set
	report *runReporter
	// takesTask means that the client accepts a task as the answer. isCancelled is valid after the end.
	takesTask, isCancelled bool

	mu             sync.Mutex
	stdout, stderr *excerptBuffer
	// newOut and newErr have the output since the last look of looker, which is a session. They are nil before the run
	// leaves its call.
	newOut, newErr *excerptBuffer
	looker         string
	hasLooker      bool
	// asking counts open questions to the user. due is the time at which the call is answered.
	asking int
	due    time.Time
	// result is the whole answer of execute_code. rest is that answer without the output that looker has seen. size is the
	// size of both in bytes.
	result, rest *mcp.CallToolResult
	size         int
	endedAt      time.Time
}

// newLongRun returns a run that startRun has not started yet. ctx is the context of its call.
func (s *Surface) newLongRun(ctx context.Context, report *runReporter) (*longRun, context.Context) {
	l := &longRun{
		id: execution.NewID(), began: time.Now(), done: make(chan struct{}), report: report,
		due:    time.Now().Add(s.cfg.AnswerAfter),
		stdout: newExcerpt(s.cfg.OutputLimit), stderr: newExcerpt(s.cfg.OutputLimit),
	}
	ctx, l.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	return l, ctx
}

// startRun executes a run in a goroutine that outlives the call. work calls end.
func (s *Surface) startRun(l *longRun, work func()) {
	isStarted := s.runs.start(func() {
		defer l.stop(nil)
		defer close(l.done)
		// A panic outside of the handler would end the process.
		defer func() {
			if p := recover(); p != nil {
				s.cfg.Log.Error("panic in a run", logline.Tag("mcp"), slog.String("run", l.id),
					slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
				l.end(errorResult("internal error; the server's log has the details"), nil)
			}
		}()
		work()
	})
	if !isStarted {
		l.end(errorResult("Not run: the server is stopping. Try again in a few seconds."), nil)
		close(l.done)
	}
}

// awaitRun waits for a run until its call is due, and returns its result or its progress. The end of ctx before that
// ends the run: its client has cancelled the call or gone.
func (s *Surface) awaitRun(ctx context.Context, l *longRun, session string) *mcp.CallToolResult {
	l.mu.Lock()
	timer := time.NewTimer(time.Until(l.due))
	l.mu.Unlock()
	defer timer.Stop()
	for {
		select {
		case <-l.done:
			return l.readOutput(session)
		case <-ctx.Done():
			l.stop(ctx.Err())
			<-l.done
			return l.readOutput(session)
		case <-timer.C:
			next, isLeft := s.moveToBackground(l)
			switch {
			case isLeft && l.takesTask:
				return task.AnswerWithTask(l.id)
			case isLeft:
				return l.readOutput(session)
			}
			timer.Reset(next)
		}
	}
}

// moveToBackground lets the call of a run end while the run goes on. It returns false and a pause if that is not
// possible yet.
func (s *Surface) moveToBackground(l *longRun) (next time.Duration, isLeft bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if early := time.Until(l.due); early > 0 {
		return early, false
	}
	// The user's answer comes through the call, so the call must not end before it.
	if l.asking > 0 || l.result != nil || !s.runs.add(l) {
		return leaveRetry, false
	}
	l.beginBackground()
	return 0, true
}

// beginBackground starts to keep the output since the last look. The caller holds l.mu.
func (l *longRun) beginBackground() {
	l.newOut, l.newErr = newExcerpt(l.stdout.limit), newExcerpt(l.stdout.limit)
	l.report.cancel() // the call has ended
}

// askWhileCalled returns an Asker that asks as long as the run has not left its call. If isByResult, the user's answer
// arrives with a new call, which waits as long as the first.
func (l *longRun) askWhileCalled(ask userform.Asker, isByResult bool, patience time.Duration) userform.Asker {
	return func(ctx context.Context, q userform.Question) (userform.Answer, error) {
		l.mu.Lock()
		if l.newOut != nil {
			l.mu.Unlock()
			return userform.Answer{}, userform.ErrNobody
		}
		l.asking++
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.asking--; isByResult {
				l.due = time.Now().Add(patience)
			}
		}()
		return ask(ctx, q)
	}
}

// write adds output.
func (l *longRun) write(stdout, stderr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stdout.WriteString(stdout)
	l.stderr.WriteString(stderr)
	if l.newOut != nil {
		l.newOut.WriteString(stdout)
		l.newErr.WriteString(stderr)
	}
}

// end sets the result. rest, if not nil, renders the result with the output that was not shown yet. Further calls have
// no effect.
func (l *longRun) end(result *mcp.CallToolResult, rest func(stdout, stderr *excerptBuffer) *mcp.CallToolResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.result != nil {
		return
	}
	l.result, l.endedAt = result, time.Now()
	if l.newOut != nil {
		if rest != nil {
			l.rest = rest(l.newOut, l.newErr)
		}
		data, _ := json.Marshal([]any{l.result, l.rest}) // plain data
		l.size = len(data)
	}
	l.stdout, l.stderr, l.newOut, l.newErr = nil, nil, nil, nil
}

// readOutput returns the result, or the output since the last look of the same session. Another session has seen no
// output yet, so it gets all output.
func (l *longRun) readOutput(session string) *mcp.CallToolResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	hasLooked := l.hasLooker && l.looker == session
	l.looker, l.hasLooker = session, true
	if l.result != nil {
		res := *l.result // a copy: the SDK may complete it
		if hasLooked && l.rest != nil {
			res = *l.rest
		}
		// readOutput returns rest only once. A client that has lost this answer gets the whole result with its next look.
		l.rest = nil
		return &res
	}
	r := runRendering{stdout: l.stdout, stderr: l.stderr, limit: l.stdout.limit}
	if hasLooked {
		r.stdout, r.stderr = l.newOut, l.newErr
	}
	l.newOut, l.newErr = newExcerpt(r.limit), newExcerpt(r.limit)
	shown, stderr, _ := r.cutOutput(false)
	res := resultContents(shown, []readertext.Text{readertext.NewText(
		"Run %RUN: still %STATE{; get_run waits for more|}.", "%RUN", l.id, "%STATE", l.describeProgress())}, false)
	insertStderr(res, stderr)
	res.Meta[runKey] = l.id
	return res
}

// describeProgress returns the state of a run that goes on, for a model.
func (l *longRun) describeProgress() string {
	return strings.Replace(l.report.heartbeatText(), approvalapi.Waiting, "waiting for the user to approve a request", 1)
}

func (l *longRun) hasEnded() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}
