package health

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestCheck(t *testing.T) {
	broken := errors.New("broken")
	rows := []struct {
		name  string
		d     time.Duration
		fails int // the look that fails, from 1; 0: none
		want  error
		looks int
		after time.Duration
	}{
		{"answers at once", 0, 0, nil, 1, 0},
		{"fails at once", 25 * time.Second, 1, broken, 1, 0},
		{"stays", 25 * time.Second, 0, nil, 26, 25 * time.Second},
		{"sees a fault within a second", 25 * time.Second, 4, broken, 4, 3 * time.Second},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks, began := 0, time.Now()
				err := check(t.Context(), r.d, func(context.Context) error {
					if looks++; looks == r.fails {
						return broken
					}
					return nil
				})
				if !errors.Is(err, r.want) || looks != r.looks || time.Since(began) != r.after {
					t.Errorf("%v after %d looks and %v; want %v, %d, %v", err, looks, time.Since(began), r.want, r.looks, r.after)
				}
			})
		})
	}
}

// TestStop: an engine that ends the check gets its end at once; a look that hangs does not hold it.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := check(ctx, time.Hour, func(context.Context) error { return nil }); err != nil || time.Since(began) != 1500*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		began = time.Now()
		err := check(t.Context(), time.Hour, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != probeTimeout {
			t.Errorf("a hanging look: %v after %v", err, time.Since(began))
		}
	})
}

func TestAge(t *testing.T) {
	const stat = "1 (a) b (c) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 111 222 333"
	rows := []struct {
		stat, uptime string
		want         time.Duration
	}{
		{stat, "150.45 1.00\n", 27 * time.Second},
		{"", "150.45 1.00\n", 0}, {stat, "", 0}, {"1 (a) S", "1 1", 0}, {stat, "x y", 0},
	}
	for _, r := range rows {
		if got := age(r.stat, r.uptime).Round(time.Millisecond); got != r.want {
			t.Errorf("%q, %q: %v, want %v", r.stat, r.uptime, got, r.want)
		}
	}
	self, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", os.Getpid()))
	up, upErr := os.ReadFile("/proc/uptime")
	if runtime.GOOS != "linux" {
		return
	}
	if err != nil || upErr != nil {
		t.Fatal(err, upErr)
	}
	if got := age(string(self), string(up)); got < -time.Second || got > 10*time.Minute {
		t.Errorf("this process is %v old", got)
	}
}
