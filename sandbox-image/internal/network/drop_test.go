package network

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// The test binary drops its capabilities and reports what it can still do.
func TestMain(m *testing.M) {
	if os.Getenv("HOLD_TEST_DROP") == "" {
		os.Exit(m.Run())
	}
	err := DropCapabilities()
	_, raw := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP)
	out, child := exec.Command("cat", "/proc/self/status").Output()
	caps := ""
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "CapEff") {
			caps = strings.TrimSpace(strings.TrimPrefix(line, "CapEff:"))
		}
	}
	fmt.Printf("%v, raw socket: %v, child: %s %v, again: %v\n", err, raw, caps, child, VerifyDropped(os.Getpid()))
	os.Exit(0)
}

func TestDropCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.Skip(t, "needs root")
	}
	if err := VerifyDropped(os.Getpid()); err == nil {
		t.Error("VerifyDropped sees no capability of root's")
	}
	// AllThreadsSyscall needs a build without cgo, as sandboxd's is.
	program := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Env = []string{"HOLD_TEST_DROP=1", "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	want := "<nil>, raw socket: operation not permitted, child: 0000000000000000 <nil>, again: <nil>\n"
	if err != nil || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
}
