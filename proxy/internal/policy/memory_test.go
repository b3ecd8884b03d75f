package policy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
)

// TestQueryMemory: what rules read of a query takes memory, too.
// Promise: one-memory-budget
func TestQueryMemory(t *testing.T) {
	budget := membudget.New(64 << 20)
	ctx := membudget.NewContext(t.Context(), budget.OpenAccount("run"))
	query := strings.Repeat("a&", 16<<10)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadContent(req)
	if err != nil || len(c.query) != 16<<10 {
		t.Fatal(err)
	}
	if budget.UsedBytes() < int64(len(c.query))*32 {
		t.Errorf("%d bytes are taken for %d fields", budget.UsedBytes(), len(c.query))
	}
	if c.ReleaseMemory(); budget.UsedBytes() != 0 {
		t.Errorf("%d bytes are left", budget.UsedBytes())
	}
}
