package doctor

import (
	"slices"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestConfiguration: doctor reports what check has found, under the part that it is about, and calls only the rest valid.
func TestConfiguration(t *testing.T) {
	cat := catalog.NewNamesOnly([]*catalog.API{{Name: "a", Active: true}, {Name: "b"}})
	valid, apis := newOK("settings", "every value is valid"), newOK("apis", "1 of 2 active")
	for problem, want := range map[proxyapi.InspectedProblem][]Finding{
		{Severity: "error", File: ".env", Text: "bad"}:             {newFailure("settings", "bad", ""), apis},
		{Severity: "warning", File: "tokens.json", Text: "odd"}:    {valid, newWarning("tenants", "odd", ""), apis},
		{Severity: "error", File: "apis/a/config.json", Text: "x"}: {valid, newFailure("apis", "x", ""), apis},
	} {
		c := Config{
			Dotenv: "home/.env", Settings: settings.Settings{MCPTokensFile: "tokens.json"}, Catalog: cat,
			Problems: []proxyapi.InspectedProblem{problem},
		}
		if found := checkConfiguration(t.Context(), c); !slices.Equal(found, want) {
			t.Errorf("%+v: %+v", problem, found)
		}
	}
	if found := checkConfiguration(t.Context(), Config{}); !slices.Equal(found, []Finding{valid}) {
		t.Errorf("without a folder of APIs: %+v", found)
	}
}
