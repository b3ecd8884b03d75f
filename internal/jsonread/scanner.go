package jsonread

import "fmt"

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
	EndLine // the line feed after a value, with Scanner.Lines

	failed // Scanner.err is set
)

// Scanner follows JSON (RFC 8259), with one byte of memory per level of nesting. A text may come in pieces of any size,
// and strings may have any length. The Scanner checks the grammar and the depth, but not equal keys.
type Scanner struct {
	// MaxDepth is the deepest nesting of objects and lists. Zero means DefaultDepth.
	MaxDepth int
	// MaxText bounds the decoded bytes of a string that Text returns.
	MaxText int
	// Quiet are the events that Scan does not return.
	Quiet ScanEvent
	// Keys, if not nil, has the first bytes of the keys for which Scan returns EndKey. Scan always returns the EndKey of a
	// key with escapes or characters other than ASCII, and of a key in several pieces.
	Keys *[256]bool
	// Unicode rejects strings that are not UTF-8, or that escape half a surrogate pair.
	Unicode bool
	// Lines allows one value on each line. A value may not contain a line break.
	Lines bool
	// Many allows further objects and lists after the first, and record separators around them (RFC 7464).
	Many bool

	quiet  ScanEvent // Quiet, or more
	muted  int       // the depth at which Mute was called, or 0
	offset int       // the number of bytes taken before the current Scan
	line   int       // the number of line feeds taken
	comma  int       // the offset of the last comma
	open   []bool    // the objects (true) and lists around the next byte
	state  scanState
	outer  scanState // the state after a value at this depth
	isKey  bool      // whether the string is a key
	nested bool      // an object or a list has ended
	word   string    // the rest of a word
	begin  int       // the offset of the current string's first character
	key    int       // the offset of the last key
	left   int       // the number of digits that an escape still needs
	char   rune      // the last escape, as far as it was read
	high   rune      // an escaped high surrogate without its low one
	part   []byte    // an incomplete character of a string
	text   []byte    // the decoded string, at most MaxText bytes
	copied []byte    // the memory of text, unless text is a part of a piece
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
	afterItem   // a comma, or the end of the list
	afterMember // a comma, or the end of the object
	wantEnd     // of the text
	inString
	inEscape
	inHex
	inWord
	inMinus
	inPoint
	inExponent
	inSign
	inZero // the number may end here, and in the states below
	inInteger
	inFraction
	inPower
)

// Line returns the line of the next byte, from 1.
func (s *Scanner) Line() int { return s.line + 1 }

// Offset returns the number of bytes taken.
func (s *Scanner) Offset() int { return s.offset }

// Depth returns the number of open objects and lists.
func (s *Scanner) Depth() int { return len(s.open) }

// Text returns the beginning of the last string, decoded. It is valid until the next call of Scan, and while the last
// piece does not change. If EndString is quiet, it returns only keys.
func (s *Scanner) Text() []byte { return s.text }

// IsInText reports whether the next byte belongs to a string, outside escapes.
func (s *Scanner) IsInText() bool { return s.state == inString }

// IsInEscape reports whether the next byte belongs to an escape. After an error it reports whether the wrong byte does.
func (s *Scanner) IsInEscape() bool { return s.state == inEscape || s.state == inHex }

// Escaped returns the character of the last escape, or half of a surrogate pair.
func (s *Scanner) Escaped() rune { return s.char }

// IsInKey reports whether the current or last string is a key.
func (s *Scanner) IsInKey() bool { return s.isKey }

// StringOffset returns the offset after the quote that began the current or last string.
func (s *Scanner) StringOffset() int { return s.begin }

// KeyOffset returns the offset of the current or last key, which may be quiet.
func (s *Scanner) KeyOffset() int { return s.key }

// Mute makes all events quiet except EndKey, until the end of the innermost open object or list, which is quiet too.
func (s *Scanner) Mute() { s.muted, s.quiet = len(s.open), (s.Quiet|^EndKey)&^failed }

// IsMuted reports whether Mute has an effect.
func (s *Scanner) IsMuted() bool { return s.muted > 0 }

// Scan takes the bytes of p up to the first one with an event, and returns their number. EndNumber may take no byte. An
// error is about the byte after them, or about the run of characters in a string that begins there. After an error Scan
// returns only that error.
func (s *Scanner) Scan(p []byte) (n int, e ScanEvent, err error) {
	// The state after an error is undefined.
	if s.err != nil {
		return 0, 0, s.err
	}
	if len(s.open) == 0 {
		s.outer = wantEnd
	}
	if s.muted == 0 {
		s.quiet = s.Quiet &^ failed
	}
	for n < len(p) && e == 0 {
		switch c := p[n]; s.state {
		case inString:
			n, e = s.takeText(p, n)
		case wantMember, wantKey:
			switch {
			case c == '"':
				n, e = s.takeKey(p, n)
			case c == '}' && s.state == wantMember:
				n, e = s.closeNesting(n, EndObject)
			default:
				n, e = s.takeBlank(p, n)
			}
		case wantColon:
			if c == ':' {
				s.state = wantValue
				if n++; n < len(p) && p[n] == ' ' {
					n++
				}
			} else {
				n, e = s.takeBlank(p, n)
			}
		case afterMember:
			switch c {
			case ',':
				s.comma, s.state = s.offset+n, wantKey
				if n++; n < len(p) && p[n] == '"' {
					n, e = s.takeKey(p, n)
				}
			case '}':
				n, e = s.closeNesting(n, EndObject)
			default:
				n, e = s.takeBlank(p, n)
			}
		case afterItem:
			switch c {
			case ',':
				s.comma, s.state = s.offset+n, wantAnother
				n++
			case ']':
				n, e = s.closeNesting(n, EndList)
			default:
				n, e = s.takeBlank(p, n)
			}
		case wantValue, wantItem, wantAnother:
			n, e = s.takeValue(p, n)
		case wantEnd:
			// A string at the top is never followed by a value: some parsers would read it as the name of the value.
			if s.Many && s.nested && (c == '{' || c == '[') {
				n, e = s.takeValue(p, n)
			} else {
				n, e = s.takeBlank(p, n)
			}
		case inEscape, inHex:
			n, e = s.takeEscape(c, n)
		case inWord:
			n, e = s.takeWord(p, n)
		default:
			n, e = s.takeNumber(p, n)
		}
		e &^= s.quiet
	}
	s.offset += n
	if e == failed {
		return n, 0, s.err
	}
	return n, e, nil
}

// takeBlank takes white space outside strings. Any other byte is a mistake.
func (s *Scanner) takeBlank(p []byte, n int) (int, ScanEvent) {
	c, isTop := p[n], len(s.open) == 0
	switch {
	case c == ' ' || c == '\t':
	case c == 0x1e && s.Many && isTop && (s.state == wantValue || s.state == wantEnd):
	case c != '\n' && c != '\r':
		return s.failOnByte(c, n)
	// A line break inside or before a value would end the value for a reader of lines.
	case s.Lines && (!isTop || c == '\r' && s.state == wantValue):
		return s.failAt(n, BadLine, "a line break", "one value on each line")
	case c == '\n':
		if s.line++; s.Lines && s.state == wantEnd {
			s.state = wantValue
			return n + 1, EndLine
		}
	}
	for n++; n < len(p) && p[n] == ' '; n++ { // usually an indentation
	}
	return n, 0
}

// End reports the end of the text.
func (s *Scanner) End() (ScanEvent, error) {
	if s.err != nil {
		return 0, s.err
	}
	e := ScanEvent(0)
	if s.state >= inZero {
		e = EndNumber
		s.state = s.outer
	}
	canBeEmpty := (s.Many || s.Lines) && len(s.open) == 0
	// A string, a literal, an object or a list is not complete.
	if s.state != wantEnd && (s.state != wantValue || !canBeEmpty) {
		s.failAt(0, BadGrammar, "the end of the file", "the quotes, brackets and braces closed")
		return 0, s.err
	}
	return e, nil
}

// takeWord takes bytes of true, false or null.
func (s *Scanner) takeWord(p []byte, n int) (int, ScanEvent) {
	for n < len(p) && s.word != "" {
		if p[n] != s.word[0] {
			return s.failOnByte(p[n], n)
		}
		n, s.word = n+1, s.word[1:]
	}
	if s.word != "" {
		return n, 0
	}
	s.state = s.outer
	return n, EndWord
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// takeNumber takes bytes of a number. It does not take the byte after it.
func (s *Scanner) takeNumber(p []byte, n int) (int, ScanEvent) {
	for ; n < len(p); n++ {
		c := p[n]
		if isDigit(c) && s.state != inZero {
			switch s.state {
			case inInteger, inFraction, inPower:
			case inMinus:
				if s.state = inInteger; c == '0' {
					s.state = inZero
				}
			case inPoint:
				s.state = inFraction
			default:
				s.state = inPower
			}
			continue
		}
		switch {
		case c == '.' && (s.state == inZero || s.state == inInteger):
			s.state = inPoint
		case c|0x20 == 'e' && s.state >= inZero && s.state != inPower:
			s.state = inExponent
		case (c == '+' || c == '-') && s.state == inExponent:
			s.state = inSign
		case s.state >= inZero:
			s.state = s.outer
			return n, EndNumber
		default:
			return s.failOnByte(c, n)
		}
	}
	return n, 0
}

// takeValue takes the first byte of a value, or more of it if its beginning is a quiet event.
func (s *Scanner) takeValue(p []byte, n int) (int, ScanEvent) {
	switch c := p[n]; {
	case c == '"':
		s.isKey = false
		end, isASCII := findSpecial(p, n+1)
		if !isASCII || end == len(p) || p[end] != '"' || s.quiet&BeginString == 0 {
			return s.beginString(n), BeginString
		}
		if s.state = s.outer; s.quiet&EndString == 0 {
			s.text = p[n+1 : min(end, n+1+s.MaxText)]
		}
		return end + 1, EndString
	case isDigit(c) || c == '-':
		switch s.state = inInteger; c {
		case '0':
			s.state = inZero
		case '-':
			s.state = inMinus
		}
		if s.quiet&BeginNumber == 0 {
			return n + 1, BeginNumber
		}
		return s.takeNumber(p, n+1)
	case c == '{':
		return s.openNesting(n, true, wantMember, BeginObject)
	case c == '[':
		return s.openNesting(n, false, wantItem, BeginList)
	case c == ']' && s.state == wantItem:
		return s.closeNesting(n, EndList)
	// Other words, such as NaN, are not in RFC 8259.
	case c == 't':
		s.word = "true"[1:]
	case c == 'f':
		s.word = "false"[1:]
	case c == 'n':
		s.word = "null"[1:]
	default:
		return s.takeBlank(p, n)
	}
	if s.state = inWord; s.quiet&BeginWord == 0 {
		return n + 1, BeginWord
	}
	return s.takeWord(p, n+1)
}

func (s *Scanner) openNesting(n int, isObject bool, want scanState, e ScanEvent) (int, ScanEvent) {
	// A deep text could otherwise exhaust the memory of open.
	if s.MaxDepth == 0 {
		s.MaxDepth = DefaultDepth
	}
	if len(s.open) >= s.MaxDepth {
		return s.failAt(n, TooDeep, "values in values", fmt.Sprintf("at most %d levels", s.MaxDepth))
	}
	if s.outer = afterItem; isObject {
		s.outer = afterMember
	}
	s.open, s.state = append(s.open, isObject), want
	return n + 1, e
}

func (s *Scanner) closeNesting(n int, e ScanEvent) (int, ScanEvent) {
	if s.open = s.open[:len(s.open)-1]; len(s.open) < s.muted {
		s.muted, s.quiet, e = 0, s.Quiet&^failed, 0
	}
	switch n := len(s.open); {
	case n == 0:
		s.outer = wantEnd
	case s.open[n-1]:
		s.outer = afterMember
	default:
		s.outer = afterItem
	}
	s.state, s.nested = s.outer, true
	return n + 1, e
}

// failAt fails at the byte p[n] of the current Scan.
func (s *Scanner) failAt(n int, kind ErrorKind, found, want string) (int, ScanEvent) {
	s.err = &Error{Kind: kind, Offset: s.offset + n, Found: found, Want: want}
	return n, failed
}

func (s *Scanner) failInString(n int) (int, ScanEvent) {
	return s.failAt(n, BadGrammar, "a string that is not closed on its line, or has a bad escape",
		`a string like "text", with \\ for a backslash`)
}

// failOnByte fails with the most likely mistake for a byte that is not allowed here.
func (s *Scanner) failOnByte(c byte, n int) (int, ScanEvent) {
	found, want := "something that is not a JSON value", "a string in double quotes, a list, an object, true or false"
	switch {
	case s.state == wantEnd && s.Lines:
		return s.failAt(n, BadLine, "more text after the value", "one value on each line")
	case s.state == wantEnd:
		return s.failAt(n, MoreText, "more text after the object", "only one object")
	case s.state == wantKey && c == '}', s.state == wantAnother && c == ']':
		// Report the comma, not the bracket after it.
		s.failAt(s.comma-s.offset, BadGrammar, "a trailing comma", "no comma after the last entry")
		return n, failed
	case c == '/' || c == '#':
		found, want = "a comment", "JSON, which has no comments"
	case c == '\'':
		found, want = "a single quote", "strings in double quotes"
	case s.state == afterItem || s.state == afterMember:
		found, want = "an entry without a comma before it", "entries separated by commas"
	case s.state == wantColon:
		found, want = "a key without a colon after it", `"key": value`
	case s.state == wantKey || s.state == wantMember:
		found, want = "a key that is not in double quotes", `"key": value`
	}
	return s.failAt(n, BadGrammar, found, want)
}
