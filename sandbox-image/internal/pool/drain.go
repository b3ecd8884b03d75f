package pool

import (
	"context"
	"time"
)

// drainPoll is how often Drain checks whether runs are left.
const drainPoll = 50 * time.Millisecond

// Drain refuses further leases for runs, as when all slots are taken, ends those that are held ahead, and waits until
// no other one is left or ctx ends.
func (p *Pool) Drain(ctx context.Context) {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for p.drained() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// drained begins to drain, and counts the leases that are left.
func (p *Pool) drained() (left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	for _, s := range p.seats {
		if s.ahead {
			p.endLease(s, false)
		}
		if s.lease != 0 {
			left++
		}
	}
	return left
}
