package enter

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
)

// reads are the Landlock rights that the ruleset grants path by path. For a file only readFile applies.
const (
	readFile = unix.LANDLOCK_ACCESS_FS_READ_FILE
	reads    = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
)

// CanRestrictReads reports whether the kernel can keep a program from reading files: it has Landlock (since 5.13), and
// Landlock is enabled.
func CanRestrictReads() bool { return landlockVersion() >= 1 }

// landlockVersion is the version of the kernel's Landlock, 0 if there is none.
func landlockVersion() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// CanMoveFiles reports whether a program whose reads are restricted can move and link files from one directory to
// another: the first version of Landlock refuses that.
func CanMoveFiles() bool { return landlockVersion() != 1 }

// refer is the right to move and link files from one directory to another, where Landlock knows it.
func refer() uint64 {
	if landlockVersion() < 2 {
		return 0
	}
	return unix.LANDLOCK_ACCESS_FS_REFER
}

// restrictReads allows this thread, and the program it execs, to open for reading and to list only the paths and
// everything below them. It does nothing when paths is empty or the kernel has no Landlock.
func restrictReads(paths []string) error {
	if len(paths) == 0 || disarm.Off("host-files") || !CanRestrictReads() {
		return nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: reads | refer()}
	// The struct size of Landlock's first version, so that older kernels accept it. The later fields are not used.
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0) //nolint:gosec // it takes pointers
	if errno != 0 {
		return fmt.Errorf("restricting what can be read: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, path := range paths {
		if err := allowReads(int(fd), path); err != nil {
			return fmt.Errorf("restricting what can be read to %s: %w", path, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("restricting what can be read: %w", errno)
	}
	return nil
}

// allowReads adds a path to a ruleset. A missing path is skipped.
func allowReads(ruleset int, path string) error {
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
	rule := unix.LandlockPathBeneathAttr{Allowed_access: reads | refer(), Parent_fd: int32(fd)}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rule.Allowed_access = readFile
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0) //nolint:gosec // as above
	if errno != 0 {
		return errno
	}
	return nil
}
