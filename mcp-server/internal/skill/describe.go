package skill

import (
	"strings"
	"unicode"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// maxDescription bounds a description, in characters.
const maxDescription = 200

// DescribeSource returns the @description in a module's leading comments, or "". The result is one line of printable
// text, at most 200 characters, because code wrote it and the model reads it.
func DescribeSource(source string) string {
	comment := leadingComment(source)
	_, text, ok := strings.Cut(comment, "@description")
	if !ok {
		return ""
	}
	var words []string
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), "*/"))
		// A description ends with its paragraph or at the next tag.
		if i > 0 && (line == "" || strings.HasPrefix(line, "@")) {
			break
		}
		words = append(words, strings.Fields(makePrintable(line))...)
	}
	return cutDescription(strings.Join(words, " "))
}

func cutDescription(text string) string {
	out := []rune(text)
	if len(out) > maxDescription {
		return string(out[:maxDescription-1]) + "…"
	}
	return text
}

// describeModule is DescribeSource for a TypeScript module. For a Python module it returns the first line of the
// docstring.
func describeModule(name, source string) string {
	if !IsPython(name) {
		return DescribeSource(source)
	}
	for line := range strings.Lines(pythonDocstring(source)) {
		if words := strings.Fields(makePrintable(line)); len(words) > 0 {
			return cutDescription(strings.Join(words, " "))
		}
	}
	return ""
}

// pythonDocstring returns the string at the start of a Python module, after comments.
func pythonDocstring(source string) string {
	rest := strings.TrimLeftFunc(strings.TrimPrefix(source, "\uFEFF"), unicode.IsSpace)
	for strings.HasPrefix(rest, "#") {
		_, rest, _ = strings.Cut(rest, "\n")
		rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
	}
	// A raw string is a docstring as well.
	rest = strings.TrimLeft(rest, "rR")
	for _, quote := range []string{`"""`, "'''", `"`, "'"} {
		if text, ok := strings.CutPrefix(rest, quote); ok {
			text, _, _ = strings.Cut(text, quote)
			return text
		}
	}
	return ""
}

// leadingComment returns the text of the comments before the code.
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
			// An unfinished comment goes to the end of the source.
			if !ok {
				return b.String()
			}
			rest = after
		default:
			return b.String()
		}
	}
}

// makePrintable removes invisible characters and terminal controls, and turns white space into spaces.
func makePrintable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == unicode.ReplacementChar, safetext.IsOdd(r):
			return -1
		}
		return r
	}, s)
}
