package tools

import (
	"strings"
	"testing"
)

// TestReason: why a skill does not load is one short line, which a terminal shows as it is.
func TestReason(t *testing.T) {
	for text, want := range map[string]string{
		"SyntaxError: Expression expected\n  |\n1 | export const a = ;\n  |                  ~\n    at file:///skills/broken.ts:1:18": "SyntaxError: Expression expected at /skills/broken.ts:1:18",
		"Module not found \"file:///skills/nope.ts\".\n    at file:///skills/x.ts:2:7":                                                "Module not found \"file:///skills/nope.ts\" at /skills/x.ts:2:7",
		"": "", "\x1b[2Jcleared": `"\x1b[2Jcleared"`, strings.Repeat("long ", 100): strings.Repeat("long ", 31) + "long…",
	} {
		if got := loadFailureOf(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
