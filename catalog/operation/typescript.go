package operation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// checkTypes checks that texts have the form of TypeScript types. Then a text cannot end its declaration, contain a
// statement or a comment, or make the compiler read another file. Empty texts are valid.
func checkTypes(texts ...string) error {
	for _, ts := range texts {
		if err := checkTypeText(ts); err != nil {
			return fmt.Errorf("the type %s: %w", safetext.QuoteText(cutQuote(ts)), err)
		}
	}
	return nil
}

var errNotType = errors.New("want one type of TypeScript: names, literals, and pairs of brackets")

// checkTypeText reads a text word by word. Separators are only valid inside brackets.
func checkTypeText(ts string) error {
	var open []byte // the expected closing brackets
	for i := 0; i < len(ts); {
		c := ts[i]
		switch {
		case c == '"':
			end := endOfLiteral(ts, i)
			if end < 0 {
				return errors.New("a string without an end")
			}
			i = end
			continue
		case isWordByte(c):
			from := i
			for i < len(ts) && (isWordByte(ts[i]) || ts[i] == '.' && '0' <= c && c <= '9') {
				i++
			}
			// import("...") would make the compiler read another file.
			if rest := strings.TrimLeft(ts[i:], " "); ts[from:i] == "import" && (strings.HasPrefix(rest, "(") || rest == "") {
				return errNotType
			}
			continue
		case strings.HasPrefix(ts[i:], "..."):
			i += len("...")
			continue
		case c == '-' && i+1 < len(ts) && '0' <= ts[i+1] && ts[i+1] <= '9', c == '|', c == '&', c == ' ':
		case c == '+' && i > 0 && (ts[i-1] == 'e' || ts[i-1] == 'E'), c == '-' && i > 0 && (ts[i-1] == 'e' || ts[i-1] == 'E'):
		case strings.IndexByte("{[(<", c) >= 0:
			open = append(open, "}])>"[strings.IndexByte("{[(<", c)])
		case strings.IndexByte("}])>", c) >= 0:
			last := len(open) - 1
			if last < 0 || open[last] != c {
				return errNotType
			}
			open = open[:last]
		// Outside brackets these characters would end the declaration or begin another one.
		case strings.IndexByte(":;,?", c) >= 0 && slices.ContainsFunc(open, func(b byte) bool { return b != '>' }),
			c == ',' && len(open) > 0:
		default:
			return errNotType
		}
		i++
	}
	if len(open) > 0 {
		return errNotType
	}
	return nil
}

// isWordByte reports whether a character is part of a name or a number.
func isWordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '$'
}

// endOfLiteral returns the end of the string that begins at at, or -1.
func endOfLiteral(ts string, at int) int {
	for i := at + 1; i < len(ts); i++ {
		switch ts[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}
