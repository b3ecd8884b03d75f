//go:build !unix

package feeder

import (
	"io/fs"
	"os/exec"
)

// safe always succeeds: on this system the sandbox runs in a virtual machine and has no user.
func safe(string) error { return nil }

func executable(fs.FileInfo) bool { return true }

func ownGroup(*exec.Cmd) {}
