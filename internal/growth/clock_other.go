//go:build !linux

package growth

import "time"

var start = time.Now()

// goroutineClock and threadClock return the elapsed time.
func goroutineClock() time.Duration { return time.Since(start) }
func threadClock() time.Duration    { return time.Since(start) }
