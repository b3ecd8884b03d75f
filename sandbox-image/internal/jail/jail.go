// Package jail starts the program of a slot (Deno, Python, an MCP server or the compiler) with its command line and
// permissions. It confines the program by bubblewrap or by a uid of the container, verifies the confinement with the
// kernel, and ends the program.
//
// There are two jails. In Docker the container is the boundary, and a slot is a uid in it. Embedded, each interpreter
// has a separate bubblewrap sandbox in the slot's network namespace. Both guarantee that CheckConfinement succeeds
// before any code is sent, and that no process of the slot is left when DoneSignal is closed.
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

// Paths and file names as code sees them.
const (
	CodeDir   = "/code"
	TmpDir    = "/tmp"
	SkillsDir = "/skills"
	RunsDir   = "/runs"
	// OutDir is the folder for files that belong to the run.
	OutDir   = "/out"
	MainFile = "main.ts"
	WarmFile = "warm.js"
	// ClientDir is the folder beside the code with the modules that it imports from /apis/.
	ClientDir = "apis"
	// SkillDir is the folder beside the code with skills that the code imports: all skills of a private run, and the
	// pinned skills of other runs.
	SkillDir = "skills"
	// PythonMain and PythonSite are MainFile and WarmFile for Python, which finds sitecustomize.py by its name.
	PythonMain = "main.py"
	PythonSite = "sitecustomize.py"
)

// Limits of one interpreter.
type Limits struct {
	// Memory is in bytes. sandboxd ends a run that exceeds this limit.
	Memory int64
	// Processes is the number of processes and threads.
	Processes uint64
	// Forks lets the interpreter start processes. Without Forks it can start only threads.
	Forks bool
	// FileSize is the size of the largest file that the interpreter can write, in bytes.
	FileSize uint64
	// OpenFiles is the number of descriptors that the interpreter can have.
	OpenFiles uint64
}

// InterpreterSpec describes one interpreter: its slot and its options.
type InterpreterSpec struct {
	Slot slot.ID
	// Net is the parsed --allow-net list. If it is empty, code has no network permission.
	Net []string
	TZ  string
	// Python starts Python instead of Deno.
	Python bool
	// Canary is a value of letters and digits for places in which a thief looks for credentials. Empty: no canary.
	Canary string
	// Private means that the run shares no file with others.
	Private bool
	// Pinned means that Deno imports skills from SkillDir: see Process.LinkSkills.
	Pinned bool
	// Packages are the packages that code of the language may import.
	Packages CodePackages
	// Folders are the folders of the host that the run sees.
	Folders []Folder
}

// codeFiles returns the names of the code and of the file that runs before it, and the source of the latter.
func (s InterpreterSpec) codeFiles() (main, first string, source []byte) {
	if s.Python {
		return PythonMain, PythonSite, runner.Site
	}
	return MainFile, WarmFile, runner.Warm
}

// Stdio holds the interpreter's ends of its pipes. Gate is a pipe: the sandboxed process waits until it can read a byte
// from Gate, and only then starts. Sandboxing a process takes longer than starting it afterwards.
type Stdio struct{ In, Out, Err, Gate *os.File }

// Jail is implemented by Container and Embedded.
type Jail interface {
	// Start starts a process that waits at the gate and then, as the interpreter, for code. The caller still owns stdio.
	Start(InterpreterSpec, Stdio) (Process, error)
	// PreparePython does the one-time work before Python can start in any slot, which may take a while. Its error is the
	// reason why Python cannot start.
	PreparePython() error
	// StartServer starts the program of an MCP server, without a gate. The caller still owns stdio, and sends the program
	// no input before CheckConfinement has succeeded.
	StartServer(Server, Stdio) (Process, error)
	// PrepareInstall makes Servers.InstallFolder for a slot, empty and writable for the slot. ShareInstall lets sandboxd
	// read all of that folder; call it when no process of the slot is left. ClearInstall removes the folder.
	PrepareInstall(slot.ID) error
	ShareInstall(slot.ID) error
	ClearInstall(slot.ID) error
	// Close removes the jail's own files.
	Close() error
}

// Process is the sandboxed program in a slot, an interpreter or an MCP server, with all processes that it starts.
type Process interface {
	// CheckConfinement verifies the interpreter's confinement with the kernel. Call it when the interpreter is up, before
	// any code.
	CheckConfinement() error
	// WriteMain writes the code to the file that the waiting interpreter reads.
	WriteMain(code []byte) error
	// WriteFile writes another file beside the code. Its name may have one folder.
	WriteFile(name string, data []byte) error
	// LinkSkills adds links to SkillDir, beside the pinned skills: to the entries of /skills, and to files of the given
	// names that code may create there.
	LinkSkills(names []string) error
	// StartCompiler starts the TypeScript compiler beside the waiting interpreter, with these arguments. The compiler sees
	// the code and the files of WriteFile, but no files that runs share. The caller still owns stdio.
	StartCompiler(args []string, stdio Stdio) (Compiler, error)
	// OutFolder returns the path of OutDir as sandboxd sees it. Only this slot's processes can write to that folder, and
	// they cannot replace it.
	OutFolder() string
	// MainPID returns the pid of the interpreter, 0 before CheckConfinement.
	MainPID() int
	// Memory returns the memory of all processes of the slot, in bytes. Valid after CheckConfinement.
	Memory() int64
	// RemovedBytes returns the bytes of removed files that the slot's processes still hold on a device.
	RemovedBytes(device uint64) int64
	// CountWritten is quota.CountWritten of the slot's user: the files that this user changed in a directory since a time.
	CountWritten(dir string, since time.Time, enough int64) quota.FileCount
	// HomeBytes returns the bytes in a server's home if the kernel does not bound it, else 0.
	HomeBytes() int64
	// Kill kills every process of the slot. DoneSignal is closed some time later.
	Kill()
	// DoneSignal is closed when no process of the slot is left.
	DoneSignal() <-chan struct{}
	// Status returns how the process ended. Valid after DoneSignal.
	Status() Status
	// Remove deletes the private files. Call it after DoneSignal. After an error it can be called again.
	Remove() error
}

// FilesError means that the slot has no process left, but that its files could not be deleted. A disk is full, or the
// machine has no memory for the program that deletes them.
type FilesError struct {
	error
	// Again retries the deletion.
	Again func() error
}

// ClearSlot deletes the files of a slot after its processes have ended. leftover is Status.Leftover.
func ClearSlot(leftover error, remove func() error) error {
	err := remove()
	// If a process is left, deleting the files later does not make the slot usable. Only FilesError can be retried.
	if leftover == nil && err != nil {
		return &FilesError{err, remove}
	}
	return errors.Join(leftover, err)
}

// Compiler is the TypeScript compiler while it checks a slot's code. It does not run the code, and cannot start
// processes.
type Compiler interface {
	// Memory returns the compiler's memory, in bytes.
	Memory() int64
	// Kill kills the compiler. DoneSignal is closed some time later.
	Kill()
	// DoneSignal is closed when the compiler has ended.
	DoneSignal() <-chan struct{}
	// Status returns how the compiler ended. Valid after DoneSignal.
	Status() Status
}

// Status describes how an interpreter ended.
type Status struct {
	Code   int // 128+signal for a signal
	Signal int
	CPU    time.Duration
	MaxRSS int64 // bytes
	// Leftover is set if a process of the slot could not be killed. The slot must not be used again.
	Leftover error
}

// checkStatus verifies that a process has the slot's user and group, no capability, and no_new_privs.
func checkStatus(s proc.Status, uid, gid int) error {
	// The four are the real, effective, saved and file system ids. A different saved id could become effective again.
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
