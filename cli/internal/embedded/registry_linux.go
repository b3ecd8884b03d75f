package embedded

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpconfig"
)

// withRegistry sets PACKAGE_REGISTRY from npm's configuration if it is not set and an API uses a package. npm takes a
// while to answer, so other starts skip it. The warning is the reason why packages cannot be installed.
func withRegistry(ctx context.Context, c Config, apis string) (environ []string, warning string) {
	if c.Settings.Registry != nil || !needsPackages(apis) {
		return c.Environ, ""
	}
	registry, err := mcpconfig.FromNPM(ctx, c.Environ)
	if err != nil {
		return c.Environ, err.Error() + "; set PACKAGE_REGISTRY in .env to install packages of MCP servers"
	}
	return append(c.Environ[:len(c.Environ):len(c.Environ)], "PACKAGE_REGISTRY="+string(registry)), ""
}

// needsPackages reports whether a file in the folder of APIs could name a package of npm. It may report too many,
// because only the proxy parses these files.
func needsPackages(apis string) bool {
	files, _ := filepath.Glob(filepath.Join(apis, "*", "config.json"))
	return slices.ContainsFunc(append(files, filepath.Join(apis, catalog.PackagesFile)), func(path string) bool {
		data, err := os.ReadFile(path)
		return err == nil && bytes.Contains(data, []byte(`"npm:`))
	})
}
