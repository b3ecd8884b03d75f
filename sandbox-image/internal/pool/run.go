package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/interp"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/output"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Run implements sandboxapi.Sandbox.
func (p *Pool) Run(ctx context.Context, r sandboxapi.RunRequest, out sandboxapi.Output) (sandboxapi.Exit, error) {
	if err := errors.Join(checkRequest(r), p.checkFileNames(r.Input)); err != nil {
		return sandboxapi.Exit{}, fmt.Errorf("%w: %w", sandboxapi.ErrBadRequest, err)
	}
	if _, err := p.isPython(r.Language); err != nil {
		return sandboxapi.Exit{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for try := 1; ; try++ {
		// An interpreter can end at any time while it waits. The code has not run then, so another one may get it.
		exit, err := p.tryRun(ctx, cancel, r, out)
		if !errors.Is(err, interp.ErrNotSent) || try == maxTries {
			return exit, err
		}
	}
}

// cleanupDelay is how long the cleanup after a run waits, so that the run's response leaves first.
const cleanupDelay = time.Millisecond

// maxTries is the number of interpreters that a run tries if they end before they get the code.
const maxTries = 3

// tryRun runs the code in the slot's interpreter. When try returns, no process of the run is left. The pool removes
// private files while the response is being sent. The slot is not free until then.
func (p *Pool) tryRun(
	ctx context.Context, cancel context.CancelFunc, r sandboxapi.RunRequest, out sandboxapi.Output,
) (sandboxapi.Exit, error) {
	s, w, done, err := p.beginRun(ctx, r, cancel)
	if err != nil {
		return sandboxapi.Exit{}, err
	}
	isWarm := w.isUp()
	added := p.cfg.Quota.BeginRun(s.id)
	keep := p.cfg.Keep.NewFile(r.Run)
	if r.Private { // other runs could read the output
		keep = nil
	}
	exit, err := w.Run(ctx, interp.Task{
		Code: []byte(r.Code), Environ: r.Environ, Servers: r.Servers, Modules: r.Modules,
		Timeout: time.Duration(r.TimeoutMS) * time.Millisecond, Memory: p.cfg.Memory, Output: p.cfg.Output,
		Emit: out.Send, Ended: out.ReportEnd, Keep: keep,
		Skills: r.Skills, Pinned: isPinned(r), Input: r.Input,
		Unkept:    func(err error) { p.cfg.Log.Warn("output was not kept", "run", r.Run, "error", err) },
		Unchecked: func(err error) { p.cfg.Log.Warn("code was not checked", "run", r.Run, "error", err) },
		Pauses:    s.pauses,
		Watch: func() (sandboxapi.Reason, string) {
			return added.FindExcess(quota.Probe{Unnamed: w.RemovedBytes, Written: w.CountWritten})
		},
	})
	exit.Warm = isWarm
	ended := w.End()
	if err == nil {
		err = ended
	}
	if e := added.EndAndClean(); e != nil {
		p.cfg.Log.Warn("files of a run could not be removed", "run", r.Run, "error", e)
	}
	exit.Unkept = strings.TrimSpace(exit.Unkept + " " + added.DescribeRemoved())
	if err == nil {
		// After EndAndClean, which removes the files of a run that wrote too many. An error means that the client has gone.
		leftOut, _ := output.CollectFiles(w.OutFolder(), func(f sandboxapi.File) error {
			return out.Send(sandboxapi.Event{File: &f})
		})
		exit.Unkept = strings.TrimSpace(exit.Unkept + " " + leftOut)
	}
	remove := func(after time.Duration) {
		time.Sleep(after)
		err := w.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.vacateSlot(s, done, err)
	}
	p.mu.Lock()
	if s.lease == r.Generation {
		s.used = !errors.Is(err, interp.ErrNotSent)
		p.watchIdle(s)
	}
	closed := p.closed
	if !closed {
		p.work.Go(func() { remove(cleanupDelay) })
	}
	p.mu.Unlock()
	if closed { // Close may already have waited for the pool's goroutines
		remove(0)
	}
	return exit, err
}

func (w *warmInterpreter) isUp() bool {
	select {
	case <-w.UpSignal():
		return true
	default:
		return false
	}
}

// beginRun uses the lease's only run and takes the slot's interpreter. If that interpreter is outdated, beginRun
// waits until it has ended and takes its replacement.
func (p *Pool) beginRun(
	ctx context.Context, r sandboxapi.RunRequest, cancel context.CancelFunc,
) (*slotState, *warmInterpreter, chan struct{}, error) {
	for {
		p.mu.Lock()
		s, err := p.claimSlot(r)
		if err != nil {
			p.mu.Unlock()
			return nil, nil, nil, err
		}
		if w := s.warm; w != nil {
			done := make(chan struct{})
			// From here on the pool no longer owns the interpreter: the run ends it.
			s.warm, s.used, s.ahead, s.cancel, s.running, s.pauses = nil, true, false, cancel, done, make(chan bool)
			s.idle.Stop()
			p.runs++
			p.refillAfter(busyPause)
			p.mu.Unlock()
			return s, w, done, nil
		}
		ending := s.running
		p.mu.Unlock()
		select {
		case <-ending:
		case <-ctx.Done():
			return nil, nil, nil, ctx.Err()
		}
	}
}

// claimSlot finds the lease's slot. Afterwards either the slot has a started interpreter, or an outdated one is ending.
// The caller holds p.mu.
func (p *Pool) claimSlot(r sandboxapi.RunRequest) (*slotState, error) {
	s := p.leases[r.Generation]
	switch {
	case s == nil:
		return nil, fmt.Errorf("%w: generation %d", sandboxapi.ErrLeaseGone, r.Generation)
	case s.id.IsServer():
		return nil, fmt.Errorf("%w: the lease is for an MCP server", sandboxapi.ErrBadRequest)
	case s.used:
		return nil, fmt.Errorf("%w: it has had its run", sandboxapi.ErrLeaseGone)
	// A private run in a shared interpreter could read and leave shared files.
	case s.kind.private != r.Private:
		return nil, fmt.Errorf("%w: a run and its lease are private, or neither is", sandboxapi.ErrBadRequest)
	case r.Permissions != p.permissionHash():
		return nil, fmt.Errorf("%w: now %s", sandboxapi.ErrPermissions, p.permissionHash())
	case s.broken != nil:
		return nil, fmt.Errorf("%w: the slot is out of use", sandboxapi.ErrUnready)
	}
	python := r.Language.IsPython()
	s.python, s.kind.pinned = python, isPinned(r)
	if !python {
		p.next.pinned = s.kind.pinned // outdates waiting interpreters if it was different
	}
	// The permissions or the CA changed after the lease was granted, or the lease was for another language.
	if s.warm != nil && s.warm.key != p.interpreterKey(s, python) {
		p.discardInterpreter(s)
	}
	if s.running == nil && !p.startInterpreter(s, python) {
		return nil, fmt.Errorf("%w: %w", sandboxapi.ErrUnready, p.lastStartError(python))
	}
	return s, nil
}

// maxTimeout is the longest timeout that a request can ask for.
const maxTimeout = 24 * time.Hour

// checkRequest rejects requests that can never succeed.
func checkRequest(r sandboxapi.RunRequest) error {
	switch {
	case !isValidRunID(r.Run):
		return fmt.Errorf("run %q: want 1 to 64 of a-z, 0-9 and -", r.Run)
	case r.Language != sandboxapi.LanguageTypeScript && r.Language != sandboxapi.LanguagePython:
		return fmt.Errorf("language %q: want %q or %q", r.Language, sandboxapi.LanguageTypeScript, sandboxapi.LanguagePython)
	case len(r.Code) > sandboxapi.MaxCode:
		return fmt.Errorf("code of %d bytes: want at most %d", len(r.Code), sandboxapi.MaxCode)
	case r.EnvironSize() > sandboxapi.MaxEnviron:
		return fmt.Errorf("environ of %d bytes: want at most %d", r.EnvironSize(), sandboxapi.MaxEnviron)
	case r.ServersSize() > sandboxapi.MaxServers:
		return fmt.Errorf("servers of %d bytes: want at most %d", r.ServersSize(), sandboxapi.MaxServers)
	case r.ModulesSize() > sandboxapi.MaxModules:
		return fmt.Errorf("modules of %d bytes: want at most %d", r.ModulesSize(), sandboxapi.MaxModules)
	case r.SkillsSize() > sandboxapi.MaxSkills:
		return fmt.Errorf("skills of %d bytes: want at most %d", r.SkillsSize(), sandboxapi.MaxSkills)
	case r.Input.Validate() != nil:
		return fmt.Errorf("input: %w", r.Input.Validate())
	case !hasValidSkills(r):
		return errors.New("skills: want names of files")
	case !hasValidModules(r):
		return errors.New("modules: want names of 1 to 64 of a-z, 0-9, - and _, each once")
	case r.TimeoutMS <= 0 || r.TimeoutMS > maxTimeout.Milliseconds():
		return errors.New("timeout_ms: want a positive number of milliseconds, at most a day's")
	}
	return nil
}

// checkFileNames returns an error if a file of a run has the name of a host folder. Each would hide the other.
func (p *Pool) checkFileNames(i *sandboxapi.Input) error {
	if i == nil {
		return nil
	}
	for _, f := range p.cfg.Folders {
		if _, ok := i.Files[f.Name]; ok {
			return fmt.Errorf("input: %q is the name of a folder; want another name for the file", f.Name)
		}
	}
	return nil
}

// isPinned reports whether a run of TypeScript imports pinned skills instead of files in /skills.
func isPinned(r sandboxapi.RunRequest) bool {
	return !r.Private && len(r.Skills) > 0 && r.Language == sandboxapi.LanguageTypeScript
}

// hasValidSkills reports whether every skill has a file name with the suffix ".ts" or ".py".
func hasValidSkills(r sandboxapi.RunRequest) bool {
	for name := range r.Skills {
		base, ts := strings.CutSuffix(name, ".ts")
		base, py := strings.CutSuffix(base, ".py")
		if ts == py || !isValidRunID(strings.ToLower(strings.ReplaceAll(base, "_", "-"))) {
			return false
		}
	}
	return true
}

// hasValidModules reports whether all modules have valid and different file names.
func hasValidModules(r sandboxapi.RunRequest) bool {
	seen := map[string]bool{}
	for _, m := range r.Modules {
		if !isValidRunID(strings.ReplaceAll(m.Name, "_", "-")) || seen[m.Name] {
			return false
		}
		seen[m.Name] = true
	}
	return true
}

func isValidRunID(id string) bool {
	return len(id) >= 1 && len(id) <= 64 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
