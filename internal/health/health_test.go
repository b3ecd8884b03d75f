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

// old is a check in a container that has been up for a while.
func old(probe func(context.Context) error) healthcheck {
	return healthcheck{probe: probe, problem: func() string { return "" }, young: func() bool { return false }}
}

// TestStarting: while a container starts, a probe that fails is tried again, until it passes, the container is no longer
// young, or process 1 says why it cannot start. One that passes ends the check at once.
func TestStarting(t *testing.T) {
	broken := errors.New("broken")
	rows := []struct {
		name    string
		ready   time.Duration // when probes pass
		problem time.Duration // when process 1 says that it cannot start; 0: never
		want    string
		after   time.Duration
	}{
		{"ready", 0, 0, "<nil>", 0},
		{"soon ready", 450 * time.Millisecond, 0, "<nil>", 500 * time.Millisecond},
		{"cannot start", time.Hour, 200 * time.Millisecond, "cannot start: SANDBOX_SLOTS", 200 * time.Millisecond},
		{"never ready", time.Hour, 0, "broken", startPeriod},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := healthcheck{
					probe: func(context.Context) error {
						if time.Since(began) < r.ready {
							return broken
						}
						return nil
					},
					problem: func() string {
						if r.problem == 0 || time.Since(began) < r.problem {
							return ""
						}
						return "SANDBOX_SLOTS"
					},
					young: func() bool { return time.Since(began) < startPeriod },
				}.runCheck(t.Context(), time.Hour)
				if fmt.Sprint(err) != r.want || time.Since(began) != r.after {
					t.Errorf("%v after %v; want %s, %v", err, time.Since(began), r.want, r.after)
				}
			})
		})
	}
}

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
				err := old(func(context.Context) error {
					if looks++; looks == r.fails {
						return broken
					}
					return nil
				}).runCheck(t.Context(), r.d)
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
		if err := old(func(context.Context) error { return nil }).runCheck(ctx, time.Hour); err != nil || time.Since(began) != 1500*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		began = time.Now()
		err := old(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }).runCheck(t.Context(), time.Hour)
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
		if got := processAge(r.stat, r.uptime).Round(time.Millisecond); got != r.want {
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
	if got := processAge(string(self), string(up)); got < -time.Second || got > 10*time.Minute {
		t.Errorf("this process is %v old", got)
	}
}
