package cli

import (
	"os"
	"path/filepath"
	"syscall"
)

// isOwnFolder reports whether a folder is in the user's profile, where other users cannot write.
func isOwnFolder(_ *Env, dir string) bool {
	profile, err := os.UserHomeDir()
	if err != nil {
		return false
	}
	rel, err := filepath.Rel(profile, dir)
	return err == nil && filepath.IsLocal(rel)
}

// findForeignFile returns "": Windows has no numeric owner.
func findForeignFile(*Env, string, ...string) string { return "" }

// isPlanted returns false for the same reason.
func isPlanted(*Env, string, bool) bool { return false }

// terminalDevice is the terminal of the process, even if standard input is something else.
const terminalDevice = "CONIN$"

// startOwnSession detaches a child from this console.
func startOwnSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
