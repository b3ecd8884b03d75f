// Command print prints the version it was built with.
package main

import (
	"os"

	"github.com/codeforge-mcp/codeforge/internal/version"
)

func main() { _, _ = os.Stdout.WriteString(version.Version) }
