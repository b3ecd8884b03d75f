package doctor

import (
	"context"
	"fmt"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

// checkServers reports the MCP servers of a running CodeForge: their number, and each one whose last start failed.
// Without a running CodeForge, or without servers, it returns no finding.
func checkServers(ctx context.Context, c Config) []Finding {
	place, err := mcpclient.LocateServer(ctx, c.Server)
	if err != nil {
		return nil
	}
	list, err := mcpclient.ListServers(ctx, c.Server, place)
	if err != nil || len(list) == 0 { // checkRunning has already reported a server that does not answer
		return nil
	}
	return serverFindings(list)
}

func serverFindings(list []mcpserver.Status) []Finding {
	up := 0
	var out []Finding
	for _, s := range list {
		if s.State == mcpserver.Running {
			up++
		}
		if s.Problem != "" {
			out = append(out, newWarning("MCP server "+s.Name, s.Problem,
				"docs/troubleshooting.md has the usual causes; the log has what the server printed"))
		}
	}
	all := fmt.Sprintf("%d configured, %d running; the others start with their first call", len(list), up)
	return append([]Finding{newOK("MCP servers", all)}, out...)
}
