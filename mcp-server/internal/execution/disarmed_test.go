//go:build disarm

package execution

import "testing"

// TestDisarmed: without its defence, a narrowed run finds the token names of other APIs. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("environ-apis", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "environ-apis")
		if got := buildEnviron(environCatalog, []string{"other"}); got["PAY_KEY"] == "" {
			t.Errorf("the attack is stopped by something else: %v", got)
		}
	})
}
