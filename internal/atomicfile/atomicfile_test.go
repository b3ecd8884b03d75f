package atomicfile

import (
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
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}
