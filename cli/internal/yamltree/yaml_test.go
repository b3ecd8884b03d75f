package yamltree

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

// TestMergedLists: a list that many maps merge is not gone through without end.
// Promise: documents-are-data
func TestMergedLists(t *testing.T) {
	costtest.RequireLinear(t, 4000, func(n int) func() {
		text := []byte("list: &l [" + strings.Repeat("1, ", n) + "1]\nmaps:\n" + strings.Repeat("- <<: *l\n", n))
		return func() { _, _ = ParseTree(text, nil) }
	})
}
