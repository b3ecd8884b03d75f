//go:build disarm

package authserver

import (
	"slices"
	"strings"
	"testing"
)

// TestDisarmed: without its defence, each attack succeeds. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	for _, a := range slices.Concat(attacks, documentAttacks) {
		if strings.HasPrefix(a.defence, "(") {
			continue
		}
		t.Run(a.defence, func(t *testing.T) {
			t.Run(a.name, func(t *testing.T) {
				t.Setenv("CODEFORGE_DISARM", a.defence)
				if !a.run(t, newForge(t)) {
					t.Error("the attack is stopped by something else")
				}
			})
		})
	}
}
