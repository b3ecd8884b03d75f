//go:build disarm

package transport_test

import "testing"

// TestDisarmed: without this defence, every answer of a client that does not read stays in memory. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("unread-answers", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "unread-answers")
		if n := countRefused(t); n > 0 {
			t.Errorf("the attack is stopped by something else: %d answers are refused", n)
		}
	})
}
