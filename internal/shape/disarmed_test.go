//go:build disarm

package shape

import (
	"strings"
	"testing"
)

// TestDisarmed: without the rule for names, those of a map are shown. e2e/negative runs it, under the tag disarm.
func TestDisarmed(t *testing.T) {
	t.Run("shape-names", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "shape-names")
		if got := learn(`{"secretann":{"age":1},"secretbob":{"age":2}}`); !strings.Contains(got, "secretann") {
			t.Error(got)
		}
	})
}
