// Package runner holds the TypeScript that runs in a waiting interpreter before the user's code.
package runner

import _ "embed" // warm.ts

// Warm is warm.ts: given to Deno with --preload, it says that the interpreter is up with one zero byte on standard
// output, and then blocks until one byte arrives on standard input. The main module is written in between.
//
//go:embed warm.ts
var Warm []byte

// ReadyByte is what warm.ts writes first on standard output. It is no part of what the code prints.
const ReadyByte = 0

// GoByte is what warm.ts waits for on standard input.
const GoByte = '\n'
