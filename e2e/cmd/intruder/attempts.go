package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempt is one attack. It reports whether the sandbox held, and what it observed.
type attempt struct {
	name string
	try  func(task) (bool, string)
	// asked attempts are made only when the task names them.
	asked bool
}

// attempts lists all attacks.
var attempts = []attempt{
	{name: "who am I", try: identity},
	{name: "no new privileges, seccomp", try: status},
	{name: "setuid", try: each(map[string]func() error{
		"setuid 0": func() error { return become(unix.SYS_SETUID, 0, 0, 0) }, "setgid 0": func() error { return become(unix.SYS_SETGID, 0, 0, 0) },
		"setresuid": func() error { return become(unix.SYS_SETRESUID, 0, 0, 0) }, "setuid of a neighbour": func() error { return become(unix.SYS_SETUID, uintptr(os.Getuid()+1), 0, 0) },
		"setgroups": func() error { return become(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&[]uint32{0}[0])), 0) },
	})},
	{name: "namespaces", try: each(map[string]func() error{
		"unshare user": func() error { return rawCall(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0) }, "unshare net": func() error { return rawCall(unix.SYS_UNSHARE, unix.CLONE_NEWNET, 0, 0) },
		"unshare mount": func() error { return rawCall(unix.SYS_UNSHARE, unix.CLONE_NEWNS, 0, 0) }, "clone user": cloneUser,
		"setns": func() error {
			fd, err := unix.PidfdOpen(1, 0) // where there is no /proc
			if err != nil {
				return err
			}
			return rawCall(unix.SYS_SETNS, uintptr(fd), unix.CLONE_NEWNET, 0)
		},
	})},
	{name: "mounts", try: each(map[string]func() error{
		"tmpfs": func() error { return unix.Mount("x", "/tmp", "tmpfs", 0, "") }, "proc": func() error { return unix.Mount("proc", "/tmp", "proc", 0, "") },
		"remount": func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT, "") }, "umount": func() error { return unix.Unmount("/proc", unix.MNT_DETACH) },
		"chroot": func() error { return unix.Chroot("/tmp") }, "pivot_root": func() error { return unix.PivotRoot("/", "/tmp") },
		"fsopen": func() error { _, err := unix.Fsopen("tmpfs", 0); return err }, "mknod": func() error { return unix.Mknod(filepath.Join(os.TempDir(), "device"), unix.S_IFBLK|0o600, 0x800) },
	})},
	{name: "kernel interfaces", try: each(kernel)},
	{name: "sockets of other kinds", try: each(map[string]func() error{
		"packet": socket(unix.AF_PACKET, unix.SOCK_RAW, 0x300), "raw icmp": socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP), "raw": socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW),
		"vsock": socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0), "alg": socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0), "bluetooth": socket(unix.AF_BLUETOOTH, unix.SOCK_RAW, 1),
		"key": socket(unix.AF_KEY, unix.SOCK_RAW, 2), "tipc": socket(unix.AF_TIPC, unix.SOCK_STREAM, 0), "xdp": socket(unix.AF_XDP, unix.SOCK_RAW, 0), "can": socket(unix.AF_CAN, unix.SOCK_RAW, 1),
		"netfilter": socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER), "sctp": socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP), "mptcp": socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
	})},
	{name: "addresses and routes", try: routes},
	{name: "TCP to other ports", try: ports},
	{name: "IPv6", try: ipv6},
	{name: "UDP", try: udp},
	{name: "DNS outside the catalog", try: names},
	{name: "TLS to a host in no API", try: fronted},
	{name: "sockets of daemons", try: sockets},
	{name: "other processes", try: processes},
	{name: "files with secrets", try: files},
	{name: "files of the kernel and the host", try: foreign},
	{name: "writable places", try: writable},
	{name: "programs from /tmp", try: executable("/tmp")},
	{name: "programs from /out", try: executable("/out")},
	{name: "programs from /skills", try: executable("/skills"), asked: true}, // Docker volumes cannot be mounted noexec
	{name: "limits", try: limits},
	{name: "terminal", try: terminal},
	{name: "fork bomb", try: forks, asked: true},
	{name: "stay behind", try: stay, asked: true},
	{name: "hang", try: hang, asked: true},
	{name: "plant a link", try: plant, asked: true},
	{name: "uproot the link", try: uproot, asked: true},
	{name: "listen", try: listen, asked: true},
	{name: "reach a neighbour", try: neighbour, asked: true},
	{name: "another slot's address", try: another, asked: true}, // in embedded mode every address is the slot's own
}

// kernel are system calls that code does not need.
var kernel = map[string]func() error{
	"ptrace of 1":      func() error { return rawCall(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0) },
	"process_vm_readv": func() error { _, err := unix.ProcessVMReadv(1, nil, nil, 0); return err },
	"pidfd of 1":       func() error { fd, err := unix.PidfdOpen(1, 0); _ = fd; return pidfdUse(fd, err) },
	"keyctl":           func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true); return err },
	"add_key": func() error {
		_, err := unix.AddKey("user", "x", []byte("y"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	},
	"bpf": func() error { return rawCall(unix.SYS_BPF, 0, 0, 0) },
	"perf_event_open": func() error {
		return rawCall(unix.SYS_PERF_EVENT_OPEN, uintptr(unsafe.Pointer(&unix.PerfEventAttr{Type: 1, Size: 136})), 0, ^uintptr(0))
	},
	"userfaultfd":    func() error { return rawCall(unix.SYS_USERFAULTFD, 0, 0, 0) },
	"io_uring_setup": func() error { return rawCall(unix.SYS_IO_URING_SETUP, 8, uintptr(unsafe.Pointer(&[128]byte{})), 0) },
	"init_module":    func() error { return unix.InitModule([]byte{0}, "") },
	"kexec_load":     func() error { return rawCall(unix.SYS_KEXEC_LOAD, 0, 0, 0) },
	"reboot":         func() error { return unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF) },
	"swapon":         func() error { return rawCall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(&[]byte("/tmp/x\x00")[0])), 0, 0) },
	"acct":           func() error { return unix.Acct("/tmp/x") },
	"shmget":         func() error { return rawCall(unix.SYS_SHMGET, 0, 4096, 0o1666) },
	"msgget":         func() error { return rawCall(unix.SYS_MSGGET, 0, 0o1666, 0) },
	"semget":         func() error { return rawCall(unix.SYS_SEMGET, 0, 1, 0o1666) },
	"mq_open": func() error {
		return rawCall(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&[]byte("x\x00")[0])), unix.O_CREAT|unix.O_RDWR, 0o600)
	},
	"syslog":       func() error { _, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 100)); return err },
	"settimeofday": func() error { return unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: 1}) },
	"sethostname":  func() error { return unix.Sethostname([]byte("mine")) },
	"open_by_handle_at": func() error {
		_, err := unix.OpenByHandleAt(unix.AT_FDCWD, unix.NewFileHandle(1, make([]byte, 8)), 0)
		return err
	},
	"fanotify":        func() error { _, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT, 0); return err },
	"nice -20":        func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -20) },
	"oom_score_adj":   func() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) },
	"personality":     func() error { return personality() },
	"kcmp":            func() error { return rawCall(unix.SYS_KCMP, 1, uintptr(os.Getpid()), 0) },
	"move_pages of 1": func() error { return rawCall(unix.SYS_MOVE_PAGES, 1, 0, 0) },
}

// refusals are the errors of a refused call. Any other error means that the call was allowed and that the kernel
// rejected its arguments.
var refusals = []syscall.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EROFS, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT}

// each tries calls that must all be refused.
func each(calls map[string]func() error) func(task) (bool, string) {
	return func(task) (bool, string) {
		var worked []string
		for name, call := range calls {
			err := call()
			if !slices.ContainsFunc(refusals, func(e syscall.Errno) bool { return errors.Is(err, e) }) {
				worked = append(worked, fmt.Sprintf("%s (%v)", name, err))
			}
		}
		if len(worked) > 0 {
			return false, "not refused: " + strings.Join(worked, ", ")
		}
		return true, fmt.Sprintf("%d refused", len(calls))
	}
}

// rawCall is a system call on this thread alone.
func rawCall(nr, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(nr, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// become is rawCall for a change of identity. A user that does not exist in the namespace counts as refused.
func become(nr, a, b, c uintptr) error {
	err := rawCall(nr, a, b, c)
	if errors.Is(err, unix.EINVAL) {
		return unix.EPERM
	}
	return err
}

func socket(family, kind, protocol int) func() error {
	return func() error {
		fd, err := unix.Socket(family, kind, protocol)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
}

// cloneUser starts a child in a user namespace of its own.
func cloneUser() error {
	_, err := syscall.ForkExec("/proc/self/exe", []string{"x", "--version"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}})
	return err
}

// pidfdUse takes a descriptor of process 1, if it can get a pidfd of it. The pidfd alone does no harm, since process 1
// may belong to this sandbox.
func pidfdUse(fd int, err error) error {
	if err != nil {
		return err
	}
	_, err = unix.PidfdGetfd(fd, 0, 0)
	return err
}

// personality turns off address randomisation and makes readable memory executable.
func personality() error {
	const readImpliesExec = 0x0400000
	if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, readImpliesExec, 0, 0); errno != 0 {
		return errno
	}
	// Most profiles allow it and it is harmless alone, so it is reset and not counted.
	_, _, _ = unix.RawSyscall(unix.SYS_PERSONALITY, 0, 0, 0)
	return errors.New("harmless")
}

// terminal injects characters into the terminal's input, as a program in the same session could.
func terminal(task) (bool, string) {
	c := byte('x')
	for fd := range 3 {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&c))); errno == 0 {
			return false, fmt.Sprintf("TIOCSTI works on descriptor %d", fd)
		}
	}
	if f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		_ = f.Close()
		return false, "there is a controlling terminal"
	}
	return true, "none"
}
