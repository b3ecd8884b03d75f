package credentialfeeder_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/credentialfeeder"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// home is the environment of a user with an empty home folder.
func home(t *testing.T, needs ...string) []string {
	t.Helper()
	for _, program := range needs {
		if _, err := exec.LookPath(program); err != nil {
			testkit.SkipBecause(t, program+" is not installed")
		}
	}
	dir, err := os.MkdirTemp("/tmp", "codeforge-home-") // short, for the sockets in it
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "GNUPGHOME=" + filepath.Join(dir, "gnupg"),
		"PASSWORD_STORE_DIR=" + filepath.Join(dir, "store"), "XDG_RUNTIME_DIR=" + dir, "XDG_DATA_HOME=" + dir}
}

// must runs a program with its input.
func must(t *testing.T, env []string, input string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...) //nolint:gosec // a test's program
	cmd.Env, cmd.Stdin, cmd.WaitDelay = env, strings.NewReader(input), time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return string(out)
}

// TestPass: the real password manager pass, with a key of GnuPG's.
func TestPass(t *testing.T) {
	env := home(t, "pass", "gpg", "gpgconf")
	testkit.Must(t, os.Mkdir(strings.TrimPrefix(env[3], "GNUPGHOME="), 0o700))
	t.Cleanup(func() {
		cmd := exec.Command("gpgconf", "--kill", "all")
		cmd.Env = env
		_ = cmd.Run()
	})
	must(t, env, "", "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", "ann@example.com", "default", "default", "never")
	must(t, env, "", "pass", "init", "ann@example.com")
	must(t, env, "hunter2-stripe\n", "pass", "insert", "--echo", "work/stripe")
	f := credentialfeeder.New(env)
	if s, err := f.RunProgram(t.Context(), []string{"pass", "show", "work/stripe"}); err != nil || s.Value != "hunter2-stripe" {
		t.Errorf("%q, %v", s.Value, err)
	}
	must(t, env, "hunter3-stripe\n", "pass", "insert", "--echo", "--force", "work/stripe")
	if s, err := f.RunProgram(t.Context(), []string{"pass", "show", "work/stripe"}); err != nil || s.Value != "hunter3-stripe" {
		t.Errorf("after a change: %q, %v", s.Value, err)
	}
	if s, err := f.RunProgram(t.Context(), []string{"pass", "show", "work/none"}); err == nil || s.Value != "" || !strings.Contains(err.Error(), "pass failed") {
		t.Errorf("what is not there: %q, %v", s.Value, err)
	}
}

// TestSecretTool: the key chain of a desktop, by secret-tool.
func TestSecretTool(t *testing.T) {
	env := home(t, "secret-tool", "gnome-keyring-daemon", "dbus-daemon")
	bus := exec.CommandContext(t.Context(), "dbus-daemon", "--session", "--nofork", "--print-address", "--address=unix:dir="+t.TempDir())
	bus.Env = env
	out, err := bus.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, bus.Start())
	t.Cleanup(func() { _ = bus.Process.Kill(); _ = bus.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	testkit.Must(t, err)
	env = append(env, "DBUS_SESSION_BUS_ADDRESS="+strings.TrimSpace(address))
	ring := exec.CommandContext(t.Context(), "gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets")
	ring.Env, ring.Stdin = env, strings.NewReader("\n")
	var said bytes.Buffer
	ring.Stderr = &said
	testkit.Must(t, ring.Start())
	t.Cleanup(func() { _ = ring.Process.Kill(); _ = ring.Wait() })
	testkit.WaitFor(t, func() bool { // until the key chain is on the bus
		cmd := exec.CommandContext(t.Context(), "secret-tool", "store", "--label=Stripe", "service", "stripe")
		cmd.Env, cmd.Stdin = env, strings.NewReader("hunter2-stripe")
		return cmd.Run() == nil
	})
	f := credentialfeeder.New(env)
	if s, err := f.RunProgram(t.Context(), []string{"secret-tool", "lookup", "service", "stripe"}); err != nil || s.Value != "hunter2-stripe" {
		t.Errorf("%q, %v: %s", s.Value, err, said.String())
	}
	if s, err := f.RunProgram(t.Context(), []string{"secret-tool", "lookup", "service", "none"}); err == nil || s.Value != "" {
		t.Errorf("what is not there: %q, %v", s.Value, err)
	}
}
