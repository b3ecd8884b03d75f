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
		dir := t.TempDir()
		testkit.Must(t, saveRunFile(filepath.Join(dir, "out"), "../a", []byte("x")))
		if _, err := os.Stat(filepath.Join(dir, "a")); err != nil {
			t.Errorf("the attack is stopped by something else: %v", err)
		}
	})
	t.Run("setup-choice", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "setup-choice")
		if !typeInFirstTab(t) {
			t.Error("the attack is stopped by something else")
		}
	})
}
