//go:build !linux

package costtest

import "time"

var start = time.Now()

// processClock and threadClock return the elapsed time.
func processClock() time.Duration { return time.Since(start) }
func threadClock() time.Duration  { return time.Since(start) }
