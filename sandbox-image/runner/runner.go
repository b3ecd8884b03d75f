// Package runner holds the TypeScript that runs in a waiting interpreter before the user's code.
package runner

import _ "embed" // warm.ts

// Warm is warm.ts: given to Deno with --preload, it says that the interpreter is up with one zero byte on standard
// output, and then blocks until GoByte arrives on standard input. The main module is written in between.
//
//go:embed warm.ts
var Warm []byte

// ReadyByte is what warm.ts writes first on standard output. It is no part of what the code prints.
const ReadyByte = 0

// What warm.ts reads on standard input: GoByte starts the main module. LoadByte may come once before it, and has what most
// code needs loaded while there is none.
const (
	GoByte   = '\n'
	LoadByte = 'l'
)
