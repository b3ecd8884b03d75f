package jsonread

import (
	"cmp"
	"fmt"
	"strings"
)

// ScanEvent describes the parts that a byte begins and ends. Several bits may be set: a bracket may also end a number.
type ScanEvent uint16

// The events. A number ends before the byte, or with Scanner.End. Every other part begins or ends with the byte.
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

// Scanner follows JSON (RFC 8259) byte by byte, with one byte of memory per level of nesting. A text may come in pieces
// of any size, and strings may have any length. The Scanner checks the grammar and the depth, but neither UTF-8 nor
// equal keys.
type Scanner struct {
	// MaxDepth is the deepest nesting of objects and lists. Zero means DefaultDepth.
	MaxDepth int

	offset int    // the number of bytes taken
	line   int    // the number of line feeds taken
	comma  int    // the offset of the last comma
	open   []bool // the objects (true) and lists around the next byte
	state  scanState
	isKey  bool   // whether the string is a key
	word   string // the rest of a word
	left   int    // the number of digits that an escape still needs
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

// SkipPlain takes the bytes at the beginning of p that only continue a string, and returns their number. It is faster
// than Step, which also takes such bytes.
func (s *Scanner) SkipPlain(p string) int {
	n := 0
	if s.state == inString && s.err == nil {
		for n < len(p) && p[n] != '"' && p[n] != '\\' && p[n] >= ' ' {
			n++
		}
		s.offset += n
	}
	return n
}

// Step takes the next byte. After an error it returns only that error.
func (s *Scanner) Step(c byte) (ScanEvent, error) {
	// The state after an error is undefined.
	if s.err != nil {
		return 0, s.err
	}
	e := s.stepByte(c)
	if s.err != nil {
		return 0, s.err
	}
	s.offset++
	if c == '\n' {
		s.line++
	}
	return e, nil
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
	if s.state != wantEnd {
		s.failAt("the end of the file", "the quotes, brackets and braces closed")
		return 0, s.err
	}
	return e, nil
}

func (s *Scanner) failAt(found, want string) ScanEvent {
	s.err = &Error{Offset: s.offset, Found: found, Want: want}
	return 0
}

// stateAfterValue returns the state after a value.
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

func (s *Scanner) stepByte(c byte) ScanEvent {
	switch s.state {
	case inString, inEscape, inHex:
		return s.stepString(c)
	case inWord:
		if s.word[0] != c {
			return s.failOnByte(c)
		}
		if s.word = s.word[1:]; s.word == "" {
			s.state = s.stateAfterValue()
			return EndWord
		}
		return 0
	case inMinus, inZero, inInteger, inPoint, inFraction, inExponent, inSign, inPower:
		if next, ok := s.nextInNumber(c); ok {
			s.state = next
			return 0
		}
		if !s.canEndNumber() {
			return s.failOnByte(c)
		}
		s.state = s.stateAfterValue()
		// The byte belongs to the text after the number.
		return EndNumber | s.stepBetween(c)
	}
	return s.stepBetween(c)
}

// stepString takes a byte of a string or key.
func (s *Scanner) stepString(c byte) ScanEvent {
	const hex = 4
	switch {
	case s.state == inString && c == '"':
		if s.isKey {
			s.state = wantColon
			return EndKey
		}
		s.state = s.stateAfterValue()
		return EndString
	case s.state == inString && c == '\\':
		s.state = inEscape
	case s.state == inString && c >= ' ':
	case s.state == inEscape && c == 'u':
		s.state, s.left = inHex, hex
	case s.state == inEscape && strings.IndexByte(`"\/bfnrt`, c) >= 0:
		s.state = inString
	case s.state == inHex && isHex(c):
		if s.left--; s.left == 0 {
			s.state = inString
		}
	default:
		return s.failAt("a string that is not closed on its line, or has a bad escape",
			`a string like "text", with \\ for a backslash`)
	}
	return 0
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

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

// stepBetween takes a byte outside strings, words and numbers.
func (s *Scanner) stepBetween(c byte) ScanEvent {
	switch c {
	case ' ', '\t', '\r', '\n':
		return 0
	}
	switch s.state {
	case wantItem:
		if c == ']' {
			return s.closeNesting(EndList)
		}
		return s.beginValue(c)
	case wantValue, wantAnother:
		return s.beginValue(c)
	case wantMember, wantKey:
		if c == '"' {
			s.state, s.isKey = inString, true
			return BeginKey
		}
		if c == '}' && s.state == wantMember {
			return s.closeNesting(EndObject)
		}
	case wantColon:
		if c == ':' {
			s.state = wantValue
			return 0
		}
	case wantComma:
		return s.afterMember(c)
	}
	return s.failOnByte(c)
}

// afterMember takes the byte after a value in an object or list.
func (s *Scanner) afterMember(c byte) ScanEvent {
	isObject := s.open[len(s.open)-1]
	switch {
	case c == ',':
		s.comma, s.state = s.offset, wantAnother
		if isObject {
			s.state = wantKey
		}
		return 0
	case c == '}' && isObject:
		return s.closeNesting(EndObject)
	case c == ']' && !isObject:
		return s.closeNesting(EndList)
	}
	return s.failOnByte(c)
}

// beginValue takes the first byte of a value.
func (s *Scanner) beginValue(c byte) ScanEvent {
	switch c {
	case '{':
		return s.openNesting(true, wantMember, BeginObject)
	case '[':
		return s.openNesting(false, wantItem, BeginList)
	case '"':
		s.state, s.isKey = inString, false
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
	s.state = s.stateAfterValue()
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
