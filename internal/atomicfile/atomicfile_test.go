package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"a longer text", "short", ""} {
		testkit.Must(t, Write(path, []byte(text), 0o640))
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
	}
	info, err := os.Stat(path)
	testkit.Must(t, err)
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", info.Mode())
	}
	// A write that fails leaves the old content, and no draft.
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "folder", "x"), nil, 0o600))
	if err := Write(filepath.Join(dir, "folder"), []byte("x"), 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	if err := Write(filepath.Join(dir, "none", "x"), []byte("x"), 0o600); err == nil {
		t.Error("a folder that is not there was written to")
	}
	full := errors.New("full")
	if err := Fill(path, 0o600, func(*os.File) error { return full }); !errors.Is(err, full) {
		t.Errorf("content that could not be written: %v", err)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestSyncDir: a folder must exist. A file system that cannot flush folders, like proc(5), is not an error.
func TestSyncDir(t *testing.T) {
	if runtime.GOOS != "linux" {
		testkit.SkipBecause(t, "needs /proc")
	}
	if err := SyncDir(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
	if err := SyncDir("/proc"); err != nil {
		t.Errorf("a folder that cannot be flushed: %v", err)
	}
}
