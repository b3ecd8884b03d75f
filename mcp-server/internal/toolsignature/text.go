package toolsignature

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// FirstSentence returns the start of a description as plain text: up to the end of its first sentence or paragraph.
func FirstSentence(description string) string {
	head, _, _ := strings.Cut(strings.TrimSpace(description), "\n\n")
	text := CleanLine(head, 4*MaxDescription)
	for i, r := range text {
		if r != '.' && r != '!' && r != '?' || i+1 < len(text) && text[i+1] != ' ' {
			continue
		}
		// An abbreviation does not end the sentence.
		switch text[strings.LastIndexByte(text[:i], ' ')+1 : i] {
		case "e.g", "i.e", "etc", "vs":
			continue
		}
		text = text[:i+1]
		break
	}
	return cutCharacters(text, MaxDescription)
}

// MaxText bounds a server's text, in characters.
const MaxText = 2000

// WordsForModel returns a server's text, or an error with such text, for a model: on one line, and omitted if it
// addresses its reader. The caller must show whose words they are.
func WordsForModel(text string, most int) string {
	if IsAddressedToReader(text) {
		return "(left out: it addresses its reader)"
	}
	return CleanLine(text, min(most, MaxText))
}

// CleanLine returns a server's text on one line: without control characters and invisible characters, and at most most
// characters long.
func CleanLine(text string, most int) string {
	var b strings.Builder
	space, n := false, 0
	sequence := false // within a terminal's sequence: from ESC [ to its letter
	for i, r := range text {
		switch {
		// A terminal's sequence is dropped as a whole, so that no part is shown as text.
		case sequence:
			sequence = r == '[' && text[i-1] == 0x1b || r >= ' ' && r < '@'
			continue
		case r == 0x1b:
			sequence = true
			continue
		case unicode.IsSpace(r):
			space = b.Len() > 0
			continue
		case r == utf8.RuneError, !unicode.IsPrint(r), unicode.Is(unicode.Mn, r) && n == 0, isInvisible(r):
			continue
		}
		if n >= most { // a space and a character are two
			return cutCharacters(b.String(), most-1) + "…"
		}
		if space {
			b.WriteByte(' ')
			space = false
			n++
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// isInvisible reports whether a printable character is invisible: fillers, and selectors that can carry hidden text.
func isInvisible(r rune) bool {
	switch r {
	case 0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0:
		return true
	}
	return r >= 0x180B && r <= 0x180F || r >= 0xFE00 && r <= 0xFE0F || r >= 0xE0100 && r <= 0xE01EF
}

// cutCharacters shortens a text to a number of characters.
func cutCharacters(text string, most int) string {
	n := 0
	for i := range text {
		if n == most {
			return strings.TrimRight(text[:i], " ") + "…"
		}
		n++
	}
	return text
}
