package multisearch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestPlainEscapes is TestEscapes for a value without % \ and &, which another algorithm finds, with a character that
// is a surrogate pair in UTF-16.
// Promise: every-echoed-form
func TestPlainEscapes(t *testing.T) {
	const value = "sk/A+é🔑 x"
	set := New(ListForms(value, 7))
	for name, text := range map[string]string{
		"raw":                   value,
		"percent":               "sk%2fA%2B%c3%A9%f0%9F%94%91%20x",
		"form":                  "sk%2FA%2B%C3%A9%F0%9F%94%91+x",
		"json":                  `sk\/A\u002B\u00e9\ud83d\uDD11\u0020x`,
		"json twice":            `sk\\\/A+\\u00e9\\ud83d\\udd11 x`,
		"json thrice":           `sk/A+\\\\u00e9\\\\ud83d\\\\udd11 x`,
		"html":                  "sk&#47;A&plus;&eacute;&#128273; x",
		"html, hexadecimal":     "sk&#x2f;A&#X2B;&#xe9;&#X1F511; x",
		"html, zeros":           "sk&#0047;A&#x0002b;&#00233;&#x0001f511; x",
		"html twice":            "sk&amp;#47;A+&amp;eacute;&amp;#x1f511; x",
		"json of html":          `sk/A+\u0026eacute;\u0026#x1f511; x`,
		"html of json":          `sk\&#47;A+\&#117;00e9\ud83d\udd11 x`,
		"url of json":           `sk/A+%5Cu00e9%5cud83d%5Cudd11 x`,
		"quoted":                `sk\/A\+é🔑 x`,
		"quoted in json":        `sk\\/A\\+é🔑 x`,
		"quoted in html":        `sk&#92;/A&bsol;&plus;é🔑 x`,
		"percent of html, json": `sk/A+\u0025c3\u0025a9%F0&#37;9f%94%91 x`,
	} {
		if got := replaceAll(set, "<<"+text+">>"); got != "<<<7>>>" {
			t.Errorf("%s: %q became %q", name, text, got)
		}
	}
	for name, text := range map[string]string{
		"half a pair":     `sk/A+\u00e9\ud83d x`,
		"pair turned":     `sk/A+\u00e9\udd11\ud83d x`,
		"another pair":    `sk/A+\u00e9\ud83d\udd12 x`,
		"another entity":  "sk/A+&egrave;🔑 x",
		"a broken entity": "sk/A+&#x;é🔑 x",
	} {
		if got := replaceAll(set, text); got != text {
			t.Errorf("%s: %q became %q", name, text, got)
		}
	}
}

// TestHoldIsCoarse: how much is held back reveals little about the length of a credential, and nothing else about it.
// Promise: no-oracle
func TestHoldIsCoarse(t *testing.T) {
	for _, length := range []int{8, 9, 15, 16, 17, 40, 41, 100, 255, 256} {
		first := New(ListForms(strings.Repeat("a", length), 1)).MaxHeld()
		if first%256 != 0 || first == 0 {
			t.Errorf("%d bytes are held back for a value of %d bytes", first, length)
		}
		if other := New(ListForms(strings.Repeat("%", length), 1)).MaxHeld(); other != first {
			t.Errorf("of two values of %d bytes, %d and %d are held back", length, first, other)
		}
	}
}

// TestNoOracleBehind: what follows a guess moves it, byte by byte, out of what is held back. Then too a true and a
// false guess leave at the same byte: no decision depends on their content.
// Promise: no-oracle
func TestNoOracleBehind(t *testing.T) {
	set := New(ListForms(canary, 1))
	behind := strings.Split(strings.Repeat("~", set.hold+60), "")
	for name, echo := range echoes {
		for _, n := range []int{1, 2, 3, len(echo) / 2, len(echo) - 4} {
			right, wrong := echo[:n], echo[:n-1]+"~"
			if set.Contains(right) {
				continue
			}
			a := steps(set, slices.Concat([]string{"begin ", right}, behind))
			b := steps(set, slices.Concat([]string{"begin ", wrong}, behind))
			if fmt.Sprint(a) != fmt.Sprint(b) {
				t.Errorf("%s: %q and %q do not leave alike", name, right, wrong)
			}
			if a[len(a)-1] <= len("begin "+right) || a[len(a)-2] <= len("begin "+right) {
				t.Errorf("%s: the guess %q did not leave while more came: %v", name, right, a[len(a)-3:])
			}
		}
	}
}

// TestLongEscapes: an escape that is as long as escapes in escapes get, or that goes on far behind the last % \ or & in
// it, hides nothing, wherever in a value it stands.
// Promise: every-echoed-form
func TestLongEscapes(t *testing.T) {
	layer := func(text string, format string) string {
		var b strings.Builder
		for _, c := range []byte(text) {
			fmt.Fprintf(&b, format, c)
		}
		return b.String()
	}
	const value = "sk_live_51HxZqPm7vTbW3nKd9LcYf2RgJs4-AbCdEfGh"
	for name, set := range map[string]*Set{"forms": New(ListForms(value, 7)), "alone": New([]Pattern{{Text: value, ID: 7, Escaped: true}})} {
		for at := range len(value) {
			c := value[at : at+1]
			for _, written := range []string{
				layer(layer(layer(c, `\u%04x`), `\u%04x`), `\u%04x`), layer(layer(layer(c, "%%%02x"), `\u%04x`), "&#x%02x;"),
				layer(layer(layer(c, `\u%04x`), "&#x%02x;"), "%%%02x"), fmt.Sprintf("%%26%%23%011d;", c[0]),
				fmt.Sprintf(`\u0026\u0023%011d;`, c[0]), fmt.Sprintf("%%26&#35;x%010x;", c[0]),
			} {
				if got := replaceAll(set, value[:at]+written+value[at+1:]); got != "<7>" {
					t.Fatalf("%s: character %d as %s is not found", name, at, written)
				}
			}
		}
	}
}
