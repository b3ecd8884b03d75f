package broker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
)

// findTool finds a tool by its name, or by an alias that fits only one tool.
func findTool(tools []*declaredTool, name string) (*declaredTool, *callFailure) {
	var same []*declaredTool
	var names []string
	alias := mcpserver.AliasTool(name) // once: code may write a name of 64 KiB
	for _, t := range tools {
		if t.Name == name {
			return t, nil
		}
		if mcpserver.AliasTool(t.Name) == alias {
			same = append(same, t)
		}
		names = append(names, t.Name)
	}
	switch len(same) {
	case 1:
		return same[0], nil
	case 0:
		f := &callFailure{code: toolNotFound, message: fmt.Sprintf("there is no tool %.80q", name)}
		if near := typo.NearestOf(name, max(2, len(name)/3), names); near != "" {
			f.hint = fmt.Sprintf("Did you mean %q?", cleanText(near))
		} else {
			f.hint = "$tools() lists the tools."
		}
		return nil, f
	}
	quoted := convert.Each(same, func(t *declaredTool) string { return fmt.Sprintf("[%q]", cleanText(t.Name)) })
	return nil, &callFailure{
		code: toolNotFound, message: fmt.Sprintf("%.80q could be several tools", name),
		hint: "Write the name in brackets: " + strings.Join(quoted, " or ") + ".",
	}
}

// matchesGlobs applies a configuration's globs to a tool's name. An empty allow list allows all tools; deny wins.
func matchesGlobs(name string, allow, deny []string) bool {
	matches := func(g string) bool { return mcpserver.MatchTool(g, name) }
	return (len(allow) == 0 || slices.ContainsFunc(allow, matches)) && !slices.ContainsFunc(deny, matches)
}

// cleanText returns a server's text on one line, at most toolsignature.MaxText characters.
func cleanText(text string) string { return toolsignature.CleanLine(text, toolsignature.MaxText) }
