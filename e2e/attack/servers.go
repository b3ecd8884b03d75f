package attack

import (
	"path/filepath"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// withServers adds MCP servers to the APIs. The programs of quiet and vault do not exist: a call that gets through to one
// fails in another way than a call that is refused. Those of hostile and neighbour are the intruder.
func withServers(apis []world.API) []world.API {
	for _, name := range []string{"quiet", "vault"} {
		apis = append(apis, world.API{Name: name, Config: map[string]any{
			"description": "an MCP server", "mcp": map[string]any{"command": []string{"no-such-program"}},
		}})
	}
	apis = append(apis, world.API{Name: "ruled-tools", Config: map[string]any{
		"description": "an MCP server with rules", "rules": toolRules, "mcp": map[string]any{"command": []string{"no-such-program"}},
	}})
	for _, name := range []string{"hostile", "neighbour"} {
		apis = append(apis, world.API{Name: name, Config: map[string]any{
			"description": "an MCP server", "mcp": map[string]any{"command": []string{"intruder", "serve"}},
		}})
	}
	return WithLimits(withSigned(apis))
}

// programs is the folder that has the intruder, for SANDBOX_PROGRAMS.
func programs() (string, error) {
	path, err := world.Program("intruder")
	return filepath.Dir(path), err
}
