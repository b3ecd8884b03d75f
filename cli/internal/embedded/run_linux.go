package embedded

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/internal/version"
)

// innerGrace limits the time in which the inner process stops three daemons.
const innerGrace = 3*stopGrace + 2*time.Second

// Run starts all parts, calls ready when they are ready, and returns when ctx ends (nil) or a part fails. With
// c.Restart it restarts all parts after a later failure, with growing pauses. When Run returns, no process is left. If
// the state directory is in use, it returns a *RunningError.
func Run(ctx context.Context, c Config, ready func(Ready) error) error {
	// A core file of any part could contain a credential.
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("disabling core files: %w", err)
	}
	lock, err := takeLock(ctx, c.State)
	if err != nil {
		return err
	}
	defer lock.Close()
	c.State.ForgetEnded()
	r := restarter{config: c, lock: lock, once: runOnce, ready: ready}
	return r.runAndRestart(ctx)
}

// runOnce starts all parts and returns when ctx ends or a part fails. It calls ready when all parts are ready.
func runOnce(ctx context.Context, c Config, lock *os.File, again *statedir.Ended, ready func(Ready) error) error {
	c.State.RemoveLeftovers()
	// A killed supervisor leaves its files behind, so RemoveLeftovers runs before the start too.
	defer c.State.RemoveLeftovers()
	defer context.AfterFunc(ctx, c.State.RemoveUp)()
	p, warnings, err := prepareSetup(ctx, c)
	if err != nil {
		return err
	}
	var warning string
	if c.Environ, warning = withRegistry(ctx, c, p.APIs); warning != "" {
		warnings = append(warnings, warning)
	}
	child, report, err := launchInner(c, p, lock)
	if err != nil {
		return err
	}
	return watchInner(ctx, child, report, func(s innerStatus) error {
		up := statedir.UpState{
			PID: os.Getpid(), Version: version.Version, URL: p.endpointURL(), Port: p.Port, State: p.State, APIs: p.APIs,
			Slots: p.Slots, Token: !c.Settings.MCPAuthToken.IsEmpty() || c.Settings.MCPTokensFile != "",
			Started: time.Now().UTC(), Again: again,
		}
		if err := c.State.WriteUp(up); err != nil {
			return err
		}
		return ready(Ready{Up: up, Deno: s.Deno, Catalog: *s.Catalog, Warnings: warnings})
	})
}

// takeLock locks the state directory. If another supervisor holds the lock, takeLock waits until that one is ready.
func takeLock(ctx context.Context, d statedir.Dir) (*os.File, error) {
	deadline := time.Now().Add(readyTimeout)
	for {
		lock, err := d.Lock()
		if !errors.Is(err, statedir.ErrLocked) {
			return lock, err
		}
		if up, err := d.ReadUp(); err == nil {
			return nil, &RunningError{up}
		}
		pid, _ := d.FindHolder()
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("process %d has been starting CodeForge in %s for %s: stop it with codeforge down, or see %s",
				pid, d.Path(), readyTimeout, d.Join("log", "codeforge.log"))
		}
		if !timing.WaitFor(ctx, 50*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// launchInner starts the inner process and passes it the plan. The child writes its status to report.
func launchInner(c Config, p supervisorSetup, lock *os.File) (child *innerProcess, report *os.File, err error) {
	planRead, planWrite, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("starting the supervisor: %w", err)
	}
	defer planRead.Close()
	defer planWrite.Close()
	report, reportWrite, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("starting the supervisor: %w", err)
	}
	// watchInner reads the report to its end, which comes only after every writer is closed.
	defer reportWrite.Close()
	child, err = startInner(innerConfig{
		Args:   []string{SuperviseCommand},
		Env:    c.Environ,
		Files:  []*os.File{planRead, reportWrite, lock},
		Stdout: c.Stderr, Stderr: c.Stderr,
	})
	if err == nil {
		err = json.NewEncoder(planWrite).Encode(p)
	}
	if err != nil {
		_ = report.Close()
		return nil, nil, err
	}
	return child, report, nil
}

// watchInner reads the inner process's status until that process has ended. When ctx ends, watch stops the process.
func watchInner(ctx context.Context, child *innerProcess, report *os.File, ready func(innerStatus) error) error {
	defer report.Close()
	states := make(chan innerStatus)
	go func() {
		defer close(states)
		dec := json.NewDecoder(report)
		for {
			var s innerStatus
			if dec.Decode(&s) != nil {
				return
			}
			states <- s
		}
	}()
	var failed error
	stopping := ctx.Done()
	var kill <-chan time.Time
	stop := func() {
		// A nil channel is never ready, so ctx stops the process only once.
		stopping = nil
		child.Signal(syscall.SIGTERM)
		kill = time.After(innerGrace)
	}
	for {
		select {
		case s, ok := <-states:
			switch {
			case !ok:
				states = nil
			case s.Error != "":
				failed = errors.New(s.Error)
			case s.Ready:
				if err := ready(s); err != nil {
					failed = err
					stop()
				}
			}
		case <-stopping:
			stop()
		case <-kill:
			child.Signal(syscall.SIGKILL)
		case <-child.Done():
			if states != nil { // the last status is still in the pipe
				for s := range states {
					if s.Error != "" {
						failed = errors.New(s.Error)
					}
				}
			}
			if failed == nil && ctx.Err() == nil {
				failed = fmt.Errorf("the supervisor ended (%w)", cmp.Or(child.Err(), errors.New("exit status 0")))
			}
			return failed
		}
	}
}
