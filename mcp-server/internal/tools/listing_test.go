package tools

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestListing: reference and restricted_methods are in every entry, because clients of the original read them.
func TestListing(t *testing.T) {
	for want, api := range map[string]proxyapi.API{
		`"reference":null,"restricted_methods":[]`:                     {Name: "a"},
		`"reference":"https://docs.test","restricted_methods":["PUT"]`: {Name: "b", Reference: "https://docs.test", RestrictedMethods: []string{"PUT"}},
	} {
		if got := arrayOfLines([]listedAPI{newListedAPI(api)}); !strings.Contains(got, want) {
			t.Errorf("%s is missing from %s", want, got)
		}
	}
}

// TestExecuteTitle: the title of execute_code names no language, because there may be two.
func TestExecuteTitle(t *testing.T) {
	s := shelved(t)
	s.addExecute()
	c, err := join(t, s, "client")
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if tool.Name == "execute_code" && tool.Title != "Run code" {
			t.Errorf("the title is %q", tool.Title)
		}
	}
}
