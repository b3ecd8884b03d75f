//go:build !linux

package growth

import "time"

var start = time.Now()

// clock and threadClock return the elapsed time.
func clock() time.Duration       { return time.Since(start) }
func threadClock() time.Duration { return time.Since(start) }
