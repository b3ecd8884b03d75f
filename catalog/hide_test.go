package catalog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// TestProblemsHideValues: whoever puts a credential where something else belongs is told so without it being shown.
// Promise: never-printed
func TestProblemsHideValues(t *testing.T) {
	const value = "sk live/51-a+secret"
	for name, change := range map[string]func(map[string]any){
		"a domain":          func(c map[string]any) { c["domains"] = []string{value} },
		"a method":          func(c map[string]any) { c["restricted_methods"] = []string{value} },
		"an allowed method": func(c map[string]any) { c["allowed_methods"] = []string{value} },
		"a reference":       func(c map[string]any) { c["reference"] = value },
		"a field":           func(c map[string]any) { c[value] = true },
		"a range":           func(c map[string]any) { c["allow_private"] = []string{value} },
		"a file":            func(c map[string]any) { c["ca_file"] = value },
		"active":            func(c map[string]any) { c["active"] = value },
		"a token name":      func(c map[string]any) { c["credentials"].(map[string]any)[value] = "another-value" },
		"a surface": func(c map[string]any) {
			c["credentials"].(map[string]any)["A_TOKEN"].(map[string]any)["in"] = []string{value}
		},
		"a credential field": func(c map[string]any) { c["credentials"].(map[string]any)["A_TOKEN"].(map[string]any)[value] = "x" },
		"the description":    func(c map[string]any) { c["description"] = "use " + value },
	} {
		config := map[string]any{
			"description": "x", "domains": []string{"a.example.com"},
			"credentials": map[string]any{"A_TOKEN": map[string]any{"value": value}},
		}
		change(config)
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		_, problems := catalog.Load(writeTree(t, map[string]string{"a/config.json": string(text)}), catalog.Options{})
		if len(problems.Errors()) == 0 {
			t.Errorf("%s: no problem", name)
		}
		said := listing(problems)
		for _, part := range []string{value, "51-a+secret", `51-a\u002bsecret`} {
			if strings.Contains(said, part) {
				t.Errorf("%s: told: %s", name, said)
			}
		}
	}
}
