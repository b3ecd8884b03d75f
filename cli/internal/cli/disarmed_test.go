//go:build disarm

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestDisarmed: without its defence, a server can choose the path of a saved file, and a key goes to the API of another
// tab. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("saved-names", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "saved-names")
		for _, name := range []string{"../a", "../../a", "a/../../b", "a/b", ".ssh", "-x", "a\nb", "\x1b[2J", "<b>"} {
			dir := filepath.Join(t.TempDir(), "new", "out")
			testkit.Must(t, saveRunFile(dir, name, []byte("x")))
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Errorf("%q is stopped by something else: %v", name, err)
			}
		}
	})
	t.Run("setup-choice", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "setup-choice")
		if !typeInFirstTab(t) {
			t.Error("the attack is stopped by something else")
		}
	})
}
