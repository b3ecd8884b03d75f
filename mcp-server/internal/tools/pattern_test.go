package tools

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestPatternWords(t *testing.T) {
	for expr, want := range map[string][]string{
		`abc`:                             {"abc"},
		`a\d+bcd`:                         {"bcd"},
		`(?:ab|cd)+x?`:                    {"ab", "cd"},
		`first [^\n]*(?:one|three) last`:  {"first "},
		`one(?:a|b)|two`:                  {"one", "two"},
		`prefix one|prefix two`:           {"prefix "},
		`(?i)abc`:                         nil,
		`[ab]c|d`:                         {"c", "d"},
		`(abc)?`:                          nil,
		`a*|b`:                            nil,
		`(?:abc){0,2}`:                    nil,
		`(?m)^Error: (\w{1,80})$|^Other:`: {"Error: ", "Other:"},
		`a|`:                              nil,
		`.*`:                              nil,
		`K(?i)elvin`:                      {"K"},
	} {
		if got := mustCompile(expr).words; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", expr, got, want)
		}
	}
}

// FuzzPattern: the words change nothing.
func FuzzPattern(f *testing.F) {
	for _, expr := range []string{`a(b|c)+d`, `(?i)k`, `x{2,3}|y?z`, `^a$|\bb`, `[^a]b`, `(?s).a|b.`, `a|b|c`, `(|a)b`} {
		f.Add(expr, "kabcdKxxzb\n")
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		plain, err := regexp.Compile(expr)
		if err != nil || strings.Contains(expr, `\C`) {
			return
		}
		p := mustCompile(expr)
		if got, want := p.MatchString(text), plain.MatchString(text); got != want {
			t.Errorf("%q in %q: %t, want %t (%q)", expr, text, got, want, p.words)
		}
		if got, want := p.FindStringSubmatch(text), plain.FindStringSubmatch(text); !slices.Equal(got, want) {
			t.Errorf("%q in %q: %q, want %q", expr, text, got, want)
		}
		if got, want := p.FindAllStringSubmatch(text, -1), plain.FindAllStringSubmatch(text, -1); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%q in %q: %q, want %q", expr, text, got, want)
		}
	})
}
