// Package visible makes text from outside safe to look at: what a terminal would obey, hide or reorder is written out.
//
// Threat: text of a model, of an API or of a skill that moves the cursor, sets the title or the clipboard, answers in
// the user's name, paints over what stands there, or shows other words than it holds (ESC and C1 controls, CR and
// backspace, bidirectional marks, characters without a width, bytes that are no UTF-8).
package visible

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Odd reports whether a character is one that a terminal obeys or does not show: controls of both sets, format
// characters (bidirectional marks and isolates, zero width, tags), line and paragraph separators, surrogates,
// characters of private use or of none, and letters and marks that have no shape of their own. Line feed and tab are
// odd too.
func Odd(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	if r == 0x2800 { // a braille pattern without a dot
		return true
	}
	return !unicode.IsGraphic(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) ||
		unicode.Is(unicode.Variation_Selector, r)
}

// Cut is a text unchanged, or, if it is longer than most bytes, its beginning in whole characters, followed by more.
func Cut(s string, most int, more string) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + more
}

// Escape writes odd characters as JavaScript escapes, and bytes that are no UTF-8 as \x and two digits. Lines stay
// lines: line feeds, a carriage return before one, and tabs are as they were, and so is a selector that makes one
// character an emoji.
func Escape(s string) string {
	at := first(s)
	if at < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	b.WriteString(s[:at])
	for i := at; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case Odd(r) && !kept(s, i, r):
			write(&b, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// first is where the first character is that Escape may change, or -1.
func first(s string) int {
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\n' && c != '\t') || c >= 0x7f {
			return i
		}
	}
	return -1
}

// kept reports whether an odd character may stay where it is.
func kept(s string, i int, r rune) bool {
	switch r {
	case '\n', '\t':
		return true
	case '\r':
		return strings.HasPrefix(s[i+1:], "\n")
	case 0xfe0e, 0xfe0f: // as text, as emoji: behind what is seen
		before, _ := utf8.DecodeLastRuneInString(s[:i])
		return i > 0 && before > ' ' && before != utf8.RuneError && !Odd(before)
	}
	return false
}

func write(b *strings.Builder, r rune) {
	switch {
	case r == '\b':
		b.WriteString(`\b`)
	case r == '\r':
		b.WriteString(`\r`)
	case r > 0xffff:
		fmt.Fprintf(b, `\u{%x}`, r)
	default:
		fmt.Fprintf(b, `\u%04x`, r)
	}
}

// Quote is a Go string literal in which every odd character is escaped.
func Quote(s string) string { return Escape(strconv.Quote(s)) }

// Line is text that fits into a line: quoted when anything in it is odd.
func Line(s string) string {
	if Plain(s) {
		return s
	}
	return Quote(s)
}

// Plain reports whether text is UTF-8 that can be shown on one line as it is. Spaces other than the one of ASCII are
// not plain: they could be taken for it.
func Plain(s string) bool {
	if first(s) < 0 && !strings.ContainsAny(s, "\n\t") { // ASCII, as nearly all text is
		return true
	}
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || Odd(r) })
}
