// Package statedir is the state directory of an embedded CodeForge (default ./.codeforge). It keeps the data that
// outlives a supervisor, lets one supervisor at a time run on it, and stores how to connect to the supervisor.
//
//	lock          held by flock while a supervisor runs; holds its process id
//	up.json       how to connect; written when ready, removed when it begins to stop
//	ended.json    the last unrequested end
//	run/          control.sock, sandboxd.sock, mcp.sock
//	logins/       credentials.sock: mcp-server owns run/, and must not be able to replace this socket
//	ca-private/   the key of the local certificate authority
//	ca-public/    ca.pem
//	tokens/       access and refresh tokens of the proxy
//	audit/        the ledger of requests that left the machine
//	history/      runs.db: the history of runs
//	skills/  runs/  sandboxd/  log/
//	tmp/          mount point of the sandbox's /tmp
//
// The directory has mode 0700: only its owner can access it.
package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
)

// Default is the default state directory.
const Default = ".codeforge"

// upFile describes how to connect.
const upFile = "up.json"

// Names of the sockets. All are in run/, except CredentialsSocket.
const (
	ControlSocket     = "control.sock"
	CredentialsSocket = "credentials.sock" // the proxy's, for logins
	SandboxSocket     = "sandboxd.sock"
	MCPSocket         = "mcp.sock"
)

func socketFolder(name string) string {
	if name == CredentialsSocket {
		return "logins"
	}
	return "run"
}

// ErrNotRunning is the error of functions that need a running supervisor.
var ErrNotRunning = errors.New("CodeForge is not running")

// ErrLocked is Lock's error if a supervisor already runs on the directory.
var ErrLocked = errors.New("a supervisor is already running on this state directory")

// Dir is an absolute path without symbolic links.
type Dir struct{ path string }

// UpState describes how to connect to the supervisor of a state directory.
type UpState struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
	// URL is the server's address. The MCP endpoint is below it.
	URL     string    `json:"url"`
	Port    int       `json:"port"`
	State   string    `json:"state"`
	APIs    string    `json:"apis"`
	Slots   int       `json:"slots"`
	Token   bool      `json:"token"`
	Started time.Time `json:"started"`
	// Again is the reason of a restart, or nil.
	Again *Ended `json:"again,omitempty"`
}

// Endpoint returns the URL for MCP clients.
func (u UpState) Endpoint() string { return u.URL + "/mcp" }

// FindDir returns the state directory at path, which need not exist.
func FindDir(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Dir{}, fmt.Errorf("state directory %s: %w", path, err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	return Dir{abs}, nil
}

// CreateDir creates the directory and its folders, mode 0700. It rejects another user's directory.
func CreateDir(path string) (Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return Dir{}, fmt.Errorf("state directory %s: %w; choose another one with --state DIR", path, err)
	}
	d, err := FindDir(path)
	if err != nil {
		return Dir{}, err
	}
	info, err := os.Lstat(d.path)
	if err != nil {
		return Dir{}, fmt.Errorf("state directory: %w", err)
	}
	if uid, ok := ownerUID(info); ok && uid != os.Geteuid() {
		return Dir{}, fmt.Errorf("state directory %s belongs to user id %d, and you are %d: start CodeForge as that user, "+
			"or choose another directory with --state DIR", d.path, uid, os.Geteuid())
	}
	// An existing directory may have another mode.
	if err := os.Chmod(d.path, 0o700); err != nil { //nolint:gosec // a directory needs its x bit
		return Dir{}, fmt.Errorf("state directory: %w", err)
	}
	for _, sub := range []string{
		"run", "ca-private", "ca-public", "tokens", "audit", "skills", "runs", "sandboxd", "packages", "pins", "history",
		"tenants", "log", "tmp", "logins",
	} {
		if err := os.MkdirAll(d.Join(sub), 0o700); err != nil {
			return Dir{}, fmt.Errorf("state directory: %w", err)
		}
	}
	return d, nil
}

// Path returns the directory's path.
func (d Dir) Path() string { return d.path }

// IsReadable reports whether this user may look into the directory, or the directory does not exist.
func (d Dir) IsReadable() bool {
	_, err := os.Lstat(d.Join("lock"))
	return !errors.Is(err, fs.ErrPermission)
}

// Join returns a path below the directory.
func (d Dir) Join(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// Exists reports whether the directory exists.
func (d Dir) Exists() bool {
	info, err := os.Stat(d.path)
	return err == nil && info.IsDir()
}

// WriteUp publishes how to connect. It replaces up.json atomically.
func (d Dir) WriteUp(u UpState) error {
	if err := d.writeJSON(upFile, u); err != nil {
		return fmt.Errorf("publishing how to connect: %w", err)
	}
	return nil
}

// RemoveUp is for a supervisor that starts to stop: new clients must not connect to it.
func (d Dir) RemoveUp() { _ = os.Remove(d.Join(upFile)) }

// writeJSON replaces a file of the directory atomically.
func (d Dir) writeJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(d.Join(name), append(data, '\n'), 0o600)
}

// ReadUp returns how to connect to the supervisor on this directory. If no supervisor holds the lock, or it is not
// ready yet, it returns ErrNotRunning.
func (d Dir) ReadUp() (UpState, error) {
	var u UpState
	_, held := d.FindHolder()
	data, err := os.ReadFile(d.Join(upFile))
	if !held || errors.Is(err, fs.ErrNotExist) {
		if e, ok := d.ReadLastEnd(); ok {
			return UpState{}, fmt.Errorf("%w (state directory %s): %v", ErrNotRunning, d.path, e)
		}
		if !held {
			return UpState{}, fmt.Errorf("%w (state directory %s)", ErrNotRunning, d.path)
		}
		return UpState{}, fmt.Errorf("%w: it is starting, or stopping (state directory %s)", ErrNotRunning, d.path)
	}
	if err != nil {
		return UpState{}, fmt.Errorf("state directory: %w", err)
	}
	if err := json.Unmarshal(data, &u); err != nil {
		return UpState{}, fmt.Errorf("reading %s: %w", d.Join(upFile), err)
	}
	return u, nil
}

// RemoveLeftovers removes the files that a killed supervisor left behind: up.json and the files in run/. Only the
// holder of the lock may call it.
func (d Dir) RemoveLeftovers() {
	d.RemoveUp()
	list, _ := os.ReadDir(d.Join("run"))
	for _, f := range list {
		_ = os.Remove(d.Join("run", f.Name()))
	}
}
