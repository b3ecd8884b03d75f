package multisearch

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode"

	"golang.org/x/text/encoding/charmap"
)

const (
	// leastReading is the length in bytes of the shortest reading of a value. Responses contain shorter texts by chance.
	leastReading = 8
	// maxReadings bounds the readings of a value: a server that issues values may nest thousands of escapes.
	maxReadings = 3
)

// ListForms returns the patterns that find a value as a server may echo it:
//   - literally and escaped
//   - in base64, at every alignment and in both alphabets
//   - in hexadecimal digits of either case
//   - if the value is ASCII: in UTF-16 (also in base64), UTF-32 and EBCDIC
//   - all of these after the server has decoded percent escapes in the value
func ListForms(value string, id int) []Pattern {
	var ps []Pattern
	for _, text := range ListReadings(value) {
		ps = append(ps, listFormsOfText(text, id)...)
	}
	return ps
}

// ListReadings returns a value as servers read it: the value, and the texts of printable ASCII that its percent escapes
// stand for after one decoding and after two. It leaves out texts shorter than leastReading. Frameworks decode the
// value of a cookie, and sessions often contain escapes.
func ListReadings(value string) []string {
	list := []string{value}
	for len(list) < maxReadings {
		text := UnescapePercent(value)
		// A line feed in a pattern would make a Reader hold back whole lines of all responses.
		if text == value || len(text) < leastReading || strings.ContainsFunc(text, isUnprintable) {
			break
		}
		list, value = append(list, text), text
	}
	return list
}

func isUnprintable(r rune) bool { return r < ' ' || r > '~' }

// UnescapePercent decodes each percent sign that is followed by two hexadecimal digits, and leaves the others.
func UnescapePercent(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if c, err := hex.DecodeString(text[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// listFormsOfText returns the patterns of one of the ListReadings.
func listFormsOfText(value string, id int) []Pattern {
	ps := []Pattern{{Text: value, ID: id, Escaped: true}}
	// HTML forms write a space as a plus sign. A server that reads a plus sign as a space may echo the space.
	for _, pair := range [][2]string{{" ", "+"}, {"+", " "}} {
		if strings.Contains(value, pair[0]) {
			ps = append(ps, Pattern{Text: strings.ReplaceAll(value, pair[0], pair[1]), ID: id, Escaped: true})
		}
	}
	if isASCII(value) {
		ps = append(ps, listCharsetForms(value, id)...)
	}
	h := hex.EncodeToString([]byte(value))
	ps = append(ps, Pattern{Text: h, ID: id, thin: true}, Pattern{Text: strings.ToUpper(h), ID: id, thin: true})
	// The value may begin at any of the three positions of a base64 group.
	for align := range 3 {
		ps = append(ps, newBase64Form(value, id, align, base64.RawStdEncoding))
		ps = append(ps, newBase64Form(value, id, align, base64.RawURLEncoding))
	}
	return ps
}

// ListLowerForms returns the patterns that find a value in case-insensitive text, such as a header's name. The patterns
// are in lower case: use ContainsFold, or search text in lower case.
func ListLowerForms(value string, id int) (ps []Pattern) {
	for _, text := range ListReadings(value) {
		ps = append(ps, Pattern{Text: strings.ToLower(text), ID: id, Escaped: true},
			Pattern{Text: hex.EncodeToString([]byte(text)), ID: id})
	}
	return ps
}

// listCharsetForms returns the forms in character sets that are not supersets of ASCII.
func listCharsetForms(value string, id int) []Pattern {
	ps := []Pattern{{Text: toUTF16(value), ID: id, Write: toUTF16, step: 2},
		{Text: toUTF32(value), ID: id, Write: toUTF32, step: 4}}
	for _, page := range []*charmap.Charmap{charmap.CodePage037, charmap.CodePage1047} {
		write := func(text string) string { return toEBCDIC(page, text) }
		ps = append(ps, Pattern{Text: write(value), ID: id, Write: write})
	}
	for align := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			p := newBase64Form(toUTF16(value), id, align, enc)
			p.thin = true
			// This form is long: to find it escaped, a Reader would have to hold more bytes.
			p.Escaped = false
			ps = append(ps, p)
		}
	}
	return ps
}

// toUTF16 returns ASCII text in UTF-16 of either byte order, without the NUL before or after it.
func toUTF16(text string) string { return strings.Join(strings.Split(text, ""), "\x00") }

// toUTF32 returns ASCII text in UTF-32 of either byte order, without the NULs before or after it.
func toUTF32(text string) string { return strings.Join(strings.Split(text, ""), "\x00\x00\x00") }

// toEBCDIC returns ASCII text in an EBCDIC code page. National code pages differ only in punctuation.
func toEBCDIC(page *charmap.Charmap, text string) string {
	out := make([]byte, len(text))
	for i := range len(text) {
		out[i], _ = page.EncodeRune(rune(text[i]))
	}
	return string(out)
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII })
}

// newBase64Form returns the part of value's base64 that does not depend on the surrounding text, if the value begins
// align bytes into a group of three. The characters with bits of both become edges.
func newBase64Form(value string, id, align int, enc *base64.Encoding) Pattern {
	// The zeros stand for unknown bytes before the value.
	coded := enc.EncodeToString([]byte(strings.Repeat("\x00", align) + value))
	bits := 8 * (align + len(value))
	first, last := (8*align+5)/6, bits/6
	text := coded[first:last]
	// A text without - and _ is the same in the standard alphabet, whose pattern also finds its escaped form.
	p := Pattern{Text: text, ID: id, Escaped: enc == base64.RawStdEncoding || strings.ContainsAny(text, "-_")}
	if align > 0 {
		p.left = edge{known: uint8(6*first - 8*align), bits: decodeSextet(coded[first-1])}
	}
	if known := uint8(bits - 6*last); known > 0 {
		p.right = edge{known: known, bits: decodeSextet(coded[last]) >> (6 - known)}
	}
	return p
}

const noSextet = 0xFF

// decodeSextet returns the value of a base64 character of either alphabet, or noSextet.
func decodeSextet(b byte) uint8 {
	switch {
	case 'A' <= b && b <= 'Z':
		return b - 'A'
	case 'a' <= b && b <= 'z':
		return b - 'a' + 26
	case '0' <= b && b <= '9':
		return b - '0' + 52
	case b == '+' || b == '-':
		return 62
	case b == '/' || b == '_':
		return 63
	}
	return noSextet
}
