//go:build disarm

package tools

import (
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
)

// TestDisarmed: without its defence, another client reads a tenant's file, the model gets an image of any size, and a
// user gets the IDs of another user's runs.
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
	t.Run("task-user", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "task-user")
		own := &tenant.Tenant{Tenant: tokenfile.Tenant{Name: "mallory"}}
		s := &Surface{cfg: Config{History: kept(t), Tenant: &execution.TenantSources{Tenant: own}}}
		if list, _, err := (taskRuns{s}).ListTasks(t.Context(), "login-bob", ""); err != nil || len(list) != 1 {
			t.Errorf("the attack is stopped by something else: %v %v", list, err)
		}
	})
	t.Run("image-size", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "image-size")
		for size, data := range oversized(t) {
			if _, _, err := showFile([]byte(data)); err != nil {
				t.Errorf("%s is stopped by something else: %v", size, err)
			}
		}
	})
}
