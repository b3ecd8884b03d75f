package pool

import (
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/interp"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
)

// warmInterpreter is an interpreter without code: prepared, starting, or waiting.
type warmInterpreter struct {
	*interp.Interpreter
	python  bool
	kind    runKind
	key     string // Pool.interpreterKey when the interpreter was prepared
	started bool
}

// canReplace reports whether the pool may replace the slot's interpreter: the slot has no lease, or only one ahead.
func (s *slotState) canReplace() bool { return s.lease == 0 || s.ahead }

// refillWarm replaces outdated interpreters, and prepares and starts new ones until enough wait. The caller holds p.mu.
func (p *Pool) refillWarm() {
	if p.closed {
		return
	}
	waiting := 0
	for _, s := range p.slots {
		if s.warm != nil && s.canReplace() && (s.warm.key != p.interpreterKey(s, s.warm.python) || p.ca == "") {
			p.discardInterpreter(s)
		}
		if s.warm != nil && s.warm.started && !s.warm.python && s.canReplace() {
			waiting++
		}
	}
	p.refillPython()
	if p.ca == "" || time.Now().Before(p.retryAt) {
		return
	}
	// Every free slot gets a prepared process, and Warm slots get a started one. Slots with a lease ahead come first,
	// because the next runs will use them.
	slots := slices.Clone(p.slots)
	slices.SortStableFunc(slots, func(a, b *slotState) int {
		if a.ahead == b.ahead {
			return 0
		}
		if a.ahead {
			return -1
		}
		return 1
	})
	for _, s := range slots {
		if !s.canReplace() || s.broken != nil || s.quarantine || s.running != nil && !s.ahead {
			continue
		}
		switch {
		case s.running != nil: // an outdated interpreter is ending; its replacement counts
			waiting++
		// An interpreter of Python holds the slot. refillPython decides about it.
		case s.warm != nil && s.warm.python:
		case waiting < p.cfg.Warm && (s.warm == nil || !s.warm.started):
			if !p.startInterpreter(s, false) {
				return
			}
			waiting++
		case s.warm == nil:
			if !p.prepareInterpreter(s, false) {
				return
			}
		}
	}
}

// Starting an interpreter keeps a processor busy for longer than a short run does. So the replacement of a used
// interpreter waits until a short run has ended and its response has left. While runs could be using half the
// processors or more, it waits a little longer.
const (
	busyPause = 25 * time.Millisecond
	endPause  = 8 * time.Millisecond
	maxPauses = 4 // of busyPause, after the first one
)

// refillAfter calls refill after d, or later while runs keep the processors busy. The caller holds p.mu.
func (p *Pool) refillAfter(d time.Duration) {
	if p.closed {
		return
	}
	p.work.Go(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		for waited := 0; ; waited++ {
			select {
			case <-t.C:
			case <-p.stop:
				return
			}
			if p.refillNow(waited >= maxPauses) {
				return
			}
			t.Reset(busyPause)
		}
	})
}

// refillNow calls refillWarm, unless runs could be using half the processors and force is false. It reports whether it
// did.
func (p *Pool) refillNow(force bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Starting interpreters would slow down the runs in progress.
	if 2*p.countActiveRuns() >= runtime.GOMAXPROCS(0) && !force {
		return false
	}
	p.refillWarm()
	return true
}

// countActiveRuns counts the runs in progress. The caller holds p.mu.
func (p *Pool) countActiveRuns() (runs int) {
	for _, s := range p.slots {
		if s.cancel != nil {
			runs++
		}
	}
	return runs
}

// isIdle reports whether no run is in progress.
func (p *Pool) isIdle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.countActiveRuns() == 0
}

// startInterpreter starts a slot's interpreter. If the slot has none, start first prepares one. The caller holds p.mu.
func (p *Pool) startInterpreter(s *slotState, python bool) bool {
	if s.warm == nil && !p.prepareInterpreter(s, python) {
		return false
	}
	s.warm.started = true
	s.warm.Start()
	return true
}

// prepareInterpreter prepares an interpreter of a language for a slot without one. The caller holds p.mu.
func (p *Pool) prepareInterpreter(s *slotState, python bool) bool {
	held := p.packages.selectLanguage(python)
	release, kind := held.holdAgain(), p.kindOf(s)
	i, err := interp.Prepare(
		p.cfg.Jail, jail.InterpreterSpec{
			Slot: s.id, Net: p.set.SortedHosts(), TZ: p.cfg.TZ, Python: python, Canary: s.canary, Private: kind.private,
			Pinned: kind.pinned, Folders: kind.folders, Packages: held.CodePackages,
		}, p.isIdle)
	if err != nil {
		release()
		p.noteFailure(python, err)
		return false
	}
	w := &warmInterpreter{Interpreter: i, python: python, kind: kind, key: p.interpreterKey(s, python)}
	s.warm = w
	p.work.Go(func() {
		defer release()
		p.monitorStart(s, w)
	})
	return true
}

// monitorStart waits until an interpreter is up, possibly long after it was prepared. If the interpreter ends unused,
// monitor replaces it.
func (p *Pool) monitorStart(s *slotState, w *warmInterpreter) {
	select {
	case <-w.UpSignal():
	case <-p.stop:
		return
	}
	p.mu.Lock()
	if err := w.Failure(); err == nil {
		p.noteStart(w.python)
		// An interpreter that was discarded while it started has not failed.
	} else if s.warm == w {
		p.noteFailure(w.python, err)
	}
	p.mu.Unlock()
	select {
	case <-w.EndSignal():
	case <-p.stop:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A run may have taken the interpreter in the meantime: it ends by the run's own code.
	if s.warm == w {
		p.discardInterpreter(s)
		p.refillWarm()
	}
}

// noteFailure records why an interpreter did not start, and delays the next try. The caller holds p.mu.
func (p *Pool) noteFailure(python bool, err error) {
	if python { // TypeScript still works
		p.python.problem, p.python.retryAt = err, time.Now().Add(maxBackoff)
		p.cfg.Log.Error("Python did not start", "error", err)
		return
	}
	p.problem = err
	// A start that always fails must not use a processor all the time.
	p.backoff = min(max(2*p.backoff, 100*time.Millisecond), maxBackoff)
	p.retryAt = time.Now().Add(p.backoff)
	p.cfg.Log.Error("an interpreter did not start", "error", err, "next_try", p.backoff)
}

// discardInterpreter ends a slot's waiting interpreter. The slot counts as running until it has ended. The caller holds
// p.mu.
func (p *Pool) discardInterpreter(s *slotState) {
	w := s.warm
	s.warm = nil
	done := make(chan struct{})
	// The slot stays taken until the process has ended: Check of the next one would find two.
	s.running = done
	p.work.Go(func() {
		err := w.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.vacateSlot(s, done, err)
	})
}

// vacateSlot records that a slot's run, or its discarded interpreter, has ended. The caller holds p.mu.
func (p *Pool) vacateSlot(s *slotState, done chan struct{}, err error) {
	if err != nil {
		s.broken = err
		p.cfg.Log.Error("a slot is out of use", "slot", s.id, "error", err)
		// Files on a full disk can be removed later. A process that survived SIGKILL stays, and so the slot stays out of use.
		if files := (*jail.FilesError)(nil); errors.As(err, &files) && !p.closed {
			p.work.Go(func() { p.retryRemoval(s, files.Again) })
		}
	}
	s.running, s.cancel = nil, nil
	close(done)
	if !s.id.IsServer() && !s.canReplace() && !s.used && s.broken == nil && !p.closed {
		p.startInterpreter(s, s.python) // the slot was leased while the previous interpreter was ending
		return
	}
	p.refillAfter(endPause)
}

// retryRemoval retries, until the pool is closed, to remove the files for which a slot is out of use.
func (p *Pool) retryRemoval(s *slotState, remove func() error) {
	for gone := false; !gone; gone = remove() == nil {
		select {
		case <-time.After(maxBackoff):
		case <-p.stop:
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.broken = nil
	p.cfg.Log.Info("a slot is in use again", "slot", s.id)
	p.refillWarm()
}

// isReady reports whether an up-to-date interpreter waits for code in the slot.
func (s *slotState) isReady(key string) bool {
	if s.warm == nil || s.warm.key != key {
		return false
	}
	select {
	case <-s.warm.UpSignal():
	default:
		return false
	}
	select {
	// Up was closed, but the interpreter may have ended since.
	case <-s.warm.EndSignal():
		return false
	default:
		return s.warm.Failure() == nil
	}
}
