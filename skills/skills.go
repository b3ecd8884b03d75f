// Package skills carries the skills shipped with the project. They are seeded into the skills directory on its first start.
package skills

import "embed"

// Files holds the shipped skills, <name>.ts each.
//
//go:embed *.ts
var Files embed.FS
