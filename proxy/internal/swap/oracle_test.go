package swap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// The oracles of this file read whole texts with the parsers of the standard library and swap naively. The rewriter's
// result, however the text is split, must equal theirs; it must not swap in what they cannot read.

// oracleExchange declares API_KEY for the field k and for a.k.
func oracleExchange() *requestRewrite {
	c := []catalog.Credential{credential("API_KEY", value, "body:k", "body:a.k", "query:k")}
	return &requestRewrite{s: New(c), o: Options{Allowed: c}, report: &Report{}}
}

// fragments are what random texts are made of: JSON, what lenient parsers accept as JSON, and forms.
var fragments = []string{
	`{`, `}`, `[`, `]`, `,`, `:`, `"k"`, `"k":`, `"a":{`, `"API_KEY"`, `"k":"API_KEY"`, `"x"`, `1`, `-0.5e+3`, `true`, `null`, ` `, "\n",
	`"\u006b"`, `"\u004B":`, `"K":`, `"x API_KEY"`, `"API_KEY\n"`, `"&;\u0041"`, `"\ud83d\ude00"`, `"é"`,
	`/*`, `*/`, `//`, `#`, `'`, `k`, `API_KEY`, `NaN`, `01`, `1.`, `\`, `"`, `"\ud800"`, `"\x"`, "\xff", "\xef\xbb\xbf", "\x00", `;`, `&`, `=`,
	`k=API_KEY`, `&k=`, `%6b=`, `k[]=`, `_charset_=`, `%zz`, `+`, `K=x`, `a.k=`, `a_k=x`,
}

// fragment makes a text of fragments, one for each byte.
func fragment(choice []byte) string {
	var b strings.Builder
	for _, c := range choice {
		b.WriteString(fragments[int(c)%len(fragments)])
	}
	return b.String()
}

// formPairs are what random forms and queries are made of.
var formPairs = []string{
	"k=API_KEY", "k=API_KEY", "%6b=API_KEY", "a.k=API_KEY", "x=1", "x=a+b%20c", "x=API_KEY", "k=", "k", "=", "", "K=x", "k[]=x", "k%00=1", "a_k=x", "+k=2", "k=x+API_KEY",
	"x=1;k=2", "x={", `x="`, "x=%zz", "_charset_=utf-7",
}

// document is a random JSON text that often has the declared fields, and sometimes a small error.
func document(r *rand.Rand) string {
	var value func(depth int) string
	value = func(depth int) string {
		switch n := r.IntN(10); {
		case n < 3 && depth > 0:
			var parts []string
			for range r.IntN(4) {
				key := []string{`"k"`, `"a"`, `"a.k"`, `"K"`, `"x"`, `"\u006b"`, `"API_KEY"`, `"a&b"`, `"$ref"`, `"$Re\u0066"`}[r.IntN(10)]
				parts = append(parts, key+[]string{":", " : "}[r.IntN(2)]+value(depth-1))
			}
			return "{" + strings.Join(parts, ", ") + "}"
		case n < 4 && depth > 0:
			var parts []string
			for range r.IntN(3) {
				parts = append(parts, value(depth-1))
			}
			return "[" + strings.Join(parts, ",") + "]"
		case n < 8:
			return []string{`"API_KEY"`, `"API_KEY"`, `"API_KEY\u005f"`, `"x API_KEY"`, `"API\u005fKEY"`, `"\\API_KEY"`, `""`}[r.IntN(7)]
		}
		return []string{`1`, `-1.5E-2`, `null`, `"a;b&c"`, `"é\ud83d\ude00"`, `0`}[r.IntN(6)]
	}
	text := value(5)
	if r.IntN(3) == 0 && text != "" {
		at := r.IntN(len(text))
		text = text[:at] + fragments[r.IntN(len(fragments))] + text[at+r.IntN(2):]
	}
	return text
}

// TestOracle compares with the oracles on random texts; the fuzz targets below extend it.
// Promise: one-reading-around-a-name
func TestOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's choice
	swaps, refusals := map[string]int{}, map[string]int{}
	count := func(kind string, x *requestRewrite, err error) {
		swaps[kind] += len(x.report.Swapped())
		if err != nil {
			refusals[kind]++
		}
	}
	for range 8000 {
		x, err := checkJSON(t, document(r), 1+r.IntN(9))
		count("json", x, err)
		choice := make([]byte, r.IntN(12))
		for i := range choice {
			choice[i] = byte(r.Uint32())
		}
		x, err = checkJSON(t, fragment(choice), 1+r.IntN(9))
		count("json", x, err)
		var pairs []string
		for range r.IntN(4) {
			pairs = append(pairs, formPairs[r.IntN(len(formPairs))])
		}
		for _, text := range []string{fragment(choice), strings.Join(pairs, "&")} {
			x, err = checkForm(t, text, 1+r.IntN(9))
			count("form", x, err)
			x, err = checkQuery(t, text)
			count("query", x, err)
		}
	}
	for _, kind := range []string{"json", "form", "query"} {
		if swaps[kind] < 100 || refusals[kind] < 100 {
			t.Errorf("%s: only %d swaps and %d refusals were compared", kind, swaps[kind], refusals[kind])
		}
	}
}

// Promise: one-reading-around-a-name
func FuzzJSON(f *testing.F) {
	for _, text := range append(strictJSON(), lenientJSON()...) {
		f.Add(text, []byte{0, 10, 1}, uint8(1))
	}
	f.Fuzz(func(t *testing.T, text string, choice []byte, size uint8) {
		checkJSON(t, text, int(size))
		checkJSON(t, fragment(choice), int(size))
	})
}

// checkJSON compares a rewritten JSON body with the standard library's reading of the original.
func checkJSON(t *testing.T, text string, size int) (*requestRewrite, error) {
	t.Helper()
	x := oracleExchange()
	got, err := rewritten(x, "application/json", text, size)
	swaps := len(x.report.Swapped())
	want, valid := oracleJSON(text)
	var ambiguity *Ambiguity
	switch {
	case err != nil && !errors.As(err, &ambiguity):
		t.Fatalf("%q by %d: %v", text, size, err)
	case err != nil && valid:
		t.Fatalf("%q by %d is refused: %v", text, size, err)
	case err != nil:
	case !valid && swaps > 0:
		t.Fatalf("%q by %d became %q, and is no JSON", text, size, got)
	case !valid:
		if plain(got) != plain(text) {
			t.Fatalf("%q by %d became %q", text, size, got)
		}
	case !json.Valid([]byte(got)) || strings.ContainsAny(got, "&;"):
		t.Fatalf("%q by %d became %q", text, size, got)
	case tree(got) != tree(want):
		t.Fatalf("%q by %d became %q, want %q", text, size, got, want)
	case (swaps > 0) != (tree(want) != tree(text)):
		t.Fatalf("%q by %d: %d swaps became %q", text, size, swaps, got)
	}
	return x, err
}

// plain undoes the escapes that the rewriter writes.
func plain(text string) string {
	return strings.NewReplacer(`\u0026`, "&", `\u003b`, ";").Replace(text)
}

// tree is the content of a JSON text, written out with its keys in their order.
func tree(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var b strings.Builder
	for {
		tok, err := d.Token()
		if err != nil {
			return b.String()
		}
		fmt.Fprintf(&b, "%T %q\n", tok, fmt.Sprint(tok))
	}
}

var escapes = regexp.MustCompile(`\\(?:u([0-9a-fA-F]{4})|.)`)

// pairedSurrogates reports whether the escapes of a valid JSON text have no half of a pair.
func pairedSurrogates(text string) bool {
	high := -1 // where the low one must begin
	for _, m := range escapes.FindAllStringSubmatchIndex(text, -1) {
		unit := uint64(0)
		if m[2] >= 0 {
			unit, _ = strconv.ParseUint(text[m[2]:m[3]], 16, 32)
		}
		low := 0xDC00 <= unit && unit < 0xE000
		if high >= 0 && (!low || m[0] != high) || high < 0 && low {
			return false
		}
		if high = -1; 0xD800 <= unit && unit < 0xDC00 {
			high = m[1]
		}
	}
	return high < 0
}

// oracleJSON swaps in a tree: the first value at k, and the first at a.k, in the order of the text.
func oracleJSON(text string) (want string, valid bool) {
	if !json.Valid([]byte(text)) || !utf8.ValidString(text) || !pairedSurrogates(text) {
		return "", false
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	o := &treeSwapper{text: text, d: d, done: map[string]bool{}}
	o.walk(nil, 0)
	return o.out.String(), !o.twice && !o.refers && o.deepest <= 64
}

type treeSwapper struct {
	text    string
	d       *json.Decoder
	out     strings.Builder
	done    map[string]bool
	twice   bool
	refers  bool // some object has a key that some parsers take for a reference
	deepest int
}

func (o *treeSwapper) walk(path []string, depth int) {
	tok, err := o.d.Token()
	if err != nil {
		return
	}
	switch v := tok.(type) {
	case json.Delim:
		o.deepest = max(o.deepest, depth+1)
		o.out.WriteString(v.String())
		var keys []string
		for i := 0; o.d.More(); i++ {
			if i > 0 {
				o.out.WriteString(",")
			}
			at := path
			if v == '{' {
				key, _ := o.d.Token()
				name := key.(string)
				o.key(path, name, keys)
				o.refers = o.refers || canBeSameKey([]byte(name), referenceKey)
				keys = append(keys, name)
				b, _ := json.Marshal(name)
				o.out.WriteString(string(b) + ":")
				at = append(path[:len(path):len(path)], name)
			}
			o.walk(at, depth+1)
		}
		end, _ := o.d.Token()
		o.out.WriteString(end.(json.Delim).String())
	case string:
		field := map[string]string{`["k"]`: "k", `["a" "k"]`: "a.k", `["a.k"]`: "a.k"}[fmt.Sprintf("%q", path)]
		if field != "" && strings.HasSuffix(o.text[:o.d.InputOffset()], `"API_KEY"`) && v == "API_KEY" && !o.done[field] {
			v, o.done[field] = value, true
		}
		b, _ := json.Marshal(v)
		o.out.Write(b)
	default:
		b, _ := json.Marshal(v)
		o.out.Write(b)
	}
}

// key checks whether a key that leads to a declared field has occurred in its object before.
func (o *treeSwapper) key(path []string, name string, before []string) {
	for _, declared := range [][]string{{"k"}, {"a.k"}, {"a", "k"}} {
		n := len(path)
		if n >= len(declared) || fmt.Sprint(path) != fmt.Sprint(declared[:n]) || !canBeSameKey([]byte(name), declared[n]) {
			continue
		}
		for _, b := range before {
			o.twice = o.twice || canBeSameKey([]byte(b), declared[n])
		}
	}
}

// checkForm compares a rewritten form with the pairs of the original.
func checkForm(t *testing.T, text string, size int) (*requestRewrite, error) {
	t.Helper()
	x := oracleExchange()
	got, err := rewritten(x, "application/x-www-form-urlencoded", text, size)
	want, clear := oraclePairs(text, true)
	switch {
	case err != nil && clear:
		t.Fatalf("%q by %d is refused: %v", text, size, err)
	case err == nil && !clear && got != text:
		t.Fatalf("%q by %d is ambiguous, and became %q", text, size, got)
	case err == nil && clear && got != want:
		t.Fatalf("%q by %d became %q, want %q", text, size, got, want)
	}
	return x, err
}

// checkQuery does the same for queries.
func checkQuery(t *testing.T, text string) (*requestRewrite, error) {
	t.Helper()
	x := oracleExchange()
	x.req = &http.Request{URL: &url.URL{RawQuery: text}}
	err := x.swapQuery()
	got := x.req.URL.RawQuery
	want, clear := oraclePairs(text, false)
	if refused := want != text && !clear; refused != (err != nil) || !refused && got != want {
		t.Fatalf("%q became %q, %v, want %q, clear %t", text, got, err, want, clear)
	}
	return x, err
}

// oraclePairs swaps in the first pair of k and reports whether the text is unambiguous: a body has only the characters
// that a form may have, and k occurs once, in any spelling.
func oraclePairs(text string, body bool) (want string, clear bool) {
	clear = true
	fields := []string{"k"}
	separators := "&;"
	if body {
		fields, separators = []string{"k", "a.k"}, "&"
		if _, err := url.ParseQuery(text); err != nil || strings.ContainsAny(text, "{}\"'<>\\`# ;") {
			clear = false
		}
		clear = clear && !strings.ContainsFunc(text, func(r rune) bool { return r < '!' || r > '~' })
	}
	count := map[string]int{}
	for _, pair := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(separators, r) }) {
		key, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(key); err == nil {
			key = plain
		}
		key, _, _ = strings.Cut(strings.ToLower(key), "\x00")
		key = strings.NewReplacer(".", "_", " ", "_").Replace(strings.TrimLeft(key, " \t\r\n\v\f"))
		clear = clear && key != "_charset_"
		key, _, _ = strings.Cut(key, "[")
		count[key]++
	}
	for _, f := range fields {
		clear = clear && count[strings.ReplaceAll(f, ".", "_")] < 2
	}
	var out []string
	done := map[string]bool{}
	for _, pair := range strings.Split(text, "&") {
		key, v, eq := strings.Cut(pair, "=")
		for _, f := range fields {
			if k, err := url.QueryUnescape(key); err == nil && k == f && v == "API_KEY" && eq && !done[f] {
				v, done[f] = strings.ReplaceAll(url.QueryEscape(value), "+", "%20"), true
			}
		}
		if eq {
			key += "="
		}
		out = append(out, key+v)
	}
	return strings.Join(out, "&"), clear
}

func FuzzQuery(f *testing.F) {
	f.Add("k=API_KEY&x=API_KEY&k=API_KEY")
	f.Add("%6b=API_KEY&x=%41PI_KEY&y=API_KEY%20")
	f.Add("x=1;K[]=2&k=API_KEY")
	f.Fuzz(func(t *testing.T, text string) { checkQuery(t, text) })
}

var word = regexp.MustCompile(`[A-Za-z0-9_]+`)

// oracleText swaps the first word of a text that is the name.
func oracleText(text, with string) string {
	done := false
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if w == "API_KEY" && !done {
			done = true
			return with
		}
		return w
	})
}

// FuzzSplits: however a body of any kind is split, the result is what the oracle of its kind makes of the whole.
func FuzzSplits(f *testing.F) {
	kinds := []string{"application/json", "application/x-www-form-urlencoded", "text/xml", "text/csv", "multipart/form-data; boundary=b"}
	for i := range kinds {
		for _, text := range []string{
			`{"k":"API_KEY","a":{"k":"API_KEY"},"x":["API_KEY\u0041","\\API_KEY"]}`, "k=API_KEY&a%2ek=API%5fKEY&x=%4API_KEY%",
			"--b\r\nContent-Disposition: form-data; name=\"k\"\r\n\r\nAPI_KEY\r\n--b--\r\n", "a API_KEY, API_KEY_2 and API_KEY",
		} {
			for _, size := range []uint8{1, 3, 0} {
				f.Add(text, uint8(i), size)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string, which, size uint8) {
		switch kind := kinds[int(which)%len(kinds)]; kind {
		case "application/json":
			checkJSON(t, text, int(size))
		case "application/x-www-form-urlencoded":
			checkForm(t, text, int(size))
		case "multipart/form-data; boundary=b":
			checkMultipart(t, text, int(size))
		default:
			c := []catalog.Credential{credential("API_KEY", value, "body")}
			with := value
			if kind == "text/xml" {
				with = escapeXML(value)
			}
			got, err := rewritten(&requestRewrite{s: New(c), o: Options{Allowed: c}, report: &Report{}}, kind, text, int(size))
			if want := oracleText(text, with); err != nil || got != want {
				t.Fatalf("%q as %s by %d became %q, %v, want %q", text, kind, size, got, err, want)
			}
		}
	})
}

// checkMultipart compares part by part: an accepted body is unchanged, except that the first whole k is swapped.
func checkMultipart(t *testing.T, text string, size int) {
	t.Helper()
	x := oracleExchange()
	got, err := rewritten(x, "multipart/form-data; boundary=b", text, size)
	if err != nil {
		return // well-formed bodies are covered by TestSurfaces
	}
	done := map[string]bool{}
	want := parts(text, "b", func(p *multipart.Part, data string) string {
		name := p.FormName()
		if (name == "k" || name == "a.k") && p.FileName() == "" && data == "API_KEY" && !done[name] {
			done[name] = true
			return value
		}
		return data
	})
	if is := parts(got, x.to.Boundary(), func(_ *multipart.Part, data string) string { return data }); is != want {
		t.Fatalf("%q by %d became %q: %s, want %s", text, size, got, is, want)
	}
}

// parts writes out the content of a multipart body.
func parts(text, boundary string, swap func(p *multipart.Part, data string) string) string {
	var b bytes.Buffer
	r := multipart.NewReader(strings.NewReader(text), boundary)
	for {
		p, err := r.NextRawPart()
		if err != nil {
			return b.String()
		}
		data, err := io.ReadAll(p)
		if err != nil {
			return b.String() + "broken"
		}
		fmt.Fprintf(&b, "%q %q %q\n", p.FormName(), p.FileName(), swap(p, string(data)))
	}
}
