// Package skills holds the skills that are shipped with CodeForge. mcp-server copies them into the skills directory at
// its first start, and in a pod sandboxd does.
package skills

import "embed"

// Files contains the shipped skills as <name>.ts.
//
//go:embed *.ts
var Files embed.FS
