// Package embedded runs all of CodeForge on Linux without a container engine.
//
// The supervisor is two processes. The user starts the outer one: it checks the machine, holds the lock on the state
// directory, prints, and forwards signals. The inner one is process 1 of separate mount and process namespaces and, for
// an ordinary user, of a user namespace. It creates the slots' network namespaces and owns the daemons. If either ends,
// for any reason, the kernel ends all other processes.
package embedded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Commands that start inner processes.
const (
	SuperviseCommand = "supervise"
	ProbeCommand     = "probe"
)

// ErrUnsupported is the error on systems other than Linux.
var ErrUnsupported = errors.New("embedded mode needs Linux; on this system use Docker: docker compose up -d --build")

// Config configures a run of CodeForge.
type Config struct {
	State statedir.Dir
	// APIs is the folder of APIs.
	APIs string
	// Bin is the folder of the other binaries. Empty: the folder of this program.
	Bin string
	// Deno is the interpreter. Empty: .tools/deno next to Bin.
	Deno string
	// Python is the Python interpreter. Empty: the machine's, if it has one.
	Python   string
	Settings settings.Settings
	// Port is the port of the MCP endpoint; 0 means any free one.
	Port  int
	Slots int
	// Environ is the environment of the daemons: the real one and .env.
	Environ []string
	// Restart starts all parts again if one fails after all were ready.
	Restart bool
	// Quiet keeps the daemons' lines out of Stderr. The log file has them.
	Quiet  bool
	Stderr *os.File
}

// getenv returns the value of a variable in Environ.
func (c Config) getenv(name string) string {
	for _, kv := range c.Environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// Ready describes the running system when all parts are ready.
type Ready struct {
	Up      statedir.UpState `json:"up"`
	Deno    string           `json:"deno"`
	Catalog proxyapi.Catalog `json:"catalog"`
	// Warnings describe problems that do not stop CodeForge but should be fixed.
	Warnings []string `json:"warnings,omitempty"`
}

// RunningError means that a supervisor already runs on the state directory.
type RunningError struct{ Up statedir.UpState }

// Error names the endpoint.
func (e *RunningError) Error() string { return "CodeForge is already running at " + e.Up.Endpoint() }

// FindUV returns the path of uv, which installs packages of PyPI, for a folder of binaries: .tools/uv beside it, or uv
// in it. It returns "" if neither exists.
func FindUV(bin string) string {
	for _, path := range []string{filepath.Join(filepath.Dir(bin), ".tools", "uv"), filepath.Join(bin, "uv")} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// TypeScript returns the folder of the TypeScript compiler for a folder of binaries: .tools/typescript beside it, or
// typescript in it. If there is none, the error is fs.ErrNotExist.
func TypeScript(bin string) (string, error) {
	beside := filepath.Join(filepath.Dir(bin), ".tools", "typescript")
	for _, dir := range []string{beside, filepath.Join(bin, "typescript")} {
		if info, err := os.Stat(filepath.Join(dir, "tsc")); err == nil && info.Mode().IsRegular() {
			return filepath.EvalSymlinks(dir)
		}
	}
	return "", fs.ErrNotExist
}
