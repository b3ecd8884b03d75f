package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestCloseVolumes: Kubernetes makes volumes on disk with mode 777, and those in memory with mode 1777.
func TestCloseVolumes(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.Skip(t, "only root gives directories to a group")
	}
	for _, made := range []os.FileMode{0o777, 0o777 | os.ModeSticky} {
		dir := t.TempDir()
		f := serveFlags{
			tmp: filepath.Join(dir, "tmp"), runs: filepath.Join(dir, "runs"), code: filepath.Join(dir, "code"),
			skills: filepath.Join(dir, "skills"), state: filepath.Join(dir, "state"), packages: filepath.Join(dir, "packages"),
		}
		want := map[string]os.FileMode{
			f.tmp: 0o770 | os.ModeSticky, f.runs: 0o750, f.code: 0o711, f.skills: 0o750, f.state: 0o711, f.packages: 0o755,
		}
		for path := range want {
			testkit.Must(t, os.Mkdir(path, 0o700))
			testkit.Must(t, os.Chmod(path, made))
		}
		testkit.Must(t, closeVolumes(f))
		if info, err := os.Stat(filepath.Join(f.skills, "page-through.ts")); err != nil || info.Mode() != 0o644 {
			t.Errorf("a shipped skill: %v %v", info, err)
		}
		for path, mode := range want {
			if info, err := os.Stat(path); err != nil || info.Mode() != mode|os.ModeDir {
				t.Errorf("%s of mode %v: %v %v, want %v", filepath.Base(path), made, info.Mode(), err, mode)
			}
		}
	}
}
