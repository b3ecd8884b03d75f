package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestShare: whatever modes a package gives its files, their group can read them afterwards. What a link leads to keeps
// its mode.
func TestShare(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root")
	}
	above, err := os.MkdirTemp("", "share-test-")
	testkit.Must(t, err)
	defer os.RemoveAll(above)
	testkit.Must(t, os.Chmod(above, 0o755))
	dir, outside := filepath.Join(above, "package"), filepath.Join(above, "outside")
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "closed"), 0o700))
	testkit.Must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	for path, mode := range map[string]os.FileMode{
		outside: 0o600, filepath.Join(dir, "closed", "file"): 0, filepath.Join(dir, "tool"): 0o700, filepath.Join(dir, "open"): 0o664,
	} {
		testkit.Must(t, os.WriteFile(path, nil, 0o600))
		testkit.Must(t, os.Chmod(path, mode))
	}
	testkit.Must(t, os.Chmod(filepath.Join(dir, "closed"), 0))
	const uid = UserUID
	testkit.Must(t, filepath.WalkDir(above, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	}))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "deno.lock"), nil, 0o644)) //nolint:gosec // sandboxd's, of an earlier installation
	cmd := exec.Command(BuildBinary(t), "share", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for path, want := range map[string]os.FileMode{
		"package/closed": 0o770, "package/closed/file": 0o040, "package/tool": 0o740, "package/open": 0o664, "outside": 0o600,
	} {
		info, err := os.Stat(filepath.Join(above, path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", path, info, err, want)
		}
	}
}
