package multisearch

import (
	"html"
	"strings"
	"unicode/utf8"
)

// maxDepth is the deepest nesting of escapes.
const maxDepth = 3

func isStarter(b byte) bool { return b == '%' || b == '\\' || b == '&' }

// canBeginEscape reports whether an escape can begin at p. It looks only at the two bytes after the % \ or &. Each must
// be possible in an escape, or begin a nested escape. Most bytes in binary data are neither.
func canBeginEscape(buf []byte, p int) bool {
	if p+2 >= len(buf) {
		return true
	}
	b, c := buf[p+1], buf[p+2]
	if isStarter(b) {
		return true
	}
	switch buf[p] {
	case '%':
		return ParseHexDigit(b) >= 0 && (ParseHexDigit(c) >= 0 || isStarter(c))
	case '\\':
		if b == 'x' || b == 'u' {
			return ParseHexDigit(c) >= 0 || isStarter(c)
		}
		return strings.IndexByte("bfnrt", b) >= 0 || isQuotable(b)
	}
	return (b == '#' || IsWordByte(b)) && (IsWordByte(c) || isStarter(c)) // no entity has a name of one character
}

// canBeginEntity reports whether an entity may begin with the & at the beginning of buf.
func canBeginEntity(buf []byte) bool {
	for i, b := range buf[:min(len(buf), maxEntity+2)] {
		switch {
		case b == ';' || i > 0 && isStarter(b):
			return true
		case i > 0 && b != '#' && !IsWordByte(b):
			return false
		}
	}
	return len(buf) < maxEntity+2
}

// readSimple is read for the most common escapes in one layer: %hh, \uhhhh, or a backslash with a sign or a letter. It
// returns false if buf begins with anything else.
func readSimple(buf []byte) (char, bool) {
	if len(buf) < 3 {
		return char{}, false
	}
	switch b := buf[1]; buf[0] {
	case '%':
		high, low := ParseHexDigit(b), ParseHexDigit(buf[2])
		c := byteChar(byte(high<<4|low), 3)
		// A decoded % \ or & may begin a nested escape, which only readChar follows.
		return c, high >= 0 && low >= 0 && !c.isEscapeStart()
	case '\\':
		if b == 'u' {
			return readSimpleUTF16(buf)
		}
		if i := strings.IndexByte("bfnrt", b); i >= 0 {
			b = "\b\f\n\r\t"[i]
		} else if !isQuotable(b) {
			return char{}, false
		}
		return byteChar(b, 2), true
	}
	return char{}, false
}

func readSimpleUTF16(buf []byte) (char, bool) {
	v := 0
	for i := 2; i < 6; i++ {
		if i == len(buf) || ParseHexDigit(buf[i]) < 0 {
			return char{}, false
		}
		v = v<<4 | ParseHexDigit(buf[i])
	}
	c := runeChar(rune(v))
	c.n = 6
	return c, !c.isEscapeStart() && (v < 0xD800 || v > 0xDFFF)
}

// char is one decoded character in UTF-8, and the number of bytes that it takes in the buffer.
type char struct {
	val [utf8.UTFMax]byte
	len int32
	n   int32
}

// isEscapeStart reports whether the character may begin an escape.
func (c char) isEscapeStart() bool { return c.len == 1 && isStarter(c.val[0]) }

func byteChar(b byte, n int32) char { return char{val: [utf8.UTFMax]byte{b}, len: 1, n: n} }

func runeChar(r rune) char {
	var c char
	c.len = int32(utf8.EncodeRune(c.val[:], r))
	return c
}

// readChar returns the character at the beginning of buf with up to d layers of escapes removed. buf must not be empty.
func readChar(buf []byte, d int) char {
	c := byteChar(buf[0], 1)
	for i := 0; i < d && c.isEscapeStart(); i++ {
		c = peelLayer(buf, c, i)
	}
	return c
}

// peelLayer removes one more layer of escapes. c is a % \ or & at the beginning of buf with d layers removed. If it
// begins no escape, it stands for itself. The bytes after it may be nested deeper, as in \&quot; for a quote in JSON in
// HTML.
func peelLayer(buf []byte, c char, d int) char {
	r := escapeReader{buf: buf, pos: int(c.n), depth: d}
	var e char
	ok := false
	switch c.val[0] {
	case '%':
		e, ok = r.readPercent()
	case '\\':
		e, ok = r.readBackslash()
	case '&':
		e, ok = r.readEntity()
	}
	if !ok {
		return c
	}
	e.n = int32(r.pos)
	return e
}

// escapeReader reads the rest of an escape, and first removes depth layers of escapes from it.
type escapeReader struct {
	buf        []byte
	pos, depth int
}

// nextByte returns the next character if it is a single byte, or else 0.
func (r *escapeReader) nextByte() byte {
	if r.pos >= len(r.buf) {
		return 0
	}
	if b := r.buf[r.pos]; r.depth == 0 || !isStarter(b) {
		r.pos++
		return b
	}
	c := readChar(r.buf[r.pos:], r.depth)
	if c.len != 1 {
		return 0
	}
	r.pos += int(c.n)
	return c.val[0]
}

// readHex reads n hexadecimal digits.
func (r *escapeReader) readHex(n int) (rune, bool) {
	var v rune
	for range n {
		d := ParseHexDigit(r.nextByte())
		if d < 0 {
			return 0, false
		}
		v = v<<4 | rune(d)
	}
	return v, true
}

// ParseHexDigit returns the value of a hexadecimal digit, or -1.
func ParseHexDigit(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b && b <= 'f':
		return int(b-'a') + 10
	case 'A' <= b && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}

// readPercent reads the rest of %hh.
func (r *escapeReader) readPercent() (char, bool) {
	v, ok := r.readHex(2)
	return byteChar(byte(v), 0), ok
}

// isQuotable reports whether some grammar writes the sign b with a backslash: JSON, Markdown, shells, SQL or regular
// expressions. % \ and & do not count: they may begin an escape.
func isQuotable(b byte) bool {
	return '!' <= b && b <= '~' && (!IsWordByte(b) || b == '_') && !isStarter(b)
}

// readBackslash reads the rest of a JSON escape, of \xhh, or of a sign after a backslash.
func (r *escapeReader) readBackslash() (char, bool) {
	b := r.nextByte()
	if i := strings.IndexByte("bfnrt", b); i >= 0 {
		return byteChar("\b\f\n\r\t"[i], 0), true
	}
	switch b {
	case 'x':
		v, ok := r.readHex(2)
		return byteChar(byte(v), 0), ok
	case 'u':
		return r.readUTF16()
	}
	return byteChar(b, 0), b == '\\' || isQuotable(b)
}

// readUTF16 reads the rest of \uhhhh, with both halves of a surrogate pair.
func (r *escapeReader) readUTF16() (char, bool) {
	v, ok := r.readHex(4)
	if !ok || v < 0xD800 || v > 0xDFFF {
		return runeChar(v), ok
	}
	// A high surrogate needs an escaped low one behind it.
	if v > 0xDBFF || r.nextByte() != '\\' || r.nextByte() != 'u' {
		return char{}, false
	}
	low, ok := r.readHex(4)
	if !ok || low < 0xDC00 || low > 0xDFFF {
		return char{}, false
	}
	return runeChar((v-0xD800)<<10 | (low - 0xDC00) + 0x10000), true
}

// maxEntity bounds the characters of an entity between & and the semicolon.
const maxEntity = 12

// readEntity reads the rest of &name; &#n; or &#xn;.
func (r *escapeReader) readEntity() (char, bool) {
	var text [maxEntity]byte
	n := 0
	for {
		b := r.nextByte()
		if b == ';' {
			break
		}
		alnum := '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z'
		// Not an entity: the text before the semicolon is too long or has another character.
		if n == maxEntity || !alnum && (b != '#' || n > 0) {
			return char{}, false
		}
		text[n] = b
		n++
	}
	return decodeEntity(text[:n])
}

func decodeEntity(name []byte) (char, bool) {
	if len(name) > 1 && name[0] == '#' {
		return decodeNumericEntity(name[1:])
	}
	if b, ok := asciiEntities[string(name)]; ok {
		return byteChar(b, 0), true
	}
	if len(name) < 2 {
		return char{}, false
	}
	s := html.UnescapeString("&" + string(name) + ";")
	v, size := utf8.DecodeRuneInString(s)
	// Otherwise the entity is unknown, or stands for more than one character.
	return runeChar(v), size == len(s)
}

// asciiEntities are the entities whose character is ASCII (HTML, section 13.5). Package html knows the others.
var asciiEntities = map[string]byte{
	"amp": '&', "AMP": '&', "lt": '<', "LT": '<', "gt": '>', "GT": '>', "quot": '"', "QUOT": '"', "apos": '\'',
	"sol": '/', "bsol": '\\', "plus": '+', "equals": '=', "lowbar": '_', "UnderBar": '_', "period": '.', "colon": ':',
	"percnt": '%', "num": '#',
}

func decodeNumericEntity(digits []byte) (char, bool) {
	base := rune(10)
	if digits[0]|0x20 == 'x' {
		base, digits = 16, digits[1:]
	}
	var v rune
	for _, b := range digits {
		d := rune(ParseHexDigit(b))
		if d < 0 || d >= base || v > utf8.MaxRune {
			return char{}, false
		}
		v = v*base + d
	}
	return runeChar(v), v > 0 && v <= utf8.MaxRune
}
