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
// Promise: rules
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
		r, err := FindCallRule(a.ToolRules, row.tool, row.arguments)
		if r != nil {
			got = r.Then.String()
		}
		if err != nil || got != row.want {
			t.Errorf("%q: %s %v, want %s", row.tool, got, err, row.want)
		}
	}
	if _, err := FindCallRule(a.ToolRules, "pay", nil); err != ErrUnread { //nolint:errorlint // it is that error
		t.Errorf("arguments that nobody has read: %v", err)
	}
	other, _ := loadServer(t, `[{"tools": ["get_*"], "then": "allow"}]`)
	less, _ := loadServer(t, `[{"tools": ["get_?"], "then": "allow"}]`)
	if other.Rules != nil || other.contentDigest() == less.contentDigest() {
		t.Errorf("%v, one digest: %t", other.Rules, other.contentDigest() == less.contentDigest())
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
	if a, problems := loadRules(t, `[{"tools": ["a"], "then": "allow"}]`); a != nil || !strings.Contains(problems.String(), "not an MCP server") {
		t.Errorf("an API without mcp: %s", problems)
	}
}

// TestRuleValues: a rule that refuses a value, or asks about it, matches it in every spelling that some server may read so,
// or cannot be applied. One that allows matches only what every server reads as it says.
// Promise: rules
func TestRuleValues(t *testing.T) {
	const yes, no, unclear = "matches", "does not", "unclear"
	text, number, form := func(s string) FieldValue { return FieldValue{s, KindText} }, func(s string) FieldValue { return FieldValue{s, KindNumber} },
		func(s string) FieldValue { return FieldValue{s, KindAny} }
	on, off := FieldValue{"true", KindBool}, FieldValue{"false", KindBool}
	for _, row := range []struct {
		is            string
		v             FieldValue
		refuse, allow string
	}{
		// one
		{`1`, number("1"), yes, yes}, {`1`, form("1"), yes, yes}, {`1`, text("1"), yes, no}, {`1`, on, yes, no}, {`1`, number("1.0"), yes, no}, {`1`, text("1.0"), yes, no},
		{`1`, text("yes"), yes, no}, {`1`, form("01"), yes, no}, {`1`, form("+1"), yes, no}, {`1`, number("1e0"), unclear, no}, {`1`, number("10E-1"), unclear, no},
		{`1`, form("0x1"), unclear, no}, {`1`, form("1x"), unclear, no}, {`1`, form(" 1"), yes, no}, {`1`, form("\ufeff1"), unclear, no}, {`1`, form("1\x00"), yes, no},
		{`1`, form("0b1"), unclear, no}, {`1`, text("\uff11"), yes, no}, {`1`, text("\u0661"), unclear, no}, {`1`, number("1.0000000000000000001"), unclear, no},
		{`1`, number("2"), no, no}, {`1`, off, no, no}, {`1`, number("0"), no, no}, {`1`, form("7"), no, no}, {`1`, form("false"), unclear, no}, {`1`, text("x"), unclear, no},
		// other numbers
		{`5000`, number("5000"), yes, yes}, {`5000`, number("5e3"), unclear, no}, {`5000`, number("50.0E2"), unclear, no}, {`5000`, form("05000"), yes, no},
		{`5000`, form("5,000"), unclear, no}, {`5000`, form("5_000"), unclear, no}, {`5000`, form("5000abc"), unclear, no}, {`5000`, form("5000."), yes, no},
		{`5000`, text("5000.00"), yes, no}, {`5000`, text("abc"), no, no}, {`5000`, number("5001"), no, no}, {`5000`, on, no, no}, {`5000`, form(""), no, no},
		{`0.5`, text(".5"), unclear, no}, {`0.5`, number("0.50"), yes, no}, {`"5000"`, number("5e3"), unclear, no}, {`"5000"`, number("5000"), yes, no}, {`"5000"`, text("5000"), yes, yes},
		{`"00451234"`, text("00451234"), yes, yes}, {`"00451234"`, number("451234"), yes, no}, {`"00451234"`, text("00451235"), no, no}, {`"00451234"`, text("99451234"), no, no},
		{`"+15551234"`, text("15551234"), yes, no}, {`"+15551234"`, text("+15551235"), no, no}, {`"7d2a"`, text("7d2b"), no, no}, {`"2026-01-01"`, text("2026-01-02"), no, no},
		{`9007199254740993`, number("9007199254740992"), yes, no}, // to JavaScript
		{`["a", 5000]`, form("05000"), yes, no}, {`["a", 5000]`, form("0x1388"), unclear, no}, {`["0x1388", 5000]`, form("0x1388"), yes, yes}, {`["a", "b"]`, form("0x1388"), no, no},
		// true and false
		{`true`, on, yes, yes}, {`true`, off, no, no}, {`true`, text("true"), yes, no}, {`true`, form("true"), yes, no}, {`true`, form("1"), yes, no}, {`true`, number("1.0"), yes, no},
		{`true`, text("false"), unclear, no}, {`true`, form("false"), unclear, no}, {`true`, number("2"), unclear, no}, {`true`, text("x"), unclear, no}, {`true`, number("1e0"), unclear, no},
		{`false`, off, yes, yes}, {`false`, text("false"), yes, no}, {`false`, form("false"), yes, no}, {`false`, form("0"), yes, no}, {`false`, form("true"), unclear, no},
		{`0`, number("0"), yes, yes}, {`0`, form("0"), yes, no}, {`0.0`, form("0.0"), yes, no}, {`0`, off, yes, no}, {`0`, text("0"), yes, no}, {`0`, number("-0"), yes, no}, {`0`, form(""), unclear, no},
		{`"false"`, form("false"), yes, yes}, {`"false"`, text("false"), yes, yes}, {`"0"`, form("0"), yes, yes}, {`"true"`, form("01"), yes, no}, {`"true"`, form("1e0"), unclear, no},
	} {
		for then, want := range map[string]string{"refuse": row.refuse, "approve": row.refuse, "allow": row.allow} {
			requests, problems := loadRules(t, `[{"body": {"x": {"is": `+row.is+`}}, "then": "`+then+`"}]`)
			server, more := loadServer(t, `[{"tools": ["pay"], "body": {"x": {"is": `+row.is+`}}, "then": "`+then+`"}]`)
			if requests == nil || server == nil {
				t.Fatal(problems, more)
			}
			said := func(r *Rule, err error) string {
				switch {
				case err != nil:
					return unclear
				case r == nil:
					return no
				}
				return yes
			}
			if got := said(FindRule(requests.Rules, "POST", "/", fields{"x": row.v})); got != want {
				t.Errorf("%s if %s, of %+v: %s; want %s", then, row.is, row.v, got, want)
			}
			if got := said(FindCallRule(server.ToolRules, "pay", fields{"x": row.v})); got != want {
				t.Errorf("%s calls if %s, of %+v: %s; want %s", then, row.is, row.v, got, want)
			}
		}
	}
}
