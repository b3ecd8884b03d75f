package confine

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/privilege"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/seccomp"
)

// oomScore makes the kernel's OOM killer choose code before all other processes.
const oomScore = "1000"

// pendingSignals bounds a user's queued signals and POSIX timers, kernel memory that is charged to no process.
const pendingSignals = 256

// umask hides files that code writes from users outside the slots' group.
const umask = 0o007

// EnterAndExec carries out the plan and, on success, does not return. Call it in a process that does nothing else and
// that exits on an error.
func (p ProcessSpec) EnterAndExec() error {
	runtime.LockOSThread() // never unlocked: exec turns this thread into the process
	parent := os.Getppid()
	//defence:netns
	if p.NetNS >= 0 {
		if err := unix.Setns(p.NetNS, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the slot's network namespace: %w", err)
		}
	}
	if p.MountNS != 0 {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // setns requires it: threads share a root directory
			return fmt.Errorf("leaving the shared root directory: %w", err)
		}
		if err := unix.Setns(p.MountNS, unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("entering the mount namespace: %w", err)
		}
	}
	// The score is set before changeIdentity, which gives up the privileges.
	if err := setOOMScore(); err != nil {
		return fmt.Errorf("setting oom_score_adj: %w", err)
	}
	if err := p.setLimits(); err != nil {
		return err
	}
	syscall.Umask(umask)
	signal.Ignore(syscall.SIGXFSZ) // a write beyond the size limit then fails with EFBIG, which code can handle
	if err := p.changeIdentity(); err != nil {
		return err
	}
	// If sandboxd ended before PR_SET_PDEATHSIG, no signal comes and the program would outlive it.
	if os.Getppid() != parent {
		return errors.New("sandboxd has ended")
	}
	if p.Dir != "" {
		if err := os.Chdir(p.Dir); err != nil {
			return err
		}
	}
	return p.execProgram()
}

// setOOMScore writes without package os, which would start the runtime's poller for the file.
func setOOMScore() error {
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(oomScore))
	return errors.Join(err, unix.Close(fd))
}

func (p ProcessSpec) setLimits() error {
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
	}{
		{"processes", unix.RLIMIT_NPROC, p.Processes},
		{"file size", unix.RLIMIT_FSIZE, p.FileSize},
		{"open files", unix.RLIMIT_NOFILE, p.OpenFiles},
	} {
		if l.value == 0 {
			continue
		}
		if err := setLimit(l.resource, l.value); err != nil {
			return fmt.Errorf("limiting %s to %d: %w", l.name, l.value, err)
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	//defence:pending-signals instead nil
	return setLimit(unix.RLIMIT_SIGPENDING, pendingSignals)
}

// setLimit sets the soft and the hard limit. It calls syscall.Setrlimit, because after unix.Setrlimit the Go runtime
// would restore its original limit of open files at exec.
func setLimit(resource int, value uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	// Without CAP_SYS_RESOURCE a hard limit cannot be raised (setrlimit(2)).
	value = min(value, now.Max)
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value})
}

// changeIdentity changes the user and groups, drops every capability, and makes the process die with its parent.
func (p ProcessSpec) changeIdentity() error {
	// Dropping capabilities from the bounding set needs CAP_SETPCAP, which the change of user takes away.
	if p.NoNewPrivs {
		if err := privilege.DropBounding(); err != nil {
			return err
		}
	}
	// Groups come first: after Setresuid the process may not change them.
	if p.GID != 0 {
		if err := setGroups(p.GID, p.Groups); err != nil {
			return fmt.Errorf("setting groups: %w", err)
		}
		if err := setIDs(unix.SYS_SETRESGID, p.GID); err != nil {
			return fmt.Errorf("becoming group %d: %w", p.GID, err)
		}
	}
	if p.UID != 0 {
		if err := setIDs(unix.SYS_SETRESUID, p.UID); err != nil {
			return fmt.Errorf("becoming user %d: %w", p.UID, err)
		}
	}
	if p.NoNewPrivs {
		if err := privilege.DropThread(); err != nil {
			return err
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("setting no_new_privs: %w", err)
		}
	}
	// Changing the user cleared the signal that sandboxd had set (prctl(2), PR_SET_PDEATHSIG).
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("setting the parent death signal: %w", err)
	}
	return nil
}

// setIDs sets the real, effective and saved id of this thread only. exec ends the others, so package syscall would stop
// each of them for nothing.
func setIDs(call uintptr, id int) error {
	if _, _, errno := unix.RawSyscall(call, uintptr(id), uintptr(id), uintptr(id)); errno != 0 {
		return errno
	}
	return nil
}

// setGroups sets the supplementary groups of a process whose primary group becomes gid. A process that already has
// exactly these groups needs no capability.
func setGroups(gid int, groups []int) error {
	now, err := syscall.Getgroups()
	if err != nil {
		return err
	}
	now = slices.DeleteFunc(now, func(g int) bool { return g == gid })
	if slices.Sort(now); os.Geteuid() != 0 && slices.Equal(now, groups) {
		return nil
	}
	list := make([]uint32, len(groups)+1) // its first element has an address even without groups
	for i, g := range groups {
		list[i] = uint32(g)
	}
	//nolint:gosec // setgroups(2) takes a pointer. As setIDs, it changes this thread.
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&list[0])), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// execProgram closes all descriptors except those in Keep, restricts file access, loads the seccomp filter, and execs.
func (p ProcessSpec) execProgram() error {
	// The filter is built before the gate, so that the start takes less time.
	if err := closeOthers(p.Keep); err != nil {
		return err
	}
	var filter []byte
	if p.Filter {
		var err error
		if filter, err = seccomp.MachineFilter(p.FilterOptions); err != nil {
			return err
		}
	}
	if p.Gate != 0 {
		if err := awaitGate(p.Gate); err != nil {
			return err
		}
	}
	if err := restrictFiles(p.Read, p.Write); err != nil {
		return err
	}
	if p.Filter {
		if err := loadFilter(filter); err != nil {
			return err
		}
	}
	if err := unix.Exec(p.Argv[0], p.Argv, p.Env); err != nil {
		return fmt.Errorf("starting %s: %w", p.Argv[0], err)
	}
	return nil
}

// closeOthers makes exec close all descriptors except stdio and those in keep.
func closeOthers(keep []int) error {
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("closing inherited files: %w", err)
	}
	for _, fd := range keep {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keeping descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// awaitGate blocks until it can read a byte from the gate.
func awaitGate(gate int) error {
	var b [1]byte
	for {
		n, err := unix.Read(gate, b[:])
		if n == 1 {
			return nil
		}
		if err == nil {
			return errors.New("sandboxd closed the gate, so the process does not start")
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for the start: %w", err)
		}
	}
}

// loadFilter installs the encoded filter on this thread. no_new_privs must be set (seccomp(2)).
func loadFilter(code []byte) error {
	//nolint:gosec // seccomp(2) takes pointers
	prog := unix.SockFprog{Len: uint16(len(code) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&code[0]))}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		uintptr(unsafe.Pointer(&prog))); errno != 0 { //nolint:gosec // as above
		return fmt.Errorf("loading the seccomp filter: %w", errno)
	}
	runtime.KeepAlive(code)
	return nil
}
