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

// own reports whether a folder is the user's, or with sudo that of the user who called it, and not open to everybody.
func own(e *Env, dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.Mode().Perm()&writable == 0 && mine(e, info)
}

// writable is set in the mode of what everybody can write to.
const writable = 0o002

// foreign is the path of one of these files that is another user's, other than root's, in a folder that everybody can
// write to. It is empty if there is none.
func foreign(e *Env, dir string, names ...string) string {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&writable == 0 {
		return ""
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err == nil && !mine(e, info) && uid(info) != 0 {
			return path
		}
	}
	return ""
}

// planted reports whether a state directory is another user's, other than root's, and open to this one.
func planted(e *Env, dir string, chosen bool) bool {
	info, err := os.Stat(dir)
	if err != nil || mine(e, info) || uid(info) == 0 || chosen && os.Geteuid() == 0 {
		return false
	}
	_, err = os.Lstat(filepath.Join(dir, "lock"))
	return !errors.Is(err, fs.ErrPermission)
}

// mine reports whether a file is the user's, or with sudo that of the user who called it.
func mine(e *Env, info os.FileInfo) bool {
	owner := uid(info)
	if owner == os.Geteuid() {
		return true
	}
	caller, err := strconv.Atoi(e.Getenv("SUDO_UID"))
	return err == nil && os.Geteuid() == 0 && owner == caller
}

// uid is the owner of a file, or -1.
func uid(info os.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}
