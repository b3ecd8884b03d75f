// Package runapi is the contract between mcp-server and sandboxd, with client and server: cleartext HTTP/2 on one byte
// stream.
//
//	POST   /v1/leases        -> 200 Lease | 429 all slots are taken; for a lease ahead: all or all but one
//	POST   /v1/runs          -> 200 Events, the last one with Exit, see writeEvent | 400, 409 other permissions,
//	                          410 lease gone
//	POST   /v1/servers/{G}   <- ServerHead, then the program's input -> its output, until either ends; then ExitTrailer |
//	                          400, 410 lease gone, 424 package not installed
//	DELETE /v1/leases/{G}    -> 204, and the slot is free | 404
//	PUT    /v1/permissions   -> 200 PermissionSet
//	PUT    /v1/packages      <- Packages -> 200 Tidied
//	GET    /v1/health        -> Health
//	GET    /v1/stats         -> 200 Stats
//
// Error responses have the body {"error": "..."}.
//
// A slot is freed by the end of its lease, not by the end of its run. Generations only grow, across restarts of
// sandboxd too, so that a message for an older lease never acts on a newer one.
package runapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// LeaseRequest is the body of POST /v1/leases.
type LeaseRequest struct {
	// Ahead asks for a lease for a future run. It may be held for long, starts no interpreter beyond those that are kept
	// warm anyway, and is granted only if another slot stays free.
	Ahead bool `json:"ahead,omitempty"`
	// Language is that of the run to come, as in RunRequest. Empty: TypeScript. A run may have another one and then takes
	// longer to start.
	Language string `json:"language,omitempty"`
	// Private asks for an interpreter that shares no file with other runs: it sees neither /tmp, /skills and /runs of the
	// others nor what an earlier run has left, and what it writes goes with it.
	Private bool `json:"private,omitempty"`
	// Server asks for a slot for an MCP server, from a pool of its own. Such a lease is not bound to be used soon.
	Server bool `json:"server,omitempty"`
}

// ServerHead is the first line, as JSON, of the body of POST /v1/servers/{G}. What follows is the program's standard
// input; the answer is its standard output. The program is the bridge, or, with Install, the installer.
type ServerHead struct {
	// Package is npm:NAME@VERSION: with Install, the package to install; otherwise one that is installed, which the
	// slot sees read-only at PackageDir(Package). Empty: no package.
	Package string `json:"package,omitempty"`
	Install bool   `json:"install,omitempty"`
	// Registry is the address of the package registry. Only with Install.
	Registry string `json:"registry,omitempty"`
}

// ProgramsDir is where an MCP server sees the operator's programs, read-only.
const ProgramsDir = "/programs"

// PackageDir is where an MCP server sees an installed package, read-only: Deno's cache (DENO_DIR) with nothing else in
// it, and its lock file, deno.lock.
func PackageDir(pkg string) string { return "/packages/" + PackageKey(pkg) }

// PackageKey is the name of a package's folder.
func PackageKey(pkg string) string {
	sum := sha256.Sum256([]byte(pkg))
	return hex.EncodeToString(sum[:12])
}

// Packages is the body of PUT /v1/packages: the packages of MCP servers that are still wanted, each npm:NAME@VERSION.
type Packages struct {
	Keep []string `json:"keep"`
}

// Tidied is what was removed: the installed packages that are not wanted, except those that a server uses now.
type Tidied struct {
	Removed []Removed `json:"removed"`
	// InUse is how many stay although they are not wanted.
	InUse int `json:"in_use,omitempty"`
}

// Removed is a package that was removed.
type Removed struct {
	Package string `json:"package"`
	Bytes   int64  `json:"bytes"`
}

// HomeDir is the home, working directory and folder for temporary files of the MCP server in a slot. It is private and
// writable, in memory, and emptied when the slot is freed.
func HomeDir(id slot.ID) string { return HomesDir + "/" + strconv.Itoa(int(id)) }

// HomesDir has the homes.
const HomesDir = "/home"

// ExitTrailer is the HTTP trailer with the Exit of a server's program, as JSON without output counts.
const ExitTrailer = "Codeforge-Exit"

// Lease is the right to use a slot once.
type Lease struct {
	Slot       slot.ID `json:"slot"`
	Generation uint64  `json:"generation"`
	// Warm means that an interpreter with the current permission set is waiting in the slot.
	Warm bool `json:"warm"`
	// Taken is how many slots for runs are taken, with this one.
	Taken int `json:"taken,omitempty"`
	// Canary is a value that code finds in the slot where a thief looks for credentials. Empty: none.
	Canary string `json:"canary,omitempty"`
}

// The languages of code.
const (
	LanguageTypeScript = "typescript"
	LanguagePython     = "python"
)

// RunRequest is the body of POST /v1/runs.
type RunRequest struct {
	Generation uint64 `json:"generation"`
	// Run is the run's id: [a-z0-9-]{1,64}. It names /runs/<id>.
	Run      string `json:"run"`
	Language string `json:"language"`
	// Code is one module in the language, at most MaxCode bytes.
	Code string `json:"code"`
	// Servers are the MCP servers that the code may call, each with the names of its tools as far as they are known, at
	// most MaxServers bytes in all. They are what the code's global "mcp" enumerates: what it may call, the proxy decides.
	Servers map[string][]string `json:"servers,omitempty"`
	// Modules are the typed clients that the code imports, at most MaxModules bytes in all. Only TypeScript has any.
	Modules []Module `json:"modules,omitempty"`
	// Private means that the lease must be a private one. Skills are then the files that the run can import from /skills,
	// by their names, at most MaxSkills bytes in all. Otherwise they are the pinned ones: the run imports them instead of
	// the files in /skills.
	Private bool              `json:"private,omitempty"`
	Skills  map[string]string `json:"skills,omitempty"`
	// Permissions is the hash of the permission set this run expects: PermissionSet.Hash.
	Permissions string `json:"permissions"`
	// TimeoutMS is the wall time of the run in milliseconds, counted from the moment the code starts.
	TimeoutMS int64 `json:"timeout_ms"`
}

// Pause is the body of POST /v1/runs/{generation}/pause.
type Pause struct {
	// Paused stops the run's time limit, for at most countdown.MostPaused in all. The run itself goes on.
	Paused bool `json:"paused"`
}

// ServersSize is the size of Servers, as MaxServers counts it.
func (r RunRequest) ServersSize() int {
	size := 0
	for name, tools := range r.Servers {
		size += len(name) + NameBytes
		for _, tool := range tools {
			size += len(tool) + NameBytes
		}
	}
	return size
}

// Module is a typed client of one API, which code imports as /apis/NAME.ts.
type Module struct {
	// Name is the API's, [a-z0-9_-]{1,64}.
	Name string `json:"name"`
	// Table is JSON of a runner.Table: what the client knows of the API's operations.
	Table json.RawMessage `json:"table"`
	// Types are declarations of TypeScript by which the code is checked before it runs. Empty: the client is not typed.
	Types string `json:"types,omitempty"`
}

// ModulesSize is the size of Modules, as MaxModules counts it.
func (r RunRequest) ModulesSize() int {
	size := 0
	for _, m := range r.Modules {
		size += len(m.Name) + len(m.Table) + len(m.Types)
	}
	return size
}

// SkillsSize is the size of Skills, as MaxSkills counts it.
func (r RunRequest) SkillsSize() int {
	size := 0
	for name, source := range r.Skills {
		size += len(name) + len(source)
	}
	return size
}

// The largest code, Servers, Modules and Skills that are accepted, in bytes. Each name of a server counts with
// NameBytes more.
const (
	MaxCode    = 4 << 20
	MaxServers = 256 << 10
	MaxModules = 4 << 20
	MaxSkills  = 4 << 20
	NameBytes  = 8
)

// Mistake is a use of a typed client that cannot be right.
type Mistake struct {
	// Line and Column are counted from 1.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Code is the compiler's number, e.g. 2345, and Text what it says: a line, and further ones that explain it. Both the
	// code and the document's author can put any text into it.
	Code int    `json:"code"`
	Text string `json:"text"`
}

// MaxFile is the largest file that code can write, in bytes.
const MaxFile = 128 << 20

// Event is a part of a run's answer. Exactly one field is set.
type Event struct {
	// Stdout and Stderr are valid UTF-8, cut between characters. Each invalid byte was replaced by U+FFFD.
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	Exit   *Exit  `json:"exit,omitempty"`
}

// Reason is why a run ended.
type Reason string

// The reasons.
const (
	Exited      Reason = "exited"       // by itself, with Code
	Timeout     Reason = "timeout"      // after TimeoutMS
	Cancelled   Reason = "cancelled"    // the request was closed, sandboxd is stopping, or somebody killed it
	OOM         Reason = "oom"          // over the memory limit or V8's heap limit
	OutputLimit Reason = "output_limit" // printed, or wrote to shared directories, too much
	Mistaken    Reason = "mistaken"     // it was not started: see Mistakes
)

// Exit is the last event of a run. By the time it is sent, no process of the slot is left.
type Exit struct {
	// Code is the exit code; 128+signal for a process ended by a signal.
	Code   int    `json:"code"`
	Reason Reason `json:"reason"`
	// Detail is a sentence about the cause and the next step, if Reason is not Exited or a signal ended the interpreter.
	// Otherwise it is empty.
	Detail string `json:"detail,omitempty"`
	// WallMS and CPUMS are the wall time and processor time since the interpreter got the code.
	WallMS int64 `json:"wall_ms"`
	CPUMS  int64 `json:"cpu_ms"`
	// MaxRSS is the peak resident memory in bytes.
	MaxRSS int64 `json:"max_rss"`
	// StdoutBytes and StderrBytes count all that the code printed, including what was not sent.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// InvalidUTF8 counts the bytes that became U+FFFD.
	InvalidUTF8 int64 `json:"invalid_utf8,omitempty"`
	// StdoutFile is the path in the sandbox at which later runs can read the whole output, or empty.
	StdoutFile string `json:"stdout_file,omitempty"`
	// Unkept names the files of the run that were not kept, and the disk. It is empty if all were kept.
	Unkept string `json:"unkept,omitempty"`
	// Mistakes are why the code was not started, the first ones.
	Mistakes []Mistake `json:"mistakes,omitempty"`
	// Warm means that the run used a warm interpreter.
	Warm bool `json:"warm"`
}

// Permissions is the body of PUT /v1/permissions.
type Permissions struct {
	// AllowNet lists the host names code may connect to, e.g. "api.stripe.com" or "*.example.com"; ["*"] allows
	// all (YOLO_MODE). Deno's permissions are not a security boundary: kernel rules and the proxy are.
	AllowNet []string `json:"allow_net"`
}

// PermissionSet is the set now in force, with the hash that a RunRequest names.
type PermissionSet struct {
	Hash     string   `json:"hash"`
	AllowNet []string `json:"allow_net"`
}

// Health is the answer of GET /v1/health.
type Health struct {
	Ready bool `json:"ready"`
	// Problem says what is wrong when Ready is false.
	Problem string `json:"problem,omitempty"`
	Slots   int    `json:"slots"`
	// Servers is how many slots for MCP servers there are, and ServersProblem why none can be started, if so. It does not
	// make the sandbox unready.
	Servers        int    `json:"servers"`
	ServersProblem string `json:"servers_problem,omitempty"`
	Deno           string `json:"deno"`
	// TypeScript is the version of the compiler that checks code; empty if there is none, and code runs unchecked.
	TypeScript string `json:"typescript,omitempty"`
	Python     Python `json:"python"`
	Version    string `json:"version"`
}

// Python says whether code can be Python.
type Python struct {
	// Version is e.g. "3.11.2"; empty if there is none, and Problem says why.
	Version string `json:"version,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Packages are the names of those that code can import besides the standard library, and Add says to a user how to
	// get more.
	Packages []string `json:"packages,omitempty"`
	Add      string   `json:"add,omitempty"`
}

// Stats is the answer of GET /v1/stats.
type Stats struct {
	Slots       int `json:"slots"`
	Leased      int `json:"leased"` // not counting leases ahead
	Ahead       int `json:"ahead"`
	Warm        int `json:"warm"`
	Quarantined int `json:"quarantined"`
	// Servers counts the slots for MCP servers, ServersLeased those that are taken, and ServersMemory adds up what the
	// servers hold, in bytes. The numbers above are of the slots for runs alone.
	Servers       int    `json:"servers"`
	ServersLeased int    `json:"servers_leased"`
	ServersMemory int64  `json:"servers_memory"`
	Runs          uint64 `json:"runs"`
	WarmRuns      uint64 `json:"warm_runs"`
	// Generation is the newest generation given out.
	Generation uint64 `json:"generation"`
}
