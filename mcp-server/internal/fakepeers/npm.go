package fakepeers

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// RunNode runs a script with NodeBinary and returns what it printed to both streams.
func RunNode(tb testing.TB, dir string, args ...string) (string, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testkit.NodeBinary(tb), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NODE_PATH="+testkit.InstallClients(tb)) //nolint:forbidigo // support of tests
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}
