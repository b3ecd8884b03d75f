// Package embedded runs the whole of CodeForge on Linux without a container engine.
//
// Two processes make the supervisor. The outer one is what the user started: it checks the machine, holds the lock on
// the state directory, prints, and passes signals on. The inner one is process 1 of its own mount, process and (for an
// ordinary user) user namespaces: it makes the slots' network namespaces and owns the daemons. When either ends,
// however it ends, nothing of the system is left.
package embedded

import (
	"errors"
	"os"
	"strings"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// The names of the commands that inner processes are started with.
const (
	SuperviseCommand = "supervise"
	ProbeCommand     = "probe"
)

// ErrUnsupported is the answer on other systems than Linux.
var ErrUnsupported = errors.New("embedded mode needs Linux; on this system use Docker: docker compose up -d --build")

// Config says what to run.
type Config struct {
	State statedir.Dir
	// APIs is the folder of APIs.
	APIs string
	// Bin is the folder of the other binaries. Empty: where this program lies.
	Bin string
	// Deno is the interpreter. Empty: .tools/deno beside Bin.
	Deno     string
	Settings settings.Settings
	// Port of the MCP endpoint; 0 means any free one.
	Port  int
	Slots int
	// Environ is the environment of the daemons: the real one and .env.
	Environ []string
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

// Ready is what there is to tell when everything serves.
type Ready struct {
	Up      statedir.Up        `json:"up"`
	Deno    string             `json:"deno"`
	Catalog controlapi.Catalog `json:"catalog"`
	// Warnings are things that work and should be better.
	Warnings []string `json:"warnings,omitempty"`
}

// RunningError says that the state directory is in use by a supervisor that serves.
type RunningError struct{ Up statedir.Up }

// Error says so.
func (e *RunningError) Error() string { return "CodeForge is running already at " + e.Up.Endpoint() }
