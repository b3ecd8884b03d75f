package cli

import (
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// TestJoinOutput: lines of stdout and stderr that were printed at the same time stay whole.
func TestJoinOutput(t *testing.T) {
	out := func(text string) operatorapi.Print { return operatorapi.Print{Text: text} }
	err := func(text string) operatorapi.Print { return operatorapi.Print{Text: text, Err: true} }
	for want, list := range map[string][]operatorapi.Print{
		"":                  nil,
		"\na":               {out("\na")},
		"warned\nrow 0\n":   {out("row"), err("warned\n"), out(" 0\n")},
		"a\nb\nhalf\nother": {out("a\nha"), err("b\not"), out("lf"), err("her")},
		"x\nother":          {out("x\n"), err("other")},
	} {
		if got := joinOutput(list); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
