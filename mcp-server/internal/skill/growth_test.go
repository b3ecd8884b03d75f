package skill

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

// TestDescribeLinear: a description is found in time in proportion to the source.
func TestDescribeLinear(t *testing.T) {
	for _, part := range []string{"//\n", "/**/", "/*", "* ", "@description ", "// @description a\n", " \n", "\ufeff", "\u202e", "*/"} {
		for _, begin := range []string{"", "/** @description ", "// @description "} {
			costtest.RequireLinear(t, 256<<10, func(n int) func() {
				source := begin + strings.Repeat(part, n/len(part))
				return func() { DescribeSource(source) }
			})
		}
	}
}
