package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/interp"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// Acquire implements runapi.Sandbox. A slot without a warm interpreter starts one right away, while the proxy still
// learns of the lease; not for a lease ahead, which therefore is no gain where none are kept warm, and refused.
func (p *Pool) Acquire(owner context.Context, r runapi.LeaseRequest) (runapi.Lease, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ca == "" {
		return runapi.Lease{}, runapi.ErrUnready
	}
	s, isWarm := p.choose()
	if s == nil || r.Ahead && (p.cfg.Warm == 0 || !p.another(s)) {
		return runapi.Lease{}, runapi.ErrBusy
	}
	g, err := p.cfg.Generations.Next()
	if err != nil {
		return runapi.Lease{}, err
	}
	if s.running == nil && !r.Ahead && !p.start(s) {
		return runapi.Lease{}, fmt.Errorf("%w: %w", runapi.ErrUnready, p.problem)
	}
	s.lease, s.used, s.ahead = g, false, r.Ahead
	p.leases[g] = s
	p.watchIdle(s)
	s.unown = context.AfterFunc(owner, func() { p.expire(g, "its connection has ended") })
	return runapi.Lease{Slot: s.id, Generation: g, Warm: isWarm}, nil
}

// choose picks a free slot: a warm one, else one that is getting warm, else one that is prepared, else an empty one,
// else one where the last interpreter is ending. p.mu is held.
func (p *Pool) choose() (best *seat, isWarm bool) {
	key, rank := p.key(), 0
	for _, s := range p.seats {
		if !s.vacant() {
			continue
		}
		r := 4
		switch {
		case s.ready(key):
			return s, true
		case s.running != nil || s.warm != nil && s.warm.key != key:
			r = 1
		case s.warm == nil:
			r = 2
		case !s.warm.started:
			r = 3
		}
		if r > rank {
			best, rank = s, r
		}
	}
	return best, false
}

// vacant reports whether a lease can be had on the seat.
func (s *seat) vacant() bool { return s.lease == 0 && !s.quarantine && s.broken == nil }

// another reports whether a seat beside this one is vacant. p.mu is held.
func (p *Pool) another(but *seat) bool {
	return slices.ContainsFunc(p.seats, func(s *seat) bool { return s != but && s.vacant() })
}

// watchIdle ends the lease when nothing is asked of it for too long. p.mu is held.
func (p *Pool) watchIdle(s *seat) {
	g, limit := s.lease, p.cfg.LeaseIdle
	if s.ahead {
		limit = aheadIdle
	}
	s.idle = time.AfterFunc(limit, func() {
		p.mu.Lock()
		busy := p.leases[g] != nil && s.cancel != nil // its run began at this very moment
		p.mu.Unlock()
		if !busy {
			p.expire(g, "nothing was asked of it for too long")
		}
	})
}

// expire ends a lease that nobody released.
func (p *Pool) expire(g uint64, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.leases[g]
	if s == nil {
		return
	}
	p.cfg.Log.Warn("a lease has expired", "slot", s.id, "generation", g, "because", why)
	p.endLease(s, true)
}

// endLease takes a seat's lease away and kills its run. The slot is free when that has ended, and after a quarantine
// where one is due. p.mu is held.
func (p *Pool) endLease(s *seat, suspect bool) {
	if s.lease == 0 {
		return
	}
	delete(p.leases, s.lease)
	s.lease, s.ahead = 0, false
	s.idle.Stop()
	s.unown()
	if s.cancel != nil {
		s.cancel()
	}
	if suspect && !p.closed {
		s.quarantine = true
		running := s.running
		p.work.Go(func() { p.lift(s, running) })
	}
	p.refillAfter(endPause)
}

// lift ends a quarantine.
func (p *Pool) lift(s *seat, running chan struct{}) {
	if running != nil {
		<-running
	}
	select {
	case <-time.After(quarantine):
	case <-p.stop:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.quarantine = false
	p.refill()
}

// Release implements runapi.Sandbox. When it returns nothing runs in the slot.
func (p *Pool) Release(g uint64) error {
	p.mu.Lock()
	s := p.leases[g]
	if s == nil {
		p.mu.Unlock()
		return fmt.Errorf("%w: generation %d", runapi.ErrLeaseGone, g)
	}
	running := s.running
	p.endLease(s, false)
	p.mu.Unlock()
	if running != nil {
		<-running
	}
	return nil
}

// Run implements runapi.Sandbox.
func (p *Pool) Run(ctx context.Context, r runapi.RunRequest, out runapi.Output) (runapi.Exit, error) {
	if err := valid(r); err != nil {
		return runapi.Exit{}, fmt.Errorf("%w: %w", runapi.ErrBadRequest, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for try := 1; ; try++ {
		exit, err := p.try(ctx, cancel, r, out)
		if !errors.Is(err, interp.ErrNotSent) || try == maxTries {
			return exit, err
		}
	}
}

// answerPause is how long what is to be done after a run waits, so that its answer leaves first.
const answerPause = time.Millisecond

// maxTries is how many interpreters a run is given to when they end before they get it.
const maxTries = 3

// try runs the code in the slot's interpreter. When it returns nothing of the run is alive; its private files are removed
// while the answer is on its way, and the slot is taken until then.
func (p *Pool) try(ctx context.Context, cancel context.CancelFunc, r runapi.RunRequest, out runapi.Output) (runapi.Exit, error) {
	s, w, done, err := p.begin(ctx, r, cancel)
	if err != nil {
		return runapi.Exit{}, err
	}
	isWarm := w.isUp()
	added := p.cfg.Quota.Begin(s.id)
	exit, err := w.Run(ctx, interp.Task{
		Code: []byte(r.Code), Timeout: time.Duration(r.TimeoutMS) * time.Millisecond,
		Memory: p.cfg.Memory, Output: p.cfg.Output, Emit: out.Send, Ended: out.Ended, Keep: p.cfg.Keep.File(r.Run),
		Watch: func() (runapi.Reason, string) { return added.Check(w.Unnamed) },
	})
	exit.Warm = isWarm
	ended := w.End()
	if err == nil {
		err = ended
	}
	if e := added.End(); e != nil {
		p.cfg.Log.Warn("what a run left could not all be removed", "run", r.Run, "error", e)
	}
	remove := func(after time.Duration) {
		time.Sleep(after)
		err := w.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.vacate(s, done, err)
	}
	p.mu.Lock()
	if s.lease == r.Generation {
		s.used = !errors.Is(err, interp.ErrNotSent)
		p.watchIdle(s)
	}
	closed := p.closed
	if !closed {
		p.work.Go(func() { remove(answerPause) })
	}
	p.mu.Unlock()
	if closed { // Close may have waited for the pool's goroutines already
		remove(0)
	}
	return exit, err
}

func (w *warm) isUp() bool {
	select {
	case <-w.Up():
		return true
	default:
		return false
	}
}

// begin takes the lease's one run. Where the slot's interpreter is of no use any more it waits for its end, and starts
// another one.
func (p *Pool) begin(ctx context.Context, r runapi.RunRequest, cancel context.CancelFunc) (*seat, *warm, chan struct{}, error) {
	for {
		p.mu.Lock()
		s, err := p.claim(r)
		if err != nil {
			p.mu.Unlock()
			return nil, nil, nil, err
		}
		if w := s.warm; w != nil {
			done := make(chan struct{})
			s.warm, s.used, s.ahead, s.cancel, s.running = nil, true, false, cancel, done
			s.idle.Stop()
			p.runs++
			if w.isUp() {
				p.warmRuns++
			}
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

// claim finds the lease's seat, and sees to it that it has an interpreter or that one is ending. p.mu is held.
func (p *Pool) claim(r runapi.RunRequest) (*seat, error) {
	s := p.leases[r.Generation]
	switch {
	case s == nil:
		return nil, fmt.Errorf("%w: generation %d", runapi.ErrLeaseGone, r.Generation)
	case s.used:
		return nil, fmt.Errorf("%w: it has had its run", runapi.ErrLeaseGone)
	case r.Permissions != p.set.Hash():
		return nil, fmt.Errorf("%w: now %s", runapi.ErrPermissions, p.set.Hash())
	case s.broken != nil:
		return nil, fmt.Errorf("%w: the slot is out of use", runapi.ErrUnready)
	}
	if s.warm != nil && s.warm.key != p.key() { // the permissions or the CA changed after the lease was given
		p.discard(s)
	}
	if s.running == nil && !p.start(s) {
		return nil, fmt.Errorf("%w: %w", runapi.ErrUnready, p.problem)
	}
	return s, nil
}

// maxTimeout bounds a run whatever was asked for.
const maxTimeout = 24 * time.Hour

// valid refuses requests that can never work.
func valid(r runapi.RunRequest) error {
	switch {
	case !validRun(r.Run):
		return fmt.Errorf("run %q: want 1 to 64 of a-z, 0-9 and -", r.Run)
	case r.Language != runapi.LanguageTypeScript:
		return fmt.Errorf("language %q: want %q", r.Language, runapi.LanguageTypeScript)
	case len(r.Code) > runapi.MaxCode:
		return fmt.Errorf("code of %d bytes: want at most %d", len(r.Code), runapi.MaxCode)
	case r.TimeoutMS <= 0 || r.TimeoutMS > maxTimeout.Milliseconds():
		return errors.New("timeout_ms: want a positive number of milliseconds, at most a day's")
	}
	return nil
}

func validRun(id string) bool {
	if len(id) < 1 || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
