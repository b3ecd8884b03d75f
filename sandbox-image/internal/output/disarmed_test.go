//go:build disarm

package output

import "testing"

// TestDisarmed: without its defence, each attempt of hostileFiles succeeds. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	for _, defence := range []string{"file-names", "out-links", "out-kinds", "out-size", "out-count"} {
		t.Run(defence, func(t *testing.T) {
			t.Setenv("CODEFORGE_DISARM", defence)
			for _, h := range hostileFiles() {
				if h.defence != defence {
					continue
				}
				if list, leftOut := h.attempt(t); list == h.list {
					t.Errorf("%s is stopped by something else: %s", h.name, leftOut)
				}
			}
		})
	}
}
