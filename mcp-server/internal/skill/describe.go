package skill

import (
	"strings"
	"unicode"

	"github.com/codeforge-mcp/codeforge/internal/visible"
)

// maxDescription is how long a description may be, in characters.
const maxDescription = 200

// Describe returns the @description in a module's leading comments, or an empty string. It is one line of printable
// text, cut at 200 characters, because code wrote it and the model reads it.
func Describe(source string) string {
	comment := leadingComment(source)
	_, text, ok := strings.Cut(comment, "@description")
	if !ok {
		return ""
	}
	var words []string
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), "*/"))
		if i > 0 && (line == "" || strings.HasPrefix(line, "@")) {
			break
		}
		words = append(words, strings.Fields(printable(line))...)
	}
	out := []rune(strings.Join(words, " "))
	if len(out) > maxDescription {
		return string(out[:maxDescription-1]) + "…"
	}
	return string(out)
}

// leadingComment returns the text of the comments before any code.
func leadingComment(source string) string {
	var b strings.Builder
	rest := strings.TrimPrefix(source, "\uFEFF")
	for {
		rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
		switch {
		case strings.HasPrefix(rest, "//"), strings.HasPrefix(rest, "#!"):
			line, after, _ := strings.Cut(rest, "\n")
			b.WriteString(line + "\n")
			rest = after
		case strings.HasPrefix(rest, "/*"):
			text, after, ok := strings.Cut(rest[2:], "*/")
			b.WriteString(text + "\n\n")
			if !ok {
				return b.String()
			}
			rest = after
		default:
			return b.String()
		}
	}
}

// printable removes characters that readers do not see or terminals obey, and turns white space into single spaces.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == unicode.ReplacementChar, visible.Odd(r):
			return -1
		}
		return r
	}, s)
}
