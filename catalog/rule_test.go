package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// loadRules loads an API with these rules.
func loadRules(t *testing.T, rules string) (*API, Problems) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pay"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := `{"description": "d", "domains": ["pay.test"], "rules": ` + rules + `}`
	if err := os.WriteFile(filepath.Join(dir, "pay", "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, problems := Load(dir, Options{})
	return c.API("pay"), problems
}

// TestRules: rules are read as they are written, and said in a few words. Each difference is another version.
// Promise: rules
func TestRules(t *testing.T) {
	seen := map[string]string{}
	for rule, want := range map[string]string{
		`{"then": "allow"}`:                     "allow everything",
		`{"methods": ["get"], "then": "allow"}`: "allow GET",
		`{"methods": ["GET", "HEAD"], "path": "/v1/*/x/**", "then": "allow"}`:                                             "allow GET|HEAD /v1/*/x/**",
		`{"methods": ["POST"], "then": "approve"}`:                                                                        "approve POST",
		`{"path": "/admin/**", "then": "refuse"}`:                                                                         "refuse /admin/**",
		`{"path": "/graphql", "graphql": "mutation", "then": "refuse"}`:                                                   "refuse GraphQL mutation /graphql",
		`{"path": "/r", "body": {"amount": {"min": 0.5, "max": 5000}, "a.b": {"is": ["x", 1, true]}}, "then": "allow"}`:   "allow /r if a.b is x or 1 or true and amount >= 0.5 and amount <= 5000",
		`{"path": "/r", "body": {"amount": {"min": 0.5, "max": 5000}, "a.b": {"is": ["x or 1", true]}}, "then": "allow"}`: "allow /r if a.b is x or 1 or true and amount >= 0.5 and amount <= 5000",
	} {
		a, problems := loadRules(t, "["+rule+"]")
		if len(problems) > 0 || a == nil {
			t.Errorf("%s: %s", rule, problems)
			continue
		}
		if got := a.Rules[0].String(); got != want {
			t.Errorf("%s: %s", rule, got)
		}
		sum := a.contentDigest()
		if other := seen[string(sum[:])]; other != "" {
			t.Errorf("%s and %s have one digest", rule, other)
		}
		seen[string(sum[:])] = rule
	}
}

// TestRuleMistakes: a mistake in a rule closes the API, and is named with its place.
func TestRuleMistakes(t *testing.T) {
	for rules, want := range map[string]string{
		`{}`:                                `rules: an object; want a list of rules`,
		`[]`:                                `rules: an empty list`,
		`[7]`:                               `rules[0]: a number; want an object`,
		`[{"path": "/x"}]`:                  `rules[0].then: missing or something else; want "allow", "approve" or "refuse"`,
		`[{"then": "alow"}]`:                `rules[0].then: "alow"; want "allow"`,
		`[{"then": "sk live/51-a+secret"}]`: `rules[0].then: missing or something else`,
		`[{"then": "approve", "by": "me"}]`: `rules[0].by: "me"; want "operator"`,
		`[{"then": "allow", "pth": "/x"}]`:  `did you mean "path"?`,
		`[{"then": "allow", "path": ""}]`:   `rules[0].path: an empty path`,
		`[{"then": "allow", "path": "v1"}]`: `rules[0].path: not a path`,
		`[{"then": "allow", "path": "/v1/**/x"}]`:                 `rules[0].path: ** before the end`,
		`[{"then": "allow", "path": "/v1/a*"}]`:                   `rules[0].path: * as a part of a segment`,
		`[{"then": "allow", "path": "/v1/../x"}]`:                 `rules[0].path: an empty segment, or one of dots`,
		`[{"then": "allow", "path": "/v1?x"}]`:                    `rules[0].path: one of ? # % \ ;`,
		`[{"then": "allow", "methods": ["G T"]}]`:                 `rules[0].methods[0]`,
		`[{"then": "allow", "graphql": "query"}]`:                 `rules[0].path: missing or with a *`,
		`[{"then": "allow", "graphql": "q", "path": "/g"}]`:       `rules[0].graphql`,
		`[{"then": "allow", "body": {}}]`:                         `rules[0].body`,
		`[{"then": "allow", "body": {"a": 5}}]`:                   `rules[0].body.a: a number; want an object`,
		`[{"then": "allow", "body": {"a": {"max": "5"}}}]`:        `rules[0].body.a.max: a string`,
		`[{"then": "allow", "body": {"a": {"max": 1e9}}}]`:        `rules[0].body.a.max: a number; want a number in plain decimal notation`,
		`[{"then": "allow", "body": {"a": {"max": 1, "is": 1}}}]`: `rules[0].body.a: both is and a bound`,
		`[{"then": "allow", "body": {"a[b]": {"is": 1}}}]`:        `not a field's name`,
		`[{"then": "allow", "body": {"a": {"is": []}}}]`:          `rules[0].body.a.is`,
		`[{"then": "allow", "body": {"a": {"is": [null]}}}]`:      `rules[0].body.a.is`,
		`[{"then": "allow", "body": {"a": {"is": [1e3]}}}]`:       `rules[0].body.a.is: a number; want a number in plain decimal notation`,
		`[{"then": "allow", "then": "refuse"}]`:                   `the same key`,
	} {
		a, problems := loadRules(t, rules)
		if a != nil || !strings.Contains(problems.String(), want) {
			t.Errorf("%s: %s", rules, problems)
		}
		if strings.Contains(rules, `"body"`) && len(problems) != 1 {
			t.Errorf("%s: %d problems, want one: %s", rules, len(problems), problems)
		}
	}
}
