package broker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/signature"
)

// find finds a tool by its name, or by an alias that fits only one tool.
func find(tools []*tool, name string) (*tool, *failure) {
	var same []*tool
	var names []string
	for _, t := range tools {
		if t.Name == name {
			return t, nil
		}
		if mcpserver.AliasTool(t.Name) == mcpserver.AliasTool(name) {
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

// allowed applies a configuration's globs to a tool's name. An empty allow list allows all tools; deny wins.
func allowed(name string, allow, deny []string) bool {
	matches := func(g string) bool { return mcpserver.MatchTool(g, name) }
	return (len(allow) == 0 || slices.ContainsFunc(allow, matches)) && !slices.ContainsFunc(deny, matches)
}

// clean returns a server's text on one line, at most signature.MaxText characters.
func clean(text string) string { return signature.Clean(text, signature.MaxText) }
