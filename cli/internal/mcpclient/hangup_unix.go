//go:build unix

package mcpclient

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// hasHungUp reports whether the reader of w has closed its end.
func hasHungUp(w any) bool {
	c, ok := w.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone || err != nil
}
