package shim

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Listen opens the unix socket at path for the process's own user and group. A socket that nobody answers on any more
// is replaced; one that is answered on is an error.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("listening on %s: another process answers there", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing the old socket: %w", err)
		}
	}
	// The name appears with its final mode: a client never sees a socket it may not use.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".listen-")
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	defer os.RemoveAll(dir)
	draft := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: draft, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(draft, 0o660)
	if err == nil {
		err = os.Rename(draft, path)
	}
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return l, nil
}
