// Package interp runs code in one waiting interpreter, and ends it at its limit of time, memory or output (run.go). An
// interpreter runs code once and exits.
package interp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/typecheck"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// startTimeout limits the time from Start until an interpreter waits for code.
const startTimeout = 20 * time.Second

// Interpreter is one process of Deno or Python in a slot.
type Interpreter struct {
	process jail.Process
	gate    *os.File // write end of the pipe at which the process waits for Start
	in      *os.File // write end of its standard input
	out     *os.File // read end of its standard output
	err     *os.File // read end of its standard error

	start   sync.Once
	up      chan struct{} // closed when the interpreter waits for code, or has failed
	failure error         // valid after up
	cleanup sync.Once
	before  time.Duration // processor time used before the interpreter got the code

	python  bool
	idle    func() bool
	mu      sync.Mutex
	hasCode bool // a run has its code, so preloadLibraries must do nothing
}

// Prepare sandboxes a process in the slot, which becomes the interpreter at Start. It does not wait for the sandbox to
// be complete. While idle reports true, the interpreter may preload the libraries that most code needs.
func Prepare(j jail.Jail, spec jail.InterpreterSpec, idle func() bool) (*Interpreter, error) {
	var files [8]*os.File
	for i := 0; i < len(files); i += 2 {
		var err error
		if files[i], files[i+1], err = os.Pipe(); err != nil { //nolint:gosec // there are eight
			jail.CloseFiles(files[:i])
			return nil, fmt.Errorf("making pipes: %w", err)
		}
	}
	theirs := jail.Stdio{In: files[0], Out: files[3], Err: files[5], Gate: files[6]}
	process, err := j.Start(spec, theirs)
	// A pipe ends only after every writer is closed, so sandboxd must not keep the ends of the process.
	jail.CloseFiles([]*os.File{theirs.In, theirs.Out, theirs.Err, theirs.Gate})
	ours := []*os.File{files[1], files[2], files[4], files[7]}
	if err != nil {
		jail.CloseFiles(ours)
		return nil, err
	}
	p := &Interpreter{
		process: process, in: ours[0], out: ours[1], err: ours[2], gate: ours[3], up: make(chan struct{}),
		python: spec.Python, idle: idle,
	}
	go p.awaitUp()
	return p, nil
}

// Start starts the interpreter and returns before it is up.
func (p *Interpreter) Start() {
	p.start.Do(func() {
		_ = p.out.SetReadDeadline(time.Now().Add(startTimeout))
		// An error means that the process has ended, which awaitUp notices.
		_, _ = p.gate.Write([]byte{runner.GoByte})
		_ = p.gate.Close()
	})
}

// awaitUp waits for the interpreter's ready byte, and verifies the sandbox with the kernel.
func (p *Interpreter) awaitUp() {
	defer close(p.up)
	var b [1]byte
	_, err := io.ReadFull(p.out, b[:])
	_ = p.out.SetReadDeadline(time.Time{})
	if err == nil && b[0] != runner.ReadyByte {
		err = fmt.Errorf("the interpreter said %q first", b)
	}
	// Check comes after the byte: only an interpreter that is up has its final identity and filter. No code was sent yet.
	if err == nil {
		err = p.process.CheckConfinement()
	}
	if err != nil {
		p.process.Kill()
		p.failure = fmt.Errorf("starting an interpreter: %w%s", err, p.stderrText())
		return
	}
	time.AfterFunc(preloadDelay, p.preloadLibraries)
}

// preloadDelay is the time between an interpreter being up and its preload, and between two checks of idle.
const preloadDelay = 30 * time.Millisecond

// preloadLibraries makes the interpreter load the libraries that most code needs, once the sandbox is idle. It skips an
// interpreter that already has code.
func (p *Interpreter) preloadLibraries() {
	// idle locks the pool, so call it before p.mu.
	idle := p.idle()
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.process.DoneSignal():
		return
	default:
	}
	switch {
	case p.hasCode:
	case !idle:
		time.AfterFunc(preloadDelay, p.preloadLibraries)
	default:
		_, _ = p.in.Write([]byte{runner.LoadByte}) // an error means that the process has ended
	}
}

// stderrText returns the standard error of a failed interpreter after a colon, at most 4 KiB.
func (p *Interpreter) stderrText() string {
	// A process that could not be killed may hold the pipe open, so the read has a deadline.
	_ = p.err.SetReadDeadline(time.Now().Add(time.Second))
	data, _ := io.ReadAll(io.LimitReader(p.err, 4<<10))
	if text := strings.TrimSpace(string(bytes.ToValidUTF8(data, []byte("?")))); text != "" {
		return ": " + text
	}
	return ""
}

// UpSignal is closed when the interpreter waits for code or has failed: see Failure.
func (p *Interpreter) UpSignal() <-chan struct{} { return p.up }

// Failure returns why the interpreter never came up, or nil if it did. Valid after UpSignal.
func (p *Interpreter) Failure() error { return p.failure }

// EndSignal is closed when the interpreter and all its processes have ended.
func (p *Interpreter) EndSignal() <-chan struct{} { return p.process.DoneSignal() }

// RemovedBytes returns the bytes of removed files that the run's processes still hold on a device.
func (p *Interpreter) RemovedBytes(device uint64) int64 { return p.process.RemovedBytes(device) }

// CountWritten counts the files that the run has changed in a directory since a time.
func (p *Interpreter) CountWritten(dir string, since time.Time, enough int64) quota.FileCount {
	return p.process.CountWritten(dir, since, enough)
}

// OutFolder returns the folder that the run sees as jail.OutDir.
func (p *Interpreter) OutFolder() string { return p.process.OutFolder() }

// Kill kills the interpreter without waiting.
func (p *Interpreter) Kill() { p.process.Kill() }

// End kills the interpreter and waits until all its processes have ended. An error means that a process could not be
// killed: the slot must not be used again.
func (p *Interpreter) End() error {
	p.process.Kill()
	<-p.process.DoneSignal()
	<-p.up
	return p.process.Status().Leftover
}

// Close calls End and removes the private files. After an error the slot must not be used again, unless the error is a
// jail.FilesError and its Again succeeds.
func (p *Interpreter) Close() error {
	err := p.End()
	p.cleanup.Do(func() {
		jail.CloseFiles([]*os.File{p.in, p.out, p.err})
		// If Start was never called, this closes the gate, and it keeps a later Start from writing to it.
		p.start.Do(func() { _ = p.gate.Close() })
		err = jail.ClearSlot(err, p.process.Remove)
	})
	return err
}

// ErrNotSent means that the interpreter ended before it got the code. The caller may try another interpreter.
var ErrNotSent = errors.New("the interpreter ended before it got the code")

// sendCode sends the code to the interpreter, unless the type check finds mistakes.
func (p *Interpreter) sendCode(ctx context.Context, t Task) ([]sandboxapi.Mistake, error) {
	start, err := runner.BuildStartInput(p.python, t.Environ, t.Servers, t.Code)
	if err != nil {
		return nil, fmt.Errorf("writing the variables and servers: %w", err)
	}
	p.mu.Lock()
	p.hasCode = true
	p.mu.Unlock()
	select {
	case <-p.up:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.failure != nil {
		return nil, p.failure
	}
	// A write to the pipe would not fail: other processes of the sandbox may hold its read end.
	if !proc.IsRunning(p.process.MainPID()) {
		return nil, ErrNotSent
	}
	if err := p.process.WriteMain(t.Code); err != nil {
		return nil, fmt.Errorf("writing the code: %w", err)
	}
	for name, source := range t.Skills {
		if err := p.process.WriteFile(jail.SkillDir+"/"+name, []byte(source)); err != nil {
			return nil, fmt.Errorf("writing the skill %s: %w", name, err)
		}
	}
	if t.Pinned {
		if err := p.process.LinkSkills(fileNames(t.Code)); err != nil {
			return nil, fmt.Errorf("linking the skills: %w", err)
		}
	}
	var stdin []byte
	if t.Input != nil {
		stdin = t.Input.Stdin
		for name, data := range t.Input.Files {
			if err := p.process.WriteFile(jail.InputDir+"/"+name, data); err != nil {
				return nil, fmt.Errorf("writing the file %s of the run: %w", name, err)
			}
		}
	}
	if len(t.Modules) > 0 && !p.python {
		if mistakes, err := p.writeModules(ctx, t); err != nil || len(mistakes) > 0 {
			return mistakes, err
		}
	}
	// The CPU time so far belongs to starting the interpreter, not to the run.
	p.before = proc.ProcessorTime(p.process.MainPID())
	if _, err := p.in.Write(start); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	if len(stdin) == 0 {
		return nil, p.in.Close()
	}
	// Code may read its input late or never. Close ends this goroutine, because it closes the pipe.
	go func() {
		_, _ = p.in.Write(stdin)
		_ = p.in.Close()
	}()
	return nil, nil
}

// typeScriptFile matches the name of a TypeScript file. maxNamed bounds the result of fileNames.
var typeScriptFile = regexp.MustCompile(`[A-Za-z0-9_-]{1,64}\.ts\b`)

const maxNamed = 1000

// fileNames lists the file names in the code, because code may write a skill and then import it.
func fileNames(code []byte) []string {
	return convert.Each(typeScriptFile.FindAll(code, maxNamed), func(name []byte) string { return string(name) })
}

// writeModules writes the modules that the code imports, and type-checks the code against them.
func (p *Interpreter) writeModules(ctx context.Context, t Task) ([]sandboxapi.Mistake, error) {
	for _, m := range t.Modules {
		var table runner.Table
		if err := json.Unmarshal(m.Table, &table); err != nil {
			return nil, fmt.Errorf("reading what the client of %s knows: %w", m.Name, err)
		}
		table.End = time.Now().Add(t.Timeout).UnixMilli()
		text, err := runner.ClientModule(table)
		if err != nil {
			return nil, err
		}
		if err := p.process.WriteFile(jail.ClientDir+"/"+m.Name+".ts", text); err != nil {
			return nil, fmt.Errorf("writing the client of %s: %w", m.Name, err)
		}
	}
	mistakes, err := typecheck.CheckCode(ctx, p.process, t.Modules)
	if err != nil {
		// A failed check does not fail the run: types are help for the agent, not a defence.
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		t.Unchecked(err)
	}
	return mistakes, nil
}
