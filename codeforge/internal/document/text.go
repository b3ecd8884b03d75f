package document

import (
	"html"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/visible"
)

var (
	tag      = regexp.MustCompile(`<[/!?]?[A-Za-z][^<>]*>|<!--|-->`)
	link     = regexp.MustCompile(`!?\[([^\[\]]*)\]\([^()\s]*\)`)
	fence    = regexp.MustCompile("```[a-z]*|\\*\\*|__")
	sentence = regexp.MustCompile(`[.!?:]\s|\n\s*\n|\n\s*[-*#|]`)
)

// maxRead is how much of a text is looked at, in bytes.
const maxRead = 4 << 10

// Line makes text of a document safe to show: on one line, without markup, without characters that a terminal obeys or
// does not show, and of at most so many bytes.
func Line(s string, most int) string {
	if len(s) > maxRead {
		s = strings.ToValidUTF8(s[:maxRead], "")
	}
	s = strings.ToValidUTF8(s, "")
	for range 3 { // markup may be escaped, and what is left of it may be markup
		before := s
		s = html.UnescapeString(s)
		s = tag.ReplaceAllString(s, " ")
		if s == before {
			break
		}
	}
	s = link.ReplaceAllString(s, "$1")
	s = fence.ReplaceAllString(s, "")
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			space = true
			continue
		case visible.Odd(r) || !unicode.IsPrint(r):
			continue
		}
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteRune(r)
	}
	return strings.TrimSpace(cut(b.String(), most))
}

// Sentence is the first sentence of a text, as Line.
func Sentence(s string, most int) string {
	s = strings.TrimLeft(s, " \t\r\n#*-")
	if len(s) > maxRead {
		s = s[:maxRead]
	}
	if at := sentence.FindStringIndex(s); at != nil && at[0] > 0 {
		end := at[0]
		if s[end] != '\n' && s[end] != ':' {
			end++
		}
		if first := Line(s[:end], most); first != "" {
			return first
		}
	}
	return Line(s, most)
}

// cut shortens a text to at most so many bytes, at a space if there is one near.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const more = "…"
	end := most - len(more)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	if at := strings.LastIndexByte(s[:end], ' '); at > end*3/4 {
		end = at
	}
	return strings.TrimRight(s[:end], " ,;:.") + more
}
