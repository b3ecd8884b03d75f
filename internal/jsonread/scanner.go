package jsonread

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ScanEvent is the beginning or the end of a part.
type ScanEvent uint16

// The events. A number ends before the next byte, or with Scanner.End. Every other part begins or ends with a byte.
const (
	BeginObject ScanEvent = 1 << iota
	EndObject
	BeginList
	EndList
	BeginKey
	EndKey
	BeginString
	EndString
	BeginNumber
	BeginWord
	EndNumber
	EndWord // true, false or null
)

// Scanner follows JSON (RFC 8259), with one byte of memory per level of nesting. A text may come in pieces of any size,
// and strings may have any length. The Scanner checks the grammar and the depth, but not equal keys.
type Scanner struct {
	// MaxDepth is the deepest nesting of objects and lists. Zero means DefaultDepth.
	MaxDepth int
	// MaxText is how many decoded bytes of a string Text returns.
	MaxText int
	// Many allows further objects and lists after the first, and record separators around them (RFC 7464).
	Many bool

	offset int    // the number of bytes taken
	line   int    // the number of line feeds taken
	comma  int    // the offset of the last comma
	open   []bool // the objects (true) and lists around the next byte
	state  scanState
	isKey  bool   // whether the string is a key
	word   string // the rest of a word
	left   int    // the number of digits that an escape still needs
	char   rune   // the last escape, as far as it was read
	text   []byte // the decoded string, at most MaxText bytes
	nested bool   // an object or a list has ended
	err    *Error
}

// DefaultDepth is the deepest nesting of objects and lists by default.
const DefaultDepth = 10_000

type scanState uint8

const (
	wantValue   scanState = iota
	wantItem              // or the end of a list
	wantAnother           // after a comma in a list
	wantMember            // or the end of an object
	wantKey               // after a comma in an object
	wantColon
	wantComma // or the end of what is open
	wantEnd   // of the text
	inString
	inEscape
	inHex
	inWord
	inMinus
	inZero
	inInteger
	inPoint
	inFraction
	inExponent
	inSign
	inPower
)

// Line returns the line of the next byte, from 1.
func (s *Scanner) Line() int { return s.line + 1 }

// Offset returns the number of bytes taken.
func (s *Scanner) Offset() int { return s.offset }

// Depth returns the number of open objects and lists.
func (s *Scanner) Depth() int { return len(s.open) }

// Text returns the beginning of the current or last string, decoded. It is valid until the next call of Scan.
func (s *Scanner) Text() []byte { return s.text }

// Scan takes the bytes of p up to the first one with an event, and returns their number. EndNumber may take no byte. An
// error is about the byte after them. After an error Scan returns only that error.
func (s *Scanner) Scan(p []byte) (n int, e ScanEvent, err error) {
	// The state after an error is undefined.
	if s.err != nil {
		return 0, 0, s.err
	}
	for n < len(p) && e == 0 && s.err == nil {
		taken, c := 1, p[n]
		switch {
		case s.state == inString && c != '\\':
			taken, e = s.takeText(p[n:])
		case c == ' ' && s.state < inString:
		case c < ' ' && s.state < inString:
			s.stepBlank(c)
		default:
			taken, e = s.stepByte(c, p[n:])
		}
		n += taken
		s.offset += taken
	}
	if s.err != nil {
		return n, 0, s.err
	}
	return n, e, nil
}

// stepByte takes the byte c, or more bytes of the text p that begins with it.
func (s *Scanner) stepByte(c byte, p []byte) (taken int, e ScanEvent) {
	switch s.state {
	case wantValue, wantAnother:
		return 1, s.beginValue(c)
	case wantItem:
		if c == ']' {
			return 1, s.closeNesting(EndList)
		}
		return 1, s.beginValue(c)
	case wantKey, wantMember:
		if c == '"' {
			s.beginString(true)
			return 1, BeginKey
		}
		if c == '}' && s.state == wantMember {
			return 1, s.closeNesting(EndObject)
		}
	case wantColon:
		if c == ':' {
			s.state = wantValue
			return 1, 0
		}
	case wantComma:
		switch isObject := s.open[len(s.open)-1]; {
		case c == ',' && isObject:
			s.comma, s.state = s.offset, wantKey
			return 1, 0
		case c == ',':
			s.comma, s.state = s.offset, wantAnother
			return 1, 0
		case c == '}' && isObject:
			return 1, s.closeNesting(EndObject)
		case c == ']' && !isObject:
			return 1, s.closeNesting(EndList)
		}
	case wantEnd:
		// A string at the top is never followed by a value: some parsers would read it as the name of the value.
		if s.Many && s.nested && (c == '{' || c == '[') {
			return 1, s.beginValue(c)
		}
	case inWord:
		return s.takeWord(p)
	case inString, inEscape, inHex:
		s.stepString(c)
		return 1, 0
	default:
		return s.takeNumber(p)
	}
	s.failOnByte(c)
	return 0, 0
}

// stepBlank takes a control character outside strings.
func (s *Scanner) stepBlank(c byte) {
	switch {
	case c == '\t':
	case c == 0x1e && s.Many && len(s.open) == 0 && (s.state == wantValue || s.state == wantEnd):
	case c != '\n' && c != '\r':
		s.failOnByte(c)
	case c == '\n':
		s.line++
	}
}

// End reports the end of the text.
func (s *Scanner) End() (ScanEvent, error) {
	if s.err != nil {
		return 0, s.err
	}
	e := ScanEvent(0)
	if s.canEndNumber() {
		e = EndNumber
		s.state = s.stateAfterValue()
	}
	// A string, a literal, an object or a list is not complete.
	if s.state != wantEnd && (!s.Many || s.state != wantValue || len(s.open) > 0) {
		s.failAt("the end of the file", "the quotes, brackets and braces closed")
		return 0, s.err
	}
	return e, nil
}

func (s *Scanner) beginString(isKey bool) {
	s.state, s.isKey, s.text = inString, isKey, s.text[:0]
}

// takeText takes bytes of a string up to the next backslash, or with the quote at its end, and returns their number.
func (s *Scanner) takeText(p []byte) (n int, e ScanEvent) {
	for n < len(p) && p[n] != '"' && p[n] != '\\' && p[n] >= ' ' {
		n++
	}
	s.keepText(p[:n]...)
	switch {
	case n == len(p) || p[n] == '\\':
	case p[n] != '"': // a control character
		s.failInString()
		s.err.Offset += n
	case s.isKey:
		s.state = wantColon
		return n + 1, EndKey
	default:
		s.state = s.stateAfterValue()
		return n + 1, EndString
	}
	return n, 0
}

// keepText keeps decoded bytes of a string for Text.
func (s *Scanner) keepText(p ...byte) {
	s.text = append(s.text, p[:min(len(p), s.MaxText-len(s.text))]...)
}

// takeWord takes bytes of true, false or null.
func (s *Scanner) takeWord(p []byte) (n int, e ScanEvent) {
	for n < len(p) && s.word != "" && p[n] == s.word[0] {
		s.word = s.word[1:]
		n++
	}
	switch {
	case s.word == "":
		s.state = s.stateAfterValue()
		return n, EndWord
	case n < len(p):
		s.failOnByte(p[n])
		s.err.Offset += n
	}
	return n, 0
}

func (s *Scanner) failAt(found, want string) ScanEvent {
	s.err = &Error{Offset: s.offset, Found: found, Want: want}
	return 0
}

func (s *Scanner) stateAfterValue() scanState {
	if len(s.open) == 0 {
		return wantEnd
	}
	return wantComma
}

// canEndNumber reports whether the current number is complete.
func (s *Scanner) canEndNumber() bool {
	return s.state == inZero || s.state == inInteger || s.state == inFraction || s.state == inPower
}

// stepString takes a backslash, or a byte of an escape.
func (s *Scanner) stepString(c byte) {
	const hex, letters = 4, `"\/bfnrt`
	switch {
	case s.state == inString: // the backslash
		s.state = inEscape
	case s.state == inEscape && c == 'u':
		s.state, s.left, s.char = inHex, hex, 0
	case s.state == inEscape && strings.IndexByte(letters, c) >= 0:
		s.keepText("\"\\/\b\f\n\r\t"[strings.IndexByte(letters, c)])
		s.state = inString
	case s.state == inHex && isHex(c):
		digit := c - '0'
		if !isDigit(c) {
			digit = c | 0x20 - 'a' + 10
		}
		s.char = s.char<<4 | rune(digit)
		if s.left--; s.left == 0 {
			// Half a surrogate pair becomes U+FFFD.
			s.keepText(utf8.AppendRune(nil, s.char)...)
			s.state = inString
		}
	default:
		s.failInString()
	}
}

func (s *Scanner) failInString() ScanEvent {
	return s.failAt("a string that is not closed on its line, or has a bad escape",
		`a string like "text", with \\ for a backslash`)
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// takeNumber takes bytes of a number. It does not take the byte after it.
func (s *Scanner) takeNumber(p []byte) (n int, e ScanEvent) {
	for ; n < len(p); n++ {
		if s.state == inInteger && isDigit(p[n]) {
			continue
		}
		next, ok := s.nextInNumber(p[n])
		switch {
		case ok:
			s.state = next
			continue
		case s.canEndNumber():
			s.state = s.stateAfterValue()
			return n, EndNumber
		}
		s.failOnByte(p[n])
		s.err.Offset += n
		return n, 0
	}
	return n, 0
}

// nextInNumber returns the state after another byte of the current number. It returns false if the byte does not belong
// to the number.
func (s *Scanner) nextInNumber(c byte) (scanState, bool) {
	switch s.state {
	case inMinus:
		if c == '0' {
			return inZero, true
		}
		return inInteger, isDigit(c)
	case inPoint, inFraction:
		if s.state == inFraction && c|0x20 == 'e' {
			return inExponent, true
		}
		return inFraction, isDigit(c)
	case inExponent:
		if c == '+' || c == '-' {
			return inSign, true
		}
		return inPower, isDigit(c)
	case inSign, inPower:
		return inPower, isDigit(c)
	}
	switch { // inZero or inInteger
	case c == '.':
		return inPoint, true
	case c|0x20 == 'e':
		return inExponent, true
	}
	return inInteger, s.state == inInteger && isDigit(c)
}

// beginValue takes the first byte of a value.
func (s *Scanner) beginValue(c byte) ScanEvent {
	switch c {
	case '{':
		return s.openNesting(true, wantMember, BeginObject)
	case '[':
		return s.openNesting(false, wantItem, BeginList)
	case '"':
		s.beginString(false)
		return BeginString
	case '-':
		s.state = inMinus
		return BeginNumber
	case '0':
		s.state = inZero
		return BeginNumber
	}
	if isDigit(c) {
		s.state = inInteger
		return BeginNumber
	}
	// Other words, such as NaN, are not in RFC 8259.
	for _, word := range [...]string{"true", "false", "null"} {
		if c == word[0] {
			s.state, s.word = inWord, word[1:]
			return BeginWord
		}
	}
	return s.failOnByte(c)
}

func (s *Scanner) openNesting(isObject bool, want scanState, e ScanEvent) ScanEvent {
	// A deep text could otherwise exhaust the memory of open.
	if most := cmp.Or(s.MaxDepth, DefaultDepth); len(s.open) >= most {
		return s.failAt("values in values", fmt.Sprintf("at most %d levels", most))
	}
	s.open, s.state = append(s.open, isObject), want
	return e
}

func (s *Scanner) closeNesting(e ScanEvent) ScanEvent {
	s.open = s.open[:len(s.open)-1]
	s.state, s.nested = s.stateAfterValue(), true
	return e
}

// failOnByte fails with the most likely mistake for a byte that is not allowed here.
func (s *Scanner) failOnByte(c byte) ScanEvent {
	switch {
	case s.state == wantEnd:
		return s.failAt("more text after the object", "only one object")
	case s.state == wantKey && c == '}', s.state == wantAnother && c == ']':
		s.failAt("a trailing comma", "no comma after the last entry")
		// Report the comma, not the bracket after it.
		s.err.Offset = s.comma
		return 0
	case c == '/' || c == '#':
		return s.failAt("a comment", "JSON, which has no comments")
	case c == '\'':
		return s.failAt("a single quote", "strings in double quotes")
	case s.state == wantComma:
		return s.failAt("an entry without a comma before it", "entries separated by commas")
	case s.state == wantColon:
		return s.failAt("a key without a colon after it", `"key": value`)
	case s.state == wantKey || s.state == wantMember:
		return s.failAt("a key that is not in double quotes", `"key": value`)
	}
	return s.failAt("something that is not a JSON value", "a string in double quotes, a list, an object, true or false")
}
