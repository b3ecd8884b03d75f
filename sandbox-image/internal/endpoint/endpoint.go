// Package endpoint is the unix socket on which sandboxd takes requests to run code.
//
// Threat: every user who can connect can run code. So the socket is in a directory that only its owner can enter, and
// the kernel names the user of each connection.
package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
)

// ListenAs opens the socket as a file of owner, a uid. Its directory must belong to owner and have mode 0700. Listen
// creates a missing directory in that way. It replaces a stale socket, but not one on which a process still listens.
func ListenAs(path string, owner int) (net.Listener, error) {
	var l net.Listener
	err := callAsFileUser(owner, func() error {
		dir := filepath.Dir(path)
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := checkClosedDir(dir, owner); err != nil {
			return err
		}
		var err error
		l, err = unixsocket.Listen(context.Background(), path, 0o600)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening the socket %s: %w", path, err)
	}
	return l, nil
}

// DialOwner connects to the socket with the file system uid of its directory's owner. The healthcheck needs that: it is
// root without the capability to enter the directories of other users.
func DialOwner(ctx context.Context, path string) (net.Conn, error) {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Dir(path), &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: filepath.Dir(path), Err: err}
	}
	owner := os.Geteuid()
	owner = cmp.Or(owner, int(st.Uid))
	var c net.Conn
	err := callAsFileUser(owner, func() error {
		var err error
		c, err = (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", path)
		return err
	})
	return c, err
}

// checkClosedDir verifies that the directory belongs to the owner and is closed to all other users.
func checkClosedDir(dir string, owner int) error {
	var st unix.Stat_t
	// Lstat: a link could lead to a directory of another user.
	if err := unix.Lstat(dir, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 || int(st.Uid) != owner {
		return fmt.Errorf("%s has mode %o and belongs to user %d: want a directory of mode 700 that belongs to user %d",
			dir, st.Mode&0o7777, st.Uid, owner)
	}
	return nil
}

// callAsFileUser calls f with the file system uid of a user, on a separate thread.
func callAsFileUser(uid int, f func() error) error {
	if uid == os.Geteuid() {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		// setfsuid returns the previous uid and no error, so only a second call shows whether the first one worked.
		_, _ = unix.SetfsuidRetUid(uid)
		if now, _ := unix.SetfsuidRetUid(uid); now != uid {
			result <- fmt.Errorf("becoming user %d for files: not permitted", uid)
			return
		}
		result <- f()
	}()
	return <-result
}

// NewPeerCheck returns a check for connections: the peer's process must run as one of the users.
func NewPeerCheck(uids ...int) func(net.Conn) error {
	return func(c net.Conn) error {
		uid, err := unixsocket.PeerUID(c)
		if err != nil {
			return err
		}
		if !slices.Contains(uids, uid) {
			return fmt.Errorf("user %d may not connect", uid)
		}
		return nil
	}
}
