//go:build unix

// Package folderlock lets one process at a time use a folder.
package folderlock

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// ErrTaken means that another process has locked the folder.
var ErrTaken = errors.New("another process uses it")

// pause is the time between two attempts.
const pause = 50 * time.Millisecond

// LockFolder locks a folder until the returned file is closed, or the process ends. It retries for patience, which may
// be 0. On file systems without locks, LockFolder locks nothing.
func LockFolder(dir string, patience time.Duration) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		// Any other error means that the file system has no locks.
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return f, nil
		case time.Now().After(end):
			return nil, errors.Join(ErrTaken, f.Close())
		}
	}
}
