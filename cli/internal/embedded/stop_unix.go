//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/timing"
)

// stopWait is how long Stop waits before it kills the supervisor.
const stopWait = 25 * time.Second

// unseen is how long Stop looks for the process that holds the lock.
const unseen = 2 * time.Second

// Stop stops the supervisor that holds the state directory, and reports whether there was one. It returns when the
// supervisor and all its processes have ended.
func Stop(ctx context.Context, d statedir.Dir) (bool, error) {
	pid, held := d.FindHolder()
	if !held {
		return false, nil
	}
	started := time.Now()
	signalled := 0
	for {
		// The lock may briefly hold an earlier supervisor's process id, or a process id of another namespace.
		if pid > 0 && signalled == 0 && d.IsHeldByProcess(pid) {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return false, fmt.Errorf("stopping process %d: %w; it belongs to another user", pid, err)
			}
			signalled = pid
		}
		if !timing.WaitFor(ctx, 20*time.Millisecond) {
			return false, ctx.Err()
		}
		if pid, held = d.FindHolder(); !held || signalled > 0 && pid > 0 && pid != signalled {
			return true, nil // a supervisor that starts only now must keep running
		}
		if signalled == 0 && time.Since(started) > unseen {
			return false, fmt.Errorf("the CodeForge of %s cannot be seen from here: stop it as the user, and in the container, "+
				"in which it was started", d.Path())
		}
		// Only the process that got the first signal: the lock may have another holder now.
		if time.Since(started) > stopWait && pid == signalled {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if time.Since(started) > 2*stopWait {
			return false, fmt.Errorf("process %d does not end", pid)
		}
	}
}
