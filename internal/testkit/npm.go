package testkit

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// MCPRemote is the pinned package that connects stdio clients to HTTP servers.
const MCPRemote = "mcp-remote@0.15.1"

// InstallNPM installs pinned npm packages for tests into dir with make/npm.sh, unless they are there, and returns its
// node_modules. The error holds what npm said.
func InstallNPM(ctx context.Context, root, dir string, packages ...string) (string, error) {
	script := filepath.Join(root, "make", "npm.sh")
	cmd := exec.CommandContext(ctx, script, append([]string{dir}, packages...)...) //nolint:gosec // the tree's own script
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("installing npm packages: %w\n%s", err, out)
	}
	return filepath.Join(dir, "node_modules"), nil
}
