//go:build unix

package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Lock locks the directory until the file and all copies of its descriptor are closed.
func (d Dir) Lock() (*os.File, error) {
	// O_NOFOLLOW: a link could make this truncate another file.
	f, err := os.OpenFile(d.Join("lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the state directory: %w", err)
	}
	// Holder takes the lock in shared mode for an instant, so one failed try is not enough.
	for try := 0; ; try++ {
		err := lockFile(f, syscall.LOCK_EX)
		if err == nil {
			break
		}
		if try == 5 || !errors.Is(err, ErrLocked) {
			_ = f.Close()
			return nil, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking the state directory: %w", err)
	}
	return f, nil
}

// Remove removes the directory. While a supervisor runs on it, it returns ErrLocked and removes nothing.
func (d Dir) Remove() error {
	lock, err := d.Lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	return os.RemoveAll(d.path)
}

// IsHeldBy reports whether the file from Lock still locks this directory. Another process may have removed the file.
func (d Dir) IsHeldBy(lock *os.File) bool {
	ours, err := lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(d.Join("lock"))
	return err == nil && os.SameFile(ours, there)
}

// FindHolder returns the process id of the supervisor that holds the lock. The id can be 0 for an instant during its
// start.
func (d Dir) FindHolder() (pid int, held bool) {
	// A folder with another person's files may have a link or a FIFO instead of the lock.
	f, err := os.OpenFile(d.Join("lock"), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, !d.IsReadable() // in another user's directory the lock is invisible and counts as held
	}
	defer f.Close()
	if lockFile(f, syscall.LOCK_SH) == nil {
		return 0, false
	}
	data := make([]byte, 32)
	n, _ := f.ReadAt(data, 0)
	pid, _ = strconv.Atoi(strings.TrimSpace(string(data[:n])))
	return pid, true
}

// IsHeldByProcess reports whether a process has the lock open, as far as this user can see.
func (d Dir) IsHeldByProcess(pid int) bool {
	lock, err := os.Stat(d.Join("lock"))
	if err != nil {
		return false
	}
	fds := "/proc/" + strconv.Itoa(pid) + "/fd/"
	list, err := os.ReadDir(fds)
	if _, none := os.Stat("/proc/self/fd"); none != nil || errors.Is(err, fs.ErrPermission) {
		return true
	}
	return slices.ContainsFunc(list, func(fd fs.DirEntry) bool {
		info, err := os.Stat(fds + fd.Name())
		return err == nil && os.SameFile(info, lock)
	})
}

// lockFile takes the lock without waiting.
func lockFile(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		default:
			return fmt.Errorf("locking %s: %w", f.Name(), err)
		}
	}
}

// ownerUID returns the user id of a file's owner.
func ownerUID(info fs.FileInfo) (int, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
