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

// ErrLocked is Lock's error when a supervisor is already running on the directory.
var ErrLocked = errors.New("a supervisor is already running on this state directory")

// Lock locks the directory until the file, and every copy of its descriptor, is closed.
func (d Dir) Lock() (*os.File, error) {
	f, err := os.OpenFile(d.Join("lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the state directory: %w", err)
	}
	// Holder takes the lock in shared mode for an instant: try more than once.
	for try := 0; ; try++ {
		err := flock(f, syscall.LOCK_EX)
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

// Remove removes the directory. It returns ErrLocked, and removes nothing, while a supervisor runs on it.
func (d Dir) Remove() error {
	lock, err := d.Lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	return os.RemoveAll(d.path)
}

// Holds reports whether the file that Lock returned still locks this directory: somebody may have removed it.
func (d Dir) Holds(lock *os.File) bool {
	ours, err := lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(d.Join("lock"))
	return err == nil && os.SameFile(ours, there)
}

// Holder is the process id of the supervisor that holds the lock. The id may be 0 for an instant while it starts.
func (d Dir) Holder() (pid int, held bool) {
	// A folder that came with somebody's files may have anything in the lock's place.
	f, err := os.OpenFile(d.Join("lock"), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, !d.Open() // in another user's directory the lock cannot be looked for, and counts as held
	}
	defer f.Close()
	if flock(f, syscall.LOCK_SH) == nil {
		return 0, false
	}
	data := make([]byte, 32)
	n, _ := f.ReadAt(data, 0)
	pid, _ = strconv.Atoi(strings.TrimSpace(string(data[:n])))
	return pid, true
}

// HeldBy reports whether a process has the lock open, as far as this user may know.
func (d Dir) HeldBy(pid int) bool {
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

// flock takes the lock without waiting.
func flock(f *os.File, how int) error {
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

// owner is the user id a file belongs to.
func owner(info fs.FileInfo) (int, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
