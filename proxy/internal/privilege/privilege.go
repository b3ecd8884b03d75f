// Package privilege gives up what the proxy needs only to start.
//
// Contract: after Drop no thread has, or can get back, any capability but CAP_DAC_READ_SEARCH, which reads a
// config.json that only its owner may read; the process leaves no core file and cannot be traced by others of its user.
package privilege

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Keep is the one capability that stays, if the process has it.
const Keep = unix.CAP_DAC_READ_SEARCH

// Drop gives up every capability but Keep, on all threads, and checks that it worked. It needs a binary built without
// cgo; with it the error is syscall.ENOTSUP.
func Drop() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbidding core files: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbidding traces: %w", err)
	}
	if err := prctlAll(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("forbidding new privileges: %w", err)
	}
	have, err := current()
	if err != nil {
		return err
	}
	if have.effective&(1<<unix.CAP_SETPCAP) != 0 {
		for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
			if c == Keep {
				continue
			}
			if err := prctlAll(unix.PR_CAPBSET_DROP, c); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("bounding capabilities: %w", err)
			}
		}
	}
	if err := prctlAll(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("clearing ambient capabilities: %w", err)
	}
	if err := set(have.permitted & (1 << Keep)); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	return verify()
}

// set makes mask the permitted and effective set of all threads, and the inheritable one empty.
func set(mask uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(mask), Permitted: uint32(mask)},
		{Effective: uint32(mask >> 32), Permitted: uint32(mask >> 32)},
	}
	//nolint:gosec // capset(2) takes two pointers
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func prctlAll(option int, arg uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// sets are the capability sets of one thread.
type sets struct{ inheritable, permitted, effective, ambient uint64 }

// current reads those of the calling thread.
func current() (sets, error) {
	return read("/proc/thread-self/status")
}

// verify reads those of every thread.
func verify() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("checking capabilities: %w", err)
	}
	for _, t := range tasks {
		s, err := read("/proc/self/task/" + t.Name() + "/status")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread ended
		}
		if err != nil {
			return fmt.Errorf("checking capabilities: %w", err)
		}
		if left := (s.permitted | s.effective | s.inheritable | s.ambient) &^ (1 << Keep); left != 0 {
			return fmt.Errorf("thread %s still has capabilities %#x", t.Name(), left)
		}
	}
	return nil
}

func read(path string) (sets, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return sets{}, err
	}
	var s sets
	found := 0
	for _, line := range strings.Split(string(text), "\n") {
		name, value, _ := strings.Cut(line, ":\t")
		into := map[string]*uint64{"CapInh": &s.inheritable, "CapPrm": &s.permitted, "CapEff": &s.effective, "CapAmb": &s.ambient}[name]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseUint(value, 16, 64); err != nil {
			return s, err
		}
		found++
	}
	if found < 3 {
		return s, errors.New("no capabilities in " + path)
	}
	return s, nil
}
