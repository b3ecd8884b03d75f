package countdown

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestPause: a pause does not count, several at once count as one, and together they take no longer than they may.
// Promise: exact-approvals
func TestPause(t *testing.T) {
	for name, c := range map[string]struct {
		use func(c *Countdown)
		at  time.Duration
	}{
		"none": {func(*Countdown) {}, 10 * time.Second},
		"one":  {func(c *Countdown) { time.Sleep(4 * time.Second); c.Pause(); time.Sleep(20 * time.Second); c.Resume() }, 30 * time.Second},
		"two": {func(c *Countdown) {
			c.Pause()
			time.Sleep(5 * time.Second)
			c.Resume()
			time.Sleep(time.Second)
			c.Pause()
			time.Sleep(6 * time.Second)
			c.Resume()
		}, 21 * time.Second},
		"at once": {func(c *Countdown) {
			c.Pause()
			time.Sleep(time.Second)
			c.Pause()
			time.Sleep(4 * time.Second)
			c.Resume()
			time.Sleep(5 * time.Second)
			c.Resume()
		}, 20 * time.Second},
		"too long": {func(c *Countdown) { time.Sleep(time.Second); c.Pause(); time.Sleep(90 * time.Second); c.Resume() }, 70 * time.Second},
		"again": {func(c *Countdown) {
			c.Pause()
			time.Sleep(59 * time.Second)
			c.Resume()
			c.Pause()
			time.Sleep(time.Hour)
			c.Resume()
		}, 70 * time.Second},
		"stopped": {func(c *Countdown) { c.Pause(); c.Stop(); c.Resume() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var at atomic.Int64
				k := New(10*time.Second, time.Minute, func() { at.Store(int64(time.Since(began))) })
				c.use(k)
				time.Sleep(2 * time.Hour)
				if got := time.Duration(at.Load()); got != c.at {
					t.Errorf("it ended after %s, want %s", got, c.at)
				}
			})
		})
	}
}
