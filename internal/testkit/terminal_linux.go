package testkit

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// OpenTerminal opens a new terminal and returns the person's and the program's end. If that fails, it skips the test.
func OpenTerminal(tb testing.TB) (person, program *os.File) {
	tb.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		SkipBecause(tb, "no terminals: "+err.Error())
	}
	conn, err := person.SyscallConn() // Fd would make reads block Close
	Must(tb, err)
	var number uint32
	Must(tb, conn.Control(func(fd uintptr) {
		Must(tb, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		number, err = unix.IoctlGetUint32(int(fd), unix.TIOCGPTN)
		Must(tb, err)
	}))
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	Must(tb, err)
	return person, program
}
