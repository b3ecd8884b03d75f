package safetext_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// TestEscape: what a terminal obeys, hides or reorders is written out; what is to be read stays.
// Promise: terminal-shows
func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     "",
		"plain, ümlaut, 例え, 😀\tx\n":            "plain, ümlaut, 例え, 😀\tx\n",
		"שלום, مرحبا":                          "שלום, مرحبا",
		"e\u0301":                              "e\u0301",
		"windows\r\nlines\r\n":                 "windows\r\nlines\r\n",
		"❤️ and ☎︎":                            "❤️ and ☎︎",
		"\x1b[31mred\x1b[0m":                   `\u001b[31mred\u001b[0m`,
		"\x1b]0;title\x07":                     `\u001b]0;title\u0007`,
		"\x1b]52;c;cm0gLXJmCg==\x1b\\":         `\u001b]52;c;cm0gLXJmCg==\u001b\`,
		"\x1bP+q544e\x1b\\":                    `\u001bP+q544e\u001b\`,
		"\u009b31m":                            `\u009b31m`,
		"\x9b31m":                              `\x9b31m`,
		"\u009d0;title\u009c":                  `\u009d0;title\u009c`,
		"\u0090q\u009c":                        `\u0090q\u009c`,
		"good\rbad":                            `good\rbad`,
		"good\r\r\n":                           `good\r` + "\r\n",
		"bad\b\b\bgood":                        `bad\b\b\bgood`,
		"a\vb\fc\x07d\x00e\x7ff\x0eg\x0fh":     `a\u000bb\u000cc\u0007d\u0000e\u007ff\u000eg\u000fh`,
		"if (\u202eecila\u202c) \u2066x\u2069": `if (\u202eecila\u202c) \u2066x\u2069`,
		"a\u200eb\u200fc\u061cd":               `a\u200eb\u200fc\u061cd`,
		"pay\u200bpal\u200c\u200d\u2060\ufeff": `pay\u200bpal\u200c\u200d\u2060\ufeff`,
		"a\u00adb\u034fc\u115fd\u3164e\uffa0":  `a\u00adb\u034fc\u115fd\u3164e\uffa0`,
		"a\u2028b\u2029c\u0085d":               `a\u2028b\u2029c\u0085d`,
		"tag\U000e0041\U000e007f":              `tag\u{e0041}\u{e007f}`,
		"hidden\U000e0100\U000e01ef":           `hidden\u{e0100}\u{e01ef}`,
		"run\ufe0f\ufe0f \ufe0f":               "run\ufe0f" + `\ufe0f \ufe0f`,
		"private \ue000\U0010fffd":             `private \ue000\u{10fffd}`,
		"blank\u2800":                          `blank\u2800`,
		"\xff\xfe\xc2":                         `\xff\xfe\xc2`,
		"\xed\xa0\x80":                         `\xed\xa0\x80`,
		"\xc0\x9b":                             `\xc0\x9b`,
		"a replacement \ufffd":                 "a replacement \ufffd",
	} {
		if got := safetext.EscapeOdd(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestEveryCharacter: of all characters, none that is a control, a format character or without a shape is left.
// Promise: terminal-shows
func TestEveryCharacter(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r == '\n' || r == '\t' || !utf8.ValidRune(r) {
			continue
		}
		shown := strings.Contains(safetext.EscapeOdd("\n"+string(r)), string(r))
		never := unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp, unicode.Bidi_Control, unicode.Join_Control, unicode.Noncharacter_Code_Point)
		if shown && never {
			t.Errorf("%U is shown as it is", r)
		}
		if !shown && unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.Sc) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point) {
			t.Errorf("%U is not shown", r)
		}
	}
}

// TestLine: a line is quoted when anything in it is odd.
func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain text, ümlaut": "plain text, ümlaut", "\x1b[31mred": `"\x1b[31mred"`, "two\nlines": `"two\nlines"`, "no\u00a0break": `"no\u00a0break"`,
		"\xff": `"\xff"`, "right\u202eleft": `"right\u202eleft"`, "filler\u3164": `"filler\u3164"`, "tag\U000e0041": `"tag\U000e0041"`, "": "",
	} {
		if got := safetext.OneLine(in); got != want {
			t.Errorf("Line(%q) = %s, want %s", in, got, want)
		}
	}
}

// TestLinear: long text takes time in proportion to its length.
func TestLinear(t *testing.T) {
	for _, part := range []string{"a", "\x1b", "\xff", "\ufe0f", "é", "\r", "\u202e"} {
		costtest.RequireLinear(t, 128<<10, func(n int) func() {
			text := strings.Repeat(part, n/len(part))
			return func() { safetext.EscapeOdd(text); safetext.OneLine(text) }
		})
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("\x1b[2J\u202e\xff\r\n\ufe0f")
	f.Fuzz(func(t *testing.T, s string) {
		out := safetext.EscapeOdd(s)
		if !utf8.ValidString(out) || safetext.EscapeOdd(out) != out {
			t.Fatalf("Escape(%q) = %q, which is not safe", s, out)
		}
	})
}

// TestCut: a text that fits stays, a longer one ends with a whole character.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"", 0, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aäb", 2, "a…"}, {"aäb", 3, "aä…"}, {"ä", 1, "…"}} {
		if got := safetext.CutText(c.text, c.most, "…"); got != c.want {
			t.Errorf("visible.Cut(%q, %d) = %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
