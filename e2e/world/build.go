package world

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// packages are the main packages of CodeForge.
var packages = []string{
	"./cli/cmd/codeforge", "./proxy/cmd/egress-proxy", "./sandbox-image/cmd/sandboxd", "./mcp-server/cmd/mcp-server",
	"./mcp-server/cmd/docker-shim",
	"./mcp-server/cmd/mcp-bridge",
	"./e2e/cmd/intruder",                            // for tests only: see attack
	"./mcp-server/internal/bridge/testdata/hostile", // for tests only: see servers
	"./mcp-server/internal/history/testdata/fill",   // for tests only: see console
}

// OverlayVar is the environment variable with the path of an overlay of e2e/negative/armed, whose programs have a folder
// of their own.
const OverlayVar = "CODEFORGE_E2E_OVERLAY"

// build calls buildWith with the overlay of OverlayVar. CODEFORGE_E2E_BIN names a folder of binaries to use instead.
func build(root string) (string, error) {
	if dir := os.Getenv(binVar); dir != "" {
		return dir, nil
	}
	return buildWith(root, os.Getenv(OverlayVar))
}

// BuildShipped builds the binaries without an overlay, and returns their folder.
func BuildShipped(root string) (string, error) { return buildWith(root, "") }

// buildWith builds the binaries from the working tree into bin/e2e, or with an overlay into bin/e2e-disarm. A lock
// serialises the test binaries of several packages.
func buildWith(root, overlay string) (string, error) {
	dir := filepath.Join(root, "bin", "e2e")
	if overlay != "" {
		dir += "-disarm"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // ordinary users run these too
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("locking %s: %w", dir, err)
	}
	args := []string{"build", "-trimpath", "-overlay=" + overlay, "-o", dir + "/"}
	cmd := exec.Command("go", append(args, packages...)...) //nolint:gosec,noctx // fixed arguments
	cmd.Dir = root
	cmd.Env = append(withoutFlags(os.Environ()), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building CodeForge: %w\n%s", err, out)
	}
	return dir, nil
}

// withoutFlags removes variables that would make go build something other than the workspace.
func withoutFlags(env []string) []string {
	kept := []string{}
	for _, e := range env {
		if !strings.HasPrefix(e, "GOWORK=") {
			kept = append(kept, e)
		}
	}
	return kept
}
