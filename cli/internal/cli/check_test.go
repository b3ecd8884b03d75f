package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestNoDescription: each option that describes an API counts alone.
func TestNoDescription(t *testing.T) {
	one := []string{"x"}
	if !(&apiOptions{json: true, path: "x"}).hasNoDescription() {
		t.Error("other options describe an API")
	}
	for i, o := range []apiOptions{{domains: one}, {tokens: one}, {surfaces: one}, {restrict: one}, {description: "x"}, {reference: "x"}} {
		if o.hasNoDescription() {
			t.Errorf("option %d describes no API", i)
		}
	}
}

// TestInspectTenants finds the operator's token and unknown APIs, and suggests the nearest name.
func TestInspectTenants(t *testing.T) {
	const token = "the-operators-token-0123456789abcdef"
	dir := t.TempDir()
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "apis", "shop"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "apis", "shop", "config.json"), []byte(`{"description": "A", "domains": ["a.test"]}`), 0o600))
	cat, problems := catalog.Load(filepath.Join(dir, "apis"), catalog.Options{})
	if len(problems) > 0 {
		t.Fatal(problems.String())
	}
	file := filepath.Join(dir, "tokens.json")
	for name, c := range map[string]struct {
		cat         *catalog.Catalog
		token, apis string
		want        []string
	}{
		"right":            {cat, "another-token-0123456789abcdef012345", `"shop"`, nil},
		"the operator's":   {cat, token, `"shop"`, []string{"MCP_AUTH_TOKEN"}},
		"a slip":           {cat, "another-token-0123456789abcdef012345", `"shop", "shpo"`, []string{`did you mean "shop"`}},
		"two unknown APIs": {cat, "another-token-0123456789abcdef012345", `"x", "yyyyyyyyyyy"`, []string{`"x", which`, `"yyyyyyyyyyy", which`}},
		"no catalog":       {nil, "another-token-0123456789abcdef012345", `"x"`, nil},
	} {
		testkit.Must(t, os.WriteFile(file, fmt.Appendf(nil, `{"tenants": {"ann": {"tokens": [%q], "apis": [%s]}}}`, c.token, c.apis), 0o600))
		w := envVariables{values: map[string]string{"MCP_TOKENS_FILE": file, "MCP_AUTH_TOKEN": token}}
		got := inspectTenants(w, c.cat)
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i].Text+got[i].Want, want) {
				t.Errorf("%s: %+v, want %s", name, got[i], want)
			}
		}
	}
}
