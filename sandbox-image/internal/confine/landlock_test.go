package confine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// Paths that a plan lists can be read. No other file can, through whatever link.
// Promise: least-privilege, protected-sandboxd
func TestReads(t *testing.T) {
	if !CanRestrictReads() {
		testkit.SkipBecause(t, "this kernel has no Landlock")
	}
	cat, err := exec.LookPath("cat")
	if err != nil {
		testkit.SkipBecause(t, "no cat")
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
		plan := ProcessSpec{
			NetNS: -1, NoNewPrivs: true, Read: []string{open, "/lib", "/lib64", "/usr/lib", cat, "/nowhere"},
			Argv: []string{cat, row.path}, Dir: "/",
		}
		cmd := exec.Command("/proc/self/exe", plan.CommandLine()...)
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

// With paths to write, a program can change nothing else, even files of its own user, and cannot signal its parent
// where Landlock restricts signals.
// Promise: protected-sandboxd
func TestWrites(t *testing.T) {
	if !CanRestrictReads() {
		testkit.SkipBecause(t, "this kernel has no Landlock")
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		testkit.SkipBecause(t, "no shell")
	}
	for _, row := range []struct {
		does  string
		since int // version of Landlock
	}{
		{"echo x >$1/new", 1}, {"echo x >>$1/file", 1}, {"rm $1/file", 1}, {"mkdir $1/dir", 1}, {"rmdir $1/empty", 1},
		{"ln -s / $1/link", 1}, {"mv $1/file $1/moved", 1}, {"mkfifo $1/fifo", 1}, {"ln $1/file $1/hard", 1},
		{"truncate -s 0 $1/file", 1}, {"kill -0 $PPID", scopes},
	} {
		if landlockVersion() < row.since {
			continue
		}
		dir := t.TempDir()
		for _, name := range []string{"open", "closed"} {
			testkit.Must(t, os.MkdirAll(filepath.Join(dir, name, "empty"), 0o700))
			testkit.Must(t, os.WriteFile(filepath.Join(dir, name, "file"), []byte("words"), 0o600))
		}
		run := func(in, read string, write ...string) error {
			plan := ProcessSpec{
				NetNS: -1, NoNewPrivs: true, Read: strings.Fields(read), Write: write, Dir: "/",
				Argv: []string{shell, "-ec", row.does, "sh", filepath.Join(dir, in)}, Env: os.Environ(),
			}
			cmd := exec.Command("/proc/self/exe", plan.CommandLine()...)
			cmd.Args[0] = "sandboxd"
			return cmd.Run()
		}
		open := filepath.Join(dir, "open")
		if err := run("closed", "/", open, "/dev/null"); err == nil {
			t.Errorf("%s: it could", row.does)
		}
		read := "/"
		if row.since == scopes { // also where it may write as its user may
			if err := run("open", read); err == nil {
				t.Errorf("%s: it could", row.does)
			}
			read, open = "", "" // no restriction at all
		}
		if err := run("open", read, strings.Fields(open)...); err != nil {
			t.Errorf("%s: %v where it may", row.does, err)
		}
	}
}
