package tools

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/queue"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/task"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Keys of _meta under which a result has the run's receipt, its sandboxapi.Exit, and the notes for a person. Programs
// read them; a model does not see them.
const (
	receiptKey = "codeforge/receipt"
	exitKey    = "codeforge/exit"
	notesKey   = "codeforge/notes"
	// inputKey is in the _meta of a call. It has the ID of the run's input.
	inputKey = "codeforge/input"
)

const (
	// maxNamed is the largest number of APIs that a run may be narrowed to.
	maxNamed = 200
	// escaped is the largest number of JSON bytes for one byte of a string.
	escaped = 6
	// leastTimeout is the shortest time limit of a run: sandboxd counts milliseconds.
	leastTimeout = time.Millisecond
)

// executeExample returns an example call of execute_code, with an existing API if there is one.
func executeExample(cat proxyapi.Catalog) string {
	apis := ""
	if name := exampleAPI(cat).Name; name != "" {
		apis = fmt.Sprintf(`"apis": [%q], `, name)
	}
	return `{"code": "console.log(1 + 1)", ` + apis + `"timeout": 30}`
}

// exampleAPI returns an API for examples, preferably one with a credential.
func exampleAPI(cat proxyapi.Catalog) proxyapi.API {
	// The first API serves as an example only if no API has a credential.
	var first proxyapi.API
	for _, a := range cat.APIs {
		switch {
		case a.Server != nil || len(a.Domains) == 0:
		case len(a.Credentials) > 0:
			return a
		case first.Name == "":
			first = a
		}
	}
	return first
}

func (s *Surface) addExecute() {
	language := ""
	if s.pythonReport().Version != "" {
		language = `
"language":{"enum":["typescript","python"]},`
	}
	usual := ""
	if s.cfg.TimeoutDefault != s.cfg.TimeoutMax {
		usual = fmt.Sprintf("default %d, ", int(s.cfg.TimeoutDefault.Seconds()))
	}
	schema := fmt.Sprintf(`{"type":"object","required":["code"],"properties":{
"code":{"type":"string"},%s
"apis":{"type":"array","items":{"type":"string"},
"description":"Only these"},
"dry_run":{"type":"boolean","description":"Plan writes"},
"background":{"type":"boolean","description":"Answer at once"},
"timeout":{"type":"number","description":"Seconds, %smost %d"}}}`, language, usual, int(s.cfg.TimeoutMax.Seconds()))
	s.addTool(&mcp.Tool{
		Name:        "execute_code",
		Title:       "Run code",
		Description: s.executeDescription(),
		Annotations: toolHints(false, true, false, true),
		InputSchema: json.RawMessage(schema),
	}, s.executeCode)
}

// executeCode handles a call, which may ask the client's user.
func (s *Surface) executeCode(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return s.desk.RunCall(ctx, req, s.callerSession(req),
		func(ctx context.Context, ask userform.Asker) *mcp.CallToolResult {
			return s.answerExecute(ctx, req, ask)
		}), nil
}

// answerExecute reads the arguments, starts the run and answers with its result, or with its progress if it goes on in
// the background.
func (s *Surface) answerExecute(ctx context.Context, req *mcp.CallToolRequest, ask userform.Asker) *mcp.CallToolResult {
	// Mistakes end the call before a slot is taken.
	r, background, fenced, err := s.executeArguments(ctx, req.Params.Arguments)
	if err != nil {
		return errorResult(err.Error())
	}
	var input *sandboxapi.Input
	if id, ok := req.Params.Meta[inputKey].(string); ok && s.cfg.TakeInput != nil {
		if input = s.cfg.TakeInput(id); input == nil {
			return errorResult("Not run: its input is gone. Start the command again.")
		}
	}
	l, running := s.newLongRun(ctx, s.newReporter(ctx, req))
	if _, isPatient := req.Params.Meta[patientKey]; isPatient {
		l.due = l.due.Add(maxEndWait)
	}
	support := task.SupportOf(req)
	l.user = task.UserOf(req.Extra)
	l.takesTask = support != task.None
	if background = background || support == task.Required; background {
		if !s.runs.add(l) {
			l.report.Stop()
			l.stop(nil)
			return errorResult("Not run: too many runs are in the background already. get_run waits for one, or cancels " +
				"it: " + strings.Join(s.runs.listRunning(), ", "))
		}
		l.beginBackground()
	}
	r.ID, r.Tenant, r.Input = l.id, s.cfg.Tenant, input
	r.Session, r.Traceparent = s.callerSession(req), traceOf(req.Params.Meta)
	r.Ask = l.askWhileCalled(ask, req.ProtocolVersion() >= userform.Rounds, s.cfg.AnswerAfter)
	s.startRun(l, func() { s.executeRun(running, req, r, l, fenced) })
	switch {
	case support == task.Required:
		return task.AnswerWithTask(l.id)
	case background:
		return l.readOutput(r.Session)
	}
	return s.awaitRun(ctx, l, r.Session)
}

// executeRun executes a run and renders its result.
func (s *Surface) executeRun(
	ctx context.Context, req *mcp.CallToolRequest, r execution.RunRequest, l *longRun, fenced bool,
) {
	s.logText(ctx, ">>> ", r.Code)
	report, stdout, stderr := l.report, l.stdout, l.stderr
	// The recording starts before the run waits for a slot, so that the history shows waiting runs.
	recording := s.beginRecording(req, &r, report.Running)
	r.Approve, r.Waiting, r.Progress = newApprover(r.Ask), report.Waiting, report.Progress
	// Counted before the first snapshot, so that a call that changes a skill in between is noticed.
	endWriting := s.writers.beginCall()
	before := s.skillSnapshot()
	files := runFiles{surface: s, recording: recording}
	o, err := s.cfg.Executor.Run(ctx, r, func(e sandboxapi.Event) {
		if e.File != nil {
			files.takeFile(ctx, *e.File)
			return
		}
		l.write(e.Stdout, e.Stderr)
		report.Printed(e.Stdout)
		recording.RecordOutput(e.Stdout, e.Stderr)
	})
	// A plan is asked about after the run, whose slot is free again.
	plan := s.presentPlan(ctx, r, o, r.Ask)
	links, fileNotes := files.describeFiles(req, o.Run)
	if err != nil && errors.Is(context.Cause(ctx), errRestart) {
		err = errRestart
	}
	l.isCancelled = errors.Is(err, context.Canceled) && !errors.Is(err, errRestart)
	report.Stop()
	after := s.skillSnapshot()
	all := after.ChangesSince(before)
	// Ended only after the last snapshot, for the same reason.
	alone, last := endWriting()
	changes := selectOwnChanges(r.Code, alone, all)
	if len(all) > 0 {
		s.shelf.refreshResources() // so that requests after this result find the skills it names
	}
	rendering := runRendering{
		outcome: o, err: err, stdout: stdout, stderr: stderr, limit: s.cfg.OutputLimit,
		changes: changes, catalog: s.publicCatalog(), skills: s.skillNames(after),
		private: s.hasPrivateRuns(), code: r.Code, fenced: fenced, language: r.Language, python: s.pythonReport(),
		mistakes: s.typeMistakes(o), plan: plan, files: links,
		remarks: slices.Concat(fileNotes, reportStrays(selectOwnChanges(r.Code, alone, after.StraysSince(before))),
			s.remarkPinned(after.HiddenSince(before), r.Code, alone, o.Run), s.reportBroken(ctx, r, changes),
			s.suggestOperations(o.Receipt)),
	}
	res := renderRun(rendering)
	s.recordVersions(req, o.Run, changes)
	if last { // the store skips versions that it already has
		s.recordVersions(req, "", all)
	}
	s.endRecording(recording, o, err, res)
	s.logText(ctx, "<<< ", res.Content[0].(*mcp.TextContent).Text)
	l.end(res, func(stdout, stderr *excerptBuffer) *mcp.CallToolResult {
		rendering.stdout, rendering.stderr, rendering.isRest = stdout, stderr, true
		return renderRun(rendering)
	})
}

// scrubTime is how long the proxy may take to scrub a text for the log.
const scrubTime = 2 * time.Second

// logText logs code or output for DEBUG_MODE, with token names instead of credentials. It omits a text that the proxy
// does not scrub.
func (s *Surface) logText(ctx context.Context, mark, text string) {
	if !s.cfg.Debug {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), scrubTime) // a cancelled run has output, too
	defer cancel()
	scrubbed, err := s.cfg.Control.ScrubTexts(ctx, []string{text})
	if err != nil || len(scrubbed) != 1 {
		s.cfg.Log.Debug(mark+"(not logged: the proxy could not scrub it)", logline.Tag("debug"))
		return
	}
	s.cfg.Log.Debug(mark+scrubbed[0], logline.Tag("debug"))
}

// hasPrivateRuns reports whether runs share no files and get copies of the skills that they import. This holds for
// tenants' runs, and for all runs if skills are in Postgres.
func (s *Surface) hasPrivateRuns() bool { return s.cfg.Tenant != nil || s.cfg.Skills.IsMirrored() }

// skillSnapshot returns the state of the skills that a run can change. A private run cannot change skills.
func (s *Surface) skillSnapshot() skill.Snapshot {
	if s.hasPrivateRuns() {
		return skill.Snapshot{}
	}
	return s.cfg.Skills.TakeSnapshot()
}

// skillNames returns the names of the skills that code can import.
func (s *Surface) skillNames(after skill.Snapshot) []string {
	if s.hasPrivateRuns() {
		return s.cfg.Skills.SkillNames()
	}
	return after.Names()
}

// traceOf returns the trace that a request belongs to, or "": https://www.w3.org/TR/trace-context/
func traceOf(meta mcp.Meta) string {
	text, _ := meta["traceparent"].(string)
	part := strings.Split(text, "-")
	if len(text) != 55 || len(part) != 4 || len(part[1]) != 32 || len(part[2]) != 16 {
		return ""
	}
	for _, p := range part {
		if _, err := hex.DecodeString(p); err != nil {
			return ""
		}
	}
	return text
}

// maxMistakes is the largest number of type mistakes that a model is shown.
const maxMistakes = 8

// typeMistakes returns the type mistakes because of which the code was not run, one line each.
func (s *Surface) typeMistakes(o execution.Outcome) []string {
	now, cancel := context.WithCancel(context.Background())
	cancel() // so that DescribeMistake does not wait for documents still being read
	var out []string
	for i, m := range o.Exit.Mistakes {
		if i == maxMistakes {
			return append(out, fmt.Sprintf("and %d more", len(o.Exit.Mistakes)-i))
		}
		out = append(out, s.cfg.Library.DescribeMistake(now, m, o.Modules))
	}
	return out
}

// executeArguments reads the arguments of execute_code. background asks for an answer at once. If the code was in a
// Markdown fence, fenced is true and r.Code is the text inside.
func (s *Surface) executeArguments(
	ctx context.Context, raw json.RawMessage,
) (r execution.RunRequest, background, fenced bool, err error) {
	a := readArguments(raw, argumentSpec{
		Tool: "execute_code", Names: []string{"code", "apis", "timeout", "language", "dry_run", "background"},
		Example: executeExample(s.publicCatalog()), MaxBytes: escaped*sandboxapi.MaxCode + maxArgumentBytes,
	})
	// The fence goes first: the bound and the language apply to the code inside.
	var tag string
	r.Code, tag, fenced = removeFence(a.Text("code", "a TypeScript module as a string", true))
	r.Language = s.readLanguage(a, tag)
	// Checked here and by sandboxd: this error names the argument.
	if n := len(r.Code); n > sandboxapi.MaxCode {
		a.AddMistake(fmt.Sprintf("code: found %d bytes, want at most %d; write large data to /tmp in parts", n,
			sandboxapi.MaxCode))
	}
	r.DryRun, background = a.Flag("dry_run"), a.Flag("background")
	most := s.cfg.TimeoutMax.Seconds()
	want := fmt.Sprintf("a number of seconds above 0, at most %.0f", most)
	seconds := a.Number("timeout", want, math.SmallestNonzeroFloat64, most, s.cfg.TimeoutDefault.Seconds())
	// sandboxd counts milliseconds, so a shorter time would become 0.
	r.Timeout = max(time.Duration(seconds*float64(time.Second)), leastTimeout)
	if raw := a.Texts("apis", "an array of names from list_apis", maxNamed); raw != nil {
		r.APIs = s.checkAPINames(ctx, a, raw)
	}
	return r, background, fenced, a.Err()
}

// checkAPINames checks names against the catalog. It returns each name once.
func (s *Surface) checkAPINames(ctx context.Context, a *argumentReader, names []string) []string {
	var known, out []string
	cat := s.currentCatalog(ctx)
	if cat.Version == "" { // the run will fail with a better message
		return names
	}
	is := map[string]bool{}
	for _, api := range cat.APIs {
		known = append(known, api.Name)
		is[api.Name] = true
	}
	seen := map[string]bool{}
	for _, name := range names {
		switch {
		case seen[name]:
		case is[name]:
			out = append(out, name)
		// Looking for a similar name takes time, so it stops when no further mistake is reported.
		//defence:tool-bounds
		case a.IsFull():
			a.AddMistake("")
		default:
			a.AddMistake(explainNoSuchAPI("apis", name, known))
		}
		seen[name] = true
	}
	return out
}

// explainNoSuchAPI returns the mistake for the name of an API that is not active.
func explainNoSuchAPI(arg, name string, known []string) string {
	m := fmt.Sprintf("%s: there is no active API %.80q", arg, name)
	near := typo.NearestOf(name, len(name)/2, known)
	switch {
	case near != "":
		return m + fmt.Sprintf("; did you mean %q?", near)
	case len(known) == 0:
		return m + "; no API is configured"
	case len(known) <= 20:
		return m + "; the active ones are " + strings.Join(known, ", ")
	}
	return m + "; list_apis lists them"
}

// callerSession returns the session of a call, in the form that all parts of the server use.
func (s *Surface) callerSession(req *mcp.CallToolRequest) string {
	if s.cfg.Tenant == nil {
		return queueOwner(req)
	}
	return s.cfg.Tenant.SessionName(queueOwner(req))
}

// queueOwner returns the owner of a call's turn in the queue. That is the session, or for HTTP clients without sessions
// the client's name and machine.
func queueOwner(req *mcp.CallToolRequest) string {
	if req.Extra != nil {
		if id := req.Extra.Header.Get(SessionHeader); id != "" {
			return id
		}
	}
	if id := req.Session.ID(); id != "" {
		return id
	}
	name := ""
	if p := req.Session.InitializeParams(); p != nil && p.ClientInfo != nil {
		name = p.ClientInfo.Name
	}
	if req.Extra == nil { // a client in this process
		return name
	}
	return req.Extra.Header.Get(CallerHeader) + " " + name
}

// CallerHeader names the calling machine. The transport sets it on every request, and overwrites a client's value.
const CallerHeader = "X-Codeforge-Caller"

// SessionHeader is the session ID that the client uses. It stays the same if the session is restored after a restart.
// The transport sets it like CallerHeader, if the server has sessions.
const SessionHeader = "X-Codeforge-Session"

// newReporter sends the client progress notifications, if the client asked for them.
func (s *Surface) newReporter(ctx context.Context, req *mcp.CallToolRequest) *runReporter {
	token := req.Params.GetProgressToken()
	if token == nil {
		return startReporter(ctx, reporterConfig{})
	}
	return startReporter(ctx, reporterConfig{Send: func(ctx context.Context, done float64, message string) {
		// An error means that the client has gone, which also ends its request.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: done, Message: message,
		})
	}})
}

// explainNoExit returns the reason, for a model, why a run has no exit. It is the only function that does so. The
// caller logs the cause.
func explainNoExit(err error, o execution.Outcome) readertext.Text {
	var busy *queue.BusyError
	var frozen *execution.FrozenError
	switch {
	case errors.As(err, &frozen):
		return describeFrozen(frozen.Alarm)
	case errors.Is(err, errRestart):
		return readertext.NewText("The restart of the server ended it. The code may have run partly: check before you run " +
			"it again.")
	// No wait means that the queue itself was full; a wait means that no slot became free in time.
	case errors.As(err, &busy) && busy.Waited == 0:
		return readertext.NewText("Busy, not run: all slots are taken and %N runs are already waiting. "+
			"Try again in a moment, with fewer calls at once.", "%N", strconv.Itoa(busy.Waiting))
	case errors.As(err, &busy):
		return readertext.NewText(fmt.Sprintf("Busy, not run: all slots are taken. Waited %.1f s with %d runs waiting, then "+
			"gave up. Try again in a moment.", busy.Waited.Seconds(), busy.Waiting))
	case errors.Is(err, tenant.ErrNotYours):
		return readertext.NewText("Not run: these APIs may no longer be used. list_apis lists those that may.")
	case errors.Is(err, context.Canceled):
		return readertext.NewText("Cancelled: the run was stopped before it ended.")
	case errors.Is(err, sandboxapi.ErrInterrupted):
		return readertext.NewText("The connection to the sandbox broke during the run. " +
			"The code may have run partly: check before you run it again.")
	}
	return readertext.NewText("Not run: the sandbox is not available. Try again in a few seconds; if that does not help, "+
		"{tell the user to |}check the server's log for run %RUN.", "%RUN", o.Run)
}

// logSkip logs the files that were skipped in the skills directory.
func logSkip(log *slog.Logger, skipped map[string]int) {
	for reason, n := range skipped {
		log.Warn("skipped in the skills directory", logline.Tag("skill"), slog.String("reason", reason), slog.Int("count", n))
	}
}
