package costtest

import (
	"sync"
	"testing"
	"time"
)

// probe is a testing.TB that notes a failure.
type probe struct {
	testing.TB
	failed bool
}

func (p *probe) Helper()               {}
func (p *probe) Errorf(string, ...any) { p.failed = true }

// spin does so many steps.
func spin(n int) (sum int) {
	for i := range n {
		sum += i ^ sum
	}
	return sum
}

// TestLinear: linear work passes, quadratic work does not.
func TestLinear(t *testing.T) {
	sink := 0
	linear, quadratic := &probe{TB: t}, &probe{TB: t}
	RequireLinear(linear, 2_000_000, func(n int) func() { return func() { sink += spin(n) } })
	RequireLinear(quadratic, 3_500, func(n int) func() {
		return func() {
			for range n {
				sink += spin(n)
			}
		}
	})
	if linear.failed || !quadratic.failed {
		t.Errorf("linear work failed: %v, quadratic work failed: %v", linear.failed, quadratic.failed)
	}
}

// TestBounded: work beyond the bound fails, and neither waiting nor the work of others counts.
func TestBounded(t *testing.T) {
	sink, done := 0, make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for sum := 0; ; sum += spin(1000) {
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	waits, works := &probe{TB: t}, &probe{TB: t}
	RequireBounded(waits, "waiting", 100*time.Millisecond, func() { time.Sleep(200 * time.Millisecond) })
	RequireBounded(works, "working", 100*time.Millisecond, func() {
		for start := threadClock(); threadClock()-start < 150*time.Millisecond; {
			sink += spin(1000)
		}
	})
	close(done)
	others.Wait()
	if waits.failed || !works.failed {
		t.Errorf("waiting failed: %v, working failed: %v", waits.failed, works.failed)
	}
}
