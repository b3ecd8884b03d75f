// Package jail starts an interpreter in a slot, verifies its confinement with the kernel, and ends it.
//
// There are two jails. In Docker the container is the boundary, and a slot is a uid in it. Embedded, each interpreter
// has its own bubblewrap sandbox in the slot's network namespace. Both guarantee that Check succeeds before any code is
// sent, and that no process of the slot is left when Done is closed.
package jail

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
)

// Paths as code sees them.
const (
	CodeDir   = "/code"
	TmpDir    = "/tmp"
	SkillsDir = "/skills"
	RunsDir   = "/runs"
	MainFile  = "main.ts"
	WarmFile  = "warm.js"
	// ClientDir is the folder beside the code with the modules that it imports from /apis/.
	ClientDir = "apis"
	// SkillDir is the folder beside the code with skills that the code imports: all skills of a private run, the pinned
	// ones of others.
	SkillDir = "skills"
	// The same of Python, which finds the second one by its name.
	PythonMain = "main.py"
	PythonSite = "sitecustomize.py"
)

// Limits of one interpreter.
type Limits struct {
	// Memory is the memory in bytes over which a run is ended.
	Memory int64
	// Processes counts threads too.
	Processes uint64
	// Forks lets the interpreter start processes. Without it, it can start threads only.
	Forks bool
	// FileSize is the largest file that can be written, in bytes.
	FileSize uint64
	// OpenFiles is how many descriptors the interpreter can have.
	OpenFiles uint64
}

// Seat is the place of one interpreter: its slot and what it is started with there.
type Seat struct {
	Slot slot.ID
	// Net is the --allow-net list, already parsed. If it is empty, there is no network permission.
	Net []string
	TZ  string
	// Python starts Python instead of Deno.
	Python bool
	// Canary is a value of letters and digits that is put where a thief looks for credentials, if it is not empty.
	Canary string
	// Private means that the run shares no file with others.
	Private bool
	// Pinned means that Deno imports skills from SkillDir: see Process.LinkSkills.
	Pinned bool
}

// files are the names of the code and of what runs before it, and the latter's source.
func (s Seat) files() (main, first string, source []byte) {
	if s.Python {
		return PythonMain, PythonSite, runner.Site
	}
	return MainFile, WarmFile, runner.Warm
}

// Stdio are the interpreter's ends of its pipes. Gate is the pipe at which the process waits, already sandboxed, until
// it can read a byte; only then does it start. Sandboxing a process takes longer than starting it afterwards.
type Stdio struct{ In, Out, Err, Gate *os.File }

// Jail is one of Container and Embedded.
type Jail interface {
	// Start starts a process that waits at the gate and then, as the interpreter, for code. The caller still owns stdio.
	Start(Seat, Stdio) (Process, error)
	// PreparePython does once what starting Python in any slot requires, which may take a while. The error says why Python
	// cannot be started.
	PreparePython() error
	// StartServer starts the program of an MCP server, without a gate. The caller still owns stdio, and gives the program
	// no input before Check has succeeded.
	StartServer(Server, Stdio) (Process, error)
	// PrepareInstall makes Servers.Installing for a slot, empty and writable for it; ShareInstall lets sandboxd
	// read all of it, when nothing runs in the slot any more; ClearInstall removes it.
	PrepareInstall(slot.ID) error
	ShareInstall(slot.ID) error
	ClearInstall(slot.ID) error
	// Close removes the jail's own files.
	Close() error
}

// Process is the sandboxed program in a slot, an interpreter or an MCP server, with all processes that it starts.
type Process interface {
	// Check verifies with the kernel that the interpreter is confined as it must be. Call it when the interpreter is up.
	Check() error
	// WriteMain writes the code where the waiting interpreter reads it.
	WriteMain(code []byte) error
	// WriteFile writes another file beside the code. Its name may begin with one folder.
	WriteFile(name string, data []byte) error
	// LinkSkills adds links to SkillDir, beside the pinned skills: to the entries of /skills, and to files that code may
	// create there under the given names.
	LinkSkills(names []string) error
	// StartCompiler starts TypeScript's compiler beside the waiting interpreter, with these arguments. It sees the code
	// and the files that WriteFile wrote, and nothing that runs share. The caller still owns stdio.
	StartCompiler(args []string, stdio Stdio) (Compiler, error)
	// Main is the pid of the interpreter, 0 before Check.
	Main() int
	// Memory is what all processes of the slot hold, in bytes. Valid after Check.
	Memory() int64
	// Unnamed is how many bytes the slot's processes hold in files of a file system that are open but have been removed.
	Unnamed(device uint64) int64
	// Written is quota.Written of the slot's user: what it has written to a directory since a time.
	Written(dir string, since time.Time, enough int64) quota.Count
	// Home is what a server has in its home, in bytes, where the kernel does not bound it; else 0.
	Home() int64
	// Kill kills every process of the slot. Done is closed some time later.
	Kill()
	// Done is closed when no process of the slot is left.
	Done() <-chan struct{}
	// Status is how it ended. Valid after Done.
	Status() Status
	// Remove deletes the private files. Call it after Done. After an error it can be called again.
	Remove() error
}

// FilesError means that nothing runs in a slot any more, but that its files could not be deleted: a disk is full, or
// the machine has no memory for the program that does it.
type FilesError struct {
	error
	// Again tries once more.
	Again func() error
}

// Clear deletes files of a slot when its processes have ended. Leftover is as in Status.
func Clear(leftover error, remove func() error) error {
	err := remove()
	if leftover == nil && err != nil {
		return &FilesError{err, remove}
	}
	return errors.Join(leftover, err)
}

// Compiler is TypeScript's compiler while it checks the code of a slot. It runs no code, and can start no process.
type Compiler interface {
	// Memory is what it holds, in bytes.
	Memory() int64
	// Kill kills it. Done is closed some time later.
	Kill()
	// Done is closed when it has ended.
	Done() <-chan struct{}
	// Status is how it ended. Valid after Done.
	Status() Status
}

// Status is how an interpreter ended.
type Status struct {
	Code   int // 128+signal for a signal
	Signal int
	CPU    time.Duration
	MaxRSS int64 // bytes
	// Leftover is set when a process of the slot could not be killed: the slot must not be used again.
	Leftover error
}

// checkStatus verifies that a process has the slot's user and group, no capability, and no_new_privs set.
func checkStatus(s proc.Status, uid, gid int) error {
	for i := range 4 {
		if s.UID[i] != uid || s.GID[i] != gid {
			return fmt.Errorf("the interpreter is user %v group %v, want %d and %d", s.UID, s.GID, uid, gid)
		}
	}
	if s.Caps != 0 {
		return fmt.Errorf("the interpreter has capabilities (%x)", s.Caps)
	}
	if !s.NoNewPrivs {
		return errors.New("no_new_privs is not set")
	}
	return nil
}
