package broker

import (
	"time"

	"github.com/codeforge-mcp/codeforge/internal/countdown"
)

// callTimers are the time limits of the calls of a run that are in flight.
type callTimers struct {
	paused bool
	clocks map[*countdown.Countdown]struct{}
}

// limitCall calls end after d. The time in which requests of the run wait for a person does not count, up to
// countdown.MostPaused in total.
func (b *Broker) limitCall(run string, d time.Duration, end func()) (stop func()) {
	clock := countdown.New(d, countdown.MostPaused, end)
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limitsOf(run)
	l.clocks[clock] = struct{}{}
	// A call may start while an earlier request of the run already waits for a person.
	if l.paused {
		clock.Pause()
	}
	return func() {
		clock.Stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(l.clocks, clock)
		b.dropLimits(run)
	}
}

// Pause stops or resumes the time limits of a run's calls.
func (b *Broker) Pause(run string, paused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limitsOf(run)
	if l.paused != paused {
		l.paused = paused
		for clock := range l.clocks {
			if paused {
				clock.Pause()
			} else {
				clock.Resume()
			}
		}
	}
	b.dropLimits(run)
}

// limitsOf returns the limits of a run, which it makes if there are none. The caller holds b.mu.
func (b *Broker) limitsOf(run string) *callTimers {
	l := b.limits[run]
	if l == nil {
		l = &callTimers{clocks: map[*countdown.Countdown]struct{}{}}
		b.limits[run] = l
	}
	return l
}

// dropLimits deletes the limits of a run that has no calls and is not paused. The caller holds b.mu.
func (b *Broker) dropLimits(run string) {
	if l := b.limits[run]; l != nil && !l.paused && len(l.clocks) == 0 {
		delete(b.limits, run)
	}
}
