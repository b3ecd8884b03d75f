//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/statedir"
)

// stopWait is how long Stop waits before it kills.
const stopWait = 25 * time.Second

// Stop stops the supervisor that holds the state directory, and reports whether there was one. It returns when that and
// everything it started has ended.
func Stop(ctx context.Context, d statedir.Dir) (bool, error) {
	pid, held := d.Holder()
	if !held {
		return false, nil
	}
	started := time.Now()
	signalled := 0
	for {
		// The lock is held, so the process id in it is the supervisor's, not a reused one.
		if pid > 0 && pid != signalled {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return false, fmt.Errorf("stopping process %d: %w; it belongs to another user", pid, err)
			}
			signalled = pid
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if pid, held = d.Holder(); !held {
			return true, nil
		}
		if time.Since(started) > stopWait && pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if time.Since(started) > 2*stopWait {
			return false, fmt.Errorf("process %d does not end", pid)
		}
	}
}
