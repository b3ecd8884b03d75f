// Package turn lets the tests of several processes take turns at what a machine has only once.
package turn

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// pause is the interval at which a waiting process tries again.
const pause = 200 * time.Millisecond

// Take waits until it is this caller's turn at something, or until ctx ends. Release ends the turn, as does the end of
// the process.
func Take(ctx context.Context, what string) (release func(), err error) {
	path := filepath.Join(os.TempDir(), "codeforge-e2e-"+what+".lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a name of the tests
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(pause):
		}
	}
}
