// Package unixsocket opens unix sockets that are unreachable until they have their final mode. It also asks the kernel
// for the user at the other end.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// answerTime limits how long a listening process may take to accept.
const answerTime = time.Second

// Listener is a listening unix socket. Close removes its file.
type Listener struct {
	*net.UnixListener
	path string
}

// Listen opens the socket at path with this mode. It replaces a socket that a dead process left. If a process answers
// on the socket, or the file is not a socket, Listen returns an error.
func Listen(ctx context.Context, path string, mode fs.FileMode) (*Listener, error) {
	l, err := listenPrivately(ctx, path, mode)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return &Listener{l, path}, nil
}

// Close removes the file and stops listening.
func (l *Listener) Close() error {
	err := os.Remove(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(l.UnixListener.Close(), err)
}

// listenPrivately makes the socket in a directory that only this user can enter, sets its mode, and moves it to path.
func listenPrivately(ctx context.Context, path string, mode fs.FileMode) (*net.UnixListener, error) {
	if err := checkReplaceable(ctx, path); err != nil {
		return nil, err
	}
	// Between bind and chmod anybody could connect, so both happen in a closed directory.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	draft := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: draft, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would remove the draft
	if err := errors.Join(os.Chmod(draft, mode), os.Rename(draft, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// checkReplaceable returns an error unless path is free, or a socket without a listener.
func checkReplaceable(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// A wrong path must not delete a file.
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("the path is a file that is not a socket")
	}
	if c, err := (&net.Dialer{Timeout: answerTime}).DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return errors.New("another process answers there")
	}
	return nil
}

// errNoSocket is PeerUID's error for a connection without a file descriptor.
var errNoSocket = errors.New("not a socket of this process")

// withDescriptor calls f with the connection's file descriptor.
func withDescriptor(c net.Conn, f func(fd uintptr)) error {
	s, ok := c.(syscall.Conn)
	if !ok {
		return errNoSocket
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(f)
}
