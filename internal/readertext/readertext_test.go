package readertext

import "testing"

func TestSay(t *testing.T) {
	for _, r := range []struct {
		template, model, person string
		values                  []string
	}{
		{"", "", "", nil},
		{"The same.", "The same.", "The same.", nil},
		{"{The user can|You can} do it; {a|b}.", "The user can do it; a.", "You can do it; b.", nil},
		{"Do it{, or ask|}.", "Do it, or ask.", "Do it.", nil},
		{"mcp.S.T({...}) {a|b}", "mcp.S.T({...}) a", "mcp.S.T({...}) b", nil},
		{"open { and end", "open { and end", "open { and end", nil},
		{"{a|b", "{a|b", "{a|b", nil},
		{"x} {a|b}", "x} a", "x} b", nil},
		{"%NAME {a %NAME|b %NAME}", "{x|y} a {x|y}", "{x|y} b {x|y}", []string{"%NAME", "{x|y}"}},
		{"%B", "b", "b", []string{"%A", "a", "%B", "b"}},
	} {
		if got := NewText(r.template, r.values...); got.Model != r.model || got.Person != r.person {
			t.Errorf("%q: got %+v", r.template, got)
		}
	}
}
