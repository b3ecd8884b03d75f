package growth

import (
	"testing"
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
	Linear(linear, 2_000_000, func(n int) func() { return func() { sink += spin(n) } })
	Linear(quadratic, 5_000, func(n int) func() {
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
