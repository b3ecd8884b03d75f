// Package privilege gives up privileges that a process needs only to start. Drop is for a daemon, which keeps running
// with all its threads. DropBounding and DropThread are for the one thread that is about to exec.
//
// Contract: afterwards the process or thread, and every program that it starts, has only the capabilities that the
// caller named. If the kernel refuses, the functions return an error, and the process must stop.
package privilege

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

// HideMemory disables core files, and keeps other processes of the same user from tracing this one.
func HideMemory() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbidding core files: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbidding traces: %w", err)
	}
	return nil
}

// DropCapabilities gives up every capability except those in keep, on every thread. It sets no_new_privs and checks the
// result. It does not add capabilities that the process lacks. It needs a binary built without cgo; with cgo it returns
// syscall.ENOTSUP.
func DropCapabilities(keep ...int) error {
	if err := prctlAll(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	// The bounding set comes first: changing it needs CAP_SETPCAP, which the next step drops.
	if err := dropBounding(prctlAll, maskOf(keep)); err != nil {
		return err
	}
	if err := dropSets(prctlAll, capsetAll, maskOf(keep)); err != nil {
		return err
	}
	return CheckCapabilities(os.Getpid(), keep...)
}

// CheckCapabilities returns an error if a thread of a process has a capability outside keep, or lacks no_new_privs.
func CheckCapabilities(pid int, keep ...int) error {
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return fmt.Errorf("checking capabilities: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return fmt.Errorf("checking capabilities: %w", err)
		}
		s, err := proc.ReadStatus(tid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return fmt.Errorf("checking capabilities: %w", err)
		}
		if left := s.Caps &^ maskOf(keep); left != 0 || !s.NoNewPrivs {
			return fmt.Errorf("thread %d still has capabilities %#x, or can gain some (no_new_privs: %t)",
				tid, left, s.NoNewPrivs)
		}
	}
	return nil
}

// DropBounding removes every capability except those in keep from the calling thread's bounding set, so that no program
// can regain one. It needs CAP_SETPCAP. Without it, as in a container, no_new_privs has the same effect.
func DropBounding(keep ...int) error { return dropBounding(prctlThread, maskOf(keep)) }

// DropThread removes every capability except those in keep from the calling thread's other four sets.
func DropThread(keep ...int) error { return dropSets(prctlThread, capsetThread, maskOf(keep)) }

func maskOf(caps []int) (mask uint64) {
	for _, c := range caps {
		mask |= 1 << c
	}
	return mask
}

type (
	prctlArgs  func(option int, arg uintptr) error
	capsetArgs func(*unix.CapUserHeader, *[2]unix.CapUserData) error
)

func dropBounding(call prctlArgs, keep uint64) error {
	for c := range 64 {
		if keep&(1<<c) != 0 {
			continue
		}
		err := call(unix.PR_CAPBSET_DROP, uintptr(c))
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) { // beyond the last capability, or without CAP_SETPCAP
			return nil
		}
		if err != nil {
			return fmt.Errorf("dropping capability %d from the bounding set: %w", c, err)
		}
	}
	return nil
}

func dropSets(call prctlArgs, set capsetArgs, keep uint64) error {
	if err := call(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("clearing ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have, left [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	for i := range left {
		word := have[i].Permitted & uint32(keep>>(32*i)) //nolint:gosec // one half of the mask
		left[i] = unix.CapUserData{Effective: word, Permitted: word}
	}
	if err := set(&header, &left); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	return nil
}

func prctlThread(option int, arg uintptr) error { return unix.Prctl(option, arg, 0, 0, 0) }

func prctlAll(option int, arg uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func capsetThread(header *unix.CapUserHeader, data *[2]unix.CapUserData) error {
	return unix.Capset(header, &data[0])
}

func capsetAll(header *unix.CapUserHeader, data *[2]unix.CapUserData) error {
	//nolint:gosec // capset(2) takes two pointers
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(data)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
