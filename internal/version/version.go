// Package version says which CodeForge this is.
package version

// Version is set when the binaries are built: -ldflags "-X
// github.com/codeforge-mcp/codeforge/internal/version.Version=0.1.0".
var Version = "dev"
