package enter

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// Paths that a plan lists can be read. No other file can, through whatever link.
func TestReads(t *testing.T) {
	if !CanRestrictReads() {
		testkit.Skip(t, "this kernel has no Landlock")
	}
	cat, err := exec.LookPath("cat")
	if err != nil {
		testkit.Skip(t, "no cat")
	}
	dir := t.TempDir()
	open, closed := filepath.Join(dir, "open"), filepath.Join(dir, "closed")
	for _, d := range []string{open, closed} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "file"), []byte("words of "+filepath.Base(d)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link": filepath.Join(closed, "file"), "proc": "/proc/self/mountinfo", "back": filepath.Join(open, "file")} {
		if err := os.Symlink(to, filepath.Join(open, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		path string
		want string // empty: it cannot be read
	}{
		{open + "/file", "words of open"},
		{open + "/back", "words of open"},
		{closed + "/file", ""},
		{open + "/link", ""},
		{open + "/../closed/file", ""},
		{open + "/proc", ""},
		{"/proc/self/mountinfo", ""},
		{"/proc/1/mountinfo", ""},
		{"/proc/version", ""},
		{"/etc/passwd", ""},
	} {
		plan := Plan{
			NetNS: -1, NoNewPrivs: true, Read: []string{open, "/lib", "/lib64", "/usr/lib", cat, "/nowhere"},
			Argv: []string{cat, row.path}, Dir: "/",
		}
		cmd := exec.Command("/proc/self/exe", plan.Args()...)
		cmd.Args[0] = "sandboxd"
		out, err := cmd.CombinedOutput()
		switch {
		case row.want != "" && (err != nil || string(out) != row.want):
			t.Errorf("%s: %v %.200q, want %q", row.path, err, out, row.want)
		case row.want == "" && (err == nil || !strings.Contains(string(out), "Permission denied")):
			t.Errorf("%s: %v %.200q, want it refused", row.path, err, out)
		}
	}
}
