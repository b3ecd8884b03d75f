// Package sandboxapi is the contract between mcp-server and sandboxd, with client and server: cleartext HTTP/2 on one
// byte stream.
//
//	POST   /v1/leases        -> 200 Lease | 429 all slots are taken; for a lease ahead: all or all but one
//	POST   /v1/runs          -> 200 Events, the last one with Exit, see writeEvent | 400, 409 other permissions,
//	                          410 lease gone
//	POST   /v1/servers/{G}   <- ServerHead, then the program's input -> its output, until either ends; then ExitTrailer |
//	                          400, 410 lease gone, 424 package not installed
//	DELETE /v1/leases/{G}    -> 204, and the slot is free | 404
//	PUT    /v1/permissions   -> 200 PermissionSet | 400, 424 packages not installed
//	PUT    /v1/packages      <- Packages -> 200 Tidied
//	GET    /v1/health        -> Health
//	GET    /v1/stats         -> 200 Stats
//
// Error responses have the body {"error": "..."}.
//
// The end of a lease frees its slot, not the end of its run. Generations only grow, also across restarts of sandboxd,
// so that a message for an older lease never acts on a newer one.
package sandboxapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// LeaseRequest is the body of POST /v1/leases.
type LeaseRequest struct {
	// Ahead asks for a lease for a future run. The client may hold it for long. It starts no interpreter beyond those that
	// are kept warm, and is granted only if another slot stays free.
	Ahead bool `json:"ahead,omitempty"`
	// Language is the language of the future run, as in RunRequest. Empty means TypeScript. A run may use the other
	// language and then takes longer to start.
	Language Language `json:"language,omitempty"`
	// Private asks for an interpreter that shares no file with other runs. It sees neither their /tmp, /skills and /runs
	// nor files of earlier runs. Its own files are removed after the run.
	Private bool `json:"private,omitempty"`
	// Folders are the names of the host folders that the run may see, or AllFolders. Unknown names have no effect.
	Folders []string `json:"folders,omitempty"`
	// Server asks for a slot for an MCP server, from a separate pool. Such a lease has no idle limit.
	Server bool `json:"server,omitempty"`
}

// ServerHead is the first line, as JSON, of the body of POST /v1/servers/{G}. The program's standard input follows; the
// response is its standard output. The program is the bridge or, with Install, the installer.
type ServerHead struct {
	// Package is npm:NAME@VERSION or pypi:NAME@VERSION. Constraints of a package of PyPI may follow, each after a space.
	// With Install it is the package or the PackageSet to install, otherwise an installed package, which the slot sees
	// read-only at PackageDir(Package). Empty: no package.
	Package string `json:"package,omitempty"`
	Install bool   `json:"install,omitempty"`
	// Registry is the address of the package registry. It requires Install.
	Registry string `json:"registry,omitempty"`
	// Folders are the names of the host folders that the program may see.
	Folders []string `json:"folders,omitempty"`
}

// AllFolders stands for all host folders in LeaseRequest.Folders.
const AllFolders = "*"

// Folder is a folder of the host. Code and MCP servers see it as /files/NAME.
type Folder struct {
	Name  string `json:"name"`
	Write bool   `json:"write,omitempty"`
}

// ProgramsDir is the path at which an MCP server sees the operator's programs, read-only.
const ProgramsDir = "/programs"

// Paths that mcp-server needs for a package of PyPI: the interpreter as a server sees it, and the folder below
// PackageDir that holds the package and its dependencies.
const (
	PythonProgram = "/usr/bin/python3"
	PythonDir     = "python"
)

// IsPyPI reports whether a package is one of PyPI. Others are packages of npm.
func IsPyPI(pkg string) bool { return strings.HasPrefix(pkg, "pypi:") }

// PackageDir returns the path at which an MCP server sees an installed package, read-only. For a package of npm it
// holds Deno's cache (DENO_DIR) and the lock file, deno.lock. For a package of PyPI it holds PythonDir and
// requirements.lock.
func PackageDir(pkg string) string { return "/packages/" + PackageKey(pkg) }

// PackageKey returns the name of a package's folder.
func PackageKey(pkg string) string {
	sum := sha256.Sum256([]byte(pkg))
	return hex.EncodeToString(sum[:12])
}

// PackageSet returns the text that identifies packages of one kind that are installed together: in any order, the same
// set.
func PackageSet(packages []string) string {
	return strings.Join(slices.Sorted(slices.Values(packages)), " ")
}

// SplitPackages returns the packages of npm and those of PyPI. Each kind is a separate PackageSet.
func SplitPackages(packages []string) (npm, pypi []string) {
	for _, pkg := range packages {
		if IsPyPI(pkg) {
			pypi = append(pypi, pkg)
		} else {
			npm = append(npm, pkg)
		}
	}
	return npm, pypi
}

// Packages is the body of PUT /v1/packages: the wanted packages of MCP servers, each as in ServerHead, and PackageSets.
type Packages struct {
	Keep []string `json:"keep"`
}

// Tidied lists the removed packages: those that are neither wanted nor in use.
type Tidied struct {
	Removed []Removed `json:"removed"`
	// InUse is the number of unwanted packages that stay because a server uses them.
	InUse int `json:"in_use,omitempty"`
}

// Removed is a removed package and its size.
type Removed struct {
	Package string `json:"package"`
	Bytes   int64  `json:"bytes"`
}

// HomeDir returns the home, working directory and temporary folder of the MCP server in a slot. It is private, writable
// and in memory. sandboxd empties it when the slot is freed.
func HomeDir(id slot.ID) string { return HomesDir + "/" + strconv.Itoa(int(id)) }

// HomesDir is the folder of all homes, and of all folders of OutDir.
const HomesDir = "/home"

// OutDir returns the folder in the container that code in a slot sees as /out.
func OutDir(id slot.ID) string { return HomesDir + "/out" + strconv.Itoa(int(id)) }

// ExitTrailer is the HTTP trailer with the Exit of a server's program, as JSON without output counts.
const ExitTrailer = "Codeforge-Exit"

// Lease is the right to use a slot once.
type Lease struct {
	Slot       slot.ID `json:"slot"`
	Generation uint64  `json:"generation"`
	// Warm means that an interpreter with the current permission set waits in the slot.
	Warm bool `json:"warm"`
	// Taken is the number of taken slots for runs, including this one.
	Taken int `json:"taken,omitempty"`
	// Canary is a value that code finds in the slot in places where a thief looks for credentials. Empty: no canary.
	Canary string `json:"canary,omitempty"`
}

// Language is a language of code.
type Language string

// The languages.
const (
	LanguageTypeScript Language = "typescript"
	LanguagePython     Language = "python"
)

// IsPython distinguishes the two. Empty means TypeScript.
func (l Language) IsPython() bool { return l == LanguagePython }

// RunRequest is the body of POST /v1/runs.
type RunRequest struct {
	Generation uint64 `json:"generation"`
	// Run is the run's id, [a-z0-9-]{1,64}. It names /runs/<id>.
	Run      string   `json:"run"`
	Language Language `json:"language"`
	// Code is one module in the language, at most MaxCode bytes.
	Code string `json:"code"`
	// Environ are the variables that the code finds in its environment, at most MaxEnviron bytes in all. They hold token
	// names, never credentials.
	Environ map[string]string `json:"environ,omitempty"`
	// Servers are the MCP servers that the code may call, each with its known tool names, at most MaxServers bytes in all.
	// The code's global "mcp" enumerates them. The proxy decides which calls are allowed.
	Servers map[string][]string `json:"servers,omitempty"`
	// Modules are the typed clients that the code imports, at most MaxModules bytes in all. Only TypeScript can have them.
	Modules []Module `json:"modules,omitempty"`
	// Private requires a private lease. Skills are then the files that the run can import from /skills, by name, at most
	// MaxSkills bytes in all. Without Private, Skills are the pinned ones, which the run imports instead of the files in
	// /skills.
	Private bool              `json:"private,omitempty"`
	Skills  map[string]string `json:"skills,omitempty"`
	// Input is the run's own input, or nil.
	Input *Input `json:"input,omitempty"`
	// Permissions is the hash of the permission set that this run expects: PermissionSet.Hash.
	Permissions string `json:"permissions"`
	// TimeoutMS is the wall time of the run in milliseconds, counted from the start of the code.
	TimeoutMS int64 `json:"timeout_ms"`
	// Owner is the tenant of the run, or another name. Files of one owner share the client's memory for files.
	Owner string `json:"-"`
}

// Input is the standard input of a run, and the files that the run alone sees in /files. It has at most MaxInput bytes.
type Input struct {
	Stdin []byte `json:"stdin,omitempty"`
	// Files are at most MaxInputFiles. Their names are valid: see IsFileName.
	Files map[string][]byte `json:"files,omitempty"`
}

// Limits of the Input of one run: bytes with the names of files, and files.
const (
	MaxInput      = 16 << 20
	MaxInputFiles = 100
)

// Validate returns an error if the input exceeds a limit, or has a name that is not a file's. A nil input is valid.
func (i *Input) Validate() error {
	if i == nil {
		return nil
	}
	size := len(i.Stdin)
	for name, data := range i.Files {
		if !IsFileName(name) {
			return fmt.Errorf("%q is not a name for a file", name)
		}
		size += len(name) + len(data)
	}
	if size > MaxInput || len(i.Files) > MaxInputFiles {
		return fmt.Errorf("%d bytes of standard input and %d files: want at most %d MiB and %d files", size, len(i.Files),
			MaxInput>>20, MaxInputFiles)
	}
	return nil
}

// Pause is the body of POST /v1/runs/{generation}/pause.
type Pause struct {
	// Paused stops the run's time limit, for at most countdown.MostPaused in all. The run goes on.
	Paused bool `json:"paused"`
}

// ServersSize returns the size of Servers for MaxServers.
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

// EnvironSize returns the size of Environ for MaxEnviron.
func (r RunRequest) EnvironSize() int {
	size := 0
	for name, value := range r.Environ {
		size += len(name) + len(value) + NameBytes
	}
	return size
}

// Module is a typed client of one API, which code imports as /apis/NAME.ts.
type Module struct {
	// Name is the API's name, [a-z0-9_-]{1,64}.
	Name string `json:"name"`
	// Table is the JSON of a runner.Table: the API's operations.
	Table json.RawMessage `json:"table"`
	// Types are TypeScript declarations. The code is checked against them before it runs. Empty: the client is not typed.
	Types string `json:"types,omitempty"`
}

// ModulesSize returns the size of Modules for MaxModules.
func (r RunRequest) ModulesSize() int {
	size := 0
	for _, m := range r.Modules {
		size += len(m.Name) + len(m.Table) + len(m.Types)
	}
	return size
}

// SkillsSize returns the size of Skills for MaxSkills.
func (r RunRequest) SkillsSize() int {
	size := 0
	for name, source := range r.Skills {
		size += len(name) + len(source)
	}
	return size
}

// Limits of the accepted code, Environ, Servers, Modules and Skills, in bytes. Each variable, and each name of a
// server, counts NameBytes more.
const (
	MaxCode    = 4 << 20
	MaxEnviron = 64 << 10
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
	// Code is the compiler's number, e.g. 2345. Text is the compiler's message: a line, and lines that explain it. Both
	// the code and the document's author can put any text into it.
	Code int    `json:"code"`
	Text string `json:"text"`
}

// MaxFile is the size of the largest file that code can write, in bytes.
const MaxFile = 128 << 20

// Event is a part of a run's response. Exactly one field is set.
type Event struct {
	// Stdout and Stderr are valid UTF-8, cut between characters. Each invalid byte was replaced by U+FFFD.
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	// File is sent after all output.
	File *File `json:"file,omitempty"`
	Exit *Exit `json:"exit,omitempty"`
}

// Reason is the reason why a run ended.
type Reason string

// The reasons.
const (
	Exited      Reason = "exited"       // by itself, with Code
	Timeout     Reason = "timeout"      // after TimeoutMS
	Cancelled   Reason = "cancelled"    // the request was closed, sandboxd is stopping, or the run was killed
	OOM         Reason = "oom"          // over the memory limit or V8's heap limit
	OutputLimit Reason = "output_limit" // printed, or wrote to shared directories, too much
	Mistaken    Reason = "mistaken"     // not started: see Mistakes
)

// Exit is the last event of a run. When it is sent, no process of the slot is left.
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
	// StdoutBytes and StderrBytes count all printed bytes, including those that were not sent.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// InvalidUTF8 counts the bytes that became U+FFFD.
	InvalidUTF8 int64 `json:"invalid_utf8,omitempty"`
	// StdoutFile is the path in the sandbox at which later runs can read the whole output, or empty.
	StdoutFile string `json:"stdout_file,omitempty"`
	// Unkept names the files of the run that were not kept, and the disk. It is empty if all were kept.
	Unkept string `json:"unkept,omitempty"`
	// Mistakes are the first reasons why the code was not started.
	Mistakes []Mistake `json:"mistakes,omitempty"`
	// Warm means that the run used a warm interpreter.
	Warm bool `json:"warm"`
}

// Permissions is the body of PUT /v1/permissions.
type Permissions struct {
	// AllowNet lists the host names to which code may connect, e.g. "api.stripe.com" or "*.example.com"; ["*"] allows all
	// (YOLO_MODE). The security boundary is the kernel's rules and the proxy, not Deno's permissions.
	AllowNet []string `json:"allow_net"`
	// Packages are the packages that code may import: npm:NAME@VERSION in TypeScript, pypi:NAME@VERSION in Python. If
	// those of one kind are not installed as one PackageSet, the answer is ErrNotInstalled and the current set stays.
	Packages []string `json:"packages,omitempty"`
}

// PermissionSet is the current set, with the hash for RunRequest.Permissions.
type PermissionSet struct {
	Hash     string   `json:"hash"`
	AllowNet []string `json:"allow_net"`
}

// Health is the response of GET /v1/health.
type Health struct {
	Ready bool `json:"ready"`
	// Problem is the reason if Ready is false.
	Problem string `json:"problem,omitempty"`
	Slots   int    `json:"slots"`
	// Servers is the number of slots for MCP servers. ServersProblem is the reason if no server can start. It does not
	// make the sandbox unready.
	Servers        int    `json:"servers"`
	ServersProblem string `json:"servers_problem,omitempty"`
	Deno           string `json:"deno"`
	// TypeScript is the version of the compiler that checks code. Empty: there is no compiler, and code runs unchecked.
	TypeScript string `json:"typescript,omitempty"`
	Python     Python `json:"python"`
	// Folders are the folders of the host.
	Folders []Folder `json:"folders,omitempty"`
	Version string   `json:"version"`
}

// Python describes the Python interpreter for runs.
type Python struct {
	// Version is e.g. "3.11.2". If it is empty, runs cannot use Python, and Problem is the reason.
	Version string `json:"version,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Packages are the packages that code can import besides the standard library. Add tells users how to add more.
	Packages []string `json:"packages,omitempty"`
	Add      string   `json:"add,omitempty"`
}

// Stats is the response of GET /v1/stats.
type Stats struct {
	Slots       int `json:"slots"`
	Leased      int `json:"leased"` // not counting leases ahead
	Ahead       int `json:"ahead"`
	Warm        int `json:"warm"`
	Quarantined int `json:"quarantined"`
	// Servers counts the slots for MCP servers, ServersLeased the leased ones among them. ServersMemory is the memory of
	// all servers, in bytes. The numbers above count only slots for runs.
	Servers       int    `json:"servers"`
	ServersLeased int    `json:"servers_leased"`
	ServersMemory int64  `json:"servers_memory"`
	Runs          uint64 `json:"runs"`
	// Generation is the newest generation.
	Generation uint64 `json:"generation"`
}
