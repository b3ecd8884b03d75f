package swap

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

const long = 2 << 20

// strictJSON are bodies that every parser reads alike.
func strictJSON() []string {
	return []string{
		`{"k":"API_KEY"}`, `[{"x":1},{"k":"API_KEY"}]`, `{"a":{"x":[],"k":"API_KEY"},"k":1}`, ` { "k" : "API_KEY" } `, "{\"k\":\r\n\t\"API_KEY\"}\n",
		`{"x":[true,false,null,0,-1,1.5,2e10,-0.1E-7,{}],"k":"API_KEY"}`, `{"":{"":""},"k":"API_KEY"}`, `{"\u006b":"API_KEY"}`,
		`{"x":"\"\\\/\b\f\n\r\t\u0000\ud83d\uDE00é😀","k":"API_KEY"}`, `{"a.k":"API_KEY","k":2}`, `{"k":["API_KEY"]}`,
		`{"x":{"k":1,"k":2},"k":"API_KEY"}`, `{"k2":1,"kk":2,"k":"API_KEY","k ":3}`,
		strings.Repeat("[", 63) + `{"k":"API_KEY"}` + strings.Repeat("]", 63),
	}
}

// lenientJSON are bodies that some parser reads as JSON, with the name in the declared field or elsewhere.
func lenientJSON() []string {
	list := []string{
		`{"comment":/*1,"k":*/"API_KEY"}`, "{\"comment\"://1,\"k\":\n\"API_KEY\"}", "{\"comment\":#1,\"k\":\n\"API_KEY\"}", `{"k":"API_KEY"}//`, `/**/{"k":"API_KEY"}`,
		`{"k":"API_KEY","comment":{"$ref":"$.k"}}`, `{"comment":[{"\u0024ref":"$"}],"k":"API_KEY"}`,
		`{"k":"API_KEY"/**/}`, `{"x":1,'comment':',"k":"API_KEY",'}`, `{'k':'API_KEY'}`, `['{"k":"API_KEY"}']`, "[`{\"k\":\"API_KEY\"}`]",
		`{"k":1,comment:"API_KEY"}`, `{k:"API_KEY"}`, `{"k":1,2:"API_KEY"}`, `{"k":1,null:"API_KEY"}`, `{"k":1,"comment" "API_KEY"}`, `{"k":1 "comment":"API_KEY"}`,
		`{"k":1,"comment"="API_KEY"}`, `{"k":1;"comment":"API_KEY"}`, `{"k":1,["comment"]:"API_KEY"}`, `{"k":1,{"comment":"API_KEY"}}`, `{"k":1,"comment"::"API_KEY"}`,
		`{"k":"API_KEY",}`, `{,"k":"API_KEY"}`, `{"x":[1,],"k":"API_KEY"}`, `{"x":[,1],"k":"API_KEY"}`, `{"k":"API_KEY"]`, `["k":"API_KEY"]`, `[{"k":"API_KEY"}`, `{"k":"API_KEY"`, `{"k":"API_KEY`,
		`{"x":NaN,"k":"API_KEY"}`, `{"x":-Infinity,"k":"API_KEY"}`, `{"x":undefined,"k":"API_KEY"}`, `{"x":True,"k":"API_KEY"}`, `{"x":truetrue,"k":"API_KEY"}`, `{"x":nul,"k":"API_KEY"}`,
		`{"x":01,"k":"API_KEY"}`, `{"x":+1,"k":"API_KEY"}`, `{"x":.5,"k":"API_KEY"}`, `{"x":5.,"k":"API_KEY"}`, `{"x":0x1F,"k":"API_KEY"}`, `{"x":1e,"k":"API_KEY"}`, `{"x":1e+,"k":"API_KEY"}`, `{"x":-,"k":"API_KEY"}`, `{"x":1 2,"k":"API_KEY"}`, `{"x":1_000,"k":"API_KEY"}`, `{"x":1n,"k":"API_KEY"}`,
		"\ufeff{\"k\":\"API_KEY\"}", "{\"k\":\u00a0\"API_KEY\"}", "{\"k\":\v\"API_KEY\"}", "{\"k\":\x00\"API_KEY\"}", "{\"k\":\u2028\"API_KEY\"}", "\x1e{\"k\":\"API_KEY\"}",
		"{\"x\":\"\xff\",\"k\":\"API_KEY\"}", "{\"x\":\"\xc0\xaf\",\"k\":\"API_KEY\"}", "{\"x\":\"\xed\xa0\x80\",\"k\":\"API_KEY\"}", "{\"x\":\"\xf4\x90\x80\x80\",\"k\":\"API_KEY\"}", "{\"x\":\"\xc3\",\"k\":\"API_KEY\"}", "{\"x\":\"\xe0\x80\x80\",\"k\":\"API_KEY\"}", "{\"x\":\"\xf0\x80\x80\x80\",\"k\":\"API_KEY\"}", "{\"x\":\"\x80\",\"k\":\"API_KEY\"}",
		"{\"x\":\"\n\",\"k\":\"API_KEY\"}", "{\"x\":\"\t\",\"k\":\"API_KEY\"}", "{\"x\":\"\x00\",\"k\":\"API_KEY\"}",
		`{"x":"\x41","k":"API_KEY"}`, `{"x":"\'","k":"API_KEY"}`, `{"x":"\u12G4","k":"API_KEY"}`, `{"x":"\u12","k":"API_KEY"}`, "{\"x\":\"\\\n\",\"k\":\"API_KEY\"}", `{"x":"\U0041","k":"API_KEY"}`,
		`{"x":"\ud800","k":"API_KEY"}`, `{"x":"\udc00","k":"API_KEY"}`, `{"x":"\ud800\ud800","k":"API_KEY"}`, `{"x":"\ud800x\udc00","k":"API_KEY"}`, `{"x":"\ud800\n","k":"API_KEY"}`,
		`{"k":"API_KEY","k":"x"}`, `{"k":"x","k":"API_KEY"}`, `{"K":"x","k":"API_KEY"}`, `{"k":"API_KEY","K":"x"}`, `{"k":"API_KEY","\u004B":"x"}`, "{\"k\":\"API_KEY\",\"\u212a\":\"x\"}", `{"k":"API_KEY","k\u0000x":1}`,
		`{"a":{"k":"API_KEY"},"a":{}}`, `{"a":1,"A":2,"a":{"k":"API_KEY"}}`, `{"a":{"k":"API_KEY","K":1}}`, `{"a.k":"API_KEY","A.K":1}`, `[[{"k":"API_KEY","x":[{}],"k":1}]]`,
		`{"k":"API_KEY"}{"k":1}`, "{\"k\":\"API_KEY\"}\n{}", `{"k":"API_KEY"}x`, `{"k":"API_KEY"},`, `{"k":"API_KEY"}]`, `{"k":"API_KEY"} 1`, `1{"k":"API_KEY"}`, `)]}',{"k":"API_KEY"}`, `{}&k=API_KEY`,
		strings.Repeat("[", 64) + `{"k":"API_KEY"}` + strings.Repeat("]", 64), strings.Repeat(`{"x":`, 64) + `{"x":"API_KEY"}` + strings.Repeat("}", 64),
	}
	return list
}

// unclear posts a body with surfaces for two fields and expects it to be refused, whole and in a stream of unknown
// length, as early as possible: of a short one nothing with the value may have left.
func unclear(t *testing.T, kind, text string) {
	t.Helper()
	c := []catalog.Credential{credential("API_KEY", "first-value", "body:k", "body:a.k")}
	for _, known := range []bool{true, false} {
		var header []string
		if kind != "" {
			header = []string{"Content-Type", kind}
		}
		req := post(t, text, known, header...)
		_, err := New(c).SwapRequest(req, Options{Allowed: c})
		var left []byte
		if err == nil && !known {
			left, err = io.ReadAll(req.Body)
		}
		var ambiguity *Ambiguity
		if !errors.As(err, &ambiguity) || strings.Contains(string(left), "first-value") {
			t.Errorf("%s: %.80q, length known %t: got %v, after %.80q", kind, text, known, err, left)
		}
	}
}

// clearly posts a body and expects one swap in it.
func clearly(t *testing.T, kind, text string) {
	t.Helper()
	c := []catalog.Credential{credential("API_KEY", "first-value", "body:k", "body:a.k")}
	for _, known := range []bool{true, false} {
		req := post(t, text, known, "Content-Type", kind)
		r, err := New(c).SwapRequest(req, Options{Allowed: c})
		if err != nil {
			t.Errorf("%s: %.80q: %v", kind, text, err)
			continue
		}
		got, err := io.ReadAll(req.Body)
		if err != nil || len(r.Swapped()) != 1 || string(got) != strings.Replace(text, "API_KEY", "first-value", 1) {
			t.Errorf("%s: %.80q became %.80q, %v", kind, text, got, err)
		}
	}
}

// TestOneReadingJSON: names are swapped only in what is JSON to every parser, else the request is refused.
// Promise: one-reading-around-a-name
func TestOneReadingJSON(t *testing.T) {
	for _, text := range strictJSON() {
		for _, kind := range []string{
			"application/json", "text/json", "application/x+json", "application/json; charset=utf-8", `Application/JSON;charset="UTF-8"`, "text/plain",
		} {
			clearly(t, kind, text)
		}
	}
	for _, text := range lenientJSON() {
		unclear(t, "application/json", text)
		unclear(t, "application/problem+json; charset=utf-8", text)
	}
	const good = `{"k":"API_KEY"}`
	for _, kind := range []string{
		"", "application/json; charset=utf-16", "application/json; charset=utf-7", `application/json; charset="cp037"`, "application/json; charset=", "application/json; charset*=utf-8''utf-16",
		"application/json; x=\"; charset=utf-16\"", "application/json; charset=utf-8; charset=utf-16", "application/json, text/plain", "application/json; text/plain", "application/json;;x",
		"text/plain; charset=utf-16",
	} {
		unclear(t, kind, good)
	}
	unclear(t, "text/plain", `{"k":"API_KEY"`)
	unclear(t, "text/plain", `{"x":/**/1,"k":"API_KEY"}`)
}

// TestOneReadingLines: JSON lines have one value each.
// Promise: one-reading-around-a-name
func TestOneReadingLines(t *testing.T) {
	const kind = "application/x-ndjson"
	for _, text := range []string{"{\"x\":1}\n{\"k\":\"API_KEY\"}\n", "{\"k\":\"API_KEY\"}", "\n{\"k\":\"API_KEY\"}\r\n1\n\n\"x\"\n", "{\"k\":1}\n{\"k\":\"API_KEY\"}"} {
		clearly(t, kind, text)
	}
	for _, text := range []string{"{\"x\":1,\n\"k\":\"API_KEY\"}", "{\"k\":\"API_KEY\"} {\"x\":1}", "{\"x\":1}{\"k\":\"API_KEY\"}", "{\"x\":1}\r{\"k\":\"API_KEY\"}", "{\"k\":\r\"API_KEY\"}", "1 {\"k\":\"API_KEY\"}"} {
		unclear(t, kind, text)
	}
}

// TestOneReadingForm: a form contains only what a form may contain, and no declared field twice.
// Promise: one-reading-around-a-name
func TestOneReadingForm(t *testing.T) {
	const kind = "application/x-www-form-urlencoded"
	for _, text := range []string{
		"k=API_KEY", "a=b&k=API_KEY&c", "scope=https://h/.default&k=API_KEY", "a[b]=c&a[]=d&k=API_KEY", "x=a+b%20c%2B&k=API_KEY", "%6b=API_KEY", "a.k=API_KEY", "=&&k=API_KEY&=", "kk=1&k=API_KEY&k2=2", "x=%22%26k=1&k=API_KEY",
	} {
		clearly(t, kind, text)
		clearly(t, kind+"; charset=UTF-8", text)
	}
	for _, text := range []string{
		`{"comment":"&k=API_KEY&"}`, `['&k=API_KEY&']`, `<a>&k=API_KEY&</a>`, "k=API_KEY&a=1;b=2", "a=1;b=2&k=API_KEY", "a=b c&k=API_KEY", "k=API_KEY\r\n", "x=\xe9&k=API_KEY", "x=\x00&k=API_KEY", "x=a\\&k=API_KEY", "x=#&k=API_KEY",
		"a=%&k=API_KEY", "a=%zz&k=API_KEY", "a=%2&k=API_KEY", "a=%u0041&k=API_KEY", "k=API_KEY&a=%", "%zz=1&k=API_KEY",
		"k=API_KEY&k=x", "k=x&k=API_KEY", "k=API_KEY&K=x", "k=API_KEY&%4b=x", "k=API_KEY&k[]=x", "k=API_KEY&k[x]=y", "k=API_KEY&k%5B%5D=x", "k=API_KEY&+k=x", "k=API_KEY&k%00x=1", "k=API_KEY&k", "a.k=API_KEY&a_k=1", "a.k=API_KEY&a+k=1",
		"_charset_=utf-16&k=API_KEY", "k=API_KEY&_CHARSET_=utf-7", strings.Repeat("+", 500) + "k=x&k=API_KEY",
	} {
		unclear(t, kind, text)
	}
	for _, charset := range []string{"utf-16", "cp037", "utf-7", "iso-8859-1", ""} {
		unclear(t, kind+"; charset="+charset, "k=API_KEY")
	}
}

// TestUnclearWithoutName: an ambiguous body without a name that is declared for bodies leaves unchanged.
func TestUnclearWithoutName(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "body:k"), credential("HEADER_KEY", "other-value", "header")}
	for _, filler := range []string{"", strings.Repeat("z", long)} {
		for kind, text := range map[string]string{
			"application/json":                  `{"x":/*&;*/'HEADER_KEY',"k":` + filler,
			"application/x-www-form-urlencoded": `{"x":1;` + filler + `"k":"HEADER_KEY`,
			"application/json; charset=utf-16":  "\x00{\x00}" + filler,
			"text/plain":                        "[note] k=1; k=2 " + filler,
			"application/octet-stream":          "\xff\x00" + filler,
		} {
			for _, known := range []bool{true, false} {
				req := post(t, text, known, "Content-Type", kind)
				_, err := New(c).SwapRequest(req, Options{Allowed: c})
				if err != nil {
					t.Errorf("%s: %v", kind, err)
					continue
				}
				if got, err := io.ReadAll(req.Body); err != nil || string(got) != text {
					t.Errorf("%s: %d bytes became %d, %.80q, %v", kind, len(text), len(got), got, err)
				}
			}
		}
	}
}

// TestShortWithoutName: a short body without a name is not rewritten.
func TestShortWithoutName(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "body:k")}
	const text = `{"x":"a&b;c","k":1,"k":2}`
	req := post(t, text, true, "Content-Type", "application/json")
	if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(req.Body); err != nil || string(got) != text {
		t.Errorf("became %q, %v", got, err)
	}
}

// TestNoSeparators: a server that reads JSON as a form finds no second field, and none of the declared name.
// Promise: one-reading-around-a-name
func TestNoSeparators(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "a&b;c=d value", "body:k")}
	for _, filler := range []string{"", strings.Repeat("z", long)} {
		text := `{"a&comment=":"&comment=","y":";comment=` + filler + `","k":"API_KEY"}`
		req := post(t, text, true, "Content-Type", "application/json")
		if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(req.Body)
		want := strings.Replace(strings.NewReplacer("&", `\u0026`, ";", `\u003b`).Replace(text), "API_KEY", `a\u0026b\u003bc=d value`, 1)
		if err != nil || string(got) != want {
			t.Errorf("became %.120q, %v", got, err)
		}
	}
}

// TestUnclearLate: if the ambiguity follows the swap, a body below the bound is held back entirely, and a longer one is
// never completed.
// Promise: one-reading-around-a-name
func TestUnclearLate(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "body:k")}
	for _, tc := range []struct{ kind, first, last string }{
		{"application/json", `{"k":"API_KEY","x":"`, `","k":1}`},
		{"application/json", `{"k":"API_KEY","x":"`, `",}`},
		{"application/x-www-form-urlencoded", "k=API_KEY&x=", "&k=1"},
		{"application/x-www-form-urlencoded", "k=API_KEY&x=", ";k=1"},
	} {
		for _, n := range []int{0, 10, coding.ExactUpTo - 100, coding.ExactUpTo + 9000, long} {
			text := tc.first + strings.Repeat("z", n) + tc.last
			for _, known := range []bool{true, false} {
				req := post(t, text, known, "Content-Type", tc.kind)
				_, err := New(c).SwapRequest(req, Options{Allowed: c})
				var left []byte
				if err == nil {
					left, err = io.ReadAll(req.Body)
				}
				var ambiguity *Ambiguity
				if !errors.As(err, &ambiguity) {
					t.Errorf("%s after %d: %v", tc.kind, n, err)
				}
				if held := n <= coding.ExactUpTo; held && strings.Contains(string(left), "first-value") {
					t.Errorf("%s after %d: the value left", tc.kind, n)
				}
				if strings.HasSuffix(string(left), tc.last) {
					t.Errorf("%s after %d: the whole left", tc.kind, n)
				}
			}
		}
	}
	// A document of a stream that has ended leaves at once.
	pr, pw := io.Pipe()
	req := post(t, "x", false, "Content-Type", "application/x-ndjson")
	req.Body = pr
	if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(pw, "{\"k\":\"API_KEY\"}\n") }()
	buf := make([]byte, 100)
	if n, err := req.Body.Read(buf); err != nil || string(buf[:n]) != "{\"k\":\"first-value\"}\n" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	_ = pw.Close()
}

// TestHeldBound: what is held back is bounded, however long the body is, and nothing of it leaves when the client
// disconnects.
func TestHeldBound(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "body:k")}
	x := &requestRewrite{s: New(c), o: Options{Allowed: c}, report: &Report{}}
	for _, kind := range []bodySyntax{kindJSON, kindLines} {
		src := io.MultiReader(strings.NewReader(`{"k":"API_KEY","x":"`), io.LimitReader(zeds{}, 16<<20), strings.NewReader(`"}`))
		r := x.newRewriteReader(src, kind, nil).(*rewriteReader)
		n, err := io.Copy(io.Discard, r)
		if err != nil || n < 16<<20 || cap(r.out) > 4*coding.ExactUpTo {
			t.Errorf("%d bytes, %v, held in %d", n, err, cap(r.out))
		}
	}
	broken := errors.New("client went away")
	x = &requestRewrite{s: New(c), o: Options{Allowed: c}, report: &Report{}}
	got, err := io.ReadAll(x.newRewriteReader(io.MultiReader(strings.NewReader(`{"k":"API_KEY","x":`), iotest.ErrReader(broken)), kindJSON, nil))
	if !errors.Is(err, broken) || len(got) > 0 {
		t.Errorf("read %q, %v", got, err)
	}
}

// zeds is an endless text.
type zeds struct{}

func (zeds) Read(p []byte) (int, error) { return copy(p, strings.Repeat("z", len(p))), nil }

// TestAnywhere: a credential for any place in a body is swapped in text that only resembles JSON, and not in malformed
// JSON.
func TestAnywhere(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", `first-"value`, "body")}
	for _, tc := range []struct{ kind, in, want string }{
		{"text/plain", "[a](b) API_KEY", `[a](b) first-"value`},
		{"text/plain", `{"x":"API_KEY"}`, `{"x":"first-\"value"}`},
		{"", `{"x":"API_KEY"}`, `{"x":"first-\"value"}`},
		{"text/csv", `{"x":"API_KEY"}`, `{"x":"first-"value"}`},
		{"application/json", `[a](b) API_KEY`, ""},
		{"application/json; charset=utf-16", `{"x":"API_KEY"}`, ""},
		{"text/csv; charset=cp037", `API_KEY`, ""},
		{"text/xml; charset=utf-7", `<a>API_KEY</a>`, ""},
		{"text/xml", `<?xml version="1.0" encoding="cp037"?><a>API_KEY</a>`, ""},
		{"text/xml", "\ufeff <?XML version='1.0' ENCODING = 'utf-7'?><a>API_KEY</a>", ""},
		{"text/xml", `<?xml version="1.0" encoding=cp037?><a>API_KEY</a>`, ""},
		{"application/soap+xml", `<?xml version="1.0"` + strings.Repeat(" ", 300) + `encoding="cp037"?><a>API_KEY</a>`, ""},
		{"text/xml", `<?xml version="1.0" k="API_KEY" encoding="cp037"`, ""},
		{"text/xml", `<?xml version="1.0" encoding="UTF-8"?><a>API_KEY</a>`, `<?xml version="1.0" encoding="UTF-8"?><a>first-&quot;value</a>`},
		{"text/xml", "<?xml version='1.0' encoding='iso-8859-1' standalone='yes' ?><a>API_KEY</a>", "<?xml version='1.0' encoding='iso-8859-1' standalone='yes' ?><a>first-&quot;value</a>"},
		{"text/xml", `<?xml version="1.0"?><a encoding="cp037">API_KEY</a>`, `<?xml version="1.0"?><a encoding="cp037">first-&quot;value</a>`},
		{"text/xml", `<a>API_KEY</a>`, `<a>first-&quot;value</a>`},
		{"text/csv; charset=latin1", `API_KEY`, `first-"value`},
		{"application/x-www-form-urlencoded", "{'API_KEY'}", ""},
	} {
		for _, known := range []bool{true, false} {
			req := post(t, tc.in, known)
			if tc.kind != "" {
				req.Header.Set("Content-Type", tc.kind)
			}
			_, err := New(c).SwapRequest(req, Options{Allowed: c})
			var got []byte
			if err == nil {
				got, err = io.ReadAll(req.Body)
			}
			if (err != nil) != (tc.want == "") || err == nil && string(got) != tc.want {
				t.Errorf("%s: %q became %q, %v, want %q", tc.kind, tc.in, got, err, tc.want)
			}
		}
	}
}

// TestDeclarationInPieces: a name inside an XML declaration leaves only once the declaration has named its charset,
// however small the pieces are in which the body arrives.
// Promise: one-reading-around-a-name
func TestDeclarationInPieces(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "body")}
	x := &requestRewrite{s: New(c), o: Options{Allowed: c}, report: &Report{}}
	body := iotest.OneByteReader(strings.NewReader(`<?xml version="1.0" k="API_KEY" encoding="cp037"?><a/>`))
	got, err := io.ReadAll(x.newRewriteReader(body, kindXML, nil))
	if err == nil || strings.Contains(string(got), "first-value") {
		t.Errorf("%q left, %v", got, err)
	}
}

// TestOneReadingHead: the same for all but the body.
// Promise: one-reading-around-a-name
func TestOneReadingHead(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "header", "path", "query:key", "body:k")}
	colon := []catalog.Credential{credential("API_KEY", "first:value", "header")}
	for _, tc := range []struct {
		c      []catalog.Credential
		url    string
		header []string
	}{
		{c, "/", []string{"Authorization", `X comment=a", token=API_KEY, b="`}},
		{c, "/", []string{"Authorization", `X comment='a, token=API_KEY, b='`}},
		{c, "/", []string{"Authorization", `X comment=a\, token=API_KEY`}},
		{c, "/", []string{"Authorization", `X token=API_KEY, Token=x`}},
		{c, "/", []string{"Authorization", `X token*=API_KEY`}},
		{c, "/", []string{"Authorization", `X a=b; token=API_KEY`}},
		{c, "/", []string{"Authorization", `X a=b token=API_KEY`}},
		{c, "/", []string{"Authorization", `X a="b\"", token=API_KEY`}},
		{c, "/", []string{"Authorization", `X a, token=API_KEY`}},
		{c, "/", []string{"Authorization", `X token=API_KEY,`}},
		{c, "/", []string{"Authorization", `X token=API_KEY, x="a`}},
		{c, "/", []string{"Authorization", `X (c) token=API_KEY`}},
		{c, "/", []string{"Authorization", "Bearer API_KEY", "Authorization", "x"}},
		{c, "/", []string{"X-Key", "API_KEY", "X-Key", "x"}},
		{c, "/", []string{"X-Key", "API_KEY", "X_key", "x"}},
		{c, "/", []string{"X-Key", "x", "X.Key", "Token API_KEY"}},
		{c, "/", []string{"Authorization", basic("API_KEY:a:b")}},
		{c, "/", []string{"Authorization", basic("a\x00b:API_KEY")}},
		{c, "/", []string{"Authorization", basic("a\r\nb:API_KEY")}},
		{c, "/", []string{"Authorization", basic("\xff:API_KEY")}},
		{colon, "/", []string{"Authorization", basic("API_KEY:")}},
		{c, "/API_KEY/../x", nil}, {c, "/./API_KEY", nil}, {c, "/API_KEY/%2e%2E/x", nil}, {c, "/API_KEY/.%2e;a=b/x", nil}, {c, "/API_KEY/..", nil},
		{c, "/API_KEY/%252e%252e/x", nil}, {c, "/API_KEY/%25252e./x", nil}, {c, "/API_KEY/x%2f..%2fy", nil}, {c, "/a%5cb/API_KEY", nil}, {c, "/a%255cb/API_KEY", nil},
		{c, "/API_KEY/%00", nil}, {c, "/API_KEY/a%0d%0ab", nil}, {c, "/API_KEY/%c0%ae%c0%ae/x", nil}, {c, "/API_KEY/%25u002e/x", nil},
		{c, "/a%3fb=?key=API_KEY", nil}, {c, "/a%3fb=/API_KEY", nil}, {c, "/a%253Fb=/API_KEY", nil}, {c, "/a&b=/API_KEY", nil}, {c, "/a%26b=/API_KEY", nil}, {c, "/a;b=/API_KEY", nil},
		{c, "/?key=API_KEY&key=x", nil}, {c, "/?key=x&key=API_KEY", nil}, {c, "/?key=API_KEY&KEY=x", nil}, {c, "/?key=API_KEY&%6bey[]=x", nil},
		{c, "/?key=API_KEY", []string{"Content-Type", "text/plain; charset=cp037"}}, {c, "/API_KEY", []string{"Content-Type", "a/b; charset=utf-16"}},
		{c, "/?key=API_KEY", []string{"Content-Type", "text/plain", "Content-Type", "text/plain; charset=cp037"}}, {c, "/?key=API_KEY", []string{"Content_Type", "text/plain; charset=cp037"}},
		{c, "/?_charset_=cp037&key=API_KEY", nil}, {c, "/?key=API_KEY&_Charset_=utf-16", nil},
		{c, "/?a=1;key=x&key=API_KEY", nil}, {c, "/?key=API_KEY&+key=x", nil}, {c, "/?key=API_KEY&key%00=x", nil}, {c, "/?key=API_KEY&key", nil},
	} {
		req := request(t, "GET", "https://h/", "")
		var err error
		if req.URL, err = req.URL.Parse("https://h"); err != nil {
			t.Fatal(err)
		}
		path, query, _ := strings.Cut(tc.url, "?")
		req.URL.RawPath, req.URL.RawQuery = path, query
		req.URL.Path = multisearch.UnescapePercent(path)
		for i := 0; i < len(tc.header); i += 2 {
			req.Header[tc.header[i]] = append(req.Header[tc.header[i]], tc.header[i+1])
		}
		_, err = New(tc.c).SwapRequest(req, Options{Allowed: tc.c})
		var ambiguity *Ambiguity
		if !errors.As(err, &ambiguity) {
			t.Errorf("%s %q: got %v, %s %v", tc.url, tc.header, err, req.URL, req.Header)
		}
	}
}

// TestOneReadingHeadKept: none of that prevents what is usual.
func TestOneReadingHeadKept(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "header", "path", "query:key")}
	for _, tc := range []struct{ url, header, want string }{
		{"/", `OAuth realm="https://h/", oauth_consumer_key="API_KEY", oauth_signature="a%2Bb%3D"`, `OAuth realm="https://h/", oauth_consumer_key="first-value", oauth_signature="a%2Bb%3D"`},
		{"/", `MediaBrowser Token="API_KEY",Client="a b"`, `MediaBrowser Token="first-value",Client="a b"`},
		{"/", `X key=API_KEY, sig=YWI+/==`, `X key=first-value, sig=YWI+/==`},
		{"/", `key=API_KEY`, `key=first-value`},
		{"/", basic("me:API_KEY"), basic("me:first-value")},
		{"/", basic("API_KEY:"), basic("first-value:")},
		{"/", basic("é:API_KEY"), basic("é:first-value")},
		{"/a%2Fb/API_KEY/c;d=e/...", "", ""}, {"/v1.0/.well-known/API_KEY/%20%25", "", ""}, {"/a=b/API_KEY/c%3Fd&e", "", ""}, {"/?key=API_KEY&a=1;b=2&x=100%", "", ""}, {"/?key=API_KEY&keys=1&key_=2", "", ""}, {"/?x=1&x=2&key=API_KEY", "", ""},
		{"/%2e/?x=/../", "Bearer xyz", "Bearer xyz"},
	} {
		req := request(t, "GET", "https://h"+strings.ReplaceAll(tc.url, "100%", "100%25"), "")
		if tc.header != "" {
			req.Header.Set("Authorization", tc.header)
		}
		r, err := New(c).SwapRequest(req, Options{Allowed: c})
		swaps := strings.Contains(tc.url, "API_KEY") || tc.header != tc.want
		if err != nil || req.Header.Get("Authorization") != tc.want || (len(r.Swapped()) == 1) != swaps {
			t.Errorf("%s %s: became %s, %v", tc.url, tc.header, req.Header.Get("Authorization"), err)
		}
	}
}

// TestSinkSpelling: a header that servers read as a sink counts as one.
// Promise: declared-places-only
func TestSinkSpelling(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "header")}
	for _, name := range []string{"User_Agent", "USER_AGENT", "X_Forwarded_For", "X.Forwarded.For", "If!Match", "Content_disposition", "x~amz~meta~a", "Request_Id"} {
		req := request(t, "GET", "https://h/", "")
		req.Header = http.Header{name: {"API_KEY"}}
		if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil || req.Header[name][0] != "API_KEY" {
			t.Errorf("%s: %v, %v", name, req.Header, err)
		}
	}
}

// TestUnclearMessage: the same holds for a WebSocket message.
// Promise: one-reading-around-a-name
func TestUnclearMessage(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "body:k", "body:a.k")}
	for _, text := range lenientJSON() {
		if strings.IndexAny(text, "{[") != 0 {
			continue // text
		}
		got, _, err := New(c).SwapMessage(text, true, Options{Allowed: c})
		var ambiguity *Ambiguity
		if !errors.As(err, &ambiguity) || got != "" {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
	if got, _, err := New(c).SwapMessage(strictJSON()[0], true, Options{Allowed: c}); err != nil || !strings.Contains(got, "first-value") {
		t.Errorf("became %q, %v", got, err)
	}
}

// TestReasons: each is a complete sentence, without text of a request.
func TestReasons(t *testing.T) {
	for _, a := range []*Ambiguity{
		errTypes, errCharset, errUntyped, errJSON, errJSONMore, errJSONLines, errJSONDeep, errJSONKeys, errJSONRef, errForm, errFormKeys, errFormSet, errQueryKeys, errPath, errPathQuery, errTwice, errParameters, errBasic,
	} {
		if !strings.HasPrefix(a.Reason, "The") && !strings.HasPrefix(a.Reason, "A") || !strings.HasSuffix(a.Reason, ".") || strings.Contains(fmt.Sprint(a), "%!") {
			t.Errorf("%v", a)
		}
	}
}
