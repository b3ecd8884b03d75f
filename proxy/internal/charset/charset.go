// Package charset converts text in a character set that is not a superset of ASCII to UTF-8 while the text streams. A
// search for ASCII strings then finds them, also as escapes, base64 or hexadecimal digits.
//
// Threat: code that makes a server answer in UTF-16, UTF-32, EBCDIC or a set with shift sequences.
//
// Contract: such a set is recognised by the Content-Type, a byte order mark, zero bytes at the beginning of a text, or
// a declaration inside. An unknown set is rejected. Code may control the beginning of a text, so the beginning can only
// add a reading. The raw bytes are always searched, and a mark that contradicts the Content-Type is rejected.
package charset

import (
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// ErrUnknown is the error for text in a character set that cannot be decoded, or with two contradictory declarations.
var ErrUnknown = errors.New("the character set is not supported")

// Reading describes how to decode a response's body. The zero Reading keeps the bytes.
type Reading struct {
	enc    encoding.Encoding // the declared set; nil for a superset of ASCII
	marked bool              // the declared set needs a byte order mark: UTF-16 and UTF-32 without a byte order
	text   bool              // the beginning may declare a set
	markup bool              // a declaration inside may name a set, too: HTML, XML, CSS
}

// Parse reads the character set from a response's head.
func Parse(h http.Header) (Reading, error) {
	var r Reading
	types := h["Content-Type"]
	r.text, r.markup = len(types) == 0, len(types) == 0
	plain := false
	for _, v := range types {
		kind, _, _ := strings.Cut(strings.ToLower(v), ";")
		r.text = r.text || isText(kind)
		r.markup = r.markup || containsAny(kind, "html", "xml", "css")
		for _, label := range findLabels(v, "charset") {
			enc, err := LookupEncoding(label)
			switch {
			case err != nil:
				return r, err
			case enc == nil:
				plain = true
			// Two declared sets: clients differ in the one that they believe.
			case r.enc != nil && r.enc != enc:
				return r, ErrUnknown
			default:
				r.enc, r.marked = enc, r.marked || needsMark(label, enc)
			}
		}
	}
	// One header declares a superset of ASCII and another one does not.
	if plain && r.enc != nil {
		return r, ErrUnknown
	}
	return r, nil
}

// NeedsDecoding reports whether the head declares a set that must be decoded.
func (r Reading) NeedsDecoding() bool { return r.enc != nil }

// DeclareUTF8 declares UTF-8 in the head, if the head declares a set that must be decoded.
func (r Reading) DeclareUTF8(h http.Header) {
	if r.enc == nil {
		return
	}
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	text := ""
	if err == nil {
		params["charset"] = "utf-8"
		text = mime.FormatMediaType(kind, params)
	}
	if text == "" {
		kind, _, _ = strings.Cut(h.Get("Content-Type"), ";")
		text = kind + "; charset=utf-8"
	}
	h.Set("Content-Type", text)
}

func isText(kind string) bool {
	return strings.TrimSpace(kind) == "" || strings.HasPrefix(strings.TrimSpace(kind), "text/") ||
		containsAny(kind, "json", "xml", "html", "script", "csv", "yaml", "graphql", "urlencoded")
}

func containsAny(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// maxLabel is the length in bytes at which a label is cut. No known label is longer.
const maxLabel = 128

// findLabels returns the values of a word in a text, as in charset=x, charset = "x", charset*=utf-8”x.
func findLabels(text, word string) []string {
	var out []string
	lower := strings.ToLower(text)
	for at := 0; ; {
		i := strings.Index(lower[at:], word)
		if i < 0 {
			return out
		}
		i += at
		at = i + len(word)
		// Skip a longer word that ends like this one.
		if i > 0 && isAlnum(lower[i-1]) {
			continue
		}
		rest := strings.TrimLeft(lower[at:], "*0123456789 \t\r\n")
		if !strings.HasPrefix(rest, "=") {
			continue
		}
		rest = strings.TrimLeft(rest[1:], " \t\r\n\"'\\")
		// Without the bound, the work for a text of "charset=charset=" would be quadratic.
		rest = rest[:min(len(rest), maxLabel)]
		if end := strings.IndexAny(rest, " \t\r\n\";,?>/\\"); end >= 0 {
			rest = rest[:end]
		}
		rest = strings.TrimRight(rest, "'")
		out = append(out, rest[strings.LastIndexByte(rest, '\'')+1:])
	}
}

func isAlnum(b byte) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '-' || b == '_'
}

// foldLabel returns a label without the differences between its spellings.
func foldLabel(label string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r | 0x20
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return -1
	}, label)
}

// LookupEncoding returns the encoding of a label, or nil for a superset of ASCII.
func LookupEncoding(label string) (encoding.Encoding, error) {
	if label == "" {
		return nil, nil
	}
	switch foldLabel(label) {
	case "ascii", "usascii", "646", "binary", "none", "unknown", "undefined", "default", "ansi", "auto",
		"utf8", "utf8mb3", "utf8mb4", "utf8sig", "cp65001", "65001", "latin1", "l1", "iso88591",
		"win1250", "win1251", "win1252", "windows1250", "windows1251", "windows1252":
		return nil, nil
	case "utf16", "u16", "ucs2", "unicode", "csunicode", "iso10646ucs2", "csutf16",
		"utf16le", "unicodelittle", "csutf16le":
		return utf16LE, nil
	case "utf16be", "unicodebig", "unicodefffe", "csutf16be":
		return utf16BE, nil
	case "utf32", "u32", "ucs4", "iso10646ucs4", "csucs4", "csutf32", "utf32le", "csutf32le":
		return utf32LE, nil
	case "utf32be", "csutf32be":
		return utf32BE, nil
	case "037", "cp037", "ibm037", "ibm039", "csibm037", "ebcdiccpus", "ebcdiccpca", "ebcdiccpwt", "ebcdiccpnl":
		return charmap.CodePage037, nil
	case "1047", "cp1047", "ibm1047", "ibm01047":
		return charmap.CodePage1047, nil
	case "1140", "cp1140", "cp01140", "ibm1140", "ibm01140", "ccsid01140":
		return charmap.CodePage1140, nil
	case "cp932":
		return japanese.ShiftJIS, nil
	case "cp949", "ms949", "xwindows949":
		return korean.EUCKR, nil // the Web's, which is Windows' code page
	case "cp950":
		return traditionalchinese.Big5, nil
	case "iso2022jp", "csiso2022jp":
		return japanese.ISO2022JP, nil
	case "hz", "hzgb", "hzgb2312":
		return simplifiedchinese.HZGB2312, nil
	}
	for _, name := range []string{label, strings.ReplaceAll(label, "_", "-"), strings.ReplaceAll(label, "-", "_")} {
		if enc, err := htmlindex.Get(name); err == nil && enc != nil && enc != encoding.Replacement {
			return omitASCIISuperset(enc), nil
		}
		if enc, err := ianaindex.IANA.Encoding(name); err == nil && enc != nil && enc != encoding.Replacement {
			return omitASCIISuperset(enc), nil
		}
	}
	return nil, ErrUnknown
}

// The sets with more than one byte for each character. The decoder keeps a byte order mark and converts it to UTF-8.
var (
	utf16LE = unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	utf16BE = unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	utf32LE = utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM)
	utf32BE = utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)
)

// needsMark reports whether the label of a set does not name the byte order. LookupEncoding returns little endian for
// such a label.
func needsMark(label string, enc encoding.Encoding) bool {
	return (enc == utf16LE || enc == utf32LE) && !strings.HasSuffix(foldLabel(label), "le")
}

// omitASCIISuperset returns nil for a single-byte encoding that is a superset of ASCII: the raw bytes can be searched.
// In every other encoding an ASCII byte may be part of another character, or a shift.
func omitASCIISuperset(enc encoding.Encoding) encoding.Encoding {
	if enc == unicode.UTF8 || enc == unicode.UTF8BOM {
		return nil
	}
	single, ok := enc.(*charmap.Charmap)
	if !ok && enc != charmap.XUserDefined {
		return enc
	}
	// EBCDIC, for example, has single bytes but is not ASCII.
	for b := byte(0); ok && b < 0x80; b++ {
		if single.DecodeByte(b) != rune(b) {
			return enc
		}
	}
	return nil
}
