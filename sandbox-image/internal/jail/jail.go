// Package jail puts an interpreter into a slot, checks that it is really shut in, and ends it.
//
// There are two jails. In Docker the container is the wall, and a slot is a uid in it. Embedded, each process has
// its own bubblewrap sandbox in the slot's network namespace. For both: Check is done before any code is sent, and
// after End no process of the slot is alive.
package jail

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// Paths as code sees them.
const (
	CodeDir   = "/code"
	TmpDir    = "/tmp"
	SkillsDir = "/skills"
	RunsDir   = "/runs"
	MainFile  = "main.ts"
	WarmFile  = "warm.ts"
)

// Limits of one interpreter.
type Limits struct {
	// Memory is the memory in bytes over which a run is ended.
	Memory int64
	// Processes counts threads too.
	Processes uint64
	// Forks: the interpreter may start processes. The zero value leaves it its threads.
	Forks bool
	// FileSize is the largest file that can be written, in bytes.
	FileSize uint64
	// OpenFiles is how many descriptors the interpreter can have.
	OpenFiles uint64
}

// Seat is where an interpreter is to start.
type Seat struct {
	Slot slot.ID
	// Net is the --allow-net list, already parsed; empty: no network permission.
	Net []string
	TZ  string
}

// Stdio are the ends that the interpreter gets, and those of the gate it waits at before it starts: shut in already,
// it goes on when a byte can be read there. To shut a process in takes longer than to start it then.
type Stdio struct{ In, Out, Err, Gate *os.File }

// Jail is one of Container and Embedded.
type Jail interface {
	// Start puts an interpreter behind the gate; past it, it waits for code. The caller still owns stdio.
	Start(Seat, Stdio) (Inmate, error)
	// Close removes what the jail made outside of the slots.
	Close() error
}

// Inmate is one interpreter in a slot.
type Inmate interface {
	// Check asks the kernel whether the interpreter is shut in as it must be. It may be called once it is up.
	Check() error
	// WriteMain writes the code where the waiting interpreter reads it.
	WriteMain(code []byte) error
	// Main is the pid of the interpreter, 0 before Check.
	Main() int
	// Memory is what everything in the slot holds, in bytes; after Check.
	Memory() int64
	// Unnamed is what the slot's processes hold in open files of a file system that no directory names, in bytes.
	Unnamed(device uint64) int64
	// Kill ends everything in the slot; Done is closed some time later.
	Kill()
	// Done is closed when the interpreter has ended and nothing of the slot is alive.
	Done() <-chan struct{}
	// Status says how it ended; valid after Done.
	Status() Status
	// Remove deletes the private files; after Done.
	Remove() error
}

// Status is how an interpreter ended.
type Status struct {
	Code   int // 128+signal for a signal
	Signal int
	CPU    time.Duration
	MaxRSS int64 // bytes
	// Leftover is set when something of the slot could not be ended: the slot must not be used again.
	Leftover error
}

// denoArgs is the interpreter's command line after the program's name. dir is the code directory, as the interpreter
// sees it.
func denoArgs(dir string, net []string, ca string, memory int64) []string {
	args := []string{
		"run", "--no-prompt", "--no-remote", "--no-npm", "--no-config", "--no-lock", "--no-code-cache",
		"--cert", ca,
		"--v8-flags=--max-old-space-size=" + strconv.FormatInt(heapMB(memory), 10),
		"--allow-read=" + TmpDir + "," + SkillsDir + "," + RunsDir,
		"--allow-write=" + TmpDir + "," + SkillsDir,
	}
	switch {
	case len(net) == 1 && net[0] == "*":
		args = append(args, "--allow-net")
	case len(net) > 0:
		args = append(args, "--allow-net="+join(net))
	}
	return append(args, "--preload", dir+"/"+WarmFile, dir+"/"+MainFile)
}

func join(list []string) string {
	out := list[0]
	for _, s := range list[1:] {
		out += "," + s
	}
	return out
}

// heapMB leaves a quarter of the memory to everything that is not the JavaScript heap, so that a heap that grows too
// far ends with V8's own message.
func heapMB(memory int64) int64 { return max(64, memory/4*3>>20) }

// environ is the interpreter's whole environment.
func environ(denoDir, tz string) []string {
	if tz == "" {
		tz = "UTC"
	}
	return []string{
		"NO_COLOR=1", "TZ=" + tz, "LANG=C.UTF-8", "HOME=" + TmpDir, "DENO_DIR=" + denoDir, "DENO_NO_UPDATE_CHECK=1",
	}
}

// checkStatus: the user is the slot's, in no other group, and nothing gives it privilege.
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
