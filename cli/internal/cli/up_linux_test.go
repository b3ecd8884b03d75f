package cli

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// inUse is a state directory on which somebody else's CodeForge seems to run, until the lock is closed.
func inUse(t *testing.T) (d statedir.Dir, lock *os.File) {
	t.Helper()
	d, err := statedir.CreateDir(filepath.Join(t.TempDir(), "state"))
	testkit.Must(t, err)
	lock, err = d.Lock()
	testkit.Must(t, err)
	t.Cleanup(func() { _ = lock.Close() })
	testkit.Must(t, d.WriteUp(statedir.UpState{PID: 7, Version: "1.2", URL: "http://127.0.0.1:1", State: d.Path()}))
	return d, lock
}

// TestSecondUp: up, where CodeForge runs already, says so and does nothing else: above all, it runs no programs for the
// credentials of that one.
func TestSecondUp(t *testing.T) {
	d, _ := inUse(t)
	l, err := net.Listen("unix", d.Join("logins", statedir.CredentialsSocket))
	testkit.Must(t, err)
	asked := make(chan struct{})
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
			close(asked)
		}
	}()
	read, write, err := os.Pipe()
	testkit.Must(t, err)
	defer read.Close()
	e := &Env{Stdin: read, Stdout: terminal.NewStream(write), Stderr: terminal.NewStream(write)}
	testkit.Must(t, upOptions{apis: t.TempDir(), state: d.Path(), port: 0, slots: 1}.runForeground(t.Context(), e))
	said := make([]byte, 4096)
	if n, _ := read.Read(said); !strings.Contains(string(said[:n]), "is already running (process 7") {
		t.Errorf("it says %q", said[:n])
	} else if !strings.Contains(string(said[:n]), "It has version 1.2, and this command dev. To switch: codeforge down, then") {
		t.Errorf("it does not say that another version runs: %q", said[:n])
	}
	select {
	case <-asked:
		t.Error("it speaks to the proxy of the other one")
	case <-time.After(200 * time.Millisecond):
	}
	_ = l.Close()
}

// TestDownBesideDocker: down, where CodeForge runs in Docker, does not leave it at "was not running".
func TestDownBesideDocker(t *testing.T) {
	home, bin := t.TempDir(), t.TempDir()
	testkit.Must(t, os.Mkdir(filepath.Join(home, "apis"), 0o755))
	text := "#!/bin/sh\nprintf 'cf-mcp-server-1\\tcf\\t" + home + "\\n'\n"
	testkit.Must(t, os.WriteFile(filepath.Join(bin, "docker"), []byte(text), 0o755)) //nolint:gosec // a program
	t.Setenv("PATH", bin)
	for args, want := range map[string]bool{"down": true, "down --state " + t.TempDir(): false} {
		read, write, err := os.Pipe()
		testkit.Must(t, err)
		out := terminal.NewStream(write)
		code := Run(t.Context(), &Env{
			Args: strings.Fields(args), Environ: []string{homeVariable + "=" + home}, Stdout: out, Stderr: out,
		})
		_ = write.Close()
		said, _ := io.ReadAll(read)
		_ = read.Close()
		if code != 0 || strings.Contains(string(said), "In Docker it runs: docker compose down stops it.") != want {
			t.Errorf("%s: exit %d: %s", args, code, said)
		}
	}
}

// TestCheckBesideDocker: where CodeForge runs in Docker, a credential of the environment is a mistake, as for its proxy.
func TestCheckBesideDocker(t *testing.T) {
	home, bin := t.TempDir(), t.TempDir()
	testkit.Must(t, os.MkdirAll(filepath.Join(home, "apis", "shop"), 0o755))
	config := `{"description": "x", "domains": ["shop.example"], "credentials": {"SHOP_TOKEN": {"env": "SHOP"}}}`
	testkit.Must(t, os.WriteFile(filepath.Join(home, "apis", "shop", "config.json"), []byte(config), 0o600))
	docker := filepath.Join(bin, "docker")
	t.Setenv("PATH", bin)
	for _, inDocker := range []bool{false, true} {
		if inDocker {
			text := "#!/bin/sh\nprintf 'cf-mcp-server-1\\tcf\\t" + home + "\\n'\n"
			testkit.Must(t, os.WriteFile(docker, []byte(text), 0o755)) //nolint:gosec // a program
		}
		for _, args := range []string{"check", "api check shop", "doctor --offline"} {
			read, write, err := os.Pipe()
			testkit.Must(t, err)
			out := terminal.NewStream(write)
			_ = Run(t.Context(), &Env{
				Args: strings.Fields(args), Environ: []string{homeVariable + "=" + home, "SHOP=k9Xz2vLmQ7rT4wYs"}, Stdout: out, Stderr: out,
			})
			_ = write.Close()
			said, _ := io.ReadAll(read)
			_ = read.Close()
			if strings.Contains(string(said), "which docker inspect shows") != inDocker {
				t.Errorf("%s, in Docker %v: %s", args, inDocker, said)
			}
		}
	}
}

// TestPurgeMeanwhile: what was started again while down --purge asked is not removed.
func TestPurgeMeanwhile(t *testing.T) {
	d, lock := inUse(t)
	terminalEnd, program := testkit.OpenTerminal(t)
	defer terminalEnd.Close()
	defer program.Close()
	e := &Env{Stdin: program, Stdout: terminal.NewStream(program), Stderr: terminal.NewStream(program)}
	purge := func() error {
		_, err := terminalEnd.WriteString("y\n")
		testkit.Must(t, err)
		return purgeState(t.Context(), e, e.Stdout, d, false)
	}
	if err := purge(); err == nil || !strings.Contains(err.Error(), "already running") || !d.Exists() {
		t.Errorf("while it runs: %v", err)
	}
	_ = lock.Close()
	if err := purge(); err != nil || d.Exists() {
		t.Errorf("afterwards: %v", err)
	}
}
