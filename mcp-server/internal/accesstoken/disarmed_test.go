//go:build disarm

package accesstoken_test

import (
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
)

// TestDisarmed: without these defences, their attacks succeed. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	f := fakepeers.NewIssuer(t)
	t.Run("login-audience", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "login-audience")
		v, _ := open(t, f, "sub")
		both := f.Claims(audience, "ann", map[string]any{"aud": []string{audience, "https://other.example.com"}})
		if _, err := v.Verify(t.Context(), f.SignClaims(t, both)); err != nil {
			t.Errorf("the attack is stopped by something else: %v", err)
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
