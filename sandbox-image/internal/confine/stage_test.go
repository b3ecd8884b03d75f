package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestStage: a stage has its entries and no mount of the host, and its read-only parts cannot be changed.
func TestStage(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root")
	}
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o644))
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "hidden"), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "hidden", "secret"), nil, 0o644))
	self, err := os.Executable()
	testkit.Must(t, err)
	umask := syscall.Umask(0o077)
	stage, err := NewStage([]StageEntry{
		{Kind: Plain, Path: "/proc", Source: "/proc"}, {Kind: ReadOnly, Path: "/read", Source: dir},
		{Kind: Writable, Path: "/deep/write", Source: dir}, {Kind: Hidden, Path: "/read/hidden"},
		{Kind: Copy, Path: "/copy", Source: filepath.Join(dir, "file")}, {Kind: Device, Path: "/dev/null", Source: "/dev/null"},
		{Kind: Link, Path: "/link", Source: "/copy"}, {Kind: Folder, Path: "/tmp"},
		{Kind: Plain, Path: "/program", Source: self},
	})
	syscall.Umask(umask)
	testkit.Must(t, err)
	defer stage.Close()
	plan := ProcessSpec{NetNS: -1, MountNS: 3, Dir: "/", Argv: []string{"/program", "stage-report"}}
	cmd := exec.Command("/proc/self/exe", plan.CommandLine()...)
	cmd.Args[0], cmd.ExtraFiles = program, []*os.File{stage}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{
		"root copy deep dev link proc program read tmp\n", "hidden \n", "link x\n", "mode drwxr-xr-x\n",
		"write /read/new: read-only file system\n", "write /new: read-only file system\n",
		"write /deep/write/new: <nil>\n", "write /dev/null: <nil>\n", "mounts 7\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// reportStage prints what a program finds in the stage of TestStage.
func reportStage() {
	for name, dir := range map[string]string{"root": "/", "hidden": "/read/hidden"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			fmt.Println(name, err)
		}
		fmt.Print(name, " ")
		for i, e := range entries {
			if i > 0 {
				fmt.Print(" ")
			}
			fmt.Print(e.Name())
		}
		fmt.Println()
	}
	text, err := os.ReadFile("/link")
	fmt.Println("link", string(text))
	info, err2 := os.Stat("/deep")
	if err = errors.Join(err, err2); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("mode", info.Mode())
	for _, name := range []string{"/read/new", "/new", "/deep/write/new", "/dev/null"} {
		err := os.WriteFile(name, []byte("x"), 0o644)
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		fmt.Printf("write %s: %v\n", name, err)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	fmt.Println("mounts", strings.Count(string(mounts), "\n"))
}
