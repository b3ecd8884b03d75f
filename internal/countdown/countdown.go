// Package countdown is a timer that can be paused, for a bounded time in all.
package countdown

import (
	"sync"
	"time"
)

// MostPaused is how long the time limit of a run is paused in all, while its requests wait for a person.
const MostPaused = 10 * time.Minute

// Countdown calls a function when its time is over. Make it with New.
type Countdown struct {
	mu     sync.Mutex
	timer  *time.Timer
	until  time.Time     // when the time is over, unless it is paused
	pauses time.Duration // what is left of them
	paused int
	since  time.Time // of the first of the pauses
}

// New begins a countdown that calls end, in a goroutine of its own, after d and the pauses, which take at most pauses
// in all.
func New(d, pauses time.Duration, end func()) *Countdown {
	return &Countdown{timer: time.AfterFunc(d, end), until: time.Now().Add(d), pauses: pauses}
}

// Pause stops the countdown until Resume has been called as often as Pause. It goes on by itself when the pauses have
// taken too long.
func (c *Countdown) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused++; c.paused > 1 {
		return
	}
	c.since = time.Now()
	if c.timer.Stop() { // else it has ended
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

// Stop ends the countdown. The function is not called any more, if it has not been.
func (c *Countdown) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
}
