package costtest

import (
	"time"

	"golang.org/x/sys/unix"
)

// processClock returns the processor time of this process. Other processes do not affect it.
func processClock() time.Duration { return readClock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// threadClock returns the processor time of the calling thread.
func threadClock() time.Duration { return readClock(unix.CLOCK_THREAD_CPUTIME_ID) }

func readClock(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(t.Nano())
}
