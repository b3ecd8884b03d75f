package swap

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// TestPassed: bodies in which much passes at once become what they become byte by byte.
func TestPassed(t *testing.T) {
	c := []catalog.Credential{
		credential("API_KEY", "first&\"value", "body:k"), credential("OTHER_KEY", "other-value", "body:a.b", "body:list[x]"),
		credential("ANY_KEY", "any-value", "body"),
	}
	s := New(c)
	pieces := []string{
		"{", "}", "[", "]", ",", ":", `"`, `"k":`, `"K":`, `"a":{"b":`, `"OTHER_KEY"`, `"API_KEY"`, `"ANY_KEY"`, "API_KEY", "Customer",
		`"rows":[{"id":1,"name":"Ä x"},{"ok":true,"n":null}]`, `"text \"quoted\" \\ \/"`, `\u0041`, `\ud83d`, "\xff", "ä", "&", ";", "=",
		"k=API_KEY&", "a.b=OTHER_KEY&", "list[x]=", "list[]=1&", "%41", "%2D", "%", "+", " ", "\n", "-1.5e+10", "01", "1E5", "nul", "null",
		strings.Repeat("x", 70), strings.Repeat("A", 70), "xAPI_KEY", "API_KEYS", `{"k":"API_KEY","rows":[{"id":1}]}`, `"x",`, `"y":1,`,
	}
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	swapped, refused := 0, 0
	for range 6000 {
		var text strings.Builder
		for range 1 + rng.IntN(14) {
			text.WriteString(pieces[rng.IntN(len(pieces))])
		}
		kind := []string{
			"application/json", "application/x-ndjson", "application/x-www-form-urlencoded", "text/plain", "", "application/xml",
			"application/octet-stream", "application/json; charset=utf-16",
		}[rng.IntN(8)]
		one := samePieces(t, s, c, kind, text.String())
		if strings.Contains(one, "-value") {
			swapped++
		}
		if strings.HasPrefix(one, "ambiguous") {
			refused++
		}
	}
	if swapped < 100 || refused < 100 {
		t.Errorf("%d bodies swapped, %d refused", swapped, refused)
	}
}

// samePieces rewrites a body byte by byte and in larger pieces, and returns the result, which must be the same for all.
func samePieces(t *testing.T, s *Swapper, c []catalog.Credential, kind, text string) string {
	t.Helper()
	result := func(size int) string {
		x := &requestRewrite{s: s, o: Options{Allowed: c}, report: &Report{}}
		out, err := rewritten(x, kind, text, size)
		var ambiguous *Ambiguity
		if errors.As(err, &ambiguous) {
			return err.Error() // how much was read before depends on the pieces
		}
		return fmt.Sprintf("%q %v %v %v", out, err, x.report.Swapped(), x.report.Seen())
	}
	one := result(1)
	for _, size := range []int{0, 2, 7, 33} {
		if got := result(size); got != one {
			t.Fatalf("%s %q in pieces of %d:\n%s\nbyte by byte:\n%s", kind, text, size, got, one)
		}
	}
	return one
}

// TestPassedForms: forms are rewritten as they are byte by byte, whatever servers may read their keys as.
func TestPassedForms(t *testing.T) {
	c := []catalog.Credential{
		credential("API_KEY", "first-value", "body:k"), credential("OTHER_KEY", "other-value", "body:a.b", "body:list[x]"),
		credential("LONG_KEY", "long-value", "body:"+strings.Repeat("n", 128)),
	}
	s := New(c)
	keys := []string{
		"id", "name", "k", "K", "+k", "%6B", "k[]", "k[", "kk", "k.", "a.b", "A_b", "a+b", "a%2Eb", "a.b[c]", "list[x]", "LIST[x]", "list[x][]",
		"list", "_charset_", "_CHARSET_", "_charset_[]", "API_KEY", "xAPI_KEY", "API_KEY[]", "customer[API_KEY]", "", "k\"", "customer[name]",
		strings.Repeat("n", 128), strings.Repeat("x", maxKey), strings.Repeat("x", maxKey+1), strings.Repeat("A", 70),
	}
	values := []string{"=API_KEY", "=OTHER_KEY", "=LONG_KEY", "=x", "=", "", "=a%2Db", "==", "=xAPI_KEY", "=API_KEY%2D"}
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test
	swapped, refused := 0, 0
	for range 6000 {
		var pairs []string
		for range 1 + rng.IntN(4) {
			pairs = append(pairs, keys[rng.IntN(len(keys))]+values[rng.IntN(len(values))])
		}
		one := samePieces(t, s, c, "application/x-www-form-urlencoded", strings.Join(pairs, "&"))
		if strings.Contains(one, "-value") {
			swapped++
		}
		if strings.HasPrefix(one, "ambiguous") {
			refused++
		}
	}
	if swapped < 100 || refused < 100 {
		t.Errorf("%d forms swapped, %d refused", swapped, refused)
	}
}

// TestSharedField: two credentials that declare the same field do not make it occur twice.
func TestSharedField(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "body:k"), credential("OTHER_KEY", "other-value", "body:k")}
	for kind, text := range map[string]string{
		"application/json": `{"k":"OTHER_KEY"}`, "application/x-www-form-urlencoded": "k=OTHER_KEY",
		"multipart/form-data; boundary=b": "--b\r\nContent-Disposition: form-data; name=\"k\"\r\n\r\nOTHER_KEY\r\n--b--\r\n",
	} {
		req := post(t, text, true, "Content-Type", kind)
		r, err := New(c).SwapRequest(req, Options{Allowed: c})
		if err != nil || len(r.Swapped()) != 1 {
			t.Errorf("%s: %v, %v", kind, err, r.Swapped())
		}
	}
}

// TestPassedNames: names after escapes, in long words and at the end of a read are found as they are byte by byte.
func TestPassedNames(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "body"), credential("DAPI_KEY_2", "other-value", "body")}
	s := New(c)
	long := strings.Repeat("word and Word ", 40)
	swapped := 0
	for _, before := range []string{
		"", "n", `\n`, `\\n`, `\"`, `\u002d`, `\u00e9`, `\/`, "%2D", "%5B", "%25", "%", "x", "-", "A_", "9", strings.Repeat("A", 60), strings.Repeat("b", 200) + `\n`,
	} {
		for _, name := range []string{"API_KEY", "DAPI_KEY_2", "API_KEY_2", "API_KEYAPI_KEY", "API_KEY DAPI_KEY_2", "API_KE"} {
			for _, after := range []string{"", "x", "-", `\n`, "%2D"} {
				for kind, around := range map[string][2]string{
					"application/json": {`{"a":"` + long, long + `","b":1}`}, "application/x-www-form-urlencoded": {"a=", "&b=1"}, "application/octet-stream": {long, long},
				} {
					if strings.Contains(samePieces(t, s, c, kind, around[0]+before+name+after+around[1]), "-value") {
						swapped++
					}
				}
			}
		}
	}
	if swapped < 200 {
		t.Errorf("only %d bodies were swapped in", swapped)
	}
}

// TestShortCarries: a short body in which names are swapped is refused and reported if it carries a value, even if its
// source breaks off after the value.
func TestShortCarries(t *testing.T) {
	const v = "the-value-of-the-credential"
	c := []catalog.Credential{credential("API_KEY", v, "body:k")}
	for _, breaks := range []bool{false, true} {
		req := request(t, "POST", "https://h/", `{"k":"API_KEY","x":"`+v+`"}`, "Content-Type", "application/json")
		if breaks {
			req.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"x":"`+v+`"`), iotest.ErrReader(errors.New("broken off"))))
		}
		var found []CarriedValue
		_, err := New(c).SwapRequest(req, Options{Allowed: c, Found: func(c CarriedValue) { found = append(found, c) }})
		if want := (CarriedValue{Name: "API_KEY", In: "body"}); !errors.Is(err, ErrCarriesValue) || len(found) != 1 || found[0] != want {
			t.Errorf("breaks off %v: %v, told %v", breaks, err, found)
		}
	}
}
