//go:build disarm

package control

import (
	"net/http"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
)

// TestDisarmed switches the defence off, and then its attack succeeds: e2e/negative.
func TestDisarmed(t *testing.T) {
	t.Run("held-by", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "held-by")
		room := approval.New(approval.Config{})
		id, told := heldIn(t, room, false)
		if status, text := decided(room, id, `{"approve": true}`); status != http.StatusOK || <-told != nil {
			t.Errorf("%d %s", status, text)
		}
	})
	t.Run("proxy-database", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "proxy-database")
		if err := dialShared(t, 5438); err != nil {
			t.Error(err)
		}
	})
	t.Run("scrub-stored", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "scrub-stored")
		if _, text := scrubbed(t, `["`+canary+`demo"]`); text != `["`+canary+`demo"]` {
			t.Error(text)
		}
	})
	t.Run("plan-by", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "plan-by")
		book, p := planIn(t, false)
		if status, text := decidedPlan(book, p.ID, `{"digest": "`+p.Digest+`"}`); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
	})
}
