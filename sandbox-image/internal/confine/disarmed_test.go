//go:build disarm

package confine

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestDisarmed: without its defence, a program changes another file of its user. e2e/negative runs it with the tag
// disarm.
func TestDisarmed(t *testing.T) {
	t.Run("host-files", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "host-files")
		shell, err := exec.LookPath("sh")
		testkit.Must(t, err)
		file := filepath.Join(t.TempDir(), "file")
		plan := ProcessSpec{
			NetNS: -1, NoNewPrivs: true, Read: []string{"/"}, Write: []string{"/dev/null"}, Dir: "/",
			Argv: []string{shell, "-ec", "echo evil >$1", "sh", file}, Env: os.Environ(),
		}
		cmd := exec.Command("/proc/self/exe", plan.CommandLine()...)
		cmd.Args[0] = "sandboxd"
		testkit.Must(t, cmd.Run())
		if got, err := os.ReadFile(file); string(got) != "evil\n" {
			t.Errorf("it is stopped by something else: %q, %v", got, err)
		}
	})
}
