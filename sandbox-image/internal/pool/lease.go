package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Acquire implements sandboxapi.Sandbox. If the slot has no warm interpreter, Acquire starts one immediately, in
// parallel with the registration at the proxy. A lease ahead starts no interpreter. Acquire refuses it if no
// interpreters are kept warm, because it would then save no time.
func (p *Pool) Acquire(owner context.Context, r sandboxapi.LeaseRequest) (sandboxapi.Lease, error) {
	python, err := p.isPython(r.Language)
	if err != nil {
		return sandboxapi.Lease{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ca == "" {
		return sandboxapi.Lease{}, sandboxapi.ErrUnready
	}
	if r.Server {
		return p.acquireServer(owner)
	}
	// Waiting interpreters of another kind are outdated now.
	p.next.private, p.next.folders = r.Private, jail.ChooseFolders(p.cfg.Folders, r.Folders)
	s, isWarm := p.chooseSlot(python)
	// A lease ahead must leave another slot vacant: otherwise an unused lease could block every run.
	if s == nil || p.draining || r.Ahead && (p.cfg.Warm == 0 || !p.hasOtherVacant(s)) {
		return sandboxapi.Lease{}, sandboxapi.ErrBusy
	}
	g, err := p.cfg.Generations.Next()
	if err != nil {
		return sandboxapi.Lease{}, err
	}
	if s.warm != nil && !r.Ahead && (s.warm.python != python || s.warm.kind.private != r.Private ||
		jail.FolderNames(s.warm.kind.folders) != jail.FolderNames(p.next.folders)) {
		p.discardInterpreter(s) // vacate starts the replacement when this one has ended
	}
	if s.running == nil && !r.Ahead && !p.startInterpreter(s, python) {
		return sandboxapi.Lease{}, fmt.Errorf("%w: %w", sandboxapi.ErrUnready, p.lastStartError(python))
	}
	s.ahead, s.python, s.kind = r.Ahead, python, p.next
	s.kind.pinned = p.next.pinned && !r.Private
	p.grantLease(s, g, owner)
	p.watchIdle(s)
	return sandboxapi.Lease{Slot: s.id, Generation: g, Warm: isWarm, Taken: p.countTaken(), Canary: s.canary}, nil
}

// grantLease gives a slot to a lease, which ends with its owner. The caller holds p.mu.
func (p *Pool) grantLease(s *slotState, g uint64, owner context.Context) {
	s.lease, s.used = g, false
	// The generation, not the slot, is the key: a late message for an earlier lease then finds no slot.
	p.leases[g] = s
	// A client that dies sends no Release. Its closed connection must free the slot.
	s.forgetOwner = context.AfterFunc(owner, func() { p.expireLease(g, "its connection has ended") })
}

// chooseSlot picks a free slot for a language. It prefers, in this order, a slot whose interpreter is warm, is
// starting, or is prepared, then a slot without an interpreter, then one whose interpreter is ending or must end, then
// one where an interpreter of the other language waits. The caller holds p.mu.
func (p *Pool) chooseSlot(python bool) (best *slotState, isWarm bool) {
	rank := 0
	for _, s := range p.slots {
		if !s.isVacant() {
			continue
		}
		key, r := p.interpreterKey(s, python), 5
		switch {
		case s.isReady(key):
			return s, true
		case s.warm != nil && s.warm.python != python && s.warm.started:
			r = 1
		case s.running != nil || s.warm != nil && s.warm.key != key:
			r = 2
		case s.warm == nil:
			r = 3
		case !s.warm.started:
			r = 4
		}
		if r > rank {
			best, rank = s, r
		}
	}
	return best, false
}

// countTaken counts the slots for runs that cannot be leased. The caller holds p.mu.
func (p *Pool) countTaken() (n int) {
	for _, s := range p.slots {
		if !s.isVacant() {
			n++
		}
	}
	return n
}

func (s *slotState) isVacant() bool { return s.lease == 0 && !s.quarantine && s.broken == nil }

// hasOtherVacant reports whether a slot other than but is vacant. The caller holds p.mu.
func (p *Pool) hasOtherVacant(but *slotState) bool {
	return slices.ContainsFunc(p.slots, func(s *slotState) bool { return s != but && s.isVacant() })
}

// watchIdle ends the lease if it stays unused for too long. The caller holds p.mu.
func (p *Pool) watchIdle(s *slotState) {
	g, limit := s.lease, p.cfg.LeaseIdle
	if s.ahead {
		// A lease ahead waits for a run that may come much later.
		limit = aheadIdle
	}
	s.idle = time.AfterFunc(limit, func() {
		p.mu.Lock()
		busy := p.leases[g] != nil && s.cancel != nil // its run began while the timer fired
		p.mu.Unlock()
		if !busy {
			p.expireLease(g, "it was unused for too long")
		}
	})
}

// expireLease ends a lease whose holder did not release it.
func (p *Pool) expireLease(g uint64, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.leases[g]
	if s == nil {
		return
	}
	p.cfg.Log.Warn("a lease has expired", "slot", s.id, "generation", g, "because", why)
	p.endLease(s, true)
}

// endLease ends a slot's lease and kills its run. The slot is free after that run has ended and, if suspect, after a
// quarantine. The caller holds p.mu.
func (p *Pool) endLease(s *slotState, suspect bool) {
	if s.lease == 0 {
		return
	}
	delete(p.leases, s.lease)
	if s.used && !s.id.IsServer() { // code has seen the canary
		s.canary = p.newCanary()
	}
	s.lease, s.ahead, s.python = 0, false, false
	if s.idle != nil {
		s.idle.Stop()
	}
	s.forgetOwner()
	if s.cancel != nil {
		s.cancel()
	}
	if suspect && !p.closed {
		s.quarantine = true
		running := s.running
		p.work.Go(func() { p.endQuarantine(s, running) })
	}
	p.refillAfter(endPause)
}

// endQuarantine frees the slot after its run has ended and the quarantine has passed.
func (p *Pool) endQuarantine(s *slotState, running chan struct{}) {
	if running != nil {
		<-running
	}
	select {
	// The holder may still believe that it has the slot. Its last message must not reach the next run.
	case <-time.After(quarantine):
	case <-p.stop:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.quarantine = false
	p.refillWarm()
}

// Release implements sandboxapi.Sandbox. When Release returns, no process of the run is left.
func (p *Pool) Release(g uint64) error {
	p.mu.Lock()
	s := p.leases[g]
	if s == nil {
		p.mu.Unlock()
		return fmt.Errorf("%w: generation %d", sandboxapi.ErrLeaseGone, g)
	}
	running := s.running
	p.endLease(s, false)
	p.mu.Unlock()
	// Wait without p.mu: vacate needs it to close running.
	if running != nil {
		<-running
	}
	return nil
}

// Pause implements sandboxapi.Sandbox.
func (p *Pool) Pause(g uint64, r sandboxapi.Pause) error {
	p.mu.Lock()
	s := p.leases[g]
	if s == nil || s.running == nil || s.pauses == nil {
		p.mu.Unlock()
		return fmt.Errorf("%w: generation %d", sandboxapi.ErrLeaseGone, g)
	}
	pauses, running := s.pauses, s.running
	p.mu.Unlock()
	// Not under p.mu: a run that has ended no longer receives, and only running then ends the wait.
	select {
	case pauses <- r.Paused:
		return nil
	case <-running:
		return fmt.Errorf("%w: generation %d", sandboxapi.ErrLeaseGone, g)
	}
}

// AwaitUp waits until the interpreter of a lease is up or has failed to start.
func (p *Pool) AwaitUp(ctx context.Context, g uint64) error {
	p.mu.Lock()
	s := p.leases[g]
	if s == nil || s.warm == nil {
		p.mu.Unlock()
		return fmt.Errorf("%w: generation %d", sandboxapi.ErrLeaseGone, g)
	}
	// s.warm may change as soon as the lock is free.
	w := s.warm
	p.mu.Unlock()
	select {
	case <-w.UpSignal():
		return w.Failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}
