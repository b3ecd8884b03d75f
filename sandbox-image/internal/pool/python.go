package pool

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// pythonHour is how long the pool keeps a Python interpreter warm after a run of Python.
const pythonHour = time.Hour

// pythonState is the pool's state for Python. Python uses no memory and no process before its first use.
type pythonState struct {
	prepared bool      // jail.PreparePython has succeeded
	until    time.Time // until then the pool keeps one interpreter warm
	problem  error     // why the last interpreter did not start
	retryAt  time.Time
}

// isPython reports whether the language is Python. If it is, isPython prepares the jail for it.
func (p *Pool) isPython(language sandboxapi.Language) (bool, error) {
	if !language.IsPython() {
		return false, nil
	}
	if p.cfg.Python.Version == "" {
		return false, fmt.Errorf("%w: no Python: %s", sandboxapi.ErrBadRequest, p.cfg.Python.Problem)
	}
	if err := p.cfg.Jail.PreparePython(); err != nil {
		return false, fmt.Errorf("%w: preparing Python: %w", sandboxapi.ErrUnready, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.python.prepared = true
	// A warm Python interpreter must not take the slot of a warm Deno interpreter.
	if p.cfg.Slots > p.cfg.Warm {
		p.python.until = time.Now().Add(pythonHour)
	}
	return true, nil
}

// preparePython prepares the jail if Python interpreters are kept warm from the start.
func (p *Pool) preparePython() {
	err := p.cfg.Jail.PreparePython()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.noteFailure(true, err)
		return
	}
	p.python.prepared = true
	p.refillWarm()
}

// countWantedPython returns the number of Python interpreters that should wait now. The caller holds p.mu.
func (p *Pool) countWantedPython() int {
	switch {
	case !p.python.prepared || p.ca == "" || time.Now().Before(p.python.retryAt):
		return 0
	case time.Now().Before(p.python.until):
		return max(1, p.cfg.WarmPython)
	}
	return p.cfg.WarmPython
}

// refillPython starts or ends waiting Python interpreters. They never take a slot from the warm Deno interpreters. The
// caller holds p.mu.
func (p *Pool) refillPython() {
	if !p.python.prepared {
		return
	}
	want, waiting, free := p.countWantedPython(), 0, 0
	for _, s := range p.slots {
		if s.warm != nil && s.warm.python && s.canReplace() {
			if waiting == want {
				p.discardInterpreter(s)
				continue
			}
			waiting++
		} else if s.isVacant() {
			free++
		}
	}
	for waiting < want && free > p.cfg.Warm {
		s := p.slotForPython()
		switch {
		case s == nil || s.running != nil: // refill runs again when the process in that slot has ended
			return
		case s.warm != nil:
			p.discardInterpreter(s)
			return
		case !p.startInterpreter(s, true):
			return
		}
		free--
		waiting++
	}
}

// slotForPython returns a free slot without an interpreter, else one whose interpreter is ending, else one whose
// interpreter is only prepared. The caller holds p.mu.
func (p *Pool) slotForPython() (best *slotState) {
	rank := 0
	for _, s := range p.slots {
		r := 0
		switch {
		case !s.isVacant():
		case s.running != nil:
			r = 2
		case s.warm == nil:
			r = 3
		case !s.warm.started:
			r = 1
		}
		if r > rank {
			best, rank = s, r
		}
	}
	return best
}

// lastStartError returns the reason why an interpreter of a language did not start. The caller holds p.mu.
func (p *Pool) lastStartError(python bool) error {
	err := p.problem
	if python {
		err = p.python.problem
	}
	return cmp.Or(err, errors.New("the interpreter does not start"))
}

// noteStart records that an interpreter has started. The caller holds p.mu.
func (p *Pool) noteStart(python bool) {
	if python {
		p.python.problem = nil
		return
	}
	p.problem, p.backoff = nil, 0
}
