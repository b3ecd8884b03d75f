package swap

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// passText returns how many bytes of text pass unchanged.
func (w *jsonWriter) passText(text []byte) int {
	// Held bytes may continue in this text, so only the writer may read on.
	if len(w.word) > 0 || len(w.escape) > 0 {
		return 0
	}
	n := 0
	if w.in {
		if n = w.passString(text); w.in {
			return n
		}
	}
	// The last word or number may continue, so the writer must see the next byte.
	if w.long || w.scalar.on {
		return n
	}
	return n + w.passOutside(text[n:])
}

// passString passes bytes of a string that is a value, and its closing quote.
func (w *jsonWriter) passString(text []byte) int {
	// A key must be collected, and a character may be half read: both need the writer.
	if w.key || w.rune.isOpen() {
		return 0
	}
	n, escaped := 0, 0 // escaped is the end of the last escape
	for n < len(text) {
		if n += plainJSON(text[n:]); n == len(text) {
			break
		}
		switch b := text[n]; {
		case b == '"':
			w.long, w.in, w.only = false, false, false
			w.endValue()
			return n + 1
		case b == '\\' && n+1 < len(text) && strings.IndexByte(`"\/bfnrt`, text[n+1]) >= 0:
			n += 2
			escaped = n
			continue
		case b >= utf8.RuneSelf:
			if r, size := utf8.DecodeRune(text[n:]); r != utf8.RuneError || size > 1 {
				n += size
				continue
			}
		}
		break
	}
	if n > 0 {
		w.only, w.long = false, n > escaped && isWord(text[n-1])
	}
	return n
}

// plainJSON returns how many bytes of text pass within any JSON string: printable ASCII without quotes, backslashes and
// the characters at which form parsers may end a field.
func plainJSON(text []byte) int {
	n := 0
	for ; n+8 <= len(text); n += 8 {
		if stop := markSpecial(binary.LittleEndian.Uint64(text[n:])); stop != 0 {
			return n + bits.TrailingZeros64(stop)/8
		}
	}
	for ; n < len(text); n++ {
		if b := text[n]; b < ' ' || b >= utf8.RuneSelf || b == '"' || b == '\\' || isSeparator(b) {
			break
		}
	}
	return n
}

// markSpecial sets the high bit of the first of eight bytes that is not plain, and perhaps of later ones. A subtraction
// borrows from the next byte only if its result is negative.
func markSpecial(x uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	quote := x&^(ones*('"'^'&')) ^ ones*'"' // the quote and the ampersand differ in one bit
	return (x | (x - ones*' ') | (quote - ones) | (x ^ ones*'\\' - ones) | (x ^ ones*';' - ones)) & high
}

// passOutside passes bytes outside strings, and strings that pass as a whole. For another string value it passes the
// opening quote and the plain bytes after it.
func (w *jsonWriter) passOutside(text []byte) int {
	n := 0
	for n < len(text) {
		b := text[n]
		if b <= ' ' {
			// In a body of lines, only the writer knows whether a line break ends a value or makes the body ambiguous.
			if b != ' ' && b != '\t' && (w.lines || b != '\n' && b != '\r') {
				return n
			}
			n++
			continue
		}
		size := 1
		switch w.expect {
		case expectValue, expectValueOrEnd:
			size = w.passValue(text[n:])
		case expectKey, expectKeyOrEnd:
			switch {
			case b == '"':
				size = w.passKey(text[n+1:])
			case b == '}' && w.expect == expectKeyOrEnd:
				w.closeLevel()
			default:
				return n
			}
		case expectColon:
			if b != ':' {
				return n
			}
			w.expect = expectValue
		case expectMore:
			object := w.isInObject()
			switch {
			case b == ',' && object:
				w.expect = expectKey
			case b == ',':
				w.expect = expectValue
			case b == '}' && object, b == ']' && !object:
				w.closeLevel()
			default:
				return n
			}
		default:
			return n
		}
		if size == 0 {
			return n
		}
		if n += size; w.in {
			return n
		}
	}
	return n
}

// passValue returns how many bytes of a value pass. It also passes the end of an empty array.
func (w *jsonWriter) passValue(text []byte) int {
	switch b := text[0]; {
	case b == '"':
		end := 1 + plainJSON(text[1:])
		if end < len(text) && text[end] == '"' {
			w.endValue()
			return end + 1
		}
		w.key, w.in, w.only, w.text, w.rune = false, true, true, w.text[:0], runeState{}
		return 1 + w.passString(text[1:])
	case b == '{' || b == '[':
		if len(w.levels) == maxLevels {
			return 0
		}
		w.openLevel(b == '{')
		return 1
	case b == ']' && w.expect == expectValueOrEnd:
		w.closeLevel()
		return 1
	}
	size := passScalar(text)
	if size > 0 {
		w.endValue()
	}
	return size
}

// passKey returns the length of a key with both quotes, or 0. It passes a key without escapes that is certainly neither
// a declared key nor a reference. text begins after the opening quote.
func (w *jsonWriter) passKey(text []byte) int {
	end := plainJSON(text)
	if end == len(text) || text[end] != '"' || len(w.levels) == 0 {
		return 0
	}
	l := &w.levels[len(w.levels)-1]
	// Equal lengths are enough to stop: the writer compares the key itself.
	if l.keys.hasLength(end) || text[0] == referenceKey[0] {
		return 0
	}
	l.value = l.value[:0]
	w.expect = expectColon
	return end + 2
}

// keyLengths returns the lengths of the keys that would continue matches, in any letter case.
func (w *jsonWriter) keyLengths(matches []fieldMatch) (out lengthSet) {
	for _, m := range matches {
		switch path := w.fields[m.field]; {
		case m.keys == len(path):
		case hasOnlyASCII(path[m.keys]):
			out.addLength(len(path[m.keys]))
		default:
			return ^lengthSet(0) // changing a letter's case may change its length
		}
	}
	return out
}

func hasOnlyASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// passScalar returns the length of a complete number or literal, or 0. The next byte must show that the scalar is
// complete.
func passScalar(text []byte) int {
	n := 0
	switch text[0] {
	case 't':
		n = prefixLength(text, "true")
	case 'f':
		n = prefixLength(text, "false")
	case 'n':
		n = prefixLength(text, "null")
	default:
		n = passNumber(text)
	}
	if n == 0 || n == len(text) || isWord(text[n]) {
		return 0
	}
	return n
}

// prefixLength returns the length of word if text begins with it, or 0.
func prefixLength(text []byte, word string) int {
	if len(text) < len(word) || string(text[:len(word)]) != word {
		return 0
	}
	return len(word)
}

// passNumber returns the length of the number at the beginning of text, or 0.
func passNumber(text []byte) int {
	n := 0
	if text[0] == '-' {
		n = 1
	}
	begin := n
	// RFC 8259, section 6: a number has no leading zeros.
	if n = skipDigits(text, n); n == begin || n > begin+1 && text[begin] == '0' {
		return 0
	}
	if n < len(text) && text[n] == '.' {
		point := n + 1
		if n = skipDigits(text, point); n == point {
			return 0
		}
	}
	if n < len(text) && text[n]|0x20 == 'e' {
		n++
		if n < len(text) && (text[n] == '+' || text[n] == '-') {
			n++
		}
		exponent := n
		if n = skipDigits(text, n); n == exponent {
			return 0
		}
	}
	return n
}

// skipDigits returns the end of the digits at text[n:].
func skipDigits(text []byte, n int) int {
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	return n
}
