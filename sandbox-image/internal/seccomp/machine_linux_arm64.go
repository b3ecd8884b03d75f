package seccomp

import "golang.org/x/sys/unix"

// See machine_linux_amd64.go.
const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	hasX32    = false
)

var (
	oldRefused, oldProcesses, oldLinks []uint32
	oldModes                           []modeCall
)
