//go:build unix

// Package folderlock lets one process at a time use a folder.
package folderlock

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// ErrTaken is for a folder that another process has.
var ErrTaken = errors.New("another process uses it")

// pause is the time between two attempts.
const pause = 50 * time.Millisecond

// Take locks a folder until the file that it returns is closed: the kernel unlocks it with the process at the latest.
// It waits for as long as patience lasts, which may be 0. File systems without locks lock nothing.
func Take(dir string, patience time.Duration) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return f, nil
		case time.Now().After(end):
			return nil, errors.Join(ErrTaken, f.Close())
		}
	}
}
