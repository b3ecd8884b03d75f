//go:build disarm

package output

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestDisarmed: without these defences, code gets a file of the host, and a name that is a path. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("out-links", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "out-links")
		dir := t.TempDir()
		testkit.Must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "a")))
		if list, leftOut := collect(t, dir); list == "" {
			t.Errorf("the attack is stopped by something else: %s", leftOut)
		}
	})
	t.Run("file-names", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "file-names")
		dir := t.TempDir()
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "<b>"), nil, 0o600))
		if list, leftOut := collect(t, dir); list == "" {
			t.Errorf("the attack is stopped by something else: %s", leftOut)
		}
	})
}
