//go:build disarm

package embedded

import "testing"

// TestDisarmed: without the defence code writes to a read-only folder. e2e/negative runs it with the tag disarm.
func TestDisarmed(t *testing.T) {
	t.Run("folder-readonly", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "folder-readonly")
		if err := writeThroughView(t); err != nil {
			t.Errorf("the attack is stopped by something else: %v", err)
		}
	})
}
