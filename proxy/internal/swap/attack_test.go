package swap

import (
	"compress/gzip"
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
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// attackSlow rewrites a body byte by byte, without the search for text that passes at once.
func attackSlow(x *requestRewrite, kind, text string) (string, error) {
	x.req = &http.Request{Header: http.Header{"Content-Type": {kind}}}
	k, bad := bodyKind(x.req.Header)
	w := x.newBodyWriter(k, bad)
	var out []byte
	lax := func(ws *nameBuffer, b byte) {
		if multisearch.IsWordByte(b) {
			out = ws.addByte(out, b)
		} else {
			out = append(ws.endPassThrough(out), b)
		}
	}
	var step func(w bodyWriter, b byte)
	step = func(w bodyWriter, b byte) {
		switch w := w.(type) {
		case *sniffer:
			if !w.chosen {
				if strings.IndexByte(" \t\r\n", b) >= 0 {
					out = append(out, b)
					return
				}
				w.bodyWriter, w.chosen = w.chooseWriter(b), true
			}
			step(w.bodyWriter, b)
		case *jsonWriter:
			if w.bad != nil {
				lax(&w.nameBuffer, b)
				return
			}
			out = w.writeByte(out, []byte{b})
		case *formWriter:
			if w.bad != nil {
				lax(&w.nameBuffer, b)
				return
			}
			out = w.writeByte(out, []byte{b})
		case *textWriter:
			w.size++
			if multisearch.IsWordByte(b) {
				out = w.addByte(out, b)
			} else {
				out = append(w.swapRun(out, requestSpot{catalog.SurfaceBody, w.field, false}, w.coded), b)
			}
		case *xmlWriter:
			if !w.decided {
				if len(w.head) < maxDeclaration {
					w.head = append(w.head, b)
				}
				w.checkDeclaration(false)
			}
			if w.bad != nil {
				lax(&w.nameBuffer, b)
				return
			}
			step(&w.textWriter, b)
		case *refuser:
			lax(&w.nameBuffer, b)
		}
	}
	for i := range len(text) {
		step(w, text[i])
		if f := w.findFault(); f != nil {
			return "", f
		}
	}
	out = w.finishText(out)
	return string(out), w.findFault()
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
		result := func(do func(x *requestRewrite) (string, error)) string {
			x := &requestRewrite{s: s, o: Options{Allowed: c}, report: &Report{}}
			out, err := do(x)
			var ambiguous *Ambiguity
			if errors.As(err, &ambiguous) {
				return err.Error()
			}
			return fmt.Sprintf("%q %v %v %v", out, err, x.report.Swapped(), x.report.Seen())
		}
		want := result(func(x *requestRewrite) (string, error) { return attackSlow(x, kind, text) })
		if strings.Contains(want, "value") {
			swapped++
		}
		if strings.HasPrefix(want, "ambiguous") {
			refused++
		}
		for range 4 {
			sizes := []int{1 + r.IntN(9), 1 + r.IntN(len(text)+1), 1 + r.IntN(40)}
			got := result(func(x *requestRewrite) (string, error) {
				x.req = &http.Request{Header: http.Header{"Content-Type": {kind}}}
				out, err := io.ReadAll(x.newSwapReader(&attackReader{text, sizes, 0}))
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
		x := result(func(x *requestRewrite) (string, error) {
			req, err := http.NewRequest(http.MethodPost, "https://h/", strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if kind != "" {
				req.Header.Set("Content-Type", kind)
			}
			report, err := s.SwapRequest(req, Options{Allowed: c})
			x.report = report
			if err != nil {
				return "", err
			}
			out, err := io.ReadAll(req.Body)
			after = string(out)
			return after, err
		})
		if x != want && (after != text || s.parts.Contains(text)) {
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
			x := &requestRewrite{s: New(c), o: Options{Allowed: c}, report: &Report{}, req: &http.Request{Header: http.Header{"Content-Type": {kind}}}}
			out, err := io.ReadAll(x.newSwapReader(&attackReader{text, []int{at, len(text)}, 0}))
			if err != nil || !strings.Contains(string(out), "first-value") {
				t.Errorf("%s cut at %d: %s %v", kind, at, out, err)
			}
		}
	}
}

// TestAttackCarried: a value is refused wherever it is around the length up to which a body is searched in one piece, with
// names beside it and without, however it is coded and announced; and no server gets all of such a body.
func TestAttackCarried(t *testing.T) {
	const v = "sk_live_51Hx/Zq+canary=="
	s := New([]catalog.Credential{credential("API_KEY", "another-value", "body:k", "body"), credential("OTHER_KEY", v, "body:x")})
	const most = 256 << 10
	gz := func(text string) string {
		var b strings.Builder
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		return b.String()
	}
	n := 0
	for _, total := range []int{len(v), len(v) + 40, most - 1, most, most + 1, 2*most - 1, 2 * most, 2*most + 1} {
		for _, at := range []int{0, 1, most - len(v) - 1, most - len(v), most - len(v) + 1, most - 1, most, most + 1, total - len(v)} {
			if at < 0 || at+len(v) > total {
				continue
			}
			for _, begin := range []string{"", `{"k":"API_KEY","t":"`, "k=API_KEY&t="} {
				if at < len(begin) {
					continue
				}
				text := begin + strings.Repeat("x", at-len(begin)) + v + strings.Repeat("y", total-at-len(v))
				for _, kind := range []string{"application/json", "application/x-www-form-urlencoded", "text/plain", "application/octet-stream", ""} {
					for _, coded := range []bool{false, true} {
						for _, announced := range []bool{false, true} {
							for _, allowed := range [][]catalog.Credential{s.all, s.all[1:], nil} {
								if n++; n%7 != 0 && total > most { // all of them take long
									continue
								}
								sent := text
								req, err := http.NewRequest(http.MethodPost, "https://h/", nil)
								if err != nil {
									t.Fatal(err)
								}
								if coded {
									sent = gz(text)
									req.Header.Set("Content-Encoding", "gzip")
								}
								if kind != "" {
									req.Header.Set("Content-Type", kind)
								}
								req.Body, req.ContentLength = io.NopCloser(&attackReader{sent, []int{4097, 1, 32769}, 0}), -1
								if announced {
									req.ContentLength = int64(len(sent))
								}
								found := make(chan CarriedValue, 8)
								_, err = s.SwapRequest(req, Options{Allowed: allowed, Found: func(c CarriedValue) { found <- c }})
								whole := ""
								if err == nil {
									var out []byte
									out, err = io.ReadAll(req.Body)
									whole = string(out)
									_ = req.Body.Close()
								}
								if !errors.Is(err, ErrCarriesValue) && !errors.As(err, new(*Ambiguity)) || strings.Contains(whole, v) || whole == sent {
									t.Fatalf("%d bytes with the value at %d, begins %q, %s, coded %v, announced %v, allowed %d: %d bytes left, %v", total, at, begin, kind, coded, announced, len(allowed), len(whole), err)
								}
								if errors.Is(err, ErrCarriesValue) && len(found) == 0 {
									t.Fatal("nobody was told")
								}
							}
						}
					}
				}
			}
		}
	}
	t.Log(n)
}
