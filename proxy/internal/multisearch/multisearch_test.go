package multisearch

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// mark names a pattern in the replaced text.
func mark(id int) (string, error) { return fmt.Sprintf("<%d>", id), nil }

func replaceAll(s *Set, text string) string {
	out, _ := s.ReplaceAll(text, func(id int) string { m, _ := mark(id); return m })
	return out
}

// Promise: every-echoed-form
func TestEscapes(t *testing.T) {
	set := New(ListForms("sk_live/51+Aé&z%41\"x", 7))
	for name, text := range map[string]string{
		"raw":          "sk_live/51+Aé&z%41\"x",
		"percent":      "sk_live%2f51%2BA%c3%A9%26z%2541%22x",
		"all percent":  "%73%6B%5f%6c%69%76%65%2f%35%31%2B%41%c3%A9%26%7a%25%34%31%22%78",
		"json":         `sk_live\/51\u002bA\u00E9\u0026z%41\"x`,
		"json twice":   `sk_live\\\/51\\u002bA\\u00E9\\u0026z%41\\\"x`,
		"json thrice":  `sk_live/51+A\\\\u00e9&z%41\\\\\\\"x`,
		"bytes":        `sk_live/51+A\xc3\xa9&z%41\x22x`,
		"html":         `sk_live&#47;51&#x2B;A&eacute;&amp;z%41&quot;x`,
		"html twice":   `sk_live/51+A&amp;eacute;&amp;amp;z%41&amp;#x22;x`,
		"html zeros":   `sk_live&#00047;51&#x002b;A&#233;&#x26;z&#37;41&#034;x`,
		"json of html": `sk_live/51+A\u00e9\u0026amp;z%41\u0026#34;x`,
		"html of json": `sk_live\&#x2F;51+A\u00e9\u0026z%41\&quot;x`,
		"url of json":  `sk_live%5C%2F51+A%5Cu00e9%26z%2541%5C%22x`,
		"url of html":  `sk_live%26%2347%3B51+A%C3%A9%26amp%3Bz%2541%26quot%3Bx`,
		"url twice":    "sk_live%252f51%252BA%25c3%25A9%2526z%252541%2522x",
		"mixed":        `%73k&lowbar;live\/51%252B\x41%c3%a9\u0026z%41\"x`,
	} {
		if got := replaceAll(set, "<<"+text+">>"); got != "<<<7>>>" {
			t.Errorf("%s: %q became %q", name, text, got)
		}
	}
	for name, text := range map[string]string{
		"one character more": `sk_live\/51+Aé&zz%41\"x`,
		"a broken escape":    `sk_live\u02f51+Aé&z%41\"x`,
		"a line feed":        "sk_live%2f51\n+Aé&z%41\"x",
		"cut":                `sk_live\/51+Aé&z%41\"`,
	} {
		if got := replaceAll(set, text); got != text {
			t.Errorf("%s: %q became %q", name, text, got)
		}
	}
}

// Promise: every-echoed-form
func TestForms(t *testing.T) {
	for _, value := range []string{"sk_live/51+Aé?~\xff", "aaaaaaaa", "pass word/12", strings.Repeat("x/y?", 300)} {
		set := New(ListForms(value, 1))
		check := func(name, text, want string) {
			t.Helper()
			if got := replaceAll(set, text); got != want {
				t.Errorf("%s of %.20q: %.120q became %.120q, want %q", name, value, text, got, want)
			}
		}
		check("hex", "["+hex.EncodeToString([]byte(value))+"]", "[<1>]")
		check("HEX", "["+strings.ToUpper(hex.EncodeToString([]byte(value)))+"]", "[<1>]")
		if isASCII(value) {
			check("UTF-16", toUTF16("["+value+"]"), toUTF16("[<1>]"))
		}
		check("form", "["+strings.ReplaceAll(strings.ReplaceAll(value, "+", "%2B"), " ", "+")+"]", "[<1>]")
		for n := range 6 {
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
				text := enc.EncodeToString([]byte("123456"[:n] + value + "7890"[:n%5]))
				got := replaceAll(set, text)
				if !strings.Contains(got, "<1>") || len(got) > 3+4*(n/3)+4*(n%5/3+1)+4 {
					t.Errorf("base64 after %d bytes of %.20q: %.80q became %.80q", n, value, text, got)
				}
				for _, esc := range [][]string{{"%2B", "%2D", "%5F"}, {`\u002b`, `\u002D`, `\u005F`}, {"&#43;", "&#x2d;", "&lowbar;"}} {
					t2 := strings.NewReplacer("+", esc[0], "-", esc[1], "_", esc[2], "/", `\/`).Replace(text)
					if got := replaceAll(set, t2); !strings.Contains(got, "<1>") {
						t.Errorf("base64 with escapes of %.20q: %.80q became %.80q", value, t2, got)
					}
				}
			}
		}
	}
}

// TestBase64Edges checks that no character that carries bits of the value is left.
// Promise: every-echoed-form
func TestBase64Edges(t *testing.T) {
	value := "\xfe\xdc\xba\x98\x76\x54\x32\x10"
	set := New(ListForms(value, 1))
	for before := range 3 {
		for after := range 3 {
			rest := func(middle string) string {
				return strings.Replace(replaceAll(set, base64.StdEncoding.EncodeToString([]byte("\x00\x00"[:before]+middle+"\x00\x00"[:after]))), "<1>", "", 1)
			}
			got := rest(value)
			if strings.Trim(got, "A=") != "" {
				t.Errorf("%d bytes before, %d after: %q is left", before, after, got)
			}
		}
	}
}

func TestWords(t *testing.T) {
	set := New([]Pattern{{Text: "API_KEY", ID: 1, Word: true}, {Text: "API_KEY_2", ID: 2, Word: true}})
	for text, want := range map[string]string{
		"API_KEY": "<1>", "API_KEY_2": "<2>", "API_KEY_3": "API_KEY_3", "MY_API_KEY": "MY_API_KEY", "xAPI_KEY": "xAPI_KEY",
		"(API_KEY)API_KEY,API_KEY_2": "(<1>)<1>,<2>", "API_KEYAPI_KEY": "API_KEYAPI_KEY", "API_KEY\nAPI_KEY2\nAPI_KEY": "<1>\nAPI_KEY2\n<1>",
		"éAPI_KEY": "é<1>",
	} {
		if got := replaceAll(set, text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestSmallAndManyPatterns(t *testing.T) {
	var nothing *Set
	if New(nil) != nothing || New([]Pattern{{}}) != nothing || nothing.Contains("x") || replaceAll(nothing, "x") != "x" {
		t.Error("the empty set finds something")
	}
	if got := replaceAll(New([]Pattern{{Text: "a", ID: 1}, {Text: "ab", ID: 2}, {Text: "abc", ID: 3}}), "aababcab"); got != "<1><2><3><2>" {
		t.Errorf("got %q", got)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var ps []Pattern
	for i := range 10000 {
		ps = append(ps, Pattern{Text: fmt.Sprintf("%08x%d", rnd.Uint32(), i), ID: i, Escaped: i%2 == 0})
	}
	set := New(ps)
	for i := 0; i < len(ps); i += 97 {
		text := ps[i].Text
		if ps[i].Escaped {
			text = "%" + hex.EncodeToString([]byte(text[:1])) + text[1:]
		}
		if got, want := replaceAll(set, "x"+text+"y"), fmt.Sprintf("x<%d>y", i); got != want {
			t.Fatalf("%q became %q", text, got)
		}
	}
}

// reference replaces patterns that are not escaped, by the simplest algorithm.
func reference(ps []Pattern, text string) string {
	var out bytes.Buffer
	for i := 0; i < len(text); {
		best := -1
		for j, p := range ps {
			ok := p.Text != "" && strings.HasPrefix(text[i:], p.Text)
			if end := i + len(p.Text); ok && p.Word {
				ok = (i == 0 || !IsWordByte(text[i-1])) && (end == len(text) || !IsWordByte(text[end]))
			}
			if ok && (best < 0 || len(p.Text) > len(ps[best].Text)) {
				best = j
			}
		}
		if best < 0 {
			out.WriteByte(text[i])
			i++
			continue
		}
		m, _ := mark(ps[best].ID)
		out.WriteString(m)
		i += len(ps[best].Text)
	}
	return out.String()
}

func FuzzReplace(f *testing.F) {
	f.Add("abc\x00bc\x00abcd", "xxabcdbcabxab", false)
	f.Add("API_KEY\x00API_KEY_2", "API_KEY_2 API_KEY API_KEY_3", true)
	f.Add("aaaaaaaab\x00aaaaaaaaa", "aaaaaaaaaaaaaaaaabaaaaaaaaa", false)
	f.Fuzz(func(t *testing.T, list, text string, word bool) {
		var ps []Pattern
		for i, p := range strings.Split(list, "\x00") {
			ps = append(ps, Pattern{Text: p, ID: i, Word: word && i%2 == 0})
		}
		if len(ps) > 50 || len(text) > 5000 {
			return
		}
		for i, p := range ps { // the first of the same text counts
			for _, q := range ps[:i] {
				if q.Text == p.Text {
					ps[i].Text = ""
				}
			}
		}
		if got, want := replaceAll(New(ps), text), reference(ps, text); got != want {
			t.Fatalf("patterns %+v: %q became %q, want %q", ps, text, got, want)
		}
	})
}

// writings are the ways to write a byte that are found.
var writings = []func(b byte) string{
	func(b byte) string { return string([]byte{b}) },
	func(b byte) string { return fmt.Sprintf("%%%02x", b) },
	func(b byte) string { return fmt.Sprintf("%%%02X", b) },
	func(b byte) string { return fmt.Sprintf(`\x%02x`, b) },
	func(b byte) string { return fmt.Sprintf(`\u%04x`, b) },
	func(b byte) string { return fmt.Sprintf(`\u%04X`, b) },
	func(b byte) string { return fmt.Sprintf(`\\u%04x`, b) },
	func(b byte) string { return fmt.Sprintf("&#%d;", b) },
	func(b byte) string { return fmt.Sprintf("&#x%X;", b) },
	func(b byte) string { return fmt.Sprintf("%%25%02x", b) },
	func(b byte) string {
		if strings.IndexByte(`"\/`, b) >= 0 {
			return `\` + string(rune(b))
		}
		return string(rune(b))
	},
	func(b byte) string {
		if s, ok := map[byte]string{'&': "&amp;", '<': "&lt;", '>': "&gt;", '"': "&quot;", '_': "&lowbar;", '/': "&sol;"}[b]; ok {
			return s
		}
		return string(rune(b))
	},
}

// Promise: every-echoed-form
func FuzzEscapes(f *testing.F) {
	f.Add("sk_live_51Hx/Zq+", []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, "x=", "&y")
	f.Add("%%%%%%%%", []byte{1, 0}, "", "")
	f.Add(`\\\\\\\\"`, []byte{10, 0, 4}, "", "")
	f.Fuzz(func(t *testing.T, value string, ways []byte, before, after string) {
		if len(value) < 8 || len(value) > 100 || strings.Contains(value, "\n") || len(ways) == 0 {
			return
		}
		text := ""
		for i := range len(value) {
			b := value[i]
			if b == 0 || b >= 0x80 { // as characters they are no single bytes
				text += writings[int(ways[i%len(ways)])%4](b)
				continue
			}
			text += writings[int(ways[i%len(ways)])%len(writings)](b)
		}
		set := New([]Pattern{{Text: value, ID: 1, Escaped: true}})
		if len(text) > set.hold-2 || strings.Count(value, `\`)+strings.Count(value, "%")+strings.Count(value, "&") > 4 {
			return // longer, and more ways to read it, than is promised
		}
		if !set.Contains(before + text + after) {
			t.Fatalf("%q is not found in %q", value, before+text+after)
		}
	})
}

// TestMayEscape: where mayEscape or mayEntity is false, only the byte itself can be read, whatever follows, and simple
// reads what read does.
func TestMayEscape(t *testing.T) {
	no := 0
	for _, first := range []byte{'%', '\\', '&'} {
		for pair := range 1 << 16 {
			for _, rest := range []string{"", "41", "041", "0e9", "83d", "amp;", "uot;", "5;41", "\\u0025\\u0034"} {
				text := append([]byte{first, byte(pair >> 8), byte(pair)}, rest...)
				if c, ok := readSimple(text); ok && c != readChar(text, maxDepth) {
					t.Fatalf("%q reads as %v, and by simple as %v", text, readChar(text, maxDepth), c)
				}
				if first == '&' && !canBeginEntity(text) && readChar(text, maxDepth).n > 1 {
					t.Fatalf("%q is an entity, and mayEntity says that there is none", text)
				}
				if canBeginEscape(text, 0) {
					continue
				}
				no++
				for d := range maxDepth + 1 {
					if c := readChar(text, d); c != byteChar(first, 1) {
						t.Fatalf("%q reads as %v with %d layers off, and mayEscape says that no escape begins there", text, c, d)
					}
				}
			}
		}
		for _, text := range [][]byte{{first}, {first, 'x'}, {first, '4'}} {
			if !canBeginEscape(text, 0) {
				t.Errorf("%q at the end may become an escape", text)
			}
		}
	}
	if no < 5*3*60_000 {
		t.Errorf("mayEscape says no only %d times", no)
	}
}

// TestPossible: wherever a pattern may begin, the sampled runs hit it; in binary data they are few.
func TestPossible(t *testing.T) {
	for _, least := range []int{1, 2, 8, 9, 23, 24, 40} {
		text := strings.Repeat("x", least)
		esc := &New([]Pattern{{Text: text, Escaped: true}, {Text: text + "y", Escaped: true}}).esc
		for _, from := range []int{0, 1, 13} {
			for cut := from; cut < from+3*least; cut++ {
				for _, behind := range []int{least - 1, 200} { // bytes after cut
					for core := from; core < cut; core++ {
						buf := make([]byte, cut+behind)
						copy(buf[core:], text)
						if !esc.canOccur(buf, from, cut) {
							t.Fatalf("%d bytes at %d are not met in [%d:%d) of %d", least, core, from, cut, len(buf))
						}
					}
					if esc.canOccur(make([]byte, cut+behind), from, cut) {
						t.Fatal("zeros may be a pattern")
					}
				}
			}
		}
	}
}

// TestContainsFold: it finds what is in the lower-case text, however lower case changes the length.
func TestContainsFold(t *testing.T) {
	for _, text := range []string{"ABCDEFGH", "X-aBcDeFgH", strings.Repeat("\u023A", 8), strings.Repeat("\xff", 8), strings.Repeat("\u212A", 8)} {
		lower := strings.ToLower(text)
		for n := 1; n <= len(lower); n++ {
			if set := New([]Pattern{{Text: lower[:n]}}); !set.ContainsFold(text) {
				t.Errorf("the first %d bytes of the lower case of %q are not found", n, text)
			}
		}
		if New([]Pattern{{Text: lower + "i"}}).ContainsFold(text) {
			t.Errorf("%q has what it has not", text)
		}
	}
}
