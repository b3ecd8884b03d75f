package embedded

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// registryName is the setting for the registry of packages.
const registryName = "PACKAGE_REGISTRY"

// npmTimeout bounds the question to npm.
const npmTimeout = 15 * time.Second

// withRegistry sets PACKAGE_REGISTRY to the registry of npm's configuration if it is not set and some API is a package.
// npm takes a while to answer, so nobody else waits for it. A warning says why packages cannot be installed.
func withRegistry(ctx context.Context, c Config, apis string) (environ []string, warning string) {
	if c.Settings.Registry != nil || !usesPackages(apis) {
		return c.Environ, ""
	}
	const remedy = "; set PACKAGE_REGISTRY in .env to install packages of MCP servers"
	npm, err := exec.LookPath("npm")
	if err != nil {
		return c.Environ, "npm is not installed, so its registry is unknown" + remedy
	}
	ctx, cancel := context.WithTimeout(ctx, npmTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "config", "get", "registry") //nolint:gosec // the user's own npm
	cmd.Env = c.Environ
	out, err := cmd.Output()
	if err != nil {
		return c.Environ, "npm does not tell its registry" + remedy
	}
	address := strings.TrimSpace(string(out))
	s, err := settings.Parse(func(name string) string {
		if name == registryName {
			return address
		}
		return ""
	})
	if err != nil || s.Registry == nil {
		return c.Environ, "npm's registry is not an https URL without user and port" + remedy
	}
	return append(c.Environ[:len(c.Environ):len(c.Environ)], registryName+"="+address), ""
}

// usesPackages reports whether some config.json below the folder of APIs could name a package. It errs on the safe
// side: only the proxy reads these files properly.
func usesPackages(apis string) bool {
	files, _ := filepath.Glob(filepath.Join(apis, "*", "config.json"))
	for _, path := range files {
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(`"package"`)) {
			return true
		}
	}
	return false
}
