package timing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if !WaitFor(ctx, time.Second) || time.Since(began) != time.Second {
			t.Errorf("waited %s", time.Since(began))
		}
		if WaitFor(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Errorf("waited %s beyond the end", time.Since(began))
		}
		if WaitFor(ctx, 0) {
			t.Error("the context had ended")
		}
	})
}

func TestEachTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		n := 0
		for now := range EachTick(ctx, time.Second) {
			if n++; now.Sub(began) != time.Duration(n)*time.Second {
				t.Errorf("tick %d after %s", n, now.Sub(began))
			}
		}
		if n != 3 {
			t.Errorf("%d ticks, want 3", n)
		}
		for range EachTick(t.Context(), time.Second) {
			break // must stop the ticker and return
		}
	})
}
