// Package safetext makes text from outside safe to look at: it writes out characters that a terminal would obey, hide
// or reorder.
//
// Threat: text of a model, of an API or of a skill that moves the cursor, sets the title or the clipboard, answers in
// the user's name, overwrites other text, or shows other words than it holds. It uses ESC and C1 controls, CR and
// backspace, bidirectional marks, characters without a width, or bytes that are not UTF-8.
package safetext

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsOdd reports whether a terminal obeys a character or does not show it. Such characters are:
//   - controls of both sets, including line feed and tab
//   - format characters (bidirectional marks and isolates, zero width, tags)
//   - line and paragraph separators, surrogates, private and unassigned characters
//   - letters and marks without a visible shape
func IsOdd(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	if r == 0x2800 { // a braille pattern without a dot
		return true
	}
	return !unicode.IsGraphic(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) ||
		unicode.Is(unicode.Variation_Selector, r)
}

// CutText returns a text unchanged. If the text is longer than most bytes, Cut returns its start in whole characters
// and more.
func CutText(s string, most int, more string) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + more
}

// EscapeOdd writes odd characters as JavaScript escapes, and bytes that are not UTF-8 as \x and two digits. It keeps
// line feeds, a carriage return before one, and tabs. It also keeps a selector that makes one character an emoji.
func EscapeOdd(s string) string {
	at := firstOdd(s)
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
		case IsOdd(r) && !isKept(s, i, r):
			writeEscape(&b, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// firstOdd returns the index of the first character that Escape may change, or -1.
func firstOdd(s string) int {
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\n' && c != '\t') || c >= 0x7f {
			return i
		}
	}
	return -1
}

// isKept reports whether an odd character may stay at its place.
func isKept(s string, i int, r rune) bool {
	switch r {
	case '\n', '\t':
		return true
	case '\r':
		return strings.HasPrefix(s[i+1:], "\n")
	case 0xfe0e, 0xfe0f: // text or emoji style of a visible character
		before, _ := utf8.DecodeLastRuneInString(s[:i])
		return i > 0 && before > ' ' && before != utf8.RuneError && !IsOdd(before)
	}
	return false
}

func writeEscape(b *strings.Builder, r rune) {
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

// QuoteText returns a Go string literal in which every odd character is escaped.
func QuoteText(s string) string { return EscapeOdd(strconv.Quote(s)) }

// OneLine returns text that fits into a line. If the text has an odd character, Line quotes it.
func OneLine(s string) string {
	if IsPlain(s) {
		return s
	}
	return QuoteText(s)
}

// IsPlain reports whether text is UTF-8 that can be shown unchanged on one line. Spaces other than ASCII's are not
// plain, because a reader could mistake them for it.
func IsPlain(s string) bool {
	if firstOdd(s) < 0 && !strings.ContainsAny(s, "\n\t") { // ASCII, like nearly all text
		return true
	}
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || IsOdd(r) })
}
