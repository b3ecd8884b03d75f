//go:build disarm

package approval

import (
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// TestDisarmed switches each defence off, and then its attack succeeds: e2e/negative.
func TestDisarmed(t *testing.T) {
	approved := func(t *testing.T, b *Store, id, digest string) {
		t.Helper()
		if _, err := b.DecidePlan(id, approvalapi.Answer{Approve: true, Digest: digest}, true); err != nil {
			t.Fatal(err)
		}
		settled(t, b, id)
	}
	t.Run("plan-once", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "plan-once")
		s := &sent{}
		b := newBook(t, s)
		p := planOf(t, b, "a")
		approved(t, b, p.ID, p.Digest)
		approved(t, b, p.ID, p.Digest)
		if !slices.Equal(s.all(), []string{"a", "a"}) {
			t.Errorf("sent %q", s.all())
		}
	})
	t.Run("plan-digest", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "plan-digest")
		s := &sent{}
		b := newBook(t, s)
		p, other := planOf(t, b, "a"), planOf(t, b, "b")
		approved(t, b, p.ID, other.Digest)
		if !slices.Equal(s.all(), []string{"a"}) {
			t.Errorf("sent %q", s.all())
		}
	})
	t.Run("approval-run", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "approval-run")
		if err := decideOfNoRun(t); err != nil {
			t.Error(err)
		}
	})
	t.Run("plan-words", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "plan-words")
		steps := []approvalapi.Step{{N: 1, Method: "POST", URL: "https://a.test/x", Body: `{"amount 5, to": "alice"}`}}
		if got := drawSteps(steps)[0]; !strings.Contains(got, `amount 5, to "alice"`) {
			t.Error(got)
		}
	})
	t.Run("plan-type", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "plan-type")
		if got := stepAfterRead(t, "PATCH", formType, `{"role":"guest","note":"&role=admin&x="}`).Shown.Changes; len(got) != 1 || got[0].After != `"guest"` {
			t.Errorf("%+v", got)
		}
	})
	t.Run("approval-path", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "approval-path")
		if !passesOtherPath(t) {
			t.Error("the attack is stopped by something else")
		}
	})
}
