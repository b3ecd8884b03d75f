package seccomp

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// verdict runs the filter of this machine on a system call. The interpreter of x/net/bpf reads big-endian words and the
// kernel those of the CPU, so each word is encoded for the former.
func verdict(t *testing.T, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	return judge(t, Options{}, arch, nr, args...)
}

func judge(t *testing.T, o Options, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	vm, err := bpf.NewVM(BuildFilter(o))
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offNr:], nr)
	binary.BigEndian.PutUint32(data[offArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[offArg(i):], uint32(a))
		binary.BigEndian.PutUint32(data[offArg(i)+4:], uint32(a>>32))
	}
	out, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(out)
}

// Promise: least-privilege, memory-limits
func TestFilter(t *testing.T) {
	eperm, eaf, enosys := refusalAction(uint32(unix.EPERM)), refusalAction(uint32(unix.EAFNOSUPPORT)), refusalAction(uint32(unix.ENOSYS))
	for _, c := range []struct {
		name string
		nr   uint32
		args []uint64
		want uint32
	}{
		{"read", unix.SYS_READ, nil, allow},
		{"execve", unix.SYS_EXECVE, nil, allow},
		{"mmap", unix.SYS_MMAP, nil, allow},
		{"mmap private", unix.SYS_MMAP, mapping(unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE), allow},
		{"mmap a file", unix.SYS_MMAP, mapping(unix.MAP_SHARED), allow},
		{"mmap shared", unix.SYS_MMAP, mapping(unix.MAP_SHARED | unix.MAP_ANONYMOUS), eperm},
		{"mmap shared, validated", unix.SYS_MMAP, mapping(unix.MAP_SHARED_VALIDATE | unix.MAP_ANONYMOUS), eperm},
		{"mmap shared, with high bits", unix.SYS_MMAP, mapping(1<<32 | unix.MAP_SHARED | unix.MAP_ANONYMOUS), eperm},
		{"mmap huge pages", unix.SYS_MMAP, mapping(unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB), eperm},
		{"mmap huge pages of 1 GiB", unix.SYS_MMAP, mapping(unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB | 30<<26), eperm},
		{"memfd_create", unix.SYS_MEMFD_CREATE, nil, eperm},
		{"memfd_secret", unix.SYS_MEMFD_SECRET, nil, eperm},
		{"io_setup", unix.SYS_IO_SETUP, nil, eperm},
		{"seccomp", unix.SYS_SECCOMP, nil, eperm},
		{"a name of a thread", unix.SYS_PRCTL, []uint64{unix.PR_SET_NAME}, allow},
		{"another filter", unix.SYS_PRCTL, []uint64{1<<32 | unix.PR_SET_SECCOMP, 2}, eperm},
		{"fsetxattr", unix.SYS_FSETXATTR, nil, eperm},
		{"getxattr", unix.SYS_GETXATTR, nil, allow},
		{"clone3", unix.SYS_CLONE3, nil, enosys},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, nil, enosys},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, nil, enosys},
		{"ptrace", unix.SYS_PTRACE, nil, eperm},
		{"bpf", unix.SYS_BPF, nil, eperm},
		{"shmget", unix.SYS_SHMGET, nil, eperm},
		{"msgget", unix.SYS_MSGGET, nil, eperm},
		{"semget", unix.SYS_SEMGET, nil, eperm},
		{"mq_open", unix.SYS_MQ_OPEN, nil, eperm},
		{"keyctl", unix.SYS_KEYCTL, nil, eperm},
		{"userfaultfd", unix.SYS_USERFAULTFD, nil, eperm},
		{"unshare", unix.SYS_UNSHARE, nil, eperm},
		{"setns", unix.SYS_SETNS, nil, eperm},
		{"mount", unix.SYS_MOUNT, nil, eperm},
		{"fsopen", unix.SYS_FSOPEN, nil, eperm},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, nil, eperm},
		{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, nil, eperm},
		{"kexec_load", unix.SYS_KEXEC_LOAD, nil, eperm},
		{"clone thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND | unix.CLONE_FILES}, allow},
		{"clone thread with files of its own", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, eperm},
		{"clone process with the same files", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_FILES | uint64(unix.SIGCHLD)}, eperm},
		{"close_range", unix.SYS_CLOSE_RANGE, []uint64{3, 1 << 30, unix.CLOSE_RANGE_CLOEXEC}, allow},
		{"close_range of a table of its own", unix.SYS_CLOSE_RANGE, []uint64{1 << 30, 1 << 30, 1<<32 | unix.CLOSE_RANGE_UNSHARE}, eperm},
		{"clone fork", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, eperm},
		{"clone spawn", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, eperm},
		{"clone thread in a namespace", unix.SYS_CLONE, []uint64{unix.CLONE_THREAD | unix.CLONE_NEWUSER}, eperm},
		{"clone newuser", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, eperm},
		{"clone newns", unix.SYS_CLONE, []uint64{unix.CLONE_NEWNS}, eperm},
		{"clone newnet", unix.SYS_CLONE, []uint64{unix.CLONE_NEWNET | unix.CLONE_VM}, eperm},
		{"tcp", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, 0}, allow},
		{"tcp by name", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, allow},
		{"udp", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, allow},
		{"netlink", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, 0}, allow},
		{"netlink netfilter", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, refusalAction(uint32(unix.EAFNOSUPPORT))},
		{"netlink xfrm", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM}, refusalAction(uint32(unix.EAFNOSUPPORT))},
		{"ping", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, eaf},
		{"mptcp", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, eaf},
		{"raw", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP}, eaf},
		{"ipv6", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM, 0}, eaf},
		{"unix", unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, eaf},
		{"packet", unix.SYS_SOCKET, []uint64{unix.AF_PACKET, unix.SOCK_RAW, 0}, eaf},
		{"vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, eaf},
		{"alg", unix.SYS_SOCKET, []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, eaf},
		{"high bits of the family", unix.SYS_SOCKET, []uint64{1<<32 | unix.AF_VSOCK, unix.SOCK_STREAM, 0}, eaf},
		{"stream pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, allow},
		{"datagram pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM, 0}, eaf},
		{"vsock pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, eaf},
		{"an option of a socket", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_REUSEADDR}, allow},
		{"an option of TCP", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, unix.SO_SNDBUF}, allow},
		{"a larger buffer to send", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_SNDBUF}, eperm},
		{"a larger buffer to receive", unix.SYS_SETSOCKOPT, []uint64{3, 1<<32 | unix.SOL_SOCKET, unix.SO_RCVBUF}, eperm},
		{"a forced buffer", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE}, eperm},
		{"a filter of a socket", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, eperm},
		{"a BPF program of a socket", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_BPF}, eperm},
		{"a filter of a group of sockets", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF}, eperm},
		{"a key of a TCP connection", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, unix.TCP_MD5SIG}, eperm},
		{"TLS in the kernel", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, 1<<32 | unix.TCP_ULP}, eperm},
		{"TCP without delay", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, unix.TCP_NODELAY}, allow},
		{"an option of IP", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IP, unix.IP_TOS}, allow},
		{"a copy of a descriptor", unix.SYS_FCNTL, []uint64{3, unix.F_DUPFD_CLOEXEC, 10}, allow},
		{"flags of a file", unix.SYS_FCNTL, []uint64{3, unix.F_SETFL, unix.O_NONBLOCK}, allow},
		{"a lock", unix.SYS_FCNTL, []uint64{3, unix.F_SETLK}, allow},
		{"a lease", unix.SYS_FCNTL, []uint64{3, unix.F_SETLEASE, unix.F_RDLCK}, eperm},
		{"a lease with high bits", unix.SYS_FCNTL, []uint64{3, 1<<32 | unix.F_SETLEASE, unix.F_RDLCK}, eperm},
		{"a notification", unix.SYS_FCNTL, []uint64{3, unix.F_NOTIFY, 1}, eperm},
		{"a signal for a file", unix.SYS_FCNTL, []uint64{3, unix.F_SETSIG, 40}, eperm},
		{"an owner of a file", unix.SYS_FCNTL, []uint64{3, unix.F_SETOWN, 1}, eperm},
		{"a larger pipe", unix.SYS_FCNTL, []uint64{3, unix.F_SETPIPE_SZ, 1 << 20}, eperm},
		{"a future command", unix.SYS_FCNTL, []uint64{3, 2000}, eperm},
		{"inotify", unix.SYS_INOTIFY_INIT1, nil, eperm},
		{"ioctl", unix.SYS_IOCTL, []uint64{1, unix.TIOCGWINSZ}, allow},
		{"TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, eperm},
		{"TIOCSTI with high bits", unix.SYS_IOCTL, []uint64{0, 1<<32 | unix.TIOCSTI}, eperm},
		{"TIOCLINUX", unix.SYS_IOCTL, []uint64{0, tiocLinux}, eperm},
	} {
		if got := verdict(t, auditArch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
	if got := verdict(t, unix.AUDIT_ARCH_I386, 1); got != kill {
		t.Errorf("another machine's call: %#x", got)
	}
	if hasX32 {
		if got := verdict(t, auditArch, x32Bit|unix.SYS_READ); got != enosys {
			t.Errorf("an x32 call: %#x", got)
		}
	}
}

// mapping is the arguments of mmap(2) with these flags.
func mapping(flags uint64) []uint64 {
	return []uint64{0, 4096, unix.PROT_READ | unix.PROT_WRITE, flags}
}

// A program that may start processes still cannot make a namespace.
func TestProcesses(t *testing.T) {
	eperm := refusalAction(uint32(unix.EPERM))
	for _, nr := range oldProcesses {
		if verdict(t, auditArch, nr) != eperm || judge(t, Options{Processes: true}, auditArch, nr) != allow {
			t.Errorf("%d: %#x and %#x", nr, verdict(t, auditArch, nr), judge(t, Options{Processes: true}, auditArch, nr))
		}
	}
	for flags, want := range map[uint64]uint32{
		uint64(unix.SIGCHLD): allow, unix.CLONE_VM | unix.CLONE_THREAD: allow, unix.CLONE_NEWPID | uint64(unix.SIGCHLD): eperm,
	} {
		if got := judge(t, Options{Processes: true}, auditArch, unix.SYS_CLONE, flags); got != want {
			t.Errorf("clone %#x: %#x, want %#x", flags, got, want)
		}
	}
}

// A program that can write to a folder of the host makes no link, no pipe, and no file with its owner's rights. Others may.
// Promise: folders-stay-closed
func TestHostFolder(t *testing.T) {
	eperm, enosys := refusalAction(uint32(unix.EPERM)), refusalAction(uint32(unix.ENOSYS))
	const create, suid, sgid = unix.O_CREAT | unix.O_WRONLY, 0o4755, 0o2755
	for _, c := range []struct {
		name string
		args []uint64
		want uint32
	}{
		{"symlink", nil, eperm}, {"symlinkat", nil, eperm}, {"openat2", nil, enosys},
		{"chmod", []uint64{0, 0o755}, allow}, {"chmod", []uint64{0, suid}, eperm}, {"chmod", []uint64{0, 1<<32 | sgid}, eperm},
		{"fchmod", []uint64{3, sgid}, eperm}, {"fchmodat", []uint64{3, 0, 0o644}, allow}, {"fchmodat", []uint64{3, 0, suid}, eperm},
		{"fchmodat2", []uint64{3, 0, suid}, eperm}, {"creat", []uint64{0, suid}, eperm}, {"mknod", []uint64{0, unix.S_IFREG | suid}, eperm},
		{"mknod", []uint64{0, unix.S_IFREG | 0o666}, allow}, {"mknod", []uint64{0, unix.S_IFIFO | 0o666}, eperm},
		{"mknodat", []uint64{3, 0, unix.S_IFIFO}, eperm}, {"mknodat", []uint64{3, 0, unix.S_IFREG | sgid}, eperm}, {"open", []uint64{0, create, suid}, eperm},
		{"open", []uint64{0, unix.O_RDONLY, suid}, allow}, {"openat", []uint64{3, 0, create, 0o666}, allow},
		{"openat", []uint64{3, 0, create, suid}, eperm}, {"openat", []uint64{3, 0, unix.O_TMPFILE | unix.O_RDWR, sgid}, eperm},
		{"openat", []uint64{3, 0, unix.O_RDONLY, suid}, allow},
	} {
		nr, ok := callNumbers[c.name]
		if !ok {
			continue
		}
		if got := judge(t, Options{HostFolder: true}, auditArch, nr, c.args...); got != c.want {
			t.Errorf("%s %#x: %#x, want %#x", c.name, c.args, got, c.want)
		}
		if got := verdict(t, auditArch, nr, c.args...); got != allow {
			t.Errorf("%s %#x without a folder: %#x", c.name, c.args, got)
		}
	}
}

// A program that cannot be encoded is an error, and never an empty filter, which would allow everything.
func TestEncode(t *testing.T) {
	if code, err := EncodeFilter([]bpf.Instruction{bpf.RetConstant{Val: allow}, bpf.LoadAbsolute{Size: 3}}); err == nil || code != nil {
		t.Errorf("%d bytes, %v", len(code), err)
	}
	if code, err := EncodeFilter([]bpf.Instruction{bpf.RetConstant{Val: 0x01020304}}); err != nil || string(code) != "\x06\x00\x00\x00\x04\x03\x02\x01" {
		t.Errorf("%x, %v", code, err)
	}
}

// Every refused call is refused, whatever its arguments.
func TestRefused(t *testing.T) {
	for errno, calls := range map[unix.Errno][]uint32{
		unix.EPERM: slices.Concat(refused, oldRefused, oldProcesses), unix.ENOSYS: unknown,
	} {
		for _, nr := range calls {
			if got := verdict(t, auditArch, nr, 1, 2, 3); got != refusalAction(uint32(errno)) {
				t.Errorf("%d: %#x", nr, got)
			}
		}
	}
	code, err := MachineFilter(Options{})
	if err != nil || len(code)%8 != 0 || len(code)/8 > 4096 {
		t.Errorf("%d bytes, %v", len(code), err)
	}
}
