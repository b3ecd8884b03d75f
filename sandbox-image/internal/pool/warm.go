package pool

import (
	"runtime"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/interp"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
)

// warm is an interpreter that waits, or is about to, or is only prepared.
type warm struct {
	*interp.Interpreter
	key     string // what it was prepared with
	started bool
}

// open reports whether interpreters may come and go in the seat.
func (s *seat) open() bool { return s.lease == 0 || s.ahead }

// refill replaces interpreters that are of no use, and starts new ones until enough wait. p.mu is held.
func (p *Pool) refill() {
	if p.closed {
		return
	}
	key := p.key()
	waiting := 0
	for _, s := range p.seats {
		if s.warm != nil && s.open() && (s.warm.key != key || p.ca == "") {
			p.discard(s)
		}
		if s.warm != nil && s.warm.started && s.open() {
			waiting++
		}
	}
	if p.ca == "" || time.Now().Before(p.retryAt) {
		return
	}
	// Every free slot has its process prepared, and as many as are to be warm have it started, those first that the next
	// runs will get.
	seats := slices.Clone(p.seats)
	slices.SortStableFunc(seats, func(a, b *seat) int {
		if a.ahead == b.ahead {
			return 0
		}
		if a.ahead {
			return -1
		}
		return 1
	})
	for _, s := range seats {
		if !s.open() || s.broken != nil || s.quarantine || s.running != nil && !s.ahead {
			continue
		}
		switch {
		case s.running != nil: // one that is of no use is ending there; the next one is this seat's
			waiting++
		case waiting < p.cfg.Warm && (s.warm == nil || !s.warm.started):
			if !p.start(s) {
				return
			}
			waiting++
		case s.warm == nil:
			if !p.prepare(s) {
				return
			}
		}
	}
}

// Starting an interpreter takes a processor for longer than a short run takes. So the replacement of one that was used
// waits until a short run has ended, and its answer is on the way; and while runs could use half the processors or more
// it waits a little longer.
const (
	busyPause = 25 * time.Millisecond
	endPause  = 8 * time.Millisecond
	patience  = 4 // pauses of busyPause more
)

// refillAfter refills in a moment. p.mu is held.
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
			if p.refillNow(waited >= patience) {
				return
			}
			t.Reset(busyPause)
		}
	})
}

// refillNow refills, unless runs could use half the processors. With force it refills in any case.
func (p *Pool) refillNow(force bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if 2*p.underWay() >= runtime.GOMAXPROCS(0) && !force {
		return false
	}
	p.refill()
	return true
}

// underWay counts the runs. p.mu is held.
func (p *Pool) underWay() (runs int) {
	for _, s := range p.seats {
		if s.cancel != nil {
			runs++
		}
	}
	return runs
}

// idle reports whether no run is under way.
func (p *Pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.underWay() == 0
}

// start sees to it that a seat has an interpreter that was started. p.mu is held.
func (p *Pool) start(s *seat) bool {
	if s.warm == nil && !p.prepare(s) {
		return false
	}
	s.warm.started = true
	s.warm.Start()
	return true
}

// prepare prepares an interpreter for a seat that has none. p.mu is held.
func (p *Pool) prepare(s *seat) bool {
	i, err := interp.Prepare(p.cfg.Jail, jail.Seat{Slot: s.id, Net: p.set.Hosts(), TZ: p.cfg.TZ}, p.idle)
	if err != nil {
		p.failed(err)
		return false
	}
	w := &warm{Interpreter: i, key: p.key()}
	s.warm = w
	p.work.Go(func() { p.mind(s, w) })
	return true
}

// mind sees an interpreter come up, which it may do long after it was prepared, and go if it does before it was used.
func (p *Pool) mind(s *seat, w *warm) {
	select {
	case <-w.Up():
	case <-p.stop:
		return
	}
	p.mu.Lock()
	if err := w.Failure(); err == nil {
		p.problem, p.backoff = nil, 0
	} else if s.warm == w {
		p.failed(err)
	}
	p.mu.Unlock()
	select {
	case <-w.Ended():
	case <-p.stop:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.warm == w {
		p.discard(s)
		p.refill()
	}
}

// failed notes why an interpreter did not start, and puts off the next try. p.mu is held.
func (p *Pool) failed(err error) {
	p.problem = err
	p.backoff = min(max(2*p.backoff, 100*time.Millisecond), maxBackoff)
	p.retryAt = time.Now().Add(p.backoff)
	p.cfg.Log.Error("an interpreter did not start", "error", err, "next_try", p.backoff)
}

// discard ends a seat's waiting interpreter; until it has ended the seat counts as running. p.mu is held.
func (p *Pool) discard(s *seat) {
	w := s.warm
	s.warm = nil
	done := make(chan struct{})
	s.running = done
	p.work.Go(func() {
		err := w.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.vacate(s, done, err)
	})
}

// vacate marks the end of what ran in a seat. p.mu is held.
func (p *Pool) vacate(s *seat, done chan struct{}, err error) {
	if err != nil {
		s.broken = err
		p.cfg.Log.Error("a slot is out of use", "slot", s.id, "error", err)
	}
	s.running, s.cancel = nil, nil
	close(done)
	if !s.open() && !s.used && s.broken == nil && !p.closed {
		p.start(s) // it was leased while the last one ended
		return
	}
	p.refillAfter(endPause)
}

// ready reports whether an interpreter waits in the seat that can be used at once.
func (s *seat) ready(key string) bool {
	if s.warm == nil || s.warm.key != key {
		return false
	}
	select {
	case <-s.warm.Up():
	default:
		return false
	}
	select {
	case <-s.warm.Ended():
		return false
	default:
		return s.warm.Failure() == nil
	}
}
