package tools

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// TestListing: reference and restricted_methods are in every entry, because clients of the original read them.
func TestListing(t *testing.T) {
	for want, api := range map[string]controlapi.API{
		`"reference":null,"restricted_methods":[]`:                     {Name: "a"},
		`"reference":"https://docs.test","restricted_methods":["PUT"]`: {Name: "b", Reference: "https://docs.test", RestrictedMethods: []string{"PUT"}},
	} {
		if got := arrayOfLines([]listed{listing(api)}); !strings.Contains(got, want) {
			t.Errorf("%s is missing from %s", want, got)
		}
	}
}
