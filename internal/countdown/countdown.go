// Package countdown is a timer with pauses of a limited total length.
package countdown

import (
	"sync"
	"time"
)

// MostPaused limits the total pause of a run's time limit while its requests wait for a person.
const MostPaused = 10 * time.Minute

// Countdown calls a function when its time has passed. Make it with New.
type Countdown struct {
	mu     sync.Mutex
	timer  *time.Timer
	until  time.Time     // the end, unless it is paused
	pauses time.Duration // the rest of the allowed pauses
	paused int
	since  time.Time // the start of the first pause
}

// New starts a countdown that calls end in a new goroutine, after d and the pauses. All pauses together last at most
// pauses.
func New(d, pauses time.Duration, end func()) *Countdown {
	return &Countdown{timer: time.AfterFunc(d, end), until: time.Now().Add(d), pauses: pauses}
}

// Pause stops the countdown until Resume was called as often as Pause. When the allowed pauses are used up, the
// countdown continues.
func (c *Countdown) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused++; c.paused > 1 {
		return
	}
	c.since = time.Now()
	if c.timer.Stop() { // otherwise it has ended
		// The timer never stops: if Resume does not come, it ends after the allowed pauses.
		c.timer.Reset(time.Until(c.until) + c.pauses)
	}
}

// Resume ends a pause.
func (c *Countdown) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused--; c.paused > 0 {
		return
	}
	took := min(time.Since(c.since), c.pauses)
	c.until, c.pauses = c.until.Add(took), c.pauses-took
	if c.timer.Stop() {
		c.timer.Reset(time.Until(c.until))
	}
}

// Stop ends the countdown. If the function was not called yet, it will not be.
func (c *Countdown) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
}
