// Package serverslot runs the program of an MCP server in its slot: the bridge, or the installer.
package serverslot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Config configures a RunningServer.
type Config struct {
	Jail   jail.Jail
	Server jail.Server
	// Memory limits the memory of all processes of the slot, in bytes.
	Memory int64
	// Input is the program's standard input. Output receives its standard output, and the installer's standard error too.
	Input  io.Reader
	Output io.Writer
	// Started is called when the program runs and its confinement was verified. An error ends the program.
	Started func() error
	// Ended is called when no process of the slot is left. From then on Input and Output must not block for long.
	Ended func()
	// Watch reports whether the program exceeds another limit: a reason and a sentence, or "".
	Watch func(jail.Process) (sandboxapi.Reason, string)
}

const (
	// checkTimeout bounds the time until the program runs and its confinement was verified.
	checkTimeout = 20 * time.Second
	checkEvery   = time.Millisecond
	// A server below half of its limit is measured less often, because measuring takes processor time and servers live
	// long.
	memoryEvery      = 10 * time.Millisecond
	memoryEverySmall = 100 * time.Millisecond
	watchEvery       = time.Second
	// tailSize is the number of bytes that are kept of the program's standard error.
	tailSize = 4 << 10
)

// RunningServer is a program that has been started.
type RunningServer struct {
	cfg     Config
	process jail.Process
	in      *os.File   // write end of its standard input
	out     *os.File   // read end of its standard output
	err     *os.File   // read end of its standard error; empty for the installer
	tail    outputTail // end of its standard error, or of the installer's output
	began   time.Time

	why    sync.Once
	reason sandboxapi.Reason
	detail string
	held   int64 // memory at the last measurement, in bytes
	// oomKills is proc.OOMKills at the start of the program.
	oomKills int64
	mu       sync.Mutex
}

// StartServer starts the program, and returns before its confinement is verified.
func StartServer(cfg Config) (*RunningServer, error) {
	var files [6]*os.File
	for i := 0; i < len(files); i += 2 {
		var err error
		if files[i], files[i+1], err = os.Pipe(); err != nil { //nolint:gosec // there are six
			jail.CloseFiles(files[:i])
			return nil, fmt.Errorf("making pipes: %w", err)
		}
	}
	stdio := jail.Stdio{In: files[0], Out: files[3], Err: files[5]}
	if cfg.Server.Install {
		stdio.Err = stdio.Out
	}
	r := &RunningServer{cfg: cfg, in: files[1], out: files[2], err: files[4], began: time.Now(), oomKills: proc.OOMKills()}
	process, err := cfg.Jail.StartServer(cfg.Server, stdio)
	jail.CloseFiles([]*os.File{files[0], files[3], files[5]})
	if err != nil {
		jail.CloseFiles([]*os.File{r.in, r.out, r.err})
		return nil, fmt.Errorf("starting a server: %w", err)
	}
	r.process = process
	return r, nil
}

// Memory returns the memory of the slot's processes at the last measurement, in bytes.
func (r *RunningServer) Memory() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// Run verifies the program's confinement, and passes its input and output on until no process of the slot is left.
// Cancelling ctx ends the program. err means that the program received no input. broken means that a process could not
// be killed or a file not be removed (jail.FilesError): the slot must not be used again.
func (r *RunningServer) Run(ctx context.Context) (exit sandboxapi.Exit, broken, err error) {
	defer jail.CloseFiles([]*os.File{r.in, r.out, r.err})
	var read, write sync.WaitGroup
	// Read standard error before CheckConfinement: a program that fails early explains itself there.
	read.Go(func() { _, _ = io.Copy(&r.tail, r.err) })
	err = r.awaitConfinement(ctx)
	if err == nil {
		err = r.cfg.Started()
	}
	if err != nil {
		r.process.Kill()
		<-r.process.DoneSignal()
		read.Wait()
		return exit, r.clearFiles(), fmt.Errorf("starting a server: %w%s", err, r.tail.tailText())
	}
	read.Go(r.copyOutput)
	write.Go(r.copyInput)
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { r.watchLimits(ctx, stop) })
	<-r.process.DoneSignal()
	close(stop)
	watch.Wait()
	// Only now may Input and Output be cut off: before, they carry the program's data.
	r.cfg.Ended()
	read.Wait()
	write.Wait()
	return r.exitOf(r.process.Status()), r.clearFiles(), nil
}

// clearFiles removes the files that the program left.
func (r *RunningServer) clearFiles() error {
	return jail.ClearSlot(r.process.Status().Leftover, r.process.Remove)
}

// awaitConfinement waits until the program runs and is confined. It repeats CheckConfinement, because the sandbox
// starts in steps.
func (r *RunningServer) awaitConfinement(ctx context.Context) error {
	deadline := time.After(checkTimeout)
	for {
		err := r.process.CheckConfinement()
		if err == nil {
			return nil
		}
		select {
		case <-r.process.DoneSignal():
			return errors.New("the program ended at once")
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return err
		// Check fails until the sandbox is complete.
		case <-time.After(checkEvery):
		}
	}
}

func (r *RunningServer) copyInput() {
	_, _ = io.Copy(r.in, r.cfg.Input)
	_ = r.in.Close()
}

// copyOutput passes the program's output on. If the reader has gone, it ends the program.
func (r *RunningServer) copyOutput() {
	to := r.cfg.Output
	if r.cfg.Server.Install {
		to = io.MultiWriter(to, &r.tail)
	}
	if _, err := io.Copy(to, r.out); err != nil {
		r.endProgram(sandboxapi.Cancelled, "The server was stopped: its caller left.")
	}
}

// endProgram kills the program. Only the first reason is reported.
func (r *RunningServer) endProgram(reason sandboxapi.Reason, detail string) {
	r.why.Do(func() { r.reason, r.detail = reason, detail })
	r.process.Kill()
}

// watchLimits ends the program at its limits, or when ctx is cancelled.
func (r *RunningServer) watchLimits(ctx context.Context, stop <-chan struct{}) {
	memory := time.NewTimer(memoryEverySmall)
	defer memory.Stop()
	other := time.NewTicker(watchEvery)
	defer other.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			r.endProgram(sandboxapi.Cancelled, "The server was stopped.")
			return
		case <-memory.C:
			held := r.measureMemory()
			//defence:memory-limit
			if held > r.cfg.Memory {
				r.endProgram(sandboxapi.OOM, explainOutOfMemory(r.cfg.Memory))
				return
			}
			every := memoryEverySmall
			// Close to the limit, a program can exceed it between two measurements.
			if 2*held > r.cfg.Memory {
				every = memoryEvery
			}
			memory.Reset(every)
		case <-other.C:
			if reason, detail := r.cfg.Watch(r.process); reason != "" {
				r.endProgram(reason, detail)
				return
			}
		}
	}
}

func (r *RunningServer) measureMemory() int64 {
	held := r.process.Memory()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
	return held
}

func explainOutOfMemory(limit int64) string {
	return fmt.Sprintf("The server and its processes used more memory than their limit of %d MiB (SANDBOX_SERVER_MEMORY).",
		limit>>20)
}

// explainKill returns the most likely killer of a server. held is the last measured memory, limit the highest allowed,
// both in bytes. before and after are values of proc.OOMKills.
func explainKill(held, limit, before, after int64) (sandboxapi.Reason, string) {
	seen := fmt.Sprintf("It last held %d MiB of its limit of %d MiB.", held>>20, limit>>20)
	if before >= 0 && after > before {
		return sandboxapi.OOM, "The server was killed (SIGKILL), probably by the kernel: it killed processes for lack of " +
			"memory while the server ran. " + seen
	}
	return sandboxapi.Cancelled, "The server was killed (SIGKILL): by itself, an operator or the kernel. " + seen
}

// exitOf describes how the program ended.
func (r *RunningServer) exitOf(st jail.Status) sandboxapi.Exit {
	r.why.Do(func() {
		r.reason = sandboxapi.Exited
		switch {
		case st.Signal == int(syscall.SIGKILL): // a server can kill its bridge, so the killer may not be the kernel
			r.reason, r.detail = explainKill(r.Memory(), r.cfg.Memory, r.oomKills, proc.OOMKills())
		case st.Code != 0:
			r.detail = fmt.Sprintf("It ended with code %d%s", st.Code, r.tail.tailText())
			if why := findCause(r.tail.tailText()); r.cfg.Server.Install && why != "" {
				r.detail = why
			}
		}
	})
	return sandboxapi.Exit{
		Code: st.Code, Reason: r.reason, Detail: r.detail, WallMS: time.Since(r.began).Milliseconds(),
		CPUMS: st.CPU.Milliseconds(), MaxRSS: st.MaxRSS,
	}
}

// outputTail keeps the last tailSize bytes of a stream.
type outputTail struct {
	mu sync.Mutex
	b  []byte
}

func (t *outputTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - tailSize; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// tailText returns the kept bytes after a colon, or "".
func (t *outputTail) tailText() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(safetext.EscapeOdd(string(t.b))); text != "" {
		return ": " + text
	}
	return ""
}
