// Package timing waits and repeats until a context ends.
package timing

import (
	"context"
	"iter"
	"time"
)

// WaitFor waits for a duration, or until ctx ends. It reports whether ctx is still active.
func WaitFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

// EachTick returns the times of a ticker, the first after one interval, until ctx ends. A slow reader misses ticks.
func EachTick(ctx context.Context, interval time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}
