package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fields are the arguments of a call.
type fields map[string]FieldValue

func (f fields) Lookup(name string) (FieldValue, bool, error) {
	v, found := f[name]
	return v, found, nil
}

func (fields) Operations() ([]string, error) { return nil, nil }

// loadServer loads an MCP server with these rules.
func loadServer(t *testing.T, rules string) (*API, Problems) {
	t.Helper()
	dir := t.TempDir()
	text := `{"description": "d", "domains": ["pay.test"], "mcp": {"command": ["program"]}, "rules": ` + rules + `}`
	if err := os.Mkdir(filepath.Join(dir, "pay"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pay", "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, problems := Load(dir, Options{})
	return c.API("pay"), problems
}

// TestToolRules: the first rule about a tool and its arguments decides, under every name that the tool has in code, and
// none refuses. Rules about tools say nothing of requests, nor the other way round.
func TestToolRules(t *testing.T) {
	a, problems := loadServer(t, `[
		{"tools": ["drop.*", "wipe"], "then": "refuse"},
		{"methods": ["GET"], "then": "allow"},
		{"tools": ["pay"], "body": {"amount": {"max": 50}}, "then": "allow"},
		{"tools": ["pay", "refund-?"], "then": "approve", "by": "any"},
		{"tools": ["get_*"], "then": "allow"}]`)
	if a == nil {
		t.Fatal(problems)
	}
	if len(a.Rules) != 1 || len(a.ToolRules) != 4 || a.ToolRules[2].String() != "approve by any calls of pay|refund_?" {
		t.Errorf("%v %v", a.Rules, a.ToolRules)
	}
	amount := func(text string) fields { return fields{"amount": {Text: text, Kind: KindNumber}} }
	for _, row := range []struct {
		tool      string
		arguments fields
		want      string
	}{
		{"get_x", nil, "allow"}, {"get-x", nil, "allow"}, {"get.x", nil, "allow"}, {"Get_x", nil, "none"}, {"get", nil, "none"},
		{"drop_all", nil, "refuse"}, {"drop.all", nil, "refuse"}, {"drop-all", nil, "refuse"}, {"wipe", nil, "refuse"}, {"wipe ", nil, "none"},
		{"pay", amount("50"), "allow"}, {"pay", amount("51"), "approve"}, {"pay", nil, "approve"},
		{"refund_1", nil, "approve"}, {"refund-1", nil, "approve"}, {"refund", nil, "none"}, {"", nil, "none"}, {"*", nil, "none"}, {"get_*", nil, "allow"},
	} {
		got := "none"
		r, err := DecideCall(a.ToolRules, row.tool, row.arguments)
		if r != nil {
			got = r.Then.String()
		}
		if err != nil || got != row.want {
			t.Errorf("%q: %s %v, want %s", row.tool, got, err, row.want)
		}
	}
	if _, err := DecideCall(a.ToolRules, "pay", nil); err != ErrUnread { //nolint:errorlint // it is that error
		t.Errorf("arguments that nobody has read: %v", err)
	}
	other, _ := loadServer(t, `[{"tools": ["get_*"], "then": "allow"}]`)
	less, _ := loadServer(t, `[{"tools": ["get_?"], "then": "allow"}]`)
	if other.Rules != nil || other.sum() == less.sum() {
		t.Errorf("%v, one digest: %t", other.Rules, other.sum() == less.sum())
	}
	for rules, want := range map[string]string{
		`[{"tools": [], "then": "allow"}]`:                                      `rules[0].tools: an empty list`,
		`[{"tools": ["a[b]"], "then": "allow"}]`:                                `rules[0].tools[0]: not a pattern`,
		`[{"tools": "a", "then": "allow"}]`:                                     `rules[0].tools: a string`,
		`[{"tools": ["a"], "path": "/x", "then": "allow"}]`:                     `rules[0].tools: together with`,
		`[{"tools": ["a"], "methods": ["GET"], "then": "allow"}]`:               `rules[0].tools: together with`,
		`[{"tools": ["a"], "path": "/g", "graphql": "query", "then": "allow"}]`: `rules[0].tools: together with`,
	} {
		if a, problems := loadServer(t, rules); a != nil || !strings.Contains(problems.String(), want) {
			t.Errorf("%s: %s", rules, problems)
		}
	}
	if a, problems := loadRules(t, `[{"tools": ["a"], "then": "allow"}]`); a != nil || !strings.Contains(problems.String(), "no MCP server") {
		t.Errorf("an API without mcp: %s", problems)
	}
}
