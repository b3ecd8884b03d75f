// Package embedded runs all of CodeForge on Linux without a container engine.
//
// The supervisor is two processes. The outer one is what the user started: it checks the machine, holds the lock on the
// state directory, prints, and forwards signals. The inner one is process 1 of its own mount, process and (for an
// ordinary user) user namespaces: it creates the slots' network namespaces and owns the daemons. When either ends,
// however it ends, the kernel ends the rest.
package embedded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// The commands that start inner processes.
const (
	SuperviseCommand = "supervise"
	ProbeCommand     = "probe"
)

// ErrUnsupported is the error on systems other than Linux.
var ErrUnsupported = errors.New("embedded mode needs Linux; on this system use Docker: docker compose up -d --build")

// Config says what to run.
type Config struct {
	State statedir.Dir
	// APIs is the folder of APIs.
	APIs string
	// Bin is the folder of the other binaries. Empty: this program's.
	Bin string
	// Deno is the interpreter. Empty: .tools/deno next to Bin.
	Deno string
	// Python is the interpreter of Python. Empty: the machine's, if there is one.
	Python   string
	Settings settings.Settings
	// Port of the MCP endpoint; 0 means any free one.
	Port  int
	Slots int
	// Environ is the environment of the daemons: the real one and .env.
	Environ []string
	// Restart starts everything again when a part fails, once everything was ready.
	Restart bool
	// Quiet keeps the daemons' lines out of Stderr; the log file has them.
	Quiet  bool
	Stderr *os.File
}

// getenv is the value of a variable of Environ.
func (c Config) getenv(name string) string {
	for _, kv := range c.Environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// Ready describes the running system once everything is ready.
type Ready struct {
	Up      statedir.Up        `json:"up"`
	Deno    string             `json:"deno"`
	Catalog controlapi.Catalog `json:"catalog"`
	// Warnings are about things that work but should be fixed.
	Warnings []string `json:"warnings,omitempty"`
}

// RunningError says that a supervisor is already running on the state directory.
type RunningError struct{ Up statedir.Up }

// Error names the endpoint.
func (e *RunningError) Error() string { return "CodeForge is already running at " + e.Up.Endpoint() }

// TypeScript is the folder of TypeScript's compiler that belongs to a folder of binaries: .tools/typescript beside it,
// or typescript in it. The error is fs.ErrNotExist where there is none.
func TypeScript(bin string) (string, error) {
	beside := filepath.Join(filepath.Dir(bin), ".tools", "typescript")
	for _, dir := range []string{beside, filepath.Join(bin, "typescript")} {
		if info, err := os.Stat(filepath.Join(dir, "tsc")); err == nil && info.Mode().IsRegular() {
			return filepath.EvalSymlinks(dir)
		}
	}
	return "", fs.ErrNotExist
}
