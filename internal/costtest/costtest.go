// Package costtest checks, for tests, that the work of a function grows linearly with its input, or stays below a
// bound.
package costtest

import (
	"runtime"
	"testing"
	"time"
)

// Parameters of the measurement. With four times the input, linear work takes four times as long, and quadratic work
// sixteen times.
const (
	factor = 4
	most   = 9
	runs   = 3
	tries  = 4
	// slack allows for the part that does not grow.
	slack = 20 * time.Millisecond
)

// RequireLinear fails the test if the processor time of work(n) grows faster than n. input(n) prepares the work outside
// the measured time. Choose n so that the work takes some milliseconds. No other test of the program may run at the
// same time.
func RequireLinear(t testing.TB, n int, input func(n int) (work func())) {
	t.Helper()
	var small, large time.Duration
	for range tries {
		small = fastestOf(input(n), 0)
		large = fastestOf(input(factor*n), most*small+slack)
		if large <= most*small+slack {
			return
		}
	}
	t.Errorf("an input of %d takes %s, of %d %s: more than %d times as long", n, small, factor*n, large, most)
}

// RequireBounded fails the test if work takes more processor time than most. Only the calling goroutine's time counts,
// so neither other tests nor a busy machine affect the result.
func RequireBounded(t testing.TB, what string, most time.Duration, work func()) {
	t.Helper()
	if took := MeasureTime(work); took > most {
		t.Errorf("%s takes %s of processor time, more than %s", what, took, most)
	}
}

// MeasureTime returns the processor time of work in the calling goroutine.
func MeasureTime(work func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadClock()
	work()
	return threadClock() - start
}

// fastestOf returns the shortest time of several runs, because the garbage collector slows some of them. After a run
// that took at most enough, it stops.
func fastestOf(work func(), enough time.Duration) time.Duration {
	best := time.Duration(0)
	for i := range runs {
		start := processClock()
		work()
		if took := processClock() - start; i == 0 || took < best {
			best = took
		}
		if best <= enough || best > time.Second { // or too slow to be disturbed
			break
		}
	}
	return best
}
