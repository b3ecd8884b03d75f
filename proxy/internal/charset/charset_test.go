package charset

import (
	"net/http"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

// TestLabelsLinear: the search for labels in a Content-Type takes time in proportion to its length, whatever a server
// writes into it.
// Promise: bounded-work
func TestLabelsLinear(t *testing.T) {
	for _, unit := range []string{"charset=", "charset*=", "charset='", "charset=x;", "charset ", "charset=\"\\"} {
		costtest.RequireLinear(t, 64<<10, func(n int) func() {
			h := http.Header{"Content-Type": {"text/plain; " + strings.Repeat(unit, n/len(unit))}}
			return func() { _, _ = Parse(h) }
		})
	}
}
