package network

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
)

// SetUp configures the network namespace for n slots and verifies the result. It is idempotent.
func SetUp(n int) error {
	dev, err := device()
	if err != nil {
		return err
	}
	if err := filter(n, dev.Attrs().Name); err != nil {
		return err
	}
	if err := network(n, dev); err != nil {
		return err
	}
	return Verify(n)
}

// Verify checks that the kernel has everything that n slots need. Like SetUp it needs NET_ADMIN.
func Verify(n int) error { return verify(n, true) }

// VerifyQuick is Verify for a healthcheck: it counts the filter's rules instead of comparing each.
func VerifyQuick(n int) error { return verify(n, false) }

// Present checks that the interface with our address exists.
func Present() error {
	_, err := device()
	return err
}

func verify(n int, each bool) error {
	dev, err := device()
	if err != nil {
		return err
	}
	if err := errors.Join(verifyNetwork(n, dev), verifyFilter(n, dev.Attrs().Name, each)); err != nil {
		return fmt.Errorf("checking the network of the slots: %w", err)
	}
	return nil
}

// DropCapabilities drops every capability on every thread and verifies that none is left. It sets no_new_privs, so that
// a program started later cannot regain one.
func DropCapabilities() error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("setting no_new_privs: %w", errno)
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL,
		0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("clearing ambient capabilities: %w", errno)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), //nolint:gosec // capset(2) takes pointers
		uintptr(unsafe.Pointer(&none[0])), 0); errno != 0 { //nolint:gosec // as above
		return fmt.Errorf("dropping capabilities: %w", errno)
	}
	return VerifyDropped(os.Getpid())
}

// VerifyDropped checks that no thread of a process has a capability.
func VerifyDropped(pid int) error {
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		s, err := proc.ReadStatus(tid)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if s.Caps != 0 || !s.NoNewPrivs {
			return fmt.Errorf("thread %d still has capabilities (%x), or could get some", tid, s.Caps)
		}
	}
	return nil
}
