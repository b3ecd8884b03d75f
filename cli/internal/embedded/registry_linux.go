package embedded

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpconfig"
)

// withRegistry sets PACKAGE_REGISTRY to the registry of npm's configuration if it is not set and some API is a package.
// npm takes a while to answer, so nobody else waits for it. A warning says why packages cannot be installed.
func withRegistry(ctx context.Context, c Config, apis string) (environ []string, warning string) {
	if c.Settings.Registry != nil || !usesPackages(apis) {
		return c.Environ, ""
	}
	registry, err := mcpconfig.FromNPM(ctx, c.Environ)
	if err != nil {
		return c.Environ, err.Error() + "; set PACKAGE_REGISTRY in .env to install packages of MCP servers"
	}
	return append(c.Environ[:len(c.Environ):len(c.Environ)], "PACKAGE_REGISTRY="+string(registry)), ""
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
