// Package toolname compares the names of MCP servers' tools.
package toolname

import "strings"

// Alias is a name as code can write it: what cannot stand in an identifier becomes an underscore.
func Alias(name string) string { return strings.Map(plain, name) }

func plain(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '$':
		return r
	}
	return '_'
}

// AliasGlob is a pattern of Match for aliases.
func AliasGlob(pattern string) string {
	return strings.Map(func(r rune) rune {
		if r == '*' || r == '?' {
			return r
		}
		return plain(r)
	}, pattern)
}

// Match matches a name with a pattern in which * stands for any characters and ? for one.
func Match(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	star, mark := -1, 0 // where the last * was, and how much it stands for
	i, j := 0, 0
	for j < len(n) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == n[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}
