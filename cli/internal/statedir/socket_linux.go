package statedir

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Socket returns a path to one of the sockets that fits into a unix address (107 bytes), even if the state directory's
// path is long. The path is valid until release is called.
func (d Dir) Socket(name string) (path string, release func(), err error) {
	fd, err := unix.Open(d.Join(socketFolder(name)), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("opening %s: %w", d.Join(socketFolder(name)), err)
	}
	f := os.NewFile(uintptr(fd), d.Join(socketFolder(name)))
	return "/proc/self/fd/" + strconv.Itoa(fd) + "/" + name, func() { _ = f.Close() }, nil
}
