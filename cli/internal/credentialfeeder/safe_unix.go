//go:build unix

package credentialfeeder

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

var (
	errWorld   = errors.New("everybody can write it, so CodeForge does not run it")
	errSandbox = errors.New("it belongs to the sandbox, so CodeForge does not run it")
	errOther   = errors.New("it belongs to another user, so CodeForge does not run it")
)

// checkSafe rejects a file or folder that a user of the sandbox, or any user except root and this one, can write.
func checkSafe(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	own, ok := info.Sys().(*syscall.Stat_t)
	const world, group = 0o002, 0o020
	switch {
	case !ok:
		return errSandbox
	case info.Mode().Perm()&world != 0 && (!info.IsDir() || info.Mode()&fs.ModeSticky == 0):
		return errWorld
	case isSandboxUser(own.Uid), info.Mode().Perm()&group != 0 && own.Gid == slot.GroupID:
		return errSandbox
	case own.Uid != 0 && int(own.Uid) != os.Geteuid():
		return errOther
	}
	return nil
}

// isSandboxUser reports whether a user belongs to a slot or to a service of the sandbox.
func isSandboxUser(uid uint32) bool {
	return uid >= slot.ServiceUID && uid < slot.BaseUID+slot.Total
}

func isExecutable(info fs.FileInfo) bool {
	const anybody = 0o111
	return info.Mode().Perm()&anybody != 0
}

// startOwnGroup makes a program the leader of a process group, so that its children end with it at the time limit.
func startOwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
