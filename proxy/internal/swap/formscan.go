package swap

import (
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// formScanner follows key=value pairs, in pieces of any size. The only separator is the ampersand.
type formScanner struct {
	// lenient allows keys of any length, bytes that a form serializer escapes, and percent signs without two digits.
	lenient bool
	// firsts, if not nil, has the first bytes, as written, of the keys that matter.
	firsts *[256]bool

	isValue bool   // after the equals sign
	left    int    // the number of digits that an escape still needs
	char    byte   // the last escape, as far as it was read
	offset  int    // the number of bytes taken
	begin   int    // the offset of the current key or value
	part    []byte // the beginning of the current key, from earlier pieces, at most maxKey+1 bytes
	key     []byte // the last key as written, at most maxKey+1 bytes, or empty if it does not matter
}

// formEvent is a place at which scan stops.
type formEvent uint8

const (
	endOfKey formEvent = iota + 1 // the end of a key that matters
	badForm                       // a mistake: the next byte is not allowed
)

// scan takes the bytes of p up to the first one with an event, and returns their number.
func (s *formScanner) scan(p []byte) (n int, e formEvent) {
	from := 0 // the beginning of the current key in p
	for n < len(p) && e == 0 {
		b := p[n]
		if s.left > 0 {
			switch digit := multisearch.ParseHexDigit(b); {
			case digit >= 0:
				s.char, s.left = s.char<<4|byte(digit), s.left-1
				n++
				continue
			case !s.lenient:
				e = badForm
				continue
			}
			s.left = 0
		}
		switch {
		case formStops[b] == 0:
			n += countPlain(p[n:])
			continue
		case b == '%':
			s.left, s.char = len("41"), 0
		case b == '&' || b == '=' && !s.isValue:
			if !s.isValue {
				e = s.endKey(p[from:n])
			}
			if e != badForm {
				n++
				s.isValue, s.begin, from = b == '=', s.offset+n, n
			}
			continue
		case b != '=' && !s.lenient:
			e = badForm
			continue
		}
		n++
	}
	if !s.isValue && e == 0 {
		s.part = append(s.part, p[from:min(n, from+maxKey+1-len(s.part))]...)
	}
	s.offset += n
	return n, e
}

// end takes the end of the text.
func (s *formScanner) end() formEvent {
	switch {
	// Parsers read an escape that is cut off in different ways.
	case s.left > 0 && !s.lenient:
		return badForm
	case !s.isValue:
		return s.endKey(nil)
	}
	return 0
}

// endKey ends a key. text is its end, from the current piece.
func (s *formScanner) endKey(text []byte) formEvent {
	if len(s.part) > 0 {
		text = append(s.part, text...)
		s.part = s.part[:0]
	}
	s.key = s.key[:0]
	switch {
	case len(text) > maxKey && !s.lenient:
		return badForm
	case s.firsts != nil && (len(text) == 0 || !s.firsts[text[0]]):
		return 0
	}
	s.key = append(s.key, text[:min(len(text), maxKey+1)]...)
	return endOfKey
}

// formStops is 0 for the bytes that may occur unescaped in a form, except the equals sign. Characters with a meaning in
// JSON or XML, line breaks and other separators may not.
var formStops = func() (t [256]byte) {
	for i := range t {
		if b := byte(i); !multisearch.IsWordByte(b) && strings.IndexByte("*-.+~!$(),:/?@[]|^", b) < 0 {
			t[i] = 1
		}
	}
	return t
}()

// countPlain returns how many bytes of text precede the first stop.
func countPlain(text []byte) int {
	n := 0
	for ; n+4 <= len(text); n += 4 {
		t := (*[4]byte)(text[n:])
		// One branch for four look-ups is faster than four branches.
		if formStops[t[0]]|formStops[t[1]]|formStops[t[2]]|formStops[t[3]] != 0 {
			break
		}
	}
	for n < len(text) && formStops[text[n]] == 0 {
		n++
	}
	return n
}
