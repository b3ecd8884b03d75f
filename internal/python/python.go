// Package python finds a Python interpreter and its parts: the program, its standard library, and the packages of a
// virtual environment.
package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// oldest is the minor version of the oldest supported Python: 3.11.
const oldest = 11

// Interpreter is an installed CPython.
type Interpreter struct {
	// Program is the executable, without symbolic links.
	Program string
	// Version is e.g. "3.11.2".
	Version string
	// Prefix is the folder below which Library is, e.g. /usr.
	Prefix string
	// Library is the folder of the standard library, e.g. /usr/lib/python3.11.
	Library string
	// Environment is the folder of the packages of a virtual environment, or empty.
	Environment string
	// System is the folder of the machine's packages, or empty.
	System string
}

// ErrNone means that the machine has no usable Python.
var ErrNone = errors.New("there is no Python 3.11 or newer")

// system are the paths of the machine's own interpreter. A python3 earlier in PATH is often a script that chooses an
// interpreter.
var system = []string{"/usr/bin/python3", "/usr/local/bin/python3"}

// ListCandidates lists the interpreters to try, in order. If setting (PYTHON_PATH) is not empty, it is the only one.
func ListCandidates(setting string) []string {
	if setting != "" {
		return []string{setting}
	}
	list := slices.Clone(system)
	if path, err := exec.LookPath("python3"); err == nil {
		list = append(list, path)
	}
	return slices.DeleteFunc(list, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.Mode().IsRegular()
	})
}

// FindInterpreter returns the first usable candidate. Otherwise the error is an ErrNone with the reason for each
// candidate.
func FindInterpreter(ctx context.Context, candidates []string) (Interpreter, error) {
	var errs []string
	for _, path := range candidates {
		i, err := InspectInterpreter(ctx, path)
		if err == nil {
			return i, nil
		}
		errs = append(errs, err.Error())
	}
	if len(errs) == 0 {
		return Interpreter{}, ErrNone
	}
	return Interpreter{}, fmt.Errorf("%w: %s", ErrNone, strings.Join(errs, "; "))
}

// probe prints one line per fact. The program itself knows its library's path on every distribution.
const probe = `import sys, sysconfig
print(sys.implementation.name)
print("%d.%d.%d" % sys.version_info[:3])
print(sys._base_executable)
print(sys.base_prefix)
print(sysconfig.get_path("stdlib"))
print(sysconfig.get_path("purelib") if sys.prefix != sys.base_prefix else "")
print(next((p for p in reversed(sys.path) if p.endswith("-packages")), ""))`

// InspectInterpreter asks an interpreter for its version and paths.
func InspectInterpreter(ctx context.Context, path string) (Interpreter, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	// -I ignores the user's packages and environment, which could run code or change the answers.
	cmd := exec.CommandContext(ctx, path, "-I", "-B", "-c", probe)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8"}
	cmd.Dir = "/"
	out, err := cmd.Output()
	if err != nil {
		return Interpreter{}, fmt.Errorf("%s does not run: %w", path, err)
	}
	f := strings.Split(string(out), "\n")
	if len(f) < 8 {
		return Interpreter{}, fmt.Errorf("%s is not Python: it says %.40q", path, out)
	}
	i := Interpreter{Version: f[1], Prefix: f[3], Library: f[4], Environment: f[5], System: f[6]}
	if f[0] != "cpython" {
		return i, fmt.Errorf("%s is %.20q; want CPython", path, f[0])
	}
	if !isRecent(i.Version) {
		return i, fmt.Errorf("%s is Python %.20q; want 3.%d or newer", path, i.Version, oldest)
	}
	if i.Program, err = filepath.EvalSymlinks(f[2]); err != nil {
		return i, fmt.Errorf("looking for the program of %s: %w", path, err)
	}
	// The sandbox mounts the library at the same place below /usr.
	if rel, err := filepath.Rel(i.Prefix, i.Library); err != nil || strings.HasPrefix(rel, "..") {
		return i, fmt.Errorf("%s has its library at %s, which is not below %s", path, i.Library, i.Prefix)
	}
	return i, nil
}

// MinorVersion returns the major and minor number of a version: "3.11" for "3.11.2", and "" for "".
func MinorVersion(version string) string {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return strings.Trim(major+"."+minor, ".")
}

func isRecent(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return err == nil && major == "3" && n >= oldest
}

// ListPackages lists the names of the distributions in a folder of packages, sorted.
func ListPackages(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		for _, suffix := range []string{".dist-info", ".egg-info"} {
			if base, ok := strings.CutSuffix(e.Name(), suffix); ok {
				name, _, _ := strings.Cut(base, "-")
				names = append(names, strings.ToLower(name))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
