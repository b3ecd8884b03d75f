package main

import (
	_ "embed" // ca.pem
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// testCA is a certificate without a key: no connection is made with it.
//
//go:embed testdata/ca.pem
var testCA []byte

// prepareDirs makes sandboxd's directories below the system's directory for temporary files.
func (w *World) prepareDirs(t testing.TB, o Options) {
	dir, err := os.MkdirTemp("", "sandboxd-world-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w.Dir = dir
	w.Socket = filepath.Join(dir, "run", "sandboxd.sock")
	owner := 0
	if o.Mode == User {
		owner = UserUID
	}
	for _, d := range []string{"run", "runs", "skills", "tmp", "state", "packages", "home", "root", "folders"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		own := owner
		if d == "run" {
			own = socketOwner(o.Mode)
		}
		if err := os.Chown(filepath.Join(dir, d), own, own); err != nil {
			t.Fatal(err)
		}
	}
	if o.Mode == Container {
		w.requireNoError(t, os.Chown(filepath.Join(dir, "tmp"), 0, 20000))
		w.requireNoError(t, os.Chmod(filepath.Join(dir, "tmp"), 0o770|os.ModeSticky))
		w.requireNoError(t, os.Chown(filepath.Join(dir, "skills"), 0, 20000))
		w.requireNoError(t, os.Chmod(filepath.Join(dir, "skills"), 0o775|os.ModeSetgid))
	}
	w.requireNoError(t, os.Chmod(filepath.Join(dir, "run"), 0o700))
	w.requireNoError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), testCA, 0o644))
	w.requireNoError(t, os.Chown(dir, owner, owner))
	w.requireNoError(t, os.Chmod(dir, 0o711))
}

func (w *World) requireNoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newCommand returns the test binary as a supervisor (see RunTests), which execs sandboxd.
func (w *World) newCommand(t testing.TB, o Options, deno string) *exec.Cmd {
	at := func(name string) string { return filepath.Join(w.Dir, name) }
	args := []string{"serve", "--mode", "embedded", "--socket", w.Socket, "--deno", deno, "--ca", at("ca.pem"),
		"--runs", at("runs"), "--skills", at("skills"), "--tmp", at("tmp"), "--state", at("state"),
		"--packages", at("packages"), "--bridge", o.Bridge, "--programs", o.Programs}
	if o.Mode == Container {
		args = []string{"serve", "--mode", "container", "--socket", "/run/sandboxd/sandboxd.sock", "--deno", inDeno,
			"--ca", "/etc/codeforge/ca.pem", "--runs", "/runs", "--skills", "/skills", "--tmp", "/tmp",
			"--state", "/var/lib/sandboxd", "--code", "/code",
			"--packages", "/packages", "--bridge", inBridge, "--programs", "/programs"}
	}
	if o.Python {
		args = append(args, "--python", w.python.Program)
	}
	typescript := ""
	if o.TypeScript {
		typescript = testkit.TypeScript(t)
		at := typescript
		if o.Mode == Container {
			at = inTypeScript
		}
		args = append(args, "--typescript", at)
	}
	folders, err := json.Marshal(o.Folders)
	w.requireNoError(t, err)
	if len(o.Folders) > 0 {
		in := at("folders")
		if o.Mode == Container {
			in = "/folders"
		}
		args = append(args, "--folders", in)
	}
	args = append(append(args, "--slots", strconv.Itoa(o.Slots), "--warm", strconv.Itoa(o.Warm),
		"--memory", strconv.FormatInt(o.Memory, 10),
		"--servers", strconv.Itoa(o.Servers), "--server-memory", strconv.FormatInt(o.ServerMemory, 10)), o.Args...)
	self, err := os.Executable()
	w.requireNoError(t, err)
	cmd := exec.Command(self, append([]string{BuildBinary(t)}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), dirEnv + "=" + w.Dir, denoEnv + "=" + deno,
		superviseEnv + "=" + string(o.Mode), slotsEnv + "=" + strconv.Itoa(o.Slots),
		serversEnv + "=" + strconv.Itoa(o.Servers), bridgeEnv + "=" + o.Bridge,
		programsEnv + "=" + o.Programs, typescriptEnv + "=" + typescript,
		foldersEnv + "=" + string(folders)}
	cmd.Env = append(cmd.Env, disarmedEnviron()...)
	if o.Python {
		cmd.Env = append(cmd.Env, pythonEnv+"="+w.python.Program+":"+w.python.Library)
	}
	if o.NoSys {
		cmd.Env = append(cmd.Env, noSysEnv+"=1")
	}
	if o.Closed {
		cmd.Env = append(cmd.Env, closedEnv+"=1")
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS}
	switch o.Mode {
	case User:
		copySelf := filepath.Join(filepath.Dir(BuildBinary(t)), "supervisor")
		w.requireNoError(t, copyFile(copySelf, self))
		cmd.Path = copySelf
		attr.Credential = &syscall.Credential{Uid: UserUID, Gid: UserUID, NoSetGroups: true}
		// The supervisor makes the user namespace as that user.
		attr.Cloneflags = 0
	case Container:
		attr.Cloneflags |= syscall.CLONE_NEWPID | syscall.CLONE_NEWNET
	}
	cmd.SysProcAttr = attr
	return cmd
}

// copyFile copies the test binary to a path at which every user may execute it.
func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	tmp := to + "." + strconv.Itoa(os.Getpid())
	if err := os.WriteFile(tmp, data, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, to)
}
