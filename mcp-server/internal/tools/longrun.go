package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

const (
	// leaveRetry is the pause before a call tries again to leave its run. It waits if a question is open, or if too many
	// runs are in the background.
	leaveRetry = time.Second
	// patientTime bounds the wait of a call whose client asks for the run's end. It is longer than any run.
	patientTime = 48 * time.Hour
	// cancelTime bounds the wait for the end of a run that get_run cancels.
	cancelTime = 15 * time.Second
	// keepTime, maxEnded and maxEndedBytes bound the results of ended background runs in memory. The history keeps them
	// longer.
	keepTime      = time.Hour
	maxEnded      = 32
	maxEndedBytes = 16 << 20
)

// runKey in the _meta of a result names a run that still goes on. patientKey in the _meta of a call asks for the answer
// at the run's end: the client waits as long as the run takes.
const (
	runKey     = "codeforge/run"
	patientKey = "codeforge/patient"
)

// errRestart ends background runs when mcp-server stops.
var errRestart = fmt.Errorf("the server restarts: %w", context.Canceled)

// runTable has the background runs of one surface, and thus of one tenant: the runs that have left their call, and the
// results of those that have ended.
//
// Threat: a tenant starts many runs to take all slots or memory, or guesses another tenant's run. Contract: the runs in
// progress are bounded for the tenant and for all, so that interactive runs find a slot. Results are bounded in number,
// size and age. Each surface has a separate table, so the runs of another tenant are unknown here.
type runTable struct {
	// most bounds the tenant's background runs in progress. all has one entry for each background run of all tenants.
	most int
	all  chan struct{}

	mu    sync.Mutex
	list  []*longRun // oldest first
	over  bool       // no further run begins
	parts sync.WaitGroup
}

// longRun is a run, from its call to its last look.
type longRun struct {
	id     string
	stop   context.CancelCauseFunc
	done   chan struct{} // closed after result is set
	report *runReporter

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
		id: execution.NewID(), done: make(chan struct{}), report: report, due: time.Now().Add(s.cfg.AnswerAfter),
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
			return l.look(session)
		case <-ctx.Done():
			l.stop(ctx.Err())
			<-l.done
			return l.look(session)
		case <-timer.C:
			next, isLeft := s.leaveRun(l)
			if isLeft {
				return l.look(session)
			}
			timer.Reset(next)
		}
	}
}

// leaveRun lets the call of a run end while the run goes on. It returns false and a pause if that is not possible yet.
func (s *Surface) leaveRun(l *longRun) (next time.Duration, isLeft bool) {
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

// look returns the result, or the output since the last look of the same session. Another session has seen no output
// yet, so it gets all output.
func (l *longRun) look(session string) *mcp.CallToolResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	hasLooked := l.hasLooker && l.looker == session
	l.looker, l.hasLooker = session, true
	if l.result != nil {
		res := *l.result // a copy: the SDK may complete it
		if hasLooked && l.rest != nil {
			res = *l.rest
		}
		// look returns rest only once. A client that has lost this answer gets the whole result with its next look.
		l.rest = nil
		return &res
	}
	r := runRendering{stdout: l.stdout, stderr: l.stderr, limit: l.stdout.limit}
	if hasLooked {
		r.stdout, r.stderr = l.newOut, l.newErr
	}
	l.newOut, l.newErr = newExcerpt(r.limit), newExcerpt(r.limit)
	shown, stderr, _ := r.cutOutput(false)
	state := strings.Replace(l.report.heartbeatText(), approvalapi.Waiting, "waiting for the user to approve a request", 1)
	res := resultContents(shown, []readertext.Text{readertext.NewText(
		"Run %RUN: still %STATE{; get_run waits for more|}.", "%RUN", l.id, "%STATE", state)}, false)
	insertStderr(res, stderr)
	res.Meta[runKey] = l.id
	return res
}

// hasEnded reports whether the run has its result.
func (l *longRun) hasEnded() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// start starts a goroutine, unless the server stops.
func (t *runTable) start(work func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.parts.Go(work)
	}
	return !t.over
}

// add adds a run in progress. It returns false if the tenant, or all together, have too many.
func (t *runTable) add(l *longRun) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropOld()
	running := 0
	for _, other := range t.list {
		if !other.hasEnded() {
			running++
		}
	}
	//defence:background-runs
	if running >= t.most || t.over {
		return false
	}
	select {
	case t.all <- struct{}{}:
	default:
		return false
	}
	t.list = append(t.list, l)
	t.parts.Go(func() {
		<-l.done
		<-t.all
	})
	return true
}

// dropOld drops the results beyond the bounds, the oldest first. The caller holds t.mu.
func (t *runTable) dropOld() {
	ended, bytes := 0, 0
	for i, l := range slices.Backward(t.list) {
		if !l.hasEnded() {
			continue
		}
		ended++
		bytes += l.size
		if ended > maxEnded || bytes > maxEndedBytes || time.Since(l.endedAt) > keepTime {
			t.list = slices.Delete(t.list, i, i+1)
		}
	}
}

// find returns a run, or nil.
func (t *runTable) find(id string) *longRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropOld()
	if i := slices.IndexFunc(t.list, func(l *longRun) bool { return l.id == id }); i >= 0 {
		return t.list[i]
	}
	return nil
}

// listRunning returns the IDs of the runs in progress.
func (t *runTable) listRunning() (ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.list {
		if !l.hasEnded() {
			ids = append(ids, l.id)
		}
	}
	return ids
}

// DrainRuns waits for the runs, also those in the background, until ctx ends. No further run goes to the background.
func (s *Surface) DrainRuns(ctx context.Context) {
	s.runs.mu.Lock()
	s.runs.over = true
	s.runs.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); s.runs.parts.Wait() }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// CloseRuns ends the background runs because of the server's restart, and waits for them until ctx ends.
func (s *Surface) CloseRuns(ctx context.Context) {
	s.runs.mu.Lock()
	for _, l := range s.runs.list {
		l.stop(errRestart)
	}
	s.runs.mu.Unlock()
	s.DrainRuns(ctx)
}

func (s *Surface) addGetRun() {
	s.addTool(&mcp.Tool{
		Name:        "get_run",
		Title:       "Get a run",
		Description: "Wait for a run that goes on: its new output or its end.",
		Annotations: toolHints(false, false, true, false),
		InputSchema: json.RawMessage(`{"type":"object","required":["id"],"properties":{
"id":{"type":"string"},
"wait":{"type":"number","description":"Seconds"},
"cancel":{"type":"boolean"}}}`),
	}, s.getRun)
}

// runID matches the IDs of runs: see execution.NewID. A shorter text would be the beginning of several.
var runID = regexp.MustCompile(`^r[a-z2-7]{12}$`)

// getRun waits for a run. The end of ctx does not end the run.
func (s *Surface) getRun(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	a := readArguments(req.Params.Arguments, argumentSpec{
		Tool: "get_run", Names: []string{"id", "wait", "cancel"}, Example: `{"id": "r` + strings.Repeat("a", 12) + `"}`,
	})
	id, mayCancel := a.Text("id", "the ID of a run", true), a.Flag("cancel")
	most := s.cfg.TimeoutMax.Seconds()
	seconds := a.Number("wait", fmt.Sprintf("a number of seconds from 0 to %.0f", most), 0, most,
		min(s.cfg.AnswerAfter.Seconds(), most))
	if err := a.Err(); err != nil {
		return errorResult(err.Error()), nil
	}
	wait := time.Duration(seconds * float64(time.Second))
	if mayCancel {
		wait = cancelTime
	}
	short, stop := context.WithTimeout(ctx, wait)
	defer stop()
	l := s.runs.find(id)
	if l == nil {
		return s.getStoredRun(short, id, mayCancel), ctx.Err()
	}
	if mayCancel {
		l.stop(context.Canceled)
	}
	select {
	case <-l.done:
	case <-short.Done():
		// An answer that does not arrive must not count as a look.
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return l.look(s.callerSession(req)), nil
}

// getStoredRun answers from the history, for a run of another replica or a run that ended long ago.
func (s *Surface) getStoredRun(ctx context.Context, id string, mayCancel bool) *mcp.CallToolResult {
	name, unknown := "", errorResult(fmt.Sprintf("There is no run %.40q here. It ended more than an hour ago, or a "+
		"restart of the server ended it.", id))
	if s.cfg.Tenant != nil {
		name = s.cfg.Tenant.Name
	}
	if !runID.MatchString(id) {
		return unknown
	}
	now, cancel := context.WithCancel(ctx)
	cancel()
	// This comes before the wait and the cancellation, because the run may be another tenant's.
	d, err := s.cfg.History.WaitForRun(now, id)
	if err != nil {
		return unknown
	}
	//defence:tenant-runs
	if d.Tenant != name {
		return unknown
	}
	if mayCancel && d.IsUnfinished() {
		s.cfg.History.CancelElsewhere(id)
	}
	if d, err = s.cfg.History.WaitForRun(ctx, id); err != nil {
		return unknown
	}
	return renderStored(d)
}

// renderStored returns the result of a run from the history.
func renderStored(d operatorapi.Detail) *mcp.CallToolResult {
	switch {
	case d.IsUnfinished():
		res := textResult(fmt.Sprintf("Run %s: still %s, at another replica of the server; get_run gives its output after "+
			"its end.", d.ID, d.State))
		res.Meta = mcp.Meta{runKey: d.ID}
		return res
	case d.State == operatorapi.Lost:
		return errorResult("Run " + d.ID + " has ended: a restart of the server ended it. The code may have run partly: " +
			"check before you run it again.")
	}
	text := d.Answer.Head
	if d.Answer.Omitted > 0 {
		text += fmt.Sprintf("\n[... %d bytes left out ...]\n", d.Answer.Omitted)
	}
	text += d.Answer.Tail
	if !d.Kept {
		text = fmt.Sprintf("Run %s has ended: %s (%s). The history does not keep its output.", d.ID, d.State, d.Reason)
	}
	res := textResult(text)
	res.IsError = d.State != operatorapi.OK
	return res
}
