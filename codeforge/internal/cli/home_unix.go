//go:build unix

package cli

import (
	"os"
	"strconv"
	"syscall"
)

// own reports whether a folder is the user's, or with sudo that of the user who called it, and not open to everybody.
func own(e *Env, dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o002 != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	uid := int(stat.Uid)
	if uid == os.Geteuid() {
		return true
	}
	caller, err := strconv.Atoi(e.Getenv("SUDO_UID"))
	return err == nil && os.Geteuid() == 0 && uid == caller
}
