package testkit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs is the folder below the root of the source tree with the Go programs that tests use.
func Programs(root string) string { return filepath.Join(root, ".tools", "programs") }

// BuildProgram builds a Go program, PATH@VERSION, into Programs, unless it is there. It is built in a module of its
// own: go install refuses modules that replace others.
func BuildProgram(root, pkg, name string) error {
	target := filepath.Join(Programs(root), name)
	if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temp, err := os.MkdirTemp("", "codeforge-programs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	path, _, _ := strings.Cut(pkg, "@")
	for _, args := range [][]string{
		{"mod", "init", "programs.test"}, {"get", pkg}, {"build", "-trimpath", "-o", filepath.Join(temp, "program"), path},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = temp, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: go %s: %w: %s", pkg, args[0], err, out)
		}
	}
	if err := os.MkdirAll(Programs(root), 0o755); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(temp, "program"), target+".new"); err != nil {
		return err
	}
	return os.Rename(target+".new", target)
}
