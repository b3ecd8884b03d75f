//go:build unix

package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// isOwnFolder reports whether a folder belongs to the user (with sudo, to the caller) and is not writable for all
// users.
func isOwnFolder(e *Env, dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.Mode().Perm()&writable == 0 && isOwnFile(e, info)
}

// writable is the mode bit that lets all users write.
const writable = 0o002

// findForeignFile returns the path of the first of these files that belongs to another user except root, in a folder
// that all users can write to. If there is no such file, it returns "".
func findForeignFile(e *Env, dir string, names ...string) string {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&writable == 0 {
		return ""
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err == nil && !isOwnFile(e, info) && ownerUID(info) != 0 {
			return path
		}
	}
	return ""
}

// isPlanted reports whether a state directory belongs to another user except root, and is open to this user.
func isPlanted(e *Env, dir string, chosen bool) bool {
	info, err := os.Stat(dir)
	if err != nil || isOwnFile(e, info) || ownerUID(info) == 0 || chosen && os.Geteuid() == 0 {
		return false
	}
	_, err = os.Lstat(filepath.Join(dir, "lock"))
	return !errors.Is(err, fs.ErrPermission)
}

// isOwnFile reports whether a file belongs to the user, or with sudo to the user who called it.
func isOwnFile(e *Env, info os.FileInfo) bool {
	owner := ownerUID(info)
	if owner == os.Geteuid() {
		return true
	}
	caller, err := strconv.Atoi(e.Getenv("SUDO_UID"))
	return err == nil && os.Geteuid() == 0 && owner == caller
}

// ownerUID returns the owner of a file, or -1.
func ownerUID(info os.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// terminalDevice is the terminal of the process, even if standard input is something else.
const terminalDevice = "/dev/tty"

// startOwnSession detaches a child from this terminal.
func startOwnSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
