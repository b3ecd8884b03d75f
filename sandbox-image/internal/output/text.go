// Package output converts the output of code to valid UTF-8, cut between characters, and stores the whole output in a
// file that later runs can read.
package output

import (
	"strings"
	"unicode/utf8"
)

// ValidText converts a byte stream that arrives in pieces to valid UTF-8. The zero Text is ready to use.
type ValidText struct {
	rest []byte // the first bytes of an incomplete character
	// Invalid counts the bytes that became U+FFFD.
	Invalid int64
}

// DecodePiece returns the text of a piece, without a last character that the next piece may complete.
func (t *ValidText) DecodePiece(p []byte) string {
	if len(t.rest) > 0 {
		p = append(t.rest, p...)
		t.rest = nil
	}
	if n := countUnfinished(p); n > 0 {
		t.rest = append([]byte(nil), p[len(p)-n:]...)
		p = p[:len(p)-n]
	}
	return t.replaceInvalid(p)
}

// DecodeRest returns the remaining text at the end of the stream.
func (t *ValidText) DecodeRest() string {
	p := t.rest
	t.rest = nil
	return t.replaceInvalid(p)
}

// replaceInvalid replaces each invalid byte by U+FFFD.
func (t *ValidText) replaceInvalid(p []byte) string {
	if utf8.Valid(p) {
		return string(p)
	}
	var b strings.Builder
	b.Grow(len(p) + 16)
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		if r == utf8.RuneError && n == 1 {
			t.Invalid++
		}
		b.WriteRune(r)
		p = p[n:]
	}
	return b.String()
}

// countUnfinished returns the number of bytes at the end of p that could begin a valid character.
func countUnfinished(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		tail := p[len(p)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
