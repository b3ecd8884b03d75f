package world

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// mcpRemote is the pinned package that connects stdio clients to HTTP servers.
const mcpRemote = "mcp-remote@0.15.1"

func npmDir(root string) string { return filepath.Join(root, ".tools", "npm") }

// InstallMCPRemote fetches mcp-remote into .tools/npm if it is missing. An error is printed to stderr, and the test
// that needs mcp-remote finds it missing.
func InstallMCPRemote(root string) {
	cmd := exec.Command(filepath.Join(root, "make", "npm.sh"), npmDir(root), mcpRemote) //nolint:noctx // npm has its own timeouts
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: installing %s: %v\n%s", mcpRemote, err, out)
	}
}

// MCPRemote is the command that runs mcp-remote without a registry, or a MissingError.
func MCPRemote() ([]string, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	dir := npmDir(root)
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "mcp-remote")); err != nil {
		return nil, &MissingError{"mcp-remote could not be installed: it needs npm and its registry"}
	}
	return []string{"npx", "--offline", "--no-install", "--prefix", dir, "mcp-remote"}, nil
}
