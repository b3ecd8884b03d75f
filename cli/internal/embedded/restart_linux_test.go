package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// life is one start of everything: how long it takes to be ready (never, if negative), and how long it then lasts.
type life struct{ start, lasts time.Duration }

// TestRestart: what was ready once is started again with growing pauses, on the same port, until somebody stops it.
func TestRestart(t *testing.T) {
	const never = -1
	lives := []life{
		{0, time.Hour}, // then a pause of 1 s
		{0, time.Second},
		{never, time.Second},
		{0, time.Second}, // 1, 2, 4 and 8 s
		{0, time.Hour},   // it has settled: 1 s
	}
	dir, err := statedir.CreateDir(t.TempDir())
	testkit.Must(t, err)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		lock, err := dir.Lock()
		testkit.Must(t, err)
		defer lock.Close()
		var pauses []string
		var ports []int
		told, ended := 0, time.Time{}
		r := restarter{config: Config{State: dir, Restart: true, Stderr: os.Stderr}, lock: lock}
		r.ready = func(Ready) error { told++; return nil }
		r.once = func(ctx context.Context, c Config, _ *os.File, again *statedir.Ended, ready func(Ready) error) error {
			if !ended.IsZero() {
				pauses = append(pauses, time.Since(ended).String())
				if again == nil || again.Reason != "sandboxd stopped" {
					t.Errorf("started again because of %v", again)
				}
				if e, ok := dir.ReadLastEnd(); !ok || e.Reason != "sandboxd stopped" {
					t.Errorf("before it is ready again: %v, %v", e, ok)
				}
			}
			if len(lives) == 0 {
				cancel()
				return nil
			}
			now := lives[0]
			lives = lives[1:]
			ports = append(ports, c.Port)
			if now.start >= 0 {
				testkit.Must(t, ready(Ready{Up: statedir.UpState{Port: 4711}}))
				if e, ok := dir.ReadLastEnd(); ok {
					t.Errorf("while it runs: %v", e)
				}
			}
			time.Sleep(now.lasts)
			ended = time.Now()
			return errors.New("sandboxd stopped")
		}
		if err := r.runAndRestart(ctx); err != nil {
			t.Error(err)
		}
		if got, want := strings.Join(pauses, " "), "1s 2s 4s 8s 1s"; got != want {
			t.Errorf("pauses %s, want %s", got, want)
		}
		if got, want := fmt.Sprint(ports), "[0 4711 4711 4711 4711]"; got != want || told != 1 {
			t.Errorf("ports %s, told %d times", got, told)
		}
		if e, ok := dir.ReadLastEnd(); ok {
			t.Errorf("after a stop: %v", e)
		}
	})
	log, err := os.ReadFile(dir.Join("log", "codeforge.log"))
	if err != nil || strings.Count(string(log), "sandboxd stopped") != 5 {
		t.Errorf("the log: %v\n%s", err, log)
	}
}

// TestRestartOften: what fails every 25 seconds is back within seconds each time.
func TestRestartOften(t *testing.T) {
	pause := time.Duration(0)
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			up := time.Now()
			time.Sleep(25 * time.Second)
			if pause = nextPause(pause, up); pause > 2*time.Second {
				t.Fatalf("a pause of %s", pause)
			}
		}
	})
}

// TestNoRestart: a first start that fails is only reported; without Restart, and without its state directory, nothing is
// started again.
func TestNoRestart(t *testing.T) {
	for _, c := range []struct {
		name              string
		restart, wasReady bool
		remove            bool
		ended             bool
	}{
		{"never ready", true, false, false, false},
		{"in the foreground", false, true, false, true},
		{"without its directory", true, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := statedir.CreateDir(filepath.Join(t.TempDir(), "state"))
			testkit.Must(t, err)
			lock, err := dir.Lock()
			testkit.Must(t, err)
			starts := 0
			r := restarter{config: Config{State: dir, Restart: c.restart, Stderr: os.Stderr}, lock: lock}
			r.ready = func(Ready) error { return nil }
			r.once = func(_ context.Context, _ Config, _ *os.File, _ *statedir.Ended, ready func(Ready) error) error {
				if starts++; c.wasReady {
					testkit.Must(t, ready(Ready{}))
				}
				if c.remove {
					testkit.Must(t, os.RemoveAll(dir.Path()))
				}
				return errors.New("mcp-server stopped")
			}
			if err := r.runAndRestart(t.Context()); err == nil || starts != 1 {
				t.Errorf("%v after %d starts", err, starts)
			}
			testkit.Must(t, lock.Close())
			if e, ok := dir.ReadLastEnd(); ok != c.ended {
				t.Errorf("kept: %v, %v", e, ok)
			}
			if _, err := dir.ReadUp(); c.ended && !strings.Contains(fmt.Sprint(err), "mcp-server stopped") {
				t.Errorf("status says %v", err)
			}
		})
	}
}
