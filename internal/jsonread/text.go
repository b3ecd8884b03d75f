package jsonread

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// takeKey takes the quote before a key, or a whole key.
func (s *Scanner) takeKey(p []byte, n int) (int, ScanEvent) {
	s.isKey, s.key = true, s.offset+n
	end, isASCII := findSpecial(p, n+1)
	if !isASCII || end == len(p) || p[end] != '"' || s.quiet&BeginKey == 0 {
		return s.beginString(n), BeginKey
	}
	if s.state = wantColon; s.Keys != nil && !s.Keys[p[n+1]] {
		if end++; end < len(p) && p[end] == ':' { // saves the return to Scan
			s.state = wantValue
			end++
		}
		return end, 0
	}
	s.text = p[n+1 : min(end, n+1+s.MaxText)]
	return end + 1, EndKey
}

func (s *Scanner) beginString(n int) int {
	s.state, s.begin, s.copied = inString, s.offset+n+1, s.copied[:0]
	return n + 1
}

// takeText takes bytes of a string, up to the quote at its end.
func (s *Scanner) takeText(p []byte, n int) (int, ScanEvent) {
	end, isASCII := findSpecial(p, n)
	if s.Unicode && (!isASCII || len(s.part) > 0 || s.high != 0) && !s.checkUnicode(p, n, end) {
		return s.failInString(n)
	}
	if s.wantsText() {
		// A string in one piece needs no copy.
		if end < len(p) && p[end] == '"' && s.begin == s.offset+n {
			s.text = p[n:min(end, n+s.MaxText)]
		} else {
			s.keepText(p[n:end])
		}
	}
	switch {
	case end == len(p):
		return end, 0
	case p[end] == '"' && s.isKey:
		s.state = wantColon
		return end + 1, EndKey
	case p[end] == '"':
		s.state = s.outer
		return end + 1, EndString
	case p[end] != '\\': // a control character
		return s.failInString(end)
	}
	s.state = inEscape
	if end++; end == len(p) {
		return end, 0
	}
	return s.takeEscape(p[end], end)
}

// wantsText reports whether the caller may want the text of the current string.
func (s *Scanner) wantsText() bool { return s.isKey || s.Quiet&EndString == 0 }

// keepText keeps decoded bytes of a string for Text.
func (s *Scanner) keepText(p []byte) {
	s.copied = append(s.copied, p[:min(len(p), s.MaxText-len(s.copied))]...)
	s.text = s.copied
}

// findSpecial returns the position of the first quote, backslash or control character from p[n] on, or the length of p.
// isASCII means that all bytes before it are ASCII.
func findSpecial(p []byte, n int) (end int, isASCII bool) {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	seen := uint64(0)
	for ; n+8 <= len(p); n += 8 {
		x := binary.LittleEndian.Uint64(p[n:])
		// The high bit of the first special byte of eight becomes set. That of a later byte may become set too, because a
		// subtraction with a negative result borrows from the next byte.
		special := ((x - ones*' ') | (x ^ ones*'"' - ones) | (x ^ ones*'\\' - ones)) &^ x & high
		if special != 0 {
			bit := bits.TrailingZeros64(special)
			return n + bit/8, (seen|x&(1<<bit-1))&high == 0
		}
		seen |= x
	}
	for ; n < len(p) && p[n] >= ' ' && p[n] != '"' && p[n] != '\\'; n++ {
		seen |= uint64(p[n])
	}
	return n, seen&high == 0
}

// checkUnicode reports whether p[n:end] continues a string of whole characters.
func (s *Scanner) checkUnicode(p []byte, n, end int) bool {
	text, isCut := p[n:end], end == len(p)
	// Only an escaped low surrogate completes an escaped high one (RFC 8259, section 7).
	if s.high != 0 && (n < end || p[end] != '\\') {
		return false
	}
	for len(s.part) > 0 && len(text) > 0 {
		s.part, text = append(s.part, text[0]), text[1:]
		switch {
		case !utf8.FullRune(s.part):
		case !utf8.Valid(s.part):
			return false
		default:
			s.part = s.part[:0]
		}
	}
	for i := max(0, len(text)-utf8.UTFMax); isCut && i < len(text); i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			s.part, text = append(s.part, text[i:]...), text[:i]
		}
	}
	return utf8.Valid(text) && (isCut || len(s.part) == 0)
}

// unescaped has the characters of the escapes of two bytes, by their second byte.
var unescaped = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// takeEscape takes a byte after a backslash.
func (s *Scanner) takeEscape(c byte, n int) (int, ScanEvent) {
	const hexDigits = 4
	switch {
	case s.state == inHex && isHex(c):
		digit := c - '0'
		if !isDigit(c) {
			digit = c | 0x20 - 'a' + 10
		}
		if s.char, s.left = s.char<<4|rune(digit), s.left-1; s.left > 0 {
			return n + 1, 0
		}
	case s.state == inEscape && c == 'u':
		s.state, s.left, s.char = inHex, hexDigits, 0
		return n + 1, 0
	case s.state == inEscape && unescaped[c] != 0:
		s.char = rune(unescaped[c])
	default:
		return s.failInString(n)
	}
	if !s.endEscape() {
		return s.failInString(n)
	}
	s.state = inString
	return n + 1, 0
}

// endEscape takes the character of an escape, and reports whether it is valid. Without Unicode, half a surrogate pair
// becomes U+FFFD.
func (s *Scanner) endEscape() bool {
	r, high := s.char, s.high
	if s.high = 0; s.Unicode {
		switch {
		case high != 0:
			r = utf16.DecodeRune(high, r)
		case 0xD800 <= r && r < 0xDC00:
			s.high = r
			return true
		case utf16.IsSurrogate(r):
			return false
		}
		if high != 0 && r == utf8.RuneError {
			return false
		}
	}
	if s.wantsText() {
		var b [utf8.UTFMax]byte
		s.keepText(b[:utf8.EncodeRune(b[:], r)])
	}
	return true
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
