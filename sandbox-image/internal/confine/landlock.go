package confine

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reads are the Landlock rights that the ruleset grants for each path. For a file only readFile applies.
const (
	readFile = unix.LANDLOCK_ACCESS_FS_READ_FILE
	reads    = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
)

// CanRestrictReads reports whether the kernel can keep a program from reading files. It needs Landlock (Linux 5.13),
// and Landlock must be enabled.
func CanRestrictReads() bool { return landlockVersion() >= 1 }

// landlockVersion returns the version of the kernel's Landlock, 0 if the kernel has none.
func landlockVersion() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// referRight is the right to move and link files between directories, or 0 if Landlock does not know it (before version
// 2).
func referRight() uint64 {
	if landlockVersion() < 2 {
		return 0
	}
	return unix.LANDLOCK_ACCESS_FS_REFER
}

// writeFileRights returns the rights to change a file, as far as the kernel's Landlock knows them. writes also has the
// rights to change a directory.
func writeFileRights() uint64 {
	// LANDLOCK_ACCESS_FS_TRUNCATE exists since version 3; an older kernel rejects a ruleset with an unknown right.
	if landlockVersion() < 3 {
		return unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	}
	return unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
}

func writeRights() uint64 {
	return writeFileRights() | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM
}

// restrictFiles limits this thread, and the program that it execs, to reading and listing the paths of read and
// everything below them. If write has paths, the thread can change only those and everything below them, and a kernel
// without Landlock is an error. Otherwise Landlock is optional. Without any paths restrictFiles does nothing.
func restrictFiles(read, write []string) error {
	switch {
	//defence:host-files permits
	case len(read)+len(write) == 0:
		return nil
	case len(write) > 0 && !CanRestrictReads():
		return errors.New("the kernel has no Landlock, which keeps code from the other files of its user")
	case !CanRestrictReads():
		return nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: reads | referRight()}
	// Older kernels accept only the struct's size in Landlock's first version.
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if landlockVersion() >= scopes { // otherwise code could stop programs that sandboxd starts as its user
		attr.Scoped, size = unix.LANDLOCK_SCOPE_SIGNAL, unsafe.Sizeof(attr)
	}
	if len(write) > 0 {
		attr.Handled_access_fs |= writeRights()
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr)), size, 0) //nolint:gosec // the call takes pointers
	if errno != 0 {
		return fmt.Errorf("restricting files: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, path := range read {
		if err := allowPath(int(fd), path, reads|referRight(), readFile); err != nil {
			return fmt.Errorf("restricting what can be read to %s: %w", path, err)
		}
	}
	for _, path := range write {
		if err := allowPath(int(fd), path, writeRights()|referRight(), writeFileRights()); err != nil {
			return fmt.Errorf("restricting what can be changed to %s: %w", path, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("restricting files: %w", errno)
	}
	return nil
}

// scopes is the first version of Landlock that restricts signals.
const scopes = 6

// allowPath adds a path to a ruleset. below are the rights for a directory and everything below it, file those for a
// file. A missing path is skipped.
func allowPath(ruleset int, path string, below, file uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: below, Parent_fd: int32(fd)}
	// The kernel rejects rights of directories for a file.
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rule.Allowed_access = file
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0) //nolint:gosec // as above
	if errno != 0 {
		return errno
	}
	return nil
}
