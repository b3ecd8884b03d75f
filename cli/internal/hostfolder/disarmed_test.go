//go:build disarm

package hostfolder

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestDisarmed: without its defence each of these attacks succeeds. e2e/negative runs it with the tag disarm.
func TestDisarmed(t *testing.T) {
	t.Run("folder-check", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "folder-check")
		base, file, own := newPlace(t)
		if _, err := Add(file, Folder{Name: "x", Path: base + "/codeforge/apis"}, own); err != nil {
			t.Errorf("the attack is stopped by something else: %v", err)
		}
	})
	t.Run("folder-links", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "folder-links")
		base, file, own := newPlace(t)
		reports := filepath.Join(base, "data/reports")
		_, err := Add(file, Folder{Name: "x", Path: reports}, own)
		testkit.Must(t, err)
		testkit.Must(t, os.RemoveAll(reports))
		testkit.Must(t, os.Symlink(filepath.Join(base, "data/drafts"), reports))
		if list, refused := List(file, own); len(list) != 1 {
			t.Errorf("the attack is stopped by something else: %v", refused)
		}
	})
}
