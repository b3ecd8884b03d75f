package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"codeforge": main})
}

// TestScripts runs the command line's scripts, one file per feature.
//
// Scripts with the condition [embedded] run the real daemons: $BIN holds every binary, including codeforge, and is
// first in PATH.
// Promise: imports-hide-keys
func TestScripts(t *testing.T) {
	tree := sync.OnceValues(func() (string, error) { return buildAll(t.TempDir) })
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			port, err := freePort()
			env.Setenv("PORT", port)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("NO_COLOR", "1")
			return err
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "linux":
				return runtime.GOOS == "linux", nil
			case "embedded":
				err := missing()
				if err != nil && testkit.NoSkip() {
					return false, err
				}
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemons": func(ts *testscript.TestScript, _ bool, _ []string) {
				bin, err := tree()
				ts.Check(err)
				ts.Defer(func() { stopAll(bin, ts.Getenv("WORK")) })
				ts.Setenv("BIN", bin)
				ts.Setenv("DENO_PATH", denoPath())
				ts.Setenv("PATH", bin+string(os.PathListSeparator)+ts.Getenv("PATH"))
			},
		},
	})
}

// stopAll stops every supervisor that a failed script left on a state directory below dir.
func stopAll(bin, dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "lock" {
			_ = exec.Command(filepath.Join(bin, "codeforge"), "down", "--state", filepath.Dir(path)).Run()
		}
		return nil
	})
}

// missing says what embedded mode lacks on this machine.
func missing() error {
	if runtime.GOOS != "linux" {
		return errors.New("embedded mode needs Linux")
	}
	if _, err := exec.LookPath("bwrap"); err != nil {
		return errors.New("no bubblewrap")
	}
	if _, err := os.Stat(denoPath()); err != nil {
		return errors.New("no Deno: make deno fetches it")
	}
	return nil
}

// root is the folder of go.work.
func root() string {
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

func denoPath() string {
	if path := os.Getenv("DENO_PATH"); path != "" {
		return path
	}
	return filepath.Join(root(), ".tools", "deno")
}

// buildAll builds every binary of the tree as it is.
func buildAll(tempDir func() string) (string, error) {
	dir := tempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", "./cli/cmd/codeforge", "./proxy/cmd/egress-proxy",
		"./sandbox-image/cmd/sandboxd", "./mcp-server/cmd/mcp-server")
	cmd.Dir = root()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the daemons: %w\n%s", err, out)
	}
	return dir, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
