// Package runner holds the TypeScript that runs in a waiting interpreter before the user's code.
package runner

import _ "embed" // warm.ts

// Warm is warm.ts, which Deno runs with --preload. It writes one zero byte to standard output when the interpreter is
// up, and then blocks until GoByte arrives on standard input. The main module is written in between.
//
//go:embed warm.ts
var Warm []byte

// ReadyByte is the first byte that warm.ts writes to standard output. It is not part of the code's output.
const ReadyByte = 0

// What warm.ts reads from standard input. GoByte starts the main module. LoadByte may come once before it and makes the
// interpreter preload what most code needs.
const (
	GoByte   = '\n'
	LoadByte = 'l'
)
