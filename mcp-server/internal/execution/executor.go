// Package execution executes runs. It leases a slot, runs the code, collects the proxy's receipt and gives the slot
// back. It refuses runs of frozen sessions (frozen.go).
//
// The order keeps runs apart. A slot is leased, the proxy learns which run holds it, and the code runs. Then the proxy
// ends the registration, which cuts requests in flight and returns the receipt. Only then is the slot free again.
// However a run ends, these steps are undone in reverse, even if the caller has gone.
package execution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/alarm"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/catalogwatch"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/queue"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandbox"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	// startMargin is the time between a run's timeout and the end of its registration at the proxy. It covers a cold start
	// and sandboxd's cleanup.
	startMargin = 10 * time.Second
	// unwindTime bounds a registration, and each step that undoes another one.
	unwindTime = 10 * time.Second
	// readyTime is how long a run waits for the proxy and the sandbox after the system's start.
	readyTime = 15 * time.Second
	// leaseTries is the number of tries if a lease ends before the code has started.
	leaseTries = 3
	// permissionTries is the number of tries if sandboxd has another permission set. Every change of an API makes a new
	// set.
	permissionTries = 10
	// maxClient bounds the client's name in the ledger, in bytes.
	maxClient = 200
	// namesBudget bounds the names of tools that a run gets, counted like sandboxapi.MaxServers. A server whose tools do
	// not fit is passed without names; code can ask that server.
	namesBudget = 32 << 10
)

// Servers gives access to the tools and calls of MCP servers.
type Servers interface {
	// KnownTools returns the known tools of a server that code may call. known is false if the server was never asked.
	KnownTools(server string) (tools []toolsignature.Tool, known bool)
	// TakeRequestsCausedBy returns the requests that servers sent for a run's calls. It is called once, after the run.
	TakeRequestsCausedBy(run string) []proxyapi.CausedRequests
	// Pause stops or resumes the time limits of a run's calls.
	Pause(run string, paused bool)
}

// Config configures an Executor.
type Config struct {
	Queue *queue.Queue
	// Catalog is the catalog that runs use. Each sandbox also has a separate catalog for its permissions.
	Catalog *catalogwatch.Watcher
	// Servers may be nil: then no tools are known.
	Servers Servers
	Sources
	// Alarms freeze sessions. If nil, sessions are never frozen.
	Alarms *alarm.Set
	// Database is the Postgres database that code must not reach, or nil.
	Database *database.DB
	// Ended is called after each run that was not refused, with the time at which it began. It must not block.
	Ended func(r RunRequest, began time.Time, o Outcome, err error)
	Log   *slog.Logger
}

// Sources provide the modules and skills that runs import.
type Sources struct {
	// Modules, if not nil, returns the typed clients that TypeScript code imports.
	Modules func(ctx context.Context, code string) []sandboxapi.Module
	// Skills, if not nil, returns the files that code imports from /skills, by name. It makes runs private.
	Skills func(code string) map[string]string
	// Pins, if not nil, returns files by name. Runs that are not private import these files instead of the ones in
	// /skills.
	Pins func(python bool) (map[string]string, error)
}

// TenantSources is a tenant with its sources.
type TenantSources struct {
	*tenant.Tenant
	Sources
}

// Executor executes runs. It is safe for concurrent use.
type Executor struct {
	cfg  Config
	runs sync.Map // the *activeRun of each run in progress, by its ID
}

type activeRun struct {
	RunRequest
	stop context.CancelFunc
}

// New returns an executor.
func New(cfg Config) *Executor { return &Executor{cfg: cfg} }

// SessionOf returns the session of a run, as named in its Request, from the run's start to its end.
func (e *Executor) SessionOf(run string) (session string, ok bool) {
	r, ok := e.runs.Load(run)
	if !ok {
		return "", false
	}
	return r.(activeRun).Session, true
}

// AskUser puts a question to the user of the client that started a run.
func (e *Executor) AskUser(ctx context.Context, run string, q userform.Question) (userform.Answer, error) {
	r, ok := e.runs.Load(run)
	if !ok || r.(activeRun).Ask == nil {
		return userform.Answer{}, userform.ErrNobody
	}
	return r.(activeRun).Ask(ctx, q)
}

// ReportProgress reports the progress of a run's call to the client that started the run.
func (e *Executor) ReportProgress(run, text string) {
	if r, ok := e.runs.Load(run); ok && r.(activeRun).Progress != nil {
		r.(activeRun).Progress(text)
	}
}

// StopRun cancels a run, as its client could. It reports whether the run was in progress.
func (e *Executor) StopRun(run string) bool {
	r, ok := e.runs.Load(run)
	if ok {
		r.(activeRun).stop()
	}
	return ok
}

// StopTenant cancels all runs of a tenant, including runs that wait for an answer of its user.
func (e *Executor) StopTenant(t *TenantSources) {
	e.runs.Range(func(_, r any) bool {
		if a := r.(activeRun); a.Tenant == t {
			a.stop()
		}
		return true
	})
}

// CountActive returns the number of runs in progress, including runs that wait for a slot.
func (e *Executor) CountActive() (n int) {
	e.runs.Range(func(_, _ any) bool { n++; return true })
	return n
}

// Run executes one run and calls on with its output as it arrives. A *queue.BusyError means that no slot became free.
// ctx's error means that the run was cancelled. sandboxapi.ErrInterrupted means that the connection to the sandbox
// broke.
func (e *Executor) Run(ctx context.Context, r RunRequest, on func(sandboxapi.Event)) (Outcome, error) {
	o, began := Outcome{Run: cmp.Or(r.ID, NewID())}, time.Now()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Stored before the check, so that an alarm that comes in between finds and stops this run.
	e.runs.Store(o.Run, activeRun{r, stop})
	defer e.runs.Delete(o.Run)
	if err := e.refuseFrozen(r.Session); err != nil {
		return o, err
	}
	var closed bool
	if r.Tenant != nil {
		var err error
		if r.APIs, closed, err = r.Tenant.NarrowAPIs(r.APIs); err != nil {
			return o, err
		}
	}
	starting, cancel := context.WithTimeout(ctx, readyTime)
	_, err := e.cfg.Catalog.Permissions(starting)
	cancel()
	if err != nil {
		return o, err
	}
	// Before the lease: reading the APIs' documents may take seconds, in which the slot would be idle.
	if from := e.sourcesFor(r); from.Modules != nil && !r.Language.IsPython() {
		o.Modules = from.Modules(ctx, r.Code)
	}
	for try := 1; ; try++ {
		err = e.runWithLease(ctx, r, closed, &o, on)
		// Both errors mean that the lease ended before the code started, so a repetition runs nothing twice.
		over := errors.Is(err, proxyapi.ErrFenced) || errors.Is(err, sandboxapi.ErrLeaseGone)
		if !over || try == leaseTries {
			break
		}
	}
	e.logOutcome(o, err)
	if e.cfg.Ended != nil {
		e.cfg.Ended(r, began, o, err)
	}
	// An alarm ends a run by cancelling it, and the client must learn the reason.
	if frozen := e.refuseFrozen(r.Session); frozen != nil {
		return o, frozen
	}
	return o, err
}

// sourcesFor returns the sources of the run's tenant, or the operator's.
func (e *Executor) sourcesFor(r RunRequest) Sources {
	if r.Tenant == nil {
		return e.cfg.Sources
	}
	return r.Tenant.Sources
}

func (e *Executor) runWithLease(ctx context.Context, r RunRequest, closed bool, o *Outcome,
	on func(sandboxapi.Event)) error {
	turn := queue.Turn{
		Session: r.Session, Language: r.Language, Private: e.sourcesFor(r).Skills != nil,
		Folders: []string{sandboxapi.AllFolders},
	}
	if r.Tenant != nil {
		turn.Share, turn.Folders = r.Tenant.Share, r.Tenant.Folders
	}
	l, waited, err := e.cfg.Queue.Acquire(ctx, turn)
	o.Waited += waited
	if err != nil {
		return fmt.Errorf("getting a slot: %w", err)
	}
	defer e.cfg.Queue.ReleaseLease(l)
	if r.Started != nil {
		r.Started(l.Lease)
	}
	return e.runRegistered(ctx, l, r, closed, o, on)
}

// runRegistered executes the run while it is registered at the proxy.
func (e *Executor) runRegistered(
	ctx context.Context, l sandbox.SlotLease, r RunRequest, closed bool, o *Outcome, on func(sandboxapi.Event),
) (err error) {
	reg := proxyapi.Registration{
		Generation: l.Generation, Run: o.Run, APIs: r.APIs, Deadline: time.Now().Add(r.Timeout + startMargin),
		DryRun: r.DryRun, Closed: closed,
	}
	if l.Canary != "" {
		reg.Canaries = []string{l.Canary}
	}
	if r.Tenant != nil {
		reg.Tenant = r.Tenant.Name
	}
	reg.Database = e.cfg.Database.ResolvePostgres(ctx)
	// A proxy that does not answer must not keep the slot, because the run's time limit counts only from its start.
	registering, cancel := context.WithTimeout(ctx, unwindTime)
	err = l.Of.Control.RegisterRun(registering, l.Slot, reg)
	cancel()
	if errors.Is(err, proxyapi.ErrFenced) {
		return fmt.Errorf("registering the run: %w", err)
	}
	// After an error, too: the registration may have arrived although its answer did not.
	defer func() {
		// Without ctx's end: the slot must not become free with a registered run, even if the caller has gone.
		unwind, cancel := context.WithTimeout(context.WithoutCancel(ctx), unwindTime)
		defer cancel()
		receipt, uerr := l.Of.Control.UnregisterRun(unwind, l.Slot, l.Generation, r.newSummary(*o))
		if e.cfg.Servers != nil { // always, because Caused also forgets the run
			receipt.AddCaused(e.cfg.Servers.TakeRequestsCausedBy(o.Run))
		}
		if receipt.Alarm != nil {
			// The receipt has the alarm too, because watching the proxy's events can miss it.
			e.RaiseAlarm(*receipt.Alarm)
		}
		if uerr == nil {
			o.Receipt = receipt
			return
		}
		o.Lost = err == nil
	}()
	if err != nil {
		return fmt.Errorf("registering the run: %w", err)
	}
	// Most runs have no rule that asks a person, and save this request to the proxy.
	if e.mayHold(r.APIs) {
		watch, stop := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() { defer close(watched); e.watchHeld(watch, l, r, o.Run) }()
		defer func() { stop(); <-watched }()
	}
	return e.runCode(ctx, l, r, o, on)
}

// chooseOwner returns the owner of a run's files: its tenant, or else the run.
func chooseOwner(r RunRequest, run string) string {
	if r.Tenant != nil {
		return "tenant " + r.Tenant.Name
	}
	return run
}

// runCode runs the code. It tries again if sandboxd has another permission set, because then no code has run.
func (e *Executor) runCode(ctx context.Context, l sandbox.SlotLease, r RunRequest, o *Outcome,
	on func(sandboxapi.Event)) error {
	skills, err := e.listImportedSkills(r)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		hash, err := l.Of.Catalog.Permissions(ctx)
		if err != nil {
			return err
		}
		o.Exit, err = l.Of.Runs.Run(ctx, sandboxapi.RunRequest{
			Generation:  l.Generation,
			Run:         o.Run,
			Language:    cmp.Or(r.Language, sandboxapi.LanguageTypeScript),
			Code:        r.Code,
			Environ:     buildEnviron(e.cfg.Catalog.Catalog(), r.APIs),
			Servers:     e.callableServers(r.APIs),
			Modules:     o.Modules,
			Private:     l.Private,
			Skills:      skills,
			Input:       r.Input,
			Permissions: hash,
			TimeoutMS:   r.Timeout.Milliseconds(),
			Owner:       chooseOwner(r, o.Run),
		}, on)
		if !errors.Is(err, sandboxapi.ErrPermissions) || try == permissionTries {
			return err
		}
		if err := l.Of.Catalog.UpdateCatalog(ctx); err != nil {
			return err
		}
	}
}

// listImportedSkills returns, by name, the files that a run imports from the folder of its slot.
func (e *Executor) listImportedSkills(r RunRequest) (map[string]string, error) {
	switch from := e.sourcesFor(r); {
	case from.Skills != nil:
		return from.Skills(r.Code), nil
	case from.Pins != nil:
		// An unreadable pin is an error: the run would otherwise import a source that the user has not pinned.
		files, err := from.Pins(r.Language.IsPython())
		if err != nil {
			return nil, fmt.Errorf("reading the pinned skills: %w", err)
		}
		return files, nil
	}
	return nil, nil
}

// callableServers returns the MCP servers that a run narrowed to these APIs may call, with the names of their known
// tools.
func (e *Executor) callableServers(apis []string) map[string][]string {
	var out map[string][]string
	room := namesBudget
	for _, api := range e.cfg.Catalog.Catalog().APIs {
		if api.Server == nil || len(apis) > 0 && !slices.Contains(apis, api.Name) {
			continue
		}
		if out == nil {
			out = map[string][]string{}
		}
		names, size := e.toolNames(api.Name)
		if size > room {
			names, size = []string{}, 0
		}
		room -= size
		out[api.Name] = names
	}
	return out
}

// toolNames returns the names of a server's known tools, and their size counted like sandboxapi.MaxServers.
func (e *Executor) toolNames(server string) (names []string, size int) {
	names = []string{}
	if e.cfg.Servers == nil {
		return names, 0
	}
	tools, _ := e.cfg.Servers.KnownTools(server)
	for _, t := range tools {
		names = append(names, t.Name)
		size += len(t.Name) + sandboxapi.NameBytes
	}
	return names, size
}

// logOutcome writes one line about a run, with sizes, and never code or output.
func (e *Executor) logOutcome(o Outcome, err error) {
	attrs := []any{
		logline.Tag("sandbox"), slog.String("run", o.Run),
		slog.String("reason", string(o.Exit.Reason)), slog.Int("code", o.Exit.Code),
		slog.Int64("wall_ms", o.Exit.WallMS), slog.Int64("waited_ms", o.Waited.Milliseconds()),
		slog.Int64("stdout", o.Exit.StdoutBytes), slog.Int64("stderr", o.Exit.StderrBytes),
		slog.Int("requests", o.Receipt.Count.Exchanges), slog.Int("denied", o.Receipt.Count.Denied),
		slog.Bool("warm", o.Exit.Warm),
	}
	if o.Receipt.Audit != "" {
		attrs = append(attrs, slog.String("audit", o.Receipt.Audit))
	}
	if o.Lost {
		attrs = append(attrs, slog.Bool("receipt_lost", true))
	}
	if err != nil {
		e.cfg.Log.Warn("run failed", append(attrs, slog.String("error", err.Error()))...)
		return
	}
	e.cfg.Log.Info("run ended", attrs...)
}
