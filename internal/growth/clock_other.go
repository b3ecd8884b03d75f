//go:build !linux

package growth

import "time"

var start = time.Now()

// clock is the time.
func clock() time.Duration { return time.Since(start) }
