package world

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ProgramsDir returns the folder with the Go programs that tests use, below the root of the source tree.
func ProgramsDir(root string) string { return filepath.Join(root, ".tools", "programs") }

// BuildProgram builds a Go program, PATH@VERSION, into ProgramsDir, unless it exists. It uses a separate module,
// because go install rejects modules with replacements.
func BuildProgram(root, pkg, name string) error {
	path, _, _ := strings.Cut(pkg, "@")
	return buildProgram(root, pkg, name, path, nil)
}

// BuildMain is BuildProgram for a program of one file and the module PATH@VERSION that it needs.
func BuildMain(root, file, module, name string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return buildProgram(root, module, name, ".", text)
}

// buildProgram builds the package at path in a new module that requires module. If text is not nil, it becomes main.go.
func buildProgram(root, module, name, path string, text []byte) error {
	target := filepath.Join(ProgramsDir(root), name)
	if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temp, err := os.MkdirTemp("", "codeforge-programs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	commands := [][]string{{"mod", "init", "programs.test"}, {"get", module}}
	if text != nil {
		if err := os.WriteFile(filepath.Join(temp, "main.go"), text, 0o600); err != nil {
			return err
		}
		commands = append(commands, []string{"mod", "tidy"})
	}
	commands = append(commands, []string{"build", "-trimpath", "-o", filepath.Join(temp, "program"), path})
	for _, args := range commands {
		cmd := exec.Command("go", args...)
		cmd.Dir = temp
		cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: go %s: %w: %s", name, args[0], err, out)
		}
	}
	if err := os.MkdirAll(ProgramsDir(root), 0o755); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(temp, "program"), target+".new"); err != nil {
		return err
	}
	return os.Rename(target+".new", target)
}
