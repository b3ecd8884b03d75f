package upstream

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// charsets are the character sets that echo can respond in, by their Python names.
var charsets = map[string]encoding.Encoding{
	"ascii":       unicode.UTF8,
	"utf-16":      unicode.UTF16(unicode.LittleEndian, unicode.UseBOM),
	"utf-16-le":   unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM),
	"utf-16-be":   unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
	"utf-32":      utf32.UTF32(utf32.BigEndian, utf32.UseBOM),
	"utf-32-le":   utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM),
	"utf-32-be":   utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM),
	"cp037":       charmap.CodePage037,
	"cp1047":      charmap.CodePage1047,
	"cp1140":      charmap.CodePage1140,
	"iso-2022-jp": japanese.ISO2022JP,
}

// inCharset encodes text in a character set, "set" or "set:label". "asked" is the set that the request asks for, as in
// CherryPy. The second result is the charset for Content-Type.
func inCharset(cs, text string, r *http.Request) (string, string) {
	name, label, own := strings.Cut(cs, ":")
	if name == "asked" {
		name = asked(r)
		if name == "" {
			return text, ""
		}
	}
	if !own {
		label = name
	}
	enc := charsets[name]
	if enc == nil {
		return "no character set " + name, ""
	}
	out, err := enc.NewEncoder().String(text)
	if err != nil {
		return err.Error(), ""
	}
	if name == "iso-2022-jp" { // with a shift to Roman and back, which has no effect
		out = text[:len(text)/2] + "\x1b(J\x1b(B" + text[len(text)/2:]
	}
	if label == "none" {
		return out, ""
	}
	return out, "; charset=" + label
}

// asked is the character set that a request asks for.
func asked(r *http.Request) string {
	for name, values := range r.Header {
		if folded(name) == "accept-charset" {
			return values[0]
		}
	}
	_, after, _ := strings.Cut(r.Header.Get("Accept"), "charset=")
	return after
}

// folded is a header's name as CGI and WSGI see it.
func folded(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(name))
}

// breach serves a page with the credential next to posted text, compressed if the request asks for it in any spelling,
// or always with force. Each byte takes 4 ms. The parameter guess is right:N or wrong:N: the first N characters of the
// credential or others, few enough not to count as a leak.
func breach(w http.ResponseWriter, r *http.Request) {
	secret := secretOf(r)
	kind, count, _ := strings.Cut(r.URL.Query().Get("guess"), ":")
	guess := secret[:min(number(map[string][]string{"n": {count}}, "n", 0), len(secret))]
	if kind == "wrong" {
		guess = strings.Map(func(c rune) rune { return '!' + (c-'!'+13)%94 }, guess)
	}
	page := []byte("key=" + secret + " text=" + guess)
	compressed := r.URL.Query().Get("force") != ""
	for name, values := range r.Header {
		compressed = compressed || folded(name) == "accept-encoding" && strings.Contains(fmt.Sprint(values), "gzip")
	}
	if compressed {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(page)
		_ = z.Close()
		page = b.Bytes()
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	time.Sleep(time.Duration(len(page)) * 4 * time.Millisecond)
	_, _ = io.Copy(w, bytes.NewReader(page))
}
