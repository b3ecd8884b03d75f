package seccomp

import "golang.org/x/sys/unix"

// auditArch is the architecture of this machine. hasX32 means that it has a second table of calls, marked by x32Bit.
const (
	auditArch = unix.AUDIT_ARCH_X86_64
	hasX32    = true
)

// These calls are missing on newer architectures.
var (
	oldRefused = []uint32{
		unix.SYS_INOTIFY_INIT, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT,
		unix.SYS_SYSFS,
	}
	oldProcesses = []uint32{unix.SYS_FORK, unix.SYS_VFORK}
	oldLinks     = []uint32{unix.SYS_SYMLINK}
	oldModes     = []modeCall{
		{unix.SYS_CHMOD, 1, -1}, {unix.SYS_CREAT, 1, -1}, {unix.SYS_MKNOD, 1, -1}, {unix.SYS_OPEN, 2, 1},
	}
)
