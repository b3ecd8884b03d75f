package tools

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

// TestLinear: keeping what a run prints takes time in proportion to it, in whatever parts it comes.
func TestExcerptLinear(t *testing.T) {
	for _, part := range []int{1, 100, 64 << 10} {
		for _, limit := range []int{0, 1000, 1 << 20} {
			costtest.RequireLinear(t, 1<<20, func(n int) func() {
				text := strings.Repeat("é", part)
				return func() {
					b := newExcerpt(limit)
					for range n / part {
						b.WriteString(text)
					}
					b.Text(limit)
				}
			})
		}
	}
}
