//go:build disarm

package sandboxapi

import "testing"

// TestDisarmed: without this defence, the files of one owner displace those of another. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("file-share", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "file-share")
		if !isDropped(t) {
			t.Error("the attack is stopped by something else")
		}
	})
}
