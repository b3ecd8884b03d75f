package privilege

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// The test's program drops its capabilities and prints what it can still do.
func TestMain(m *testing.M) {
	switch os.Getenv("PRIVILEGE_TEST") {
	case "":
		code := m.Run()
		if program.path != "" {
			_ = os.RemoveAll(filepath.Dir(program.path))
		}
		os.Exit(code)
	case "all":
		err := DropCapabilities()
		fmt.Printf("%v, raw socket: %v, child: %s, again: %v\n", err, rawSocket(), childCaps(), CheckCapabilities(os.Getpid()))
	case "keep":
		err := DropCapabilities(unix.CAP_DAC_READ_SEARCH)
		status, _ := proc.ReadStatus(os.Getpid())
		fmt.Printf("%v, left %x, bounding %x, raw socket: %v, child: %s\n", err, status.Caps, status.Bounding, rawSocket(), childCaps())
	case "hide":
		err := HideMemory()
		var core unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_CORE, &core)
		traced, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		fmt.Printf("%v, core %d, traced %d\n", err, core.Max, traced)
	case "threads":
		err := DropCapabilities()
		for range 3 {
			go func() {
				for {
					done := make(chan bool)
					go func() { runtime.LockOSThread(); close(done) }() // the thread ends with the goroutine
					<-done
				}
			}()
		}
		for i := 0; i < 300 && err == nil; i++ {
			err = CheckCapabilities(os.Getpid())
		}
		fmt.Println(err)
	case "thread":
		runtime.LockOSThread()
		err := DropBounding(unix.CAP_KILL)
		if err == nil {
			err = DropThread(unix.CAP_KILL)
		}
		status, _ := proc.ReadStatus(unix.Gettid())
		fmt.Printf("%v, left %x, bounding %x, raw socket: %v\n", err, status.Caps, status.Bounding, rawSocket())
	}
	os.Exit(0)
}

func rawSocket() error {
	_, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP)
	return err
}

// childCaps is the effective set of a program started now.
func childCaps() string {
	out, err := exec.Command("cat", "/proc/self/status").Output()
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "no CapEff"
}

// program is the test's program, built as the daemons are built, because threads can be changed all at once only without
// cgo.
var program struct {
	once sync.Once
	path string
	err  error
}

func buildProgram() error {
	dir, err := os.MkdirTemp("", "privilege-test-") // t.TempDir is its owner's alone
	if err != nil {
		return err
	}
	program.path = filepath.Join(dir, "program")
	build := exec.Command("go", "test", "-trimpath", "-c", "-o", program.path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return os.Chmod(dir, 0o755) //nolint:gosec // another user runs the program
}

// run runs the program: as root, or through args as somebody else.
func run(t *testing.T, what string, args ...string) string {
	t.Helper()
	program.once.Do(func() { program.err = buildProgram() })
	testkit.Must(t, program.err)
	args = append(args, program.path)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PRIVILEGE_TEST=" + what, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

func TestDropCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root")
	}
	if err := CheckCapabilities(os.Getpid()); err == nil {
		t.Error("Check sees no capability of root's")
	}
	for _, c := range []struct{ what, want string }{
		{"all", "<nil>, raw socket: operation not permitted, child: 0000000000000000, again: <nil>\n"},
		{"keep", "<nil>, left 4, bounding 4, raw socket: operation not permitted, child: 0000000000000004\n"},
		{"thread", "<nil>, left 20, bounding 20, raw socket: operation not permitted\n"},
	} {
		if got := run(t, c.what); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// TestDropWithoutSetpcap: without CAP_SETPCAP, as in a container, the bounding set stays, and no_new_privs keeps a
// program that is started later from gaining what is in it.
func TestDropWithoutSetpcap(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		testkit.SkipBecause(t, "needs setpriv of util-linux")
	}
	got := run(t, "all", setpriv, "--bounding-set=-setpcap", "--")
	if want := "<nil>, raw socket: operation not permitted, child: 0000000000000000, again: <nil>\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestDropAsOrdinaryUser: a process without any capability can drop all the same.
func TestDropAsOrdinaryUser(t *testing.T) {
	var as []string
	if os.Geteuid() == 0 {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			testkit.SkipBecause(t, "needs setpriv of util-linux")
		}
		as = []string{setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", "--"}
	}
	if got, want := run(t, "keep", as...), "<nil>, left 0, bounding "; !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s...", got, want)
	}
}

// TestHideMemory disables core files and traces.
func TestHideMemory(t *testing.T) {
	if got, want := run(t, "hide"), "<nil>, core 0, traced 0\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestCheckCapabilities skips threads that end meanwhile. A process that does not exist is an error.
func TestCheckCapabilities(t *testing.T) {
	if got := run(t, "threads"); got != "<nil>\n" {
		t.Errorf("while threads end: %s", got)
	}
	if err := CheckCapabilities(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such process: %v", err)
	}
}

// TestKernelRefuses: a refusal is an error, except for a capability that the kernel does not have, or that the thread
// may not remove from its bounding set.
func TestKernelRefuses(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		want  string
	}{
		{unix.EINVAL, ""}, {unix.EPERM, ""}, {unix.EIO, "dropping capability 3 from the bounding set: input/output error"},
	} {
		var dropped []uintptr
		err := dropBounding(func(_ int, arg uintptr) error {
			if dropped = append(dropped, arg); arg == 3 {
				return c.errno
			}
			return nil
		}, 1<<1)
		if fmt.Sprint(dropped) != "[0 2 3]" || (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%v: %v, %v", c.errno, dropped, err)
		}
	}
	for _, c := range []struct {
		ambient, set error
		want         string
	}{
		{nil, nil, "<nil>"}, {unix.EINVAL, nil, "<nil>"},
		{unix.EPERM, nil, "clearing ambient capabilities: operation not permitted"},
		{unix.EINVAL, unix.EIO, "dropping capabilities: input/output error"},
	} {
		err := dropSets(func(int, uintptr) error { return c.ambient }, func(*unix.CapUserHeader, *[2]unix.CapUserData) error { return c.set }, 0)
		if fmt.Sprint(err) != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	if prctlAll(-1, 0) == nil || capsetAll(&unix.CapUserHeader{}, new([2]unix.CapUserData)) == nil || prctlThread(-1, 0) == nil {
		t.Error("a call that the kernel refuses has no error")
	}
}
