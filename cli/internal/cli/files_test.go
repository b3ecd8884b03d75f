package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestSaveFile: a file of a run never leaves the folder, and never replaces an existing file.
// Promise: files-are-data
func TestSaveFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "out")
	testkit.Must(t, saveRunFile(dir, "a.csv", []byte("x")))
	if data, err := os.ReadFile(filepath.Join(dir, "a.csv")); string(data) != "x" || err != nil {
		t.Errorf("%q %v", data, err)
	}
	outside := filepath.Join(dir, "..", "b")
	testkit.Must(t, os.WriteFile(outside, []byte("mine"), 0o600))
	testkit.Must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	for _, name := range []string{"a.csv", "link", "../b", "../../a", "a/../../b", "/tmp/x", "", ".", "..", "a/b", ".ssh", "-x", "a\nb", "\x1b[2J", "<b>"} {
		if err := saveRunFile(dir, name, []byte("evil")); err == nil {
			t.Errorf("%q was saved", name)
		}
	}
	if data, _ := os.ReadFile(outside); string(data) != "mine" {
		t.Errorf("replaced: %q", data)
	}
}
