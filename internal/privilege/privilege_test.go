package privilege

import (
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
