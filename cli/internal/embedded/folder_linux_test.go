package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/cli/internal/hostfolder"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// inMountNamespace runs do on a thread with a separate mount namespace.
func inMountNamespace(t *testing.T, do func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root")
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = do()
		}
		result <- err
	}()
	return <-result
}

// writeThroughView mounts a read-only folder in a view and writes a file there.
func writeThroughView(t *testing.T) error {
	t.Helper()
	folder, base := t.TempDir(), t.TempDir()
	return inMountNamespace(t, func() error {
		v := hostView{base}
		if err := v.bindFolder(hostfolder.Folder{Name: "reports", Path: folder}); err != nil {
			t.Error(err)
		}
		return os.WriteFile(v.Path(foldersName, "reports", "x"), nil, 0o600)
	})
}

// TestBindFolder: a folder is read-only unless it is writable, and a link in its path is never followed.
// Promise: folders-stay-closed
func TestBindFolder(t *testing.T) {
	if err := writeThroughView(t); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to a read-only folder: %v", err)
	}
	base, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	testkit.Must(t, os.MkdirAll(filepath.Join(base, "data/drafts"), 0o755))
	testkit.Must(t, os.Symlink(filepath.Join(base, "data"), filepath.Join(base, "link")))
	testkit.Must(t, os.Symlink("/etc", filepath.Join(base, "data/etc")))
	testkit.Must(t, os.WriteFile(filepath.Join(base, "data/file"), nil, 0o600))
	for path, want := range map[string]error{
		"data/drafts": nil, "link/drafts": unix.ELOOP, "data/etc": unix.ELOOP, "data/absent": unix.ENOENT, "data/file": unix.ENOTDIR,
	} {
		err := inMountNamespace(t, func() error {
			v := hostView{t.TempDir()}
			if err := v.bindFolder(hostfolder.Folder{Name: "x", Path: filepath.Join(base, path), Write: true}); err != nil {
				return err
			}
			return os.WriteFile(v.Path(foldersName, "x", "from-code"), nil, 0o600)
		})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(base, "data/drafts/from-code")); err != nil {
		t.Error(err)
	}
}
