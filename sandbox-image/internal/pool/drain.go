package pool

import (
	"context"
	"time"
)

// drainPoll is the interval at which Drain counts the runs that are left.
const drainPoll = 50 * time.Millisecond

// Drain refuses further leases for runs with ErrBusy and ends leases held ahead. It waits until all other leases for
// runs have ended, or until ctx ends.
func (p *Pool) Drain(ctx context.Context) {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for p.startDraining() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// startDraining starts draining and counts the remaining leases.
func (p *Pool) startDraining() (left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	for _, s := range p.slots {
		if s.ahead {
			p.endLease(s, false)
		}
		if s.lease != 0 {
			left++
		}
	}
	return left
}
