package seccomp

import (
	"maps"

	"golang.org/x/sys/unix"
)

func init() {
	maps.Copy(callNumbers, map[string]uint32{
		"chmod":        unix.SYS_CHMOD,
		"creat":        unix.SYS_CREAT,
		"fork":         unix.SYS_FORK,
		"inotify_init": unix.SYS_INOTIFY_INIT,
		"ioperm":       unix.SYS_IOPERM,
		"iopl":         unix.SYS_IOPL,
		"mknod":        unix.SYS_MKNOD,
		"modify_ldt":   unix.SYS_MODIFY_LDT,
		"open":         unix.SYS_OPEN,
		"symlink":      unix.SYS_SYMLINK,
		"sysfs":        unix.SYS_SYSFS,
		"uselib":       unix.SYS_USELIB,
		"ustat":        unix.SYS_USTAT,
		"vfork":        unix.SYS_VFORK,
	})
}
