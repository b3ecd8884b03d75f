package jail

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestCheckStatus: one wrong id, a capability, or a missing no_new_privs is enough.
// Promise: least-privilege
func TestCheckStatus(t *testing.T) {
	good := func() proc.Status {
		return proc.Status{UID: [4]int{7, 7, 7, 7}, GID: [4]int{8, 8, 8, 8}, NoNewPrivs: true}
	}
	if err := checkStatus(good(), 7, 8); err != nil {
		t.Error(err)
	}
	for i := range 4 {
		uid, gid := good(), good()
		uid.UID[i], gid.GID[i] = 0, 0
		if checkStatus(uid, 7, 8) == nil || checkStatus(gid, 7, 8) == nil {
			t.Errorf("a wrong id %d passes", i)
		}
	}
	caps, privs := good(), good()
	caps.Caps, privs.NoNewPrivs = 1, false
	if checkStatus(caps, 7, 8) == nil || checkStatus(privs, 7, 8) == nil {
		t.Error("a capability, or privileges to come, pass")
	}
}

// TestKillEach: a process of another user is not killed, although its number is in the list.
func TestKillEach(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	testkit.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	pids := []int{1 << 30, cmd.Process.Pid} // the first is none
	killEach(pids, os.Geteuid()+1)
	select {
	case <-ended:
		t.Fatal("a process of another user was killed")
	case <-time.After(100 * time.Millisecond):
	}
	killEach(pids, os.Geteuid())
	<-ended
}

// TestAwaitExit returns when a process has ended, and not before.
func TestAwaitExit(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	testkit.Must(t, cmd.Start())
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	testkit.Must(t, err)
	defer unix.Close(fd)
	began := time.Now()
	if err := awaitExit(fd, 50*time.Millisecond); err == nil || time.Since(began) < 50*time.Millisecond {
		t.Errorf("it has not ended: %v after %v", err, time.Since(began))
	}
	testkit.Must(t, cmd.Process.Kill())
	if err := awaitExit(fd, time.Minute); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if err := awaitExit(-1, 20*time.Millisecond); err == nil { // poll ignores it
		t.Error("no process has ended")
	}
}

// TestFindLibrary: a library of another machine is not one, and neither is a file that is none.
func TestFindLibrary(t *testing.T) {
	l := &libraryFinder{machine: map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]}
	at, needs, err := l.findLibrary("libc.so.6")
	if err != nil {
		testkit.SkipBecause(t, "the machine has no glibc: "+err.Error())
	}
	if !strings.HasSuffix(at, "/libc.so.6") || len(needs) == 0 {
		t.Errorf("%s needs %q", at, needs)
	}
	l.own = t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(l.own, "libc.so.6"), []byte("not a library"), 0o644))
	if again, _, err := l.findLibrary("libc.so.6"); again != at || err != nil {
		t.Errorf("%s, %v, want %s", again, err, at)
	}
	if _, _, err := l.findLibrary("../libc.so.6"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name with a folder: %v", err)
	}
	l.machine = elf.EM_S390
	if at, _, err := l.findLibrary("libc.so.6"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of another machine: %s, %v", at, err)
	}
}

// TestStartWithoutWork: an interpreter whose folder cannot be made is not started.
func TestStartWithoutWork(t *testing.T) {
	e := &Embedded{cfg: EmbeddedConfig{Work: filepath.Join(t.TempDir(), "none")}}
	if _, err := e.Start(InterpreterSpec{}, Stdio{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestClear: only what can be removed later is tried again.
func TestClear(t *testing.T) {
	full := errors.New("no space left")
	for _, c := range []struct {
		leftover, files error
		again           bool
	}{{nil, nil, false}, {full, nil, false}, {nil, full, true}, {full, full, false}} {
		err := ClearSlot(c.leftover, func() error { return c.files })
		if files := (*FilesError)(nil); errors.As(err, &files) != c.again || (err == nil) != (c.leftover == nil && c.files == nil) {
			t.Errorf("%v, %v: %v", c.leftover, c.files, err)
		}
	}
}
