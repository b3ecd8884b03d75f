package mcpserver

import (
	"strings"
	"unicode/utf8"
)

// AliasTool returns a name in the form of code: characters that are invalid in an identifier become underscores.
func AliasTool(name string) string { return strings.Map(plainRune, name) }

func plainRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '$':
		return r
	}
	return '_'
}

// AliasGlob returns a pattern of MatchTool for aliases.
func AliasGlob(pattern string) string {
	return strings.Map(func(r rune) rune {
		if r == '*' || r == '?' {
			return r
		}
		return plainRune(r)
	}, pattern)
}

// MatchTool matches a name with a pattern in which * stands for any characters and ? for one. Rules call it for every
// tool call, so it copies neither text.
func MatchTool(pattern, name string) bool {
	star, mark := -1, 0 // the index of the last *, and the end of its match
	i, j := 0, 0
	for j < len(name) {
		p, wide := utf8.DecodeRuneInString(pattern[i:]) // wide is 0 at the end
		n, size := utf8.DecodeRuneInString(name[j:])
		switch {
		case p == '*':
			star, mark = i, j
			i++
		case wide > 0 && (p == '?' || p == n):
			i += wide
			j += size
		case star >= 0:
			_, size = utf8.DecodeRuneInString(name[mark:])
			mark += size
			i, j = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
}
