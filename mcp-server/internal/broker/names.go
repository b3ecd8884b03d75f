package broker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/signature"
)

// alias is a name as code can write it: what cannot stand in an identifier becomes an underscore.
func alias(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '$':
			return r
		}
		return '_'
	}, name)
}

// find finds a tool by its name, or by an alias that is only one tool's.
func find(tools []*tool, name string) (*tool, *failure) {
	var same []*tool
	var names []string
	for _, t := range tools {
		if t.Name == name {
			return t, nil
		}
		if alias(t.Name) == alias(name) {
			same = append(same, t)
		}
		names = append(names, t.Name)
	}
	switch len(same) {
	case 1:
		return same[0], nil
	case 0:
		f := &failure{code: toolNotFound, message: fmt.Sprintf("there is no tool %.80q", name)}
		if near := typo.Nearest(name, max(2, len(name)/3), names); near != "" {
			f.hint = fmt.Sprintf("Did you mean %q?", clean(near))
		} else {
			f.hint = "$tools() lists the tools."
		}
		return nil, f
	}
	var quoted []string
	for _, t := range same {
		quoted = append(quoted, fmt.Sprintf("[%q]", clean(t.Name)))
	}
	return nil, &failure{
		code: toolNotFound, message: fmt.Sprintf("%.80q could be several tools", name),
		hint: "Write the name in brackets: " + strings.Join(quoted, " or ") + ".",
	}
}

// allowed applies the globs of a server's configuration to a tool's name.
func allowed(name string, allow, deny []string) bool {
	matches := func(g string) bool { return glob(g, name) }
	return (len(allow) == 0 || slices.ContainsFunc(allow, matches)) && !slices.ContainsFunc(deny, matches)
}

// glob matches a name with a pattern in which * stands for any characters and ? for one.
func glob(pattern, name string) bool {
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

// maxText is how much of a server's text is told, in characters.
const maxText = 2000

// clean is a text of a server on one line, bounded.
func clean(text string) string { return signature.Clean(text, maxText) }
