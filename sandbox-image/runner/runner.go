// Package runner holds the TypeScript that runs in a waiting interpreter before the user's code.
package runner

import (
	_ "embed" // warm.ts and mcp.js
	"encoding/json"
)

// Warm is warm.ts, which Deno runs with --preload. It writes one zero byte to standard output when the interpreter is
// up, and then blocks until GoByte arrives on standard input. The main module is written in between.
//
//go:embed warm.ts
var Warm []byte

// ReadyByte is the first byte that warm.ts writes to standard output. It is not part of the code's output.
const ReadyByte = 0

// What warm.ts reads from standard input. GoByte or ServersByte starts the main module. LoadByte may come once before
// it and makes the interpreter preload what most code needs.
const (
	GoByte      = '\n'
	ServersByte = 'm'
	LoadByte    = 'l'
)

// mcpSource is mcp.js, which a run without MCP servers never gets.
//
//go:embed mcp.js
var mcpSource []byte

// Go is what starts the main module of a run that may call these MCP servers: to each, the names of its tools that are
// known.
func Go(servers map[string][]string) ([]byte, error) {
	if len(servers) == 0 {
		return []byte{GoByte}, nil
	}
	line, err := json.Marshal(servers)
	if err != nil {
		return nil, err
	}
	out := append([]byte{ServersByte}, line...)
	return append(append(out, '\n'), mcpSource...), nil
}
