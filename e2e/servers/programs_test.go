package servers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// github is GitHub's own server, a Go program.
const github = "github.com/github/github-mcp-server/cmd/github-mcp-server@v1.0.0"

// programs is the folder below the root of the source tree for SANDBOX_PROGRAMS.
func programs(root string) string { return filepath.Join(root, ".tools", "programs") }

// build builds a Go program into the folder of programs, unless it is there. It is built in a module of its own: go
// install refuses modules that replace others.
func build(root, pkg, name string) error {
	target := filepath.Join(programs(root), name)
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
	if err := os.MkdirAll(programs(root), 0o755); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(temp, "program"), target+".new"); err != nil {
		return err
	}
	return os.Rename(target+".new", target)
}
