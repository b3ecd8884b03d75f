package world

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func npmDir(root string) string { return filepath.Join(root, ".tools", "npm") }

// InstallMCPRemote installs mcp-remote into .tools/npm unless it is there. A failure is printed to stderr; the test
// that needs mcp-remote will find it missing.
func InstallMCPRemote(root string) {
	if _, err := testkit.InstallNPM(context.Background(), root, npmDir(root), testkit.MCPRemote); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
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
