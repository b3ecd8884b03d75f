// Package version holds CodeForge's version.
package version

// Version is set when the binaries are built, with -ldflags "-X
// github.com/codeforge-mcp/codeforge/internal/version.Version=0.1.0".
var Version = "dev"
