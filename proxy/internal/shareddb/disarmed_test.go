//go:build disarm

package shareddb

import "testing"

// TestDisarmed: without its defence, this attack succeeds. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("database-turns", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "database-turns")
		if n := countBeforeHonest(t); n < 40 {
			t.Errorf("%d transactions of the flood came first, so something else holds them back", n)
		}
	})
}
