package swap

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog"
)

func (w *jsonWriter) handleOutside(dst []byte, b byte) []byte {
	if why := w.checkPlace(b); why != nil {
		if dst = w.failOrPassThrough(dst, why); w.bad != nil {
			return w.passThrough(dst, []byte{b})
		}
	}
	if isWord(b) {
		return w.addByte(dst, b)
	}
	if dst = w.swapRun(dst, requestSpot{kind: catalog.SurfaceBody}, nil); w.err != nil {
		return dst
	}
	switch b {
	case '"':
		w.key = w.expect == expectKey || w.expect == expectKeyOrEnd
		w.in, w.only, w.text, w.rune = true, true, w.text[:0], runeState{}
	case '{', '[':
		w.openLevel(b == '{')
	case '}', ']':
		w.closeLevel()
	case ',':
		w.handleComma()
	case ':':
		w.expect = expectValue
	case '\n':
		// A complete line is read on its own, so its swaps need not wait for later lines.
		if w.lines && w.expect == expectNothing {
			w.expect, w.held = expectValue, false
		}
	}
	return append(dst, b)
}

// checkPlace returns why a byte may not occur at this position, or nil. It also checks numbers and literals.
func (w *jsonWriter) checkPlace(b byte) *Ambiguity {
	if w.scalar.on {
		switch {
		case w.scalar.continueScalar(b):
			return nil
		case !w.scalar.endScalar():
			return errJSON
		}
	}
	value := w.expect == expectValue || w.expect == expectValueOrEnd
	allowed := false
	switch b {
	case ' ', '\t':
		return nil
	case '\n', '\r':
		// In a body of lines, a line break inside a value would end the value for a line reader.
		if w.lines && (len(w.levels) > 0 || b == '\r' && w.expect == expectValue) {
			return errJSONLines
		}
		return nil
	case '{', '[':
		// The bound keeps the memory of levels constant.
		if value && len(w.levels) == maxLevels {
			return errJSONDeep
		}
		allowed = value
	case '"':
		allowed = value || w.expect == expectKey || w.expect == expectKeyOrEnd
	case '}':
		allowed = w.expect == expectKeyOrEnd || w.expect == expectMore && w.isInObject()
	case ']':
		allowed = w.expect == expectValueOrEnd || w.expect == expectMore && !w.isInObject()
	case ',':
		allowed = w.expect == expectMore
	case ':':
		allowed = w.expect == expectColon
	default:
		if allowed = value && w.scalar.beginScalar(b); allowed {
			w.endValue()
		}
	}
	switch {
	case allowed:
		return nil
	case w.expect == expectNothing && w.lines:
		return errJSONLines
	case w.expect == expectNothing:
		return errJSONMore
	}
	return errJSON
}

func (w *jsonWriter) isInObject() bool { return len(w.levels) > 0 && w.levels[len(w.levels)-1].object }

// listCandidates returns the declared fields whose keys match up to the next value.
func (w *jsonWriter) listCandidates() []fieldMatch {
	n := len(w.levels)
	switch {
	case n == 0:
		return w.top
	case w.levels[n-1].object:
		return w.levels[n-1].value
	}
	return w.levels[n-1].inner // arrays do not count
}

func (w *jsonWriter) openLevel(object bool) {
	matches, n := w.listCandidates(), len(w.levels)
	if n < cap(w.levels) {
		w.levels = w.levels[:n+1] // reuses its slices
	} else {
		w.levels = append(w.levels, jsonLevel{})
	}
	l := &w.levels[n]
	l.object, l.seen, l.inner, l.value = object, 0, matches, l.value[:0]
	switch {
	case n == 0:
		l.keys = w.topKeys
	case w.levels[n-1].object:
		l.keys = w.keyLengths(matches)
	default:
		l.keys = w.levels[n-1].keys
	}
	w.expect = expectKeyOrEnd
	if !object {
		w.expect = expectValueOrEnd
	}
}

func (w *jsonWriter) handleComma() {
	w.expect = expectValue
	if w.isInObject() {
		w.expect = expectKey
	}
}

func (w *jsonWriter) closeLevel() {
	if n := len(w.levels); n > 0 {
		w.levels = w.levels[:n-1]
	}
	w.endValue()
}

func (w *jsonWriter) endValue() {
	w.expect = expectMore
	if len(w.levels) == 0 {
		w.expect = expectNothing
	}
}

// jsonScalar is the number or literal that is being read.
type jsonScalar struct {
	rest  string // of a word
	state numberState
	on    bool
}

// numberState is a position within a number (RFC 8259, section 6).
type numberState uint8

const (
	numNone numberState = iota
	numMinus
	numZero
	numInt
	numPoint
	numFraction
	numE
	numSign
	numExponent
)

// beginScalar reports whether b begins a number or a literal.
func (s *jsonScalar) beginScalar(b byte) bool {
	*s = jsonScalar{on: true}
	switch {
	case b == 't':
		s.rest = "true"[1:]
	case b == 'f':
		s.rest = "false"[1:]
	case b == 'n':
		s.rest = "null"[1:]
	case b == '-':
		s.state = numMinus
	case b == '0':
		s.state = numZero
	case '1' <= b && b <= '9':
		s.state = numInt
	default:
		s.on = false
	}
	return s.on
}

func (s *jsonScalar) continueScalar(b byte) bool {
	if s.state == numNone {
		if s.rest == "" || s.rest[0] != b {
			return false
		}
		s.rest = s.rest[1:]
		return true
	}
	to := numNone
	switch digit := '0' <= b && b <= '9'; {
	case digit && s.state == numMinus && b == '0':
		to = numZero
	case digit && (s.state == numMinus || s.state == numInt):
		to = numInt
	case digit && (s.state == numPoint || s.state == numFraction):
		to = numFraction
	case digit && s.state >= numE:
		to = numExponent
	case b == '.' && (s.state == numZero || s.state == numInt):
		to = numPoint
	case b|0x20 == 'e' && (s.state == numZero || s.state == numInt || s.state == numFraction):
		to = numE
	case (b == '+' || b == '-') && s.state == numE:
		to = numSign
	}
	if to == numNone {
		return false
	}
	s.state = to
	return true
}

// endScalar ends the scalar, and reports whether it is complete.
func (s *jsonScalar) endScalar() bool {
	if s.rest != "" || s.state == numMinus || s.state == numPoint || s.state == numE || s.state == numSign {
		return false
	}
	s.on = false
	return true
}

// decodeEscape decodes an escape, as far as it was read. done means that the escape is complete. It returns a surrogate
// unchanged.
func decodeEscape(escape []byte) (r rune, done, ok bool) {
	if len(escape) < 2 {
		return 0, false, true
	}
	if escape[1] != 'u' {
		at := strings.IndexByte(`"\/bfnrt`, escape[1])
		if at < 0 {
			return utf8.RuneError, true, false
		}
		return rune("\"\\/\b\f\n\r\t"[at]), true, true
	}
	for _, b := range escape[2:] {
		if !isHexDigit(b) {
			return utf8.RuneError, true, false
		}
		r = r<<4 | rune(decodeHexDigit(b))
	}
	return r, len(escape) == len(`\u0000`), true
}

func decodeHexDigit(b byte) byte {
	if b <= '9' {
		return b - '0'
	}
	return b | 0x20 - 'a' + 10
}

// runeState checks that a string is valid UTF-8 without unpaired surrogates.
type runeState struct {
	part [utf8.UTFMax]byte // an incomplete character
	n    int               // bytes of part
	high rune              // an escaped high surrogate
}

// isOpen reports whether a character is incomplete.
func (s *runeState) isOpen() bool { return s.n > 0 || s.high != 0 }

// addByte handles an unescaped byte. It returns false if the string is not valid.
func (s *runeState) addByte(b byte) bool {
	// Only an escaped low surrogate completes an escaped high one (RFC 8259, section 7).
	if s.high != 0 && b != '\\' {
		return false
	}
	if s.n == 0 && b < utf8.RuneSelf {
		return true
	}
	s.part[s.n] = b
	s.n++
	text := s.part[:s.n]
	if !utf8.FullRune(text) {
		return true
	}
	s.n = 0
	return utf8.Valid(text)
}

// addEscaped handles an escaped character, or half of a surrogate pair. It returns the whole character, or -1 after a
// high half. It returns false for an unpaired surrogate.
func (s *runeState) addEscaped(r rune) (rune, bool) {
	high := s.high
	s.high = 0
	switch {
	case high != 0:
		full := utf16.DecodeRune(high, r)
		return full, full != utf8.RuneError
	case 0xD800 <= r && r < 0xDC00:
		s.high = r
		return -1, true
	}
	return r, !utf16.IsSurrogate(r)
}
