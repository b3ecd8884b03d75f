//go:build unix

package cli

import "syscall"

// ownSession detaches a child from this terminal.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
