//go:build disarm

package skill_test

import (
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestDisarmed: without its defence, what code writes over a pinned skill is imported. e2e/negative runs it, under the tag
// disarm.
func TestDisarmed(t *testing.T) {
	t.Run("skill-pin", func(t *testing.T) {
		s, dir := open(t, map[string]string{"a.ts": hello})
		testkit.Must(t, s.PinIn(filepath.Join(t.TempDir(), "pins")))
		testkit.Must(t, s.PinSource("a", sumOf(t, s, "a")))
		put(t, dir, "a.ts", "evil")
		t.Setenv("CODEFORGE_DISARM", "skill-pin")
		if _, source, _ := s.ReadSkill("a"); source != "evil" {
			t.Errorf("it is found by something else: %q", source)
		}
		if files, err := s.ReadPinned(false); len(files) != 0 || err != nil {
			t.Errorf("runs import something else: %q, %v", files, err)
		}
	})
}
