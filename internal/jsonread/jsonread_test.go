package jsonread

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

// seeds are texts in and beside the grammar.
var seeds = []string{
	"", " ", "1", "-", "-0", "01", "1.", "1.5e+3", "1e", "1E-2", ".5", "+1", "tru", "true", "nul", "null x", `"a`, `"a\"b"`, `"\u12g4"`,
	`"\ud83d\ude00\ud83d"`, `"\x"`, "\"\x01\"", "\"\xff\"", "[]", "[1,2 ,3]", "[1,]", "[1 2]", "[", "]", "{}", `{"a":1,"a":2}`, `{"a"}`,
	`{"a":}`, `{a:1}`, `{"a":1,}`, `{"a":[{"b":null}],"c":{"d":[true,false,-1.5]}}`, `{"a":1} x`, "// no", "{'a':1}", "[1}", `{"a":1]`,
	"\ufeff{}", "[[[[[]]]]]", " {\n \"k\" :\n [ 1\n, \"x\" ] } \n",
}

// value is what encoding/json makes of a node.
func value(n *Node) any {
	switch n.Kind {
	case Bool:
		return n.Text == "true"
	case Number:
		return json.Number(n.Text)
	case String:
		return n.Text
	case List:
		out := []any{}
		for _, m := range n.Members {
			out = append(out, value(m.Node))
		}
		return out
	case Object:
		out := map[string]any{}
		for _, m := range n.Members {
			out[m.Key] = value(m.Node)
		}
		return out
	}
	return nil
}

// FuzzParse: a text is JSON here if it is for encoding/json, and has the same value, also in pieces and by its members.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Parse(text, Options{})
		if valid := json.Valid([]byte(text)) && utf8.ValidString(text); valid != (err == nil) {
			t.Fatalf("%q: %v, encoding/json: %v", text, err, valid)
		}
		if err != nil {
			var at *Error
			if !errors.As(err, &at) || at.Line < 1 || at.Column < 1 || at.Offset > len(text) {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		var want any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&want); err != nil || !reflect.DeepEqual(value(n), want) {
			t.Fatalf("%q: %v, want %v, %v", text, value(n), want, err)
		}
		if n.Kind != List && n.Kind != Object {
			return
		}
		i := 0
		for m, err := range ListSpans(text) {
			var want, got any
			line, _ := json.Marshal(value(n.Members[i].Node))
			if err != nil || json.Unmarshal([]byte(text[m.Start:m.End]), &got) != nil || json.Unmarshal(line, &want) != nil ||
				m.Key != n.Members[i].Key || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q: member %d: %v, %v", text, i, m, err)
			}
			i++
		}
		if i != len(n.Members) {
			t.Fatalf("%q: %d members, want %d", text, i, len(n.Members))
		}
	})
}

// TestPosition: errors name the place and the usual mistake, nodes their line.
func TestPosition(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "line 1, column 1: the end of the file; want the quotes, brackets and braces closed",
		"{\n \"ä\": 1,\n}":    "line 2, column 8: a trailing comma; want no comma after the last entry",
		"{\n  // no":          "line 2, column 3: a comment; want JSON, which has no comments",
		`["x" "y"]`:           "line 1, column 6: an entry without a comma before it; want entries separated by commas",
		"[\"x\n\"]":           "line 1, column 4: a string that is not closed on its line, or has a bad escape; want a string like \"text\", with \\\\ for a backslash",
		"[\n\"ä\xff\"]":       "line 2, column 3: bytes that are not UTF-8; want the file saved as UTF-8",
		`{"a": {"b": 1} }  x`: "line 1, column 19: more text after the object; want only one object",
		`{"k": 1, "K" : 2}`:   `line 1, column 10: the key "K" a second time; want each key once`,
		"[[[[]]]]":            "line 1, column 4: values in values; want at most 3 levels",
		"[1,2,3,4,5]":         "line 1, column 11: many values; want at most 4",
	} {
		if _, err := Parse(text, Options{MaxDepth: 3, MaxValues: 4, Fold: strings.ToLower}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	n, err := Parse("{\n\"a\":\n[\n1\n,{\n}]}", Options{})
	if err != nil {
		t.Fatal(err)
	}
	list := n.GetValue("a")
	if got := fmt.Sprint(n.Line, list.Line, list.ListItems()[0].Node.Line, list.ListItems()[1].Node.Line); got != "1 2 4 5" {
		t.Errorf("lines %s", got)
	}
}

// TestSkip: what is left out takes no memory, and its grammar is checked.
func TestSkip(t *testing.T) {
	skip := func(around, key string) bool { return around == "b" && key == "x" }
	n, err := Parse(`{"x":1,"b":[{"x":{"y":[1]},"z":2}],"c":{"x":3}}`, Options{Skip: skip})
	if err != nil {
		t.Fatal(err)
	}
	if line, _ := json.Marshal(value(n)); string(line) != `{"b":[{"z":2}],"c":{"x":3},"x":1}` {
		t.Errorf("%s", line)
	}
	if _, err := Parse(`{"b":{"x":[1}}`, Options{Skip: skip}); err == nil {
		t.Error("a mistake in what is left out passes")
	}
}

// TestStream: a text in pieces, without a copy of its strings.
func TestStream(t *testing.T) {
	s := Scanner{MaxDepth: 2}
	events := 0
	for range 3 {
		if n, e, err := s.Scan([]byte(`  `)); err != nil || e != 0 || n != 2 {
			t.Fatal(n, e, err)
		}
	}
	for p := []byte(`{"k":[1,"` + strings.Repeat("x", 1<<16) + `"]}`); len(p) > 0; {
		n, e, err := s.Scan(p[:1])
		if err != nil {
			t.Fatal(err)
		}
		if p = p[n:]; e != 0 {
			events++
		}
	}
	if _, err := s.End(); err != nil || events != 10 || s.Depth() != 0 {
		t.Errorf("%v, %d events, depth %d", err, events, s.Depth())
	}
	if _, _, err := s.Scan([]byte("x")); err == nil {
		t.Error("text after the end")
	}
	if _, _, err := s.Scan([]byte(" ")); err == nil {
		t.Error("an error is forgotten")
	}
}

// TestHostile: texts that were made to be deep or long take time in proportion to their length.
func TestHostile(t *testing.T) {
	for name, part := range map[string]string{
		"lists": "[", "objects": `{"a":`, "keys": `{"a":1},`, "quotes": `"",`, "escapes": `\"`, "digits": "1", "lines": "\n",
	} {
		costtest.RequireLinear(t, 1<<16, func(n int) func() {
			text := `["` + strings.Repeat(part, n/len(part))
			if name != "escapes" {
				text = "[" + strings.Repeat(part, n/len(part))
			}
			return func() {
				_, _ = Parse(text, Options{})
				for range ListSpans(text) {
				}
			}
		})
	}
}

// TestDecode: one value with known fields.
func TestDecode(t *testing.T) {
	var v struct{ A int }
	for text, ok := range map[string]bool{`{"a":1}`: true, `{"a":1} `: true, `{"a":1}{}`: false, `{"b":1}`: false, `{"a":`: false, ``: false} {
		if err := Decode(bytes.NewReader([]byte(text)), &v); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestText: the text of a string is decoded up to its bound, and halves of surrogate pairs become U+FFFD.
func TestText(t *testing.T) {
	for raw, want := range map[string]string{
		`"plain"`: "plain", `"a\u0062\n\"\\\/\b\f\r\t"`: "ab\n\"\\/\b\f\r\t", `"\ud83d_"`: "\ufffd_", `"\ud83d\u005fm"`: "\ufffd_m", "\"é\xff\"": "é\xff",
		`"` + strings.Repeat("x", 40) + `"`: strings.Repeat("x", 16), `""`: "",
	} {
		for piece := 1; piece < 8; piece++ {
			s := Scanner{MaxText: 16}
			for p := []byte("[\"before\"," + raw + "]"); len(p) > 0; {
				n, e, err := s.Scan(p[:min(piece, len(p))])
				if err != nil {
					t.Fatalf("%s: %v", raw, err)
				}
				if p = p[n:]; e == EndString && len(p) == 1 && string(s.Text()) != want {
					t.Errorf("%s in pieces of %d: %q", raw, piece, s.Text())
				}
			}
		}
	}
}

// TestMany: which texts of several values are read.
func TestMany(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "\n": true, "{}\n{}": true, "{}\r\n[]\n": true, "{}{}": true, "{\n}": true, "1": true, `"a"`: true,
		"1 2": false, "\"a\"\n\"b\"": false, "\"a\"\n{}": false, "{}\n\"a\"": false, "{} x": false, "[1]]": false, "{": false,
		"\x1e{}\n\x1e{}\n": true, "{\x1e}": false, "{\"a\x1e\":1}": false,
	} {
		s := Scanner{Many: true}
		var err error
		for p := []byte(text); len(p) > 0 && err == nil; {
			var n int
			n, _, err = s.Scan(p)
			p = p[n:]
		}
		if err == nil {
			_, err = s.End()
		}
		if (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestEachByte puts each byte in each place of a text, instead of a byte and between two. The result is that of
// encoding/json, whether the scanner gets the text at once or byte by byte.
func TestEachByte(t *testing.T) {
	const text = " {\t\"a\":\r\n[1,-20.5e+3 ,0E-7,\"x\\u00aF\\n/\",true,null,false,{},[ ]],\"b\":10}\n"
	for at := range len(text) {
		for b := range 128 {
			for _, changed := range []string{text[:at] + string(rune(b)) + text[at+1:], text[:at] + string(rune(b)) + text[at:]} {
				want := json.Valid([]byte(changed))
				if _, err := Parse(changed, Options{}); (err == nil) != want {
					t.Fatalf("%q: %v", changed, err)
				}
				var s Scanner
				var err error
				for i := range len(changed) {
					for n := 0; n == 0 && err == nil; {
						n, _, err = s.Scan([]byte{changed[i]})
					}
				}
				if err == nil {
					_, err = s.End()
				}
				if (err == nil) != want {
					t.Fatalf("%q byte by byte: %v", changed, err)
				}
			}
		}
	}
}

// TestNode: the missing parts of a node are nil, empty or false.
func TestNode(t *testing.T) {
	n, err := Parse(`{"s":"x","n":1,"t":true,"f":false,"o":{"p":{"q":"deep"}},"l":[1,2],"text":"true"}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"s": "x", "n": "1", "t": "true", "none": ""} {
		if got := n.TextOf(key); got != want {
			t.Errorf("%s: %q", key, got)
		}
	}
	if !n.IsTrue("t") || n.IsTrue("f") || n.IsTrue("text") || n.IsTrue("none") {
		t.Error("only true is true")
	}
	if n.FollowKeys("o", "p").TextOf("q") != "deep" || n.FollowKeys("o", "x", "q") != nil || n.FollowKeys() != n {
		t.Error("keys lead elsewhere")
	}
	o, l := n.GetValue("o"), n.GetValue("l")
	if len(o.ObjectMembers()) != 1 || o.ListItems() != nil || l.ObjectMembers() != nil || len(l.ListItems()) != 2 {
		t.Errorf("%v, %v", o, l)
	}
	var none *Node
	if none.Is(Object) || none.GetValue("x") != nil || none.ObjectMembers() != nil || none.ListItems() != nil || l.GetValue("x") != nil {
		t.Error("a missing node has values")
	}
}

// TestListSpans yields members until the caller stops, or up to a mistake.
func TestListSpans(t *testing.T) {
	list := func(text string, most int) string {
		var out []string
		for s, err := range ListSpans(text) {
			if err != nil {
				out = append(out, err.Error())
			} else {
				out = append(out, s.Key+"="+text[s.Start:s.End])
			}
			if len(out) == most {
				break
			}
		}
		return strings.Join(out, "; ")
	}
	for text, want := range map[string]string{
		`{"a":1,"b":[2],"a":"x","c":{},"d":true}`: "a=1; b=[2]; a=\"x\"; c={}; d=true", "[1, -2.5 ]": "=1; =-2.5", "[]": "",
		"1": "line 1, column 1: a value alone; want an object or a list", `"x"`: "line 1, column 1: a value alone; want an object or a list",
		"[1,x]": "=1; line 1, column 4: ",
	} {
		if got := list(text, 9); got != want && (!strings.HasSuffix(want, ": ") || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := list(`[1,2,x`, 1); got != "=1" {
		t.Errorf("after the caller has stopped: %s", got)
	}
	var s Scanner
	if _, _, err := s.Scan([]byte("x")); err == nil || err.Error()[:7] != "byte 0:" {
		t.Errorf("%v", err)
	}
	_, _, first := s.Scan([]byte("1"))
	if _, again := s.End(); first == nil || again == nil {
		t.Errorf("after an error: %v, %v", first, again)
	}
}

// TestSpecial: searching eight bytes at once finds the same first special byte as searching one by one.
func TestSpecial(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // a test
	var text [19]byte
	for range 200000 {
		for i := range text {
			text[i] = byte(rng.Uint32())
			if rng.IntN(30) > 0 {
				text[i] = "a~ !#'%:;&<=?@[]^_\x7f\x80\xff"[rng.IntN(21)]
			}
		}
		from := rng.IntN(len(text) + 1)
		want, ascii := from, true
		for ; want < len(text) && text[want] >= ' ' && text[want] != '"' && text[want] != '\\'; want++ {
			ascii = ascii && text[want] < utf8.RuneSelf
		}
		if end, isASCII := findSpecial(text[:], from); end != want || isASCII != ascii {
			t.Fatalf("%q from %d: %d, %t, want %d, %t", text, from, end, isASCII, want, ascii)
		}
	}
}

// scanPieces scans a text in pieces of a size, and returns its events.
func scanPieces(s Scanner, text string, size int) (events []ScanEvent, err error) {
	for p := []byte(text); len(p) > 0; {
		n, e, err := s.Scan(p[:min(size, len(p))])
		if err != nil {
			return events, err
		}
		if p = p[n:]; e != 0 {
			events = append(events, e)
		}
	}
	e, err := s.End()
	if e != 0 {
		events = append(events, e)
	}
	return events, err
}

// TestUnicode: a string is UTF-8 and escapes whole surrogate pairs, however it is split.
func TestUnicode(t *testing.T) {
	isValid := func(text string) bool {
		_, whole := scanPieces(Scanner{Unicode: true}, `["`+text+`"]`, len(text)+4)
		for size := 1; size < 5; size++ {
			if _, err := scanPieces(Scanner{Unicode: true, Quiet: ^ScanEvent(0)}, `["`+text+`"]`, size); (err == nil) != (whole == nil) {
				t.Fatalf("%q: %v, but %v in pieces of %d", text, whole, err, size)
			}
		}
		return whole == nil
	}
	for r := rune(0x80); r <= utf8.MaxRune; r++ {
		if text := string(r); text != "\ufffd" && !isValid(text+"x"+text) {
			t.Fatalf("%U is not valid", r)
		}
	}
	for a := ' '; a < 256; a++ {
		for b := ' '; b < 256; b++ {
			for _, rest := range []string{"", "\x80", "\xbf", "\xc0", "\x80\x80", "\x80x"} {
				text := string([]byte{byte(a), byte(b)}) + rest
				if !strings.ContainsAny(text, `"\`) && isValid(text) != utf8.ValidString(text) {
					t.Fatalf("%q is valid: %t", text, isValid(text))
				}
			}
		}
	}
	for text, want := range map[string]bool{
		`\ud83d\ude00`: true, `\ud83d`: false, `\ude00`: false, `\ud83dx`: false, `\ud83d\n`: false, `\ud83d\ud83d\ude00`: false, "\xc3\\n": false,
		"\\ud83d\xf0\x9f\x98\x80": false, `\ud83d\u0041`: false, "\xf0\x9f\x98": false, `\u00e9\u00e8`: true, `\uD83D\uDE00x`: true,
	} {
		if isValid(text) != want {
			t.Errorf("%s is valid: %t", text, !want)
		}
	}
	s := Scanner{Unicode: true, MaxText: 20}
	if _, _, err := s.Scan([]byte(`"`)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Scan([]byte(`\ud83d\ude00é"`)); err != nil || string(s.Text()) != "\U0001f600é" {
		t.Errorf("%q, %v", s.Text(), err)
	}
}

// TestLines: which texts have one value on each line, and where a line ends.
func TestLines(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "\n": 0, "{}\n{}": 1, "{}\r\n[]\n": 2, "1\n2\n": 2, "\"a\"\n\n\"b\"": 1, "true": 0, "{} \n": 1,
		"{} {}": -1, "{}{}": -1, "{\n}": -1, "{\r}": -1, "1 2": -1, "\r{}": -1, "{}\r{}": -1, "{} x": -1, "[1]]": -1, "{": -1, "\x1e{}": -1, "1\n,": -1,
	} {
		for size := 1; size < 8; size++ {
			events, err := scanPieces(Scanner{Lines: true, Quiet: ^EndLine}, text, size)
			if (err == nil) != (want >= 0) || err == nil && len(events) != want {
				t.Errorf("%q in pieces of %d: %d lines, %v", text, size, len(events), err)
			}
		}
	}
	for text, kind := range map[string]ErrorKind{"[[[]]]": TooDeep, "[] 1": MoreText, "[1": BadGrammar, "[1,]": BadGrammar, "\"\n\"": BadGrammar} {
		var e *Error
		if _, err := scanPieces(Scanner{MaxDepth: 2}, text, 1); !errors.As(err, &e) || e.Kind != kind {
			t.Errorf("%q: %v, kind %d", text, err, e.Kind)
		}
	}
}

// TestKeys: Scan returns only the keys that may matter. A muted object or list has no other events.
func TestKeys(t *testing.T) {
	const text = `{"ab":{"x":1},"b":[{"a":[true]}],"":"s","\u0061":0,"é":null,"c":{}}`
	for size := 1; size < len(text)+1; size++ {
		s := Scanner{MaxText: 8, Quiet: BeginKey | BeginString | EndString | BeginNumber | EndNumber | BeginWord | EndWord, Keys: new([256]bool)}
		s.Keys['a'] = true
		var keys, other []string
		for p := []byte(text); len(p) > 0; {
			n, e, err := s.Scan(p[:min(size, len(p))])
			if err != nil {
				t.Fatal(err)
			}
			switch p = p[n:]; {
			case e == EndKey && (s.Keys[text[s.KeyOffset()+1]] || strings.ContainsAny(string(s.Text()), "aé")):
				keys = append(keys, string(s.Text()))
			case e != 0 && e != EndKey:
				if other = append(other, fmt.Sprint(e, s.Depth())); s.Depth() == 2 {
					s.Mute()
				}
			}
			if s.IsMuted() != (s.Depth() > 1) {
				t.Fatalf("muted is %t before %s", s.IsMuted(), p)
			}
		}
		if got, want := fmt.Sprintf("%q %q", keys, other), `["ab" "a" "a" "é"] ["1 1" "1 2" "4 2" "1 2" "2 0"]`; got != want {
			t.Errorf("in pieces of %d: %s, want %s", size, got, want)
		}
	}
}
