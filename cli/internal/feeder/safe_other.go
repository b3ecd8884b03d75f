//go:build !unix

package feeder

import (
	"io/fs"
	"os/exec"
)

// safe: the sandbox runs in a virtual machine here, and has no user on this system.
func safe(string) error { return nil }

func executable(fs.FileInfo) bool { return true }

func ownGroup(*exec.Cmd) {}
