// Package sandboximage holds the versions from which the sandbox's image is built: the pinned Deno, and the pinned
// TypeScript compiler. Other programs read them too.
package sandboximage

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

var (
	//go:embed deno.version
	deno string
	//go:embed typescript.version
	typescript string
)

// DenoVersion is the version of Deno that CodeForge is built and tested with, e.g. "2.9.6".
func DenoVersion() string { return pinnedVersion(deno) }

// AskDeno runs a Deno executable and returns its version, e.g. "2.9.6".
func AskDeno(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version") //nolint:gosec // the path is the operator's own setting
	cmd.Env = []string{"NO_COLOR=1", "DENO_NO_UPDATE_CHECK=1", "HOME=/nonexistent"}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", path, err)
	}
	f := strings.Fields(string(out))
	if len(f) < 2 || f[0] != "deno" {
		return "", fmt.Errorf("asking %s for its version: not Deno", path)
	}
	return f[1], nil
}

// TypeScriptVersion is the version of the TypeScript compiler that CodeForge is built and tested with, e.g. "7.0.2".
func TypeScriptVersion() string { return pinnedVersion(typescript) }

func pinnedVersion(pins string) string {
	for line := range strings.Lines(pins) {
		if version, ok := strings.CutPrefix(line, "version "); ok {
			return strings.TrimSpace(version)
		}
	}
	return ""
}
