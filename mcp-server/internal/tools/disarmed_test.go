//go:build disarm

package tools

import (
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestDisarmed: without its defence, another client reads a tenant's file, and the model gets an image of any size.
// e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("file-tenant", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "file-tenant")
		s := shelved(t)
		s.cfg.History = kept(t)
		s.addFileResources()
		cs, err := join(t, s, "c")
		testkit.Must(t, err)
		if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: runsURI + "r2/files/c.bin"}); err != nil {
			t.Errorf("the attack is stopped by something else: %v", err)
		}
	})
	t.Run("image-size", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "image-size")
		if _, _, err := showFile([]byte(picture(t, "png", 1569, 1))); err != nil {
			t.Errorf("the attack is stopped by something else: %v", err)
		}
	})
}
