package swap

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// attackSlow is how a body is rewritten byte by byte, with nothing of the pass functions.
func attackSlow(x *rewrite, kind, text string) (string, error) {
	x.req = &http.Request{Header: http.Header{"Content-Type": {kind}}}
	k, bad := bodyKind(x.req.Header)
	w := x.outer(k, bad)
	var out []byte
	lax := func(ws *words, b byte) {
		if isWord(b) {
			out = ws.add(out, b)
		} else {
			out = append(ws.endLax(out), b)
		}
	}
	var step func(w writer, b byte)
	step = func(w writer, b byte) {
		switch w := w.(type) {
		case *sniffer:
			if w.w == nil {
				if strings.IndexByte(" \t\r\n", b) >= 0 {
					out = append(out, b)
					return
				}
				w.w = w.choose(b)
			}
			step(w.w, b)
		case *jsonWriter:
			switch {
			case w.bad != nil:
				lax(&w.words, b)
			case w.in:
				out = w.inString(out, b)
			default:
				out = w.outside(out, b)
			}
		case *formWriter:
			if w.bad != nil {
				lax(&w.words, b)
				return
			}
			out = w.byte(out, b)
		case *textWriter:
			if isWord(b) {
				out = w.add(out, b)
			} else {
				w.only = false
				out = append(w.end(out, spot{catalog.SurfaceBody, w.field, false}, w.coded), b)
			}
		case *xmlWriter:
			if !w.decided {
				if len(w.head) < maxDeclaration {
					w.head = append(w.head, b)
				}
				w.decide()
			}
			if w.bad != nil {
				lax(&w.words, b)
				return
			}
			step(&w.textWriter, b)
		case *refuser:
			lax(&w.words, b)
		}
	}
	for i := range len(text) {
		step(w, text[i])
		if f := w.fault(); f != nil {
			return "", f
		}
	}
	out = w.finish(out)
	return string(out), w.fault()
}

var attackPieces = []string{
	"{", "}", "[", "]", ",", ":", `"`, `"k":`, `"K":`, `"a":{"b":`, `"a":[{"b":`, `"a":[[[{"b":`, `"a.b":`, `"\u006b":`, `"k\u0000x":`, `"\u212a":`, "\"\u212a\":", `"":`, `"x":`, `"k "`,
	`"OTHER_KEY"`, `"API_KEY"`, `"ANY_KEY"`, "API_KEY", "AK", `"AK"`, "A", `"A"`, "Customer", "DAPI_KEY", `"DAPI_KEY"`, "U002DAPI", "OPEN_N_API_KEY",
	`"rows":[{"id":1,"name":"Ä x"},{"ok":true,"n":null}]`, `"text \"quoted\" \\ \/"`, `\u0041`, `\u002d`, `\u002D`, `\ud83d`, `\ud83d\ude00`, `\n`, `\"`, `\`, `\u`, `\u0`, `\u00`, `\u002`, "\xff", "\xc3", "ä", "&", ";", "=",
	"k=API_KEY&", "k=AK&", "a.b=OTHER_KEY&", "a_b=OTHER_KEY", "list[x]=", "list[]=1&", "%41", "%2D", "%2d", "%", "%4", "%zz", "+", " ", "\n", "\r\n", "\t", "-1.5e+10", "01", "1E5", "nul", "null", "NaN", "1.", "-", "/*x*/", "//", "'", "#",
	"\xef\xbb\xbf", "\x00", "\x7f", "<?xml version='1.0'?>", "<?xml version='1.0' encoding='utf-7'?>", "<k>API_KEY</k>", "_charset_=x&", "K=x&", "k[]=x&", "k%00=x&", "%6b=API_KEY&", "+k=1&", "k;k=", "k=AK;k=",
	"xAPI_KEY", "API_KEYS", `{"k":"API_KEY","rows":[{"id":1}]}`, `{"k":"API_KEY","k":1}`, `{"k":"API_KEY","K":1}`, `{"a":{"b":"OTHER_KEY"}}`, `{"a":[{"b":"OTHER_KEY"},{"b":1}]}`, `"x",`, `"y":1,`, "true", "false ", "tru", "1 ", "0", "-0.0e-1,",
}

// TestAttackPass compares bodies in pieces of every size with a reading byte by byte that knows nothing of what passes at once.
// CODEFORGE_ATTACK=10m makes it longer.
func TestAttackPass(t *testing.T) {
	long, _ := time.ParseDuration(os.Getenv("CODEFORGE_ATTACK"))
	seed := uint64(21)
	if long > 0 {
		seed = uint64(time.Now().UnixNano())
	}
	r := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // a test
	catalogs := [][]catalog.Credential{
		{
			credential("API_KEY", "first&\"value", "body:k"), credential("OTHER_KEY", "other-value", "body:a.b", "body:list[x]"),
			credential("ANY_KEY", "any-value", "body"), credential("DAPI_KEY", "d-value", "body"),
		},
		{credential("AK", "short-value", "body:k", "body"), credential("API_KEY", "first-value", "body:k"), credential(strings.Repeat("N", 64), "long-name-value", "body")},
		{credential("API_KEY", "first-value", "body:ké", "body:k"), credential("OPEN_N_API_KEY", "other-value", "body")},
		{credential("API_KEY", "first-value", "body:"), credential("OTHER_KEY", "x-value", "body:a.b.c", "body:b")},
	}
	began, n, swapped, refused := time.Now(), 0, 0, 0
	for ; n < 3000 || time.Since(began) < long; n++ {
		c := catalogs[r.IntN(len(catalogs))]
		s := New(c)
		var b strings.Builder
		open := 0
		for range 1 + r.IntN(12) {
			p := attackPieces[r.IntN(len(attackPieces))]
			if r.IntN(12) == 0 {
				p = strings.Repeat([]string{"x", "A", "word ", "AAAA-", "{\"x\":", "["}[r.IntN(6)], 1+r.IntN(140))
			}
			if r.IntN(10) == 0 {
				p = c[r.IntN(len(c))].Name
			}
			b.WriteString(p)
			open += strings.Count(p, "{")
		}
		text := b.String()
		if r.IntN(3) == 0 {
			text = `{"x":"` + text + `"}`
		}
		if r.IntN(8) == 0 {
			text = `{"x":1,` + text + `}`
		}
		kind := []string{
			"application/json", "application/json", "application/x-ndjson", "application/x-www-form-urlencoded", "application/x-www-form-urlencoded", "text/plain", "", "application/xml",
			"application/octet-stream", "application/json; charset=utf-16",
		}[r.IntN(10)]
		result := func(do func(x *rewrite) (string, error)) string {
			x := &rewrite{s: s, o: Options{Allowed: c}, report: &Report{}}
			out, err := do(x)
			var ambiguous *Ambiguity
			if errors.As(err, &ambiguous) {
				return err.Error()
			}
			return fmt.Sprintf("%q %v %v %v", out, err, x.report.Swapped(), x.report.Seen())
		}
		want := result(func(x *rewrite) (string, error) { return attackSlow(x, kind, text) })
		if strings.Contains(want, "value") {
			swapped++
		}
		if strings.HasPrefix(want, "ambiguous") {
			refused++
		}
		for range 4 {
			sizes := []int{1 + r.IntN(9), 1 + r.IntN(len(text)+1), 1 + r.IntN(40)}
			got := result(func(x *rewrite) (string, error) {
				x.req = &http.Request{Header: http.Header{"Content-Type": {kind}}}
				out, err := io.ReadAll(x.swapped(&attackReader{text, sizes, 0}))
				return string(out), err
			})
			if got != want {
				t.Fatalf("seed %d: %s %q by %v:\n%s\nbyte by byte:\n%s", seed, kind, text, sizes, got, want)
			}
		}
		// The whole body at once, as one of a known length is.
		if text == "" {
			continue
		}
		var after string
		x := result(func(x *rewrite) (string, error) {
			req, err := http.NewRequest(http.MethodPost, "https://h/", strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if kind != "" {
				req.Header.Set("Content-Type", kind)
			}
			report, err := s.Request(req, Options{Allowed: c})
			x.report = report
			if err != nil {
				return "", err
			}
			out, err := io.ReadAll(req.Body)
			after = string(out)
			return after, err
		})
		if x != want && !(after == text && !s.parts.Contains(text)) {
			t.Fatalf("seed %d: %s %q at once:\n%s\nbyte by byte:\n%s", seed, kind, text, x, want)
		}
	}
	t.Log(n, "bodies", swapped, "swapped", refused, "refused")
}

type attackReader struct {
	text  string
	sizes []int
	i     int
}

func (a *attackReader) Read(p []byte) (int, error) {
	if a.text == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), a.sizes[a.i%len(a.sizes)])], a.text)
	a.i++
	a.text = a.text[n:]
	return n, nil
}

// TestAttackSplitEscape: a name behind an escape is found wherever the escape is cut.
func TestAttackSplitEscape(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "body")}
	for kind, text := range map[string]string{
		"application/json": `{"x":"long enough, and \u002dAPI_KEY is in it"}`, "application/x-www-form-urlencoded": "x=long-enough%2DAPI_KEY-is-in-it",
	} {
		for at := 1; at < len(text); at++ {
			x := &rewrite{s: New(c), o: Options{Allowed: c}, report: &Report{}, req: &http.Request{Header: http.Header{"Content-Type": {kind}}}}
			out, err := io.ReadAll(x.swapped(&attackReader{text, []int{at, len(text)}, 0}))
			if err != nil || !strings.Contains(string(out), "first-value") {
				t.Errorf("%s cut at %d: %s %v", kind, at, out, err)
			}
		}
	}
}
