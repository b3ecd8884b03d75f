// Package runner holds the scripts that run in a waiting interpreter before the user's code, in the code's language.
// They define its helpers: MCP servers as mcp.SERVER.TOOL(), typed clients, parallel, stash and show.
package runner

import (
	"bytes"
	_ "embed" // warm.js, mcp.js and their counterparts in Python
	"encoding/json"
	"fmt"
	"slices"
)

// Warm is warm.js, which Deno runs with --preload. It writes one zero byte to standard output when the interpreter is
// up, and then blocks until GoByte arrives on standard input. The main module is written in between.
//
//go:embed warm.js
var Warm []byte

// ReadyByte is the first byte that warm.js writes to standard output. It is not part of the code's output.
const ReadyByte = 0

// Input of warm.js. GoByte or ServersByte starts the main module. Before it, LoadByte may come once and makes the
// interpreter preload the modules that most code needs. Then EnvironByte may come once. After EnvironByte and
// ServersByte come lengthDigits hexadecimal digits with the length of the variables or the helpers, which follow. The
// rest is the code's standard input.
const (
	GoByte      = '\n'
	ServersByte = 'm'
	LoadByte    = 'l'
	EnvironByte = 'e'

	lengthDigits = 8
)

// Site is sitecustomize.py, which Python imports before it opens the main module. It answers and reads the same bytes.
//
//go:embed sitecustomize.py
var Site []byte

// mcpScript and mcpPython are mcp.js and mcp.py, one of which a run gets that may call MCP servers or use a helper.
var (
	//go:embed mcp.js
	mcpScript []byte
	//go:embed mcp.py
	mcpPython []byte
)

// environWords are words of TypeScript. CodeForge sets no variables for code without these words: it reads none itself,
// and imports no package or skill that could. Setting a variable takes Deno 20 µs, and Python far less.
var environWords = [][]byte{[]byte("env"), []byte("import")}

func containsAny(code []byte, words [][]byte) bool {
	return slices.ContainsFunc(words, func(word []byte) bool { return bytes.Contains(code, word) })
}

// helpers are the words of code that may use parallel, stash or McpError, also in a skill.
var helpers = [][]byte{[]byte("parallel"), []byte("stash"), []byte("McpError"), []byte("skills")}

// BuildStartInput returns the input that starts the main module. It sets the variables of environ, if the code may read
// them. The run may call the given MCP servers; each has its known tool names. Code without servers that needs no
// helper starts without them, which is faster.
func BuildStartInput(python bool, environ map[string]string, servers map[string][]string, code []byte) ([]byte, error) {
	var out []byte
	if len(environ) > 0 && (python || containsAny(code, environWords)) {
		text, err := json.Marshal(environ)
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(nil, "%c%0*x%s", EnvironByte, lengthDigits, len(text), text)
	}
	if len(servers) == 0 {
		if !containsAny(code, helpers) {
			return append(out, GoByte), nil
		}
		servers = map[string][]string{} // null would not be an object for the scripts
	}
	line, err := json.Marshal(servers)
	if err != nil {
		return nil, err
	}
	script := mcpScript
	if python {
		script = mcpPython
	}
	out = fmt.Appendf(out, "%c%0*x", ServersByte, lengthDigits, len(line)+1+len(script))
	return append(append(append(out, line...), '\n'), script...), nil
}
