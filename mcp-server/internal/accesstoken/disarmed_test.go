//go:build disarm

package accesstoken_test

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
)

// TestDisarmed: without these defences, their attacks succeed. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	f := fakepeers.NewIssuer(t)
	list, _ := forgeTokens(t, f)
	for _, c := range list {
		if strings.HasPrefix(c.defence, "(") {
			continue
		}
		t.Run(c.defence, func(t *testing.T) {
			t.Run(c.name, func(t *testing.T) {
				t.Setenv("CODEFORGE_DISARM", c.defence)
				v, log := open(t, f, "sub")
				if _, err := v.Verify(t.Context(), c.token, "192.0.2.1"); err != nil {
					t.Errorf("the attack is stopped by something else: %s", log)
				}
			})
		})
	}
	for name, answers := range wrongAnswers() {
		if name == "" {
			continue // no defence of this package
		}
		t.Run(name, func(t *testing.T) {
			t.Setenv("CODEFORGE_DISARM", name)
			if err := verifyAnswer(t, newIntrospected(t), answers[0]); err != nil {
				t.Errorf("the attack is stopped by something else: %v", err)
			}
		})
	}
	t.Run("introspect-fresh", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "introspect-fresh")
		if !isValidAfterRevocation(t) {
			t.Error("the attack is stopped by something else")
		}
	})
	t.Run("introspect-flood", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "introspect-flood")
		if n, _ := floodTokens(t); n < 500 {
			t.Errorf("the attack is stopped by something else: %d questions", n)
		}
	})
	t.Run("login-fetches", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "login-fetches")
		v, _ := open(t, f, "sub")
		if n := countFetches(t, f, v); n <= 10 { // a fetch may answer several tokens
			t.Errorf("the attack is stopped by something else: %d requests", n)
		}
	})
}
