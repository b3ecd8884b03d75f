//go:build disarm

package hold

import "testing"

// TestDisarmed switches the defence off, and then its attack succeeds: e2e/negative.
func TestDisarmed(t *testing.T) {
	t.Run("approval-run", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "approval-run")
		if err := decideOfNoRun(t); err != nil {
			t.Error(err)
		}
	})
}
