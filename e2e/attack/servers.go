package attack

import "github.com/codeforge-mcp/codeforge/e2e/world"

// withServers adds two MCP servers to the APIs. Their programs do not exist: a call that gets through to one fails in
// another way than a call that is refused.
func withServers(apis []world.API) []world.API {
	for _, name := range []string{"quiet", "vault"} {
		apis = append(apis, world.API{Name: name, Config: map[string]any{
			"description": "an MCP server", "mcp": map[string]any{"command": []string{"no-such-program"}},
		}})
	}
	return apis
}
