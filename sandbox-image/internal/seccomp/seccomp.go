// Package seccomp builds the system call filter of sandboxed code, as a classic BPF program.
//
// The filter is a denylist for a process that already has no capability, no_new_privs and separate namespaces. It
// refuses:
//   - calls that have been used to break out of such a process (io_uring, userfaultfd, keyctl, bpf, nested namespaces,
//     vsock and packet sockets, TIOCSTI)
//   - calls that allocate memory which is charged to no process
//   - leases, which block other programs
//   - calls that start another process
//   - every foreign system call table
//
// Refused calls fail with EPERM. clone3 and io_uring fail with ENOSYS, so that libraries fall back to older calls.
package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets into struct seccomp_data (linux/seccomp.h). Both supported machines are little-endian.
const (
	offNr   = 0
	offArch = 4
	offArg0 = 16
)

// offArg returns the offset of the low 32 bits of argument n.
func offArg(n int) uint32 { return uint32(offArg0 + 8*n) }

// The filter's results.
const (
	allow = unix.SECCOMP_RET_ALLOW
	kill  = unix.SECCOMP_RET_KILL_PROCESS
)

func refusalAction(errno uint32) uint32 { return unix.SECCOMP_RET_ERRNO | errno }

// x32Bit marks the x32 system call table, which shares amd64's audit architecture.
const x32Bit = 0x40000000

// namespaceFlags are the clone(2) flags that make a namespace. CLONE_NEWTIME is missing, because in clone its bit
// belongs to the exit signal.
const namespaceFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// tiocLinux is TIOCLINUX (asm-generic/ioctls.h), which can paste into a virtual console.
const tiocLinux = 0x541C

// tcpAOAddKey is TCP_AO_ADD_KEY (linux/tcp.h), which adds a key for the packets of a connection.
const tcpAOAddKey = 38

// refused lists the system calls that fail with EPERM.
var refused = []uint32{
	// namespaces and mounts
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT, unix.SYS_OPEN_TREE_ATTR,
	// other processes' memory and descriptors
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	// IPC objects that outlive a process: in a container, slots would share them
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_SEMGET,
	unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_MQ_OPEN,
	// memory that no process's size shows, or that a descriptor in flight keeps alive
	unix.SYS_MEMFD_CREATE, unix.SYS_IO_SETUP, unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_SECCOMP,
	// attributes of files in memory: their size does not show it
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_INOTIFY_INIT1, // 128 queues of 16,384 events with long names are more than 1 GiB
	// kernel attack surface that code here does not need
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY,
	unix.SYS_REQUEST_KEY, unix.SYS_FANOTIFY_INIT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_LOOKUP_DCOOKIE, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SYSLOG, unix.SYS_ACCT,
	unix.SYS_VMSPLICE, unix.SYS_MOVE_PAGES, unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY, unix.SYS_MIGRATE_PAGES,
	unix.SYS_SET_MEMPOLICY_HOME_NODE, unix.SYS_PERSONALITY, unix.SYS_NFSSERVCTL, unix.SYS_REMAP_FILE_PAGES,
	unix.SYS_MEMFD_SECRET, unix.SYS_VHANGUP,
	// the machine
	unix.SYS_REBOOT, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
	unix.SYS_DELETE_MODULE, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
	unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
}

// unknown lists the system calls that fail with ENOSYS.
var unknown = []uint32{
	unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// Options set the calls that a program may make under the filter.
type Options struct {
	// Processes lets the program start processes, under the same filter. Without Processes it can start only threads.
	Processes bool
	// HostFolder means that the program can write to a folder of the host. Then it cannot make symbolic links, which could
	// lead programs of the host to other files. It cannot make files that others start with the rights of their owner.
	HostFolder bool
}

// BuildFilter returns the filter of this machine.
func BuildFilter(o Options) []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		// System call numbers differ between architectures: a process of another one would bypass the list below.
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
		bpf.LoadAbsolute{Off: offNr, Size: 4},
	}
	// The x32 table has the same audit architecture and other numbers, so the check above does not catch it.
	if hasX32 {
		p = append(p,
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
			bpf.RetConstant{Val: refusalAction(uint32(unix.ENOSYS))})
	}
	refuse := func(errno unix.Errno, calls ...uint32) {
		for _, nr := range calls {
			p = append(p, buildCallRule(nr, []bpf.Instruction{bpf.RetConstant{Val: refusalAction(uint32(errno))}})...)
		}
	}
	refuse(unix.ENOSYS, unknown...)
	refuse(unix.EPERM, refused...)
	refuse(unix.EPERM, oldRefused...)
	if !o.Processes {
		refuse(unix.EPERM, oldProcesses...)
	}
	//defence:folder-files
	if o.HostFolder {
		// A symbolic link could lead a program of the host to another file.
		refuse(unix.EPERM, unix.SYS_SYMLINKAT)
		refuse(unix.EPERM, oldLinks...)
		refuse(unix.ENOSYS, unix.SYS_OPENAT2) // its mode is in memory, which a filter cannot read
		p = append(p, requirePlainModes()...)
	}
	// These calls stay allowed with certain arguments.
	p = append(p, buildCallRule(unix.SYS_SOCKET, refuseUnusualSockets())...)
	p = append(p, buildCallRule(unix.SYS_SOCKETPAIR, streamPairs())...)
	p = append(p, buildCallRule(unix.SYS_SETSOCKOPT, refuseUnusualOptions())...)
	p = append(p, buildCallRule(unix.SYS_CLONE, refuseNamespaces(o))...)
	p = append(p, buildCallRule(unix.SYS_CLOSE_RANGE, refuseSeparateTable())...)
	p = append(p, buildCallRule(unix.SYS_MMAP, refuseUncountedMemory())...)
	p = append(p, buildCallRule(unix.SYS_IOCTL, refuseTerminalInput())...)
	p = append(p, buildCallRule(unix.SYS_PRCTL, refuseMoreFilters())...)
	p = append(p, buildCallRule(unix.SYS_FCNTL, refuseUnusualCommands())...)
	return append(p, bpf.RetConstant{Val: allow})
}

// buildCallRule runs body for one system call. body must always return. The accumulator must hold the number of the
// call.
func buildCallRule(nr uint32, body []bpf.Instruction) []bpf.Instruction {
	head := bpf.JumpIf{Cond: bpf.JumpEqual, Val: nr, SkipFalse: uint8(len(body))}
	return append([]bpf.Instruction{head}, body...)
}

// refuseUnusualSockets allows TCP and UDP over IPv4, and NETLINK_ROUTE, with which name resolution lists addresses. It
// refuses unix sockets: in a container, abstract ones would connect slots with each other and with other listeners.
func refuseUnusualSockets() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArg(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipFalse: 2},
		bpf.LoadAbsolute{Off: offArg(2), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 10, SkipFalse: 9},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipFalse: 8},
		bpf.LoadAbsolute{Off: offArg(1), Size: 4},
		// The flags of the type must not hide it: SOCK_STREAM|SOCK_CLOEXEC is a stream too.
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: socketType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_DGRAM, SkipFalse: 4},
		bpf.LoadAbsolute{Off: offArg(2), Size: 4},
		// Another protocol of the family, such as MPTCP or SCTP, is refused.
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_IP, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 1},
		bpf.RetConstant{Val: refusalAction(uint32(unix.EAFNOSUPPORT))},
		bpf.RetConstant{Val: allow},
	}
}

// socketType masks the type in socket(2)'s second argument, without SOCK_NONBLOCK and SOCK_CLOEXEC.
const socketType = 0xf

// streamPairs allows pairs of connected unix stream sockets. A datagram pair could be reconnected to an address.
func streamPairs() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArg(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipFalse: 4},
		bpf.LoadAbsolute{Off: offArg(1), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: socketType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_SEQPACKET, SkipTrue: 1},
		bpf.RetConstant{Val: refusalAction(uint32(unix.EAFNOSUPPORT))},
		bpf.RetConstant{Val: allow},
	}
}

// refuseUnusualOptions keeps socket buffers at their default size, and refuses filters and keys of sockets. The kernel
// charges their memory to no process.
func refuseUnusualOptions() []bpf.Instruction {
	return slices.Concat(
		[]bpf.Instruction{
			bpf.LoadAbsolute{Off: offArg(1), Size: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOL_SOCKET, SkipFalse: 10}, // if not, go to the TCP options
			bpf.LoadAbsolute{Off: offArg(2), Size: 4},
		},
		refuseValues(unix.SO_SNDBUF, unix.SO_RCVBUF, unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE,
			unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF),
		[]bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipFalse: 7}, // if not, go to the end
			bpf.LoadAbsolute{Off: offArg(2), Size: 4},
		},
		refuseValues(unix.TCP_MD5SIG, unix.TCP_MD5SIG_EXT, unix.TCP_ULP, tcpAOAddKey),
		[]bpf.Instruction{bpf.RetConstant{Val: allow}},
	)
}

// refuseValues refuses a call if the accumulator holds one of the values, and allows it otherwise.
func refuseValues(values ...uint32) []bpf.Instruction {
	return matchValues(values, refusalAction(uint32(unix.EPERM)), allow)
}

// matchValues returns yes if the accumulator holds one of the values, else no.
func matchValues(values []uint32, yes, no uint32) []bpf.Instruction {
	var p []bpf.Instruction
	for i, v := range values {
		skip := uint8(len(values) - i) //nolint:gosec // callers pass few values
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: skip})
	}
	return append(p, bpf.RetConstant{Val: no}, bpf.RetConstant{Val: yes})
}

// refuseUnusualCommands allows copies, flags and locks of descriptors. It refuses all other commands of fcntl,
// including those of future kernels. Leases block other users who open the file. The memory of larger pipes is charged
// to no process.
func refuseUnusualCommands() []bpf.Instruction {
	return append([]bpf.Instruction{bpf.LoadAbsolute{Off: offArg(1), Size: 4}}, matchValues([]uint32{
		unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_DUPFD_QUERY, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL,
		unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW, unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_OFD_SETLKW,
		unix.F_GETOWN, unix.F_GETPIPE_SZ, unix.F_GET_SEALS, unix.F_CREATED_QUERY,
	}, allow, refusalAction(uint32(unix.EPERM)))...)
}

// refuseNamespaces refuses new namespaces. Without Processes, it also refuses clones that are not threads, and threads
// with a separate descriptor table, because each table has a separate limit on open files.
func refuseNamespaces(o Options) []bpf.Instruction {
	rest := []bpf.Instruction{bpf.RetConstant{Val: allow}}
	if !o.Processes {
		rest = []bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.CLONE_THREAD, SkipFalse: 2},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.CLONE_FILES, SkipFalse: 1},
			bpf.RetConstant{Val: allow},
			bpf.RetConstant{Val: refusalAction(uint32(unix.EPERM))},
		}
	}
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offArg(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: namespaceFlags, SkipFalse: 1},
		bpf.RetConstant{Val: refusalAction(uint32(unix.EPERM))},
	}, rest...)
}

// modeCall is a call that sets the mode of a file. mode is the number of the argument with the mode. If the mode counts
// only with certain flags, flags is the number of the argument with the flags, otherwise -1.
type modeCall struct {
	nr          uint32
	mode, flags int
}

var modeCalls = []modeCall{
	{unix.SYS_FCHMOD, 1, -1}, {unix.SYS_FCHMODAT, 2, -1}, {unix.SYS_FCHMODAT2, 2, -1}, {unix.SYS_MKNODAT, 2, -1},
	{unix.SYS_OPENAT, 3, 2},
}

// requirePlainModes refuses named pipes, and modes with a set-user-ID or set-group-ID bit. A program of the host that
// opens a pipe would wait without end.
func requirePlainModes() (p []bpf.Instruction) {
	for _, c := range slices.Concat(modeCalls, oldModes) {
		var body []bpf.Instruction
		if c.flags >= 0 {
			body = []bpf.Instruction{
				bpf.LoadAbsolute{Off: offArg(c.flags), Size: 4},
				bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.O_CREAT | unix.O_TMPFILE, SkipTrue: 1},
				bpf.RetConstant{Val: allow},
			}
		}
		p = append(p, buildCallRule(c.nr, append(body,
			bpf.LoadAbsolute{Off: offArg(c.mode), Size: 4},
			// No other type of a file has the bit of S_IFIFO.
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.S_ISUID | unix.S_ISGID | unix.S_IFIFO, SkipTrue: 1},
			bpf.RetConstant{Val: allow},
			bpf.RetConstant{Val: refusalAction(uint32(unix.EPERM))},
		))...)
	}
	return p
}

// refuseSeparateTable keeps a thread from getting a separate descriptor table.
func refuseSeparateTable() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArg(2), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.CLOSE_RANGE_UNSHARE, SkipTrue: 1},
		bpf.RetConstant{Val: allow},
		bpf.RetConstant{Val: refusalAction(uint32(unix.EPERM))},
	}
}

// refuseUncountedMemory refuses mappings that do not count as the process's memory: huge pages, which its size does not
// include, and shared anonymous memory, which stays allocated after MADV_DONTNEED. MAP_SHARED_VALIDATE also has the bit
// of MAP_SHARED.
func refuseUncountedMemory() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArg(3), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.MAP_HUGETLB, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.MAP_ANONYMOUS, SkipFalse: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.MAP_SHARED, SkipTrue: 1},
		bpf.RetConstant{Val: allow},
		bpf.RetConstant{Val: refusalAction(uint32(unix.EPERM))},
	}
}

// refuseMoreFilters refuses a second filter. Each thread could add filters, and their memory is charged to no process.
func refuseMoreFilters() []bpf.Instruction {
	return append([]bpf.Instruction{bpf.LoadAbsolute{Off: offArg(0), Size: 4}}, refuseValues(unix.PR_SET_SECCOMP)...)
}

// refuseTerminalInput refuses TIOCSTI and TIOCLINUX. The kernel reads only the low 32 bits of the request.
func refuseTerminalInput() []bpf.Instruction {
	return append([]bpf.Instruction{bpf.LoadAbsolute{Off: offArg(1), Size: 4}}, refuseValues(unix.TIOCSTI, tiocLinux)...)
}

// EncodeFilter assembles a program into the struct sock_filter array for bwrap --seccomp.
func EncodeFilter(p []bpf.Instruction) ([]byte, error) {
	raw, err := bpf.Assemble(p)
	if err != nil {
		return nil, fmt.Errorf("assembling the seccomp filter: %w", err)
	}
	out := make([]byte, 0, 8*len(raw))
	for _, r := range raw {
		out = binary.LittleEndian.AppendUint16(out, r.Op)
		out = append(out, r.Jt, r.Jf)
		out = binary.LittleEndian.AppendUint32(out, r.K)
	}
	return out, nil
}

// MachineFilter returns the encoded filter of this machine.
func MachineFilter(o Options) ([]byte, error) {
	//defence:seccomp instead EncodeFilter([]bpf.Instruction{bpf.RetConstant{Val: allow}})
	return EncodeFilter(BuildFilter(o))
}
