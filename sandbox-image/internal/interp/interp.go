// Package interp runs one interpreter. It is started ahead of time, waits in its slot until it gets code, runs that
// code once and exits. A run that exceeds its limit of time, memory or output is ended here (run.go).
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

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/typecheck"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
)

// startTimeout is how long an interpreter may take from Start until it waits for code.
const startTimeout = 20 * time.Second

// Interpreter is one process of Deno or Python in a slot.
type Interpreter struct {
	process jail.Process
	gate    *os.File // write end of the pipe at which it waits until Start
	in      *os.File // write end of its standard input
	out     *os.File // read end of its standard output
	err     *os.File // read end of its standard error

	start   sync.Once
	up      chan struct{} // closed when it waits for code, or has failed
	failure error         // valid after up
	cleanup sync.Once
	before  time.Duration // processor time it had used when it got the code

	python  bool
	idle    func() bool
	mu      sync.Mutex
	hasCode bool // a run has been assigned, so nothing may be preloaded
}

// Prepare sandboxes a process in the slot, which becomes the interpreter at Start. It does not wait until the sandbox
// is complete. When idle reports true, the interpreter preloads what most code needs.
func Prepare(j jail.Jail, seat jail.Seat, idle func() bool) (*Interpreter, error) {
	var files [8]*os.File
	for i := 0; i < len(files); i += 2 {
		var err error
		if files[i], files[i+1], err = os.Pipe(); err != nil { //nolint:gosec // there are eight
			closeAll(files[:i])
			return nil, fmt.Errorf("making pipes: %w", err)
		}
	}
	theirs := jail.Stdio{In: files[0], Out: files[3], Err: files[5], Gate: files[6]}
	process, err := j.Start(seat, theirs)
	closeAll([]*os.File{theirs.In, theirs.Out, theirs.Err, theirs.Gate})
	ours := []*os.File{files[1], files[2], files[4], files[7]}
	if err != nil {
		closeAll(ours)
		return nil, err
	}
	p := &Interpreter{
		process: process, in: ours[0], out: ours[1], err: ours[2], gate: ours[3], up: make(chan struct{}),
		python: seat.Python, idle: idle,
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

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// awaitUp reads the byte with which the interpreter reports that it waits, and verifies the sandbox with the kernel.
func (p *Interpreter) awaitUp() {
	defer close(p.up)
	var b [1]byte
	_, err := io.ReadFull(p.out, b[:])
	_ = p.out.SetReadDeadline(time.Time{})
	if err == nil && b[0] != runner.ReadyByte {
		err = fmt.Errorf("the interpreter said %q first", b)
	}
	if err == nil {
		err = p.process.Check()
	}
	if err != nil {
		p.process.Kill()
		p.failure = fmt.Errorf("starting an interpreter: %w%s", err, p.stderrText())
		return
	}
	time.AfterFunc(preloadDelay, p.preload)
}

// preloadDelay is the time from when an interpreter is up to its preload, and between two checks of idle.
const preloadDelay = 30 * time.Millisecond

// preload tells the interpreter to load what most code needs, once the sandbox is idle. An interpreter that has its
// code already gets no such order.
func (p *Interpreter) preload() {
	idle := p.idle()
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.process.Done():
		return
	default:
	}
	switch {
	case p.hasCode:
	case !idle:
		time.AfterFunc(preloadDelay, p.preload)
	default:
		_, _ = p.in.Write([]byte{runner.LoadByte}) // an error means that the process has ended
	}
}

// stderrText is what a failed interpreter printed to standard error, after a colon.
func (p *Interpreter) stderrText() string {
	_ = p.err.SetReadDeadline(time.Now().Add(time.Second))
	data, _ := io.ReadAll(io.LimitReader(p.err, 4<<10))
	if text := strings.TrimSpace(string(bytes.ToValidUTF8(data, []byte("?")))); text != "" {
		return ": " + text
	}
	return ""
}

// Up is closed when the interpreter waits for code or has failed. Failure then tells which.
func (p *Interpreter) Up() <-chan struct{} { return p.up }

// Failure is why the interpreter never came up, nil when it did. Valid after Up.
func (p *Interpreter) Failure() error { return p.failure }

// Ended is closed when the interpreter has ended and no process of it is left.
func (p *Interpreter) Ended() <-chan struct{} { return p.process.Done() }

// Unnamed is how many bytes it holds in files of a file system that are open but have been removed.
func (p *Interpreter) Unnamed(device uint64) int64 { return p.process.Unnamed(device) }

// Written is what the run has written to a directory since a time.
func (p *Interpreter) Written(dir string, since time.Time, enough int64) quota.Count {
	return p.process.Written(dir, since, enough)
}

// Kill kills the interpreter and does not wait.
func (p *Interpreter) Kill() { p.process.Kill() }

// End kills the interpreter and waits until no process of it is left. An error means that one could not be killed: the
// slot must not be used again.
func (p *Interpreter) End() error {
	p.process.Kill()
	<-p.process.Done()
	<-p.up
	return p.process.Status().Leftover
}

// Close is End, and removes the private files. After an error the slot must not be used again, unless it is a
// jail.FilesError, and trying again succeeds.
func (p *Interpreter) Close() error {
	err := p.End()
	p.cleanup.Do(func() {
		closeAll([]*os.File{p.in, p.out, p.err})
		p.start.Do(func() { _ = p.gate.Close() })
		err = jail.Clear(err, p.process.Remove)
	})
	return err
}

// ErrNotSent means that the interpreter ended before it got the code: another one may be tried.
var ErrNotSent = errors.New("the interpreter ended before it got the code")

// send gives the interpreter its code, unless that has mistakes.
func (p *Interpreter) send(ctx context.Context, t Task) ([]runapi.Mistake, error) {
	start, err := runner.Go(p.python, t.Servers)
	if err != nil {
		return nil, fmt.Errorf("naming the servers: %w", err)
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
	// A write to the pipe would not tell: other processes of the sandbox may hold its read end.
	if !proc.Lives(p.process.Main()) {
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
	if len(t.Modules) > 0 && !p.python {
		if mistakes, err := p.modules(ctx, t); err != nil || len(mistakes) > 0 {
			return mistakes, err
		}
	}
	p.before = proc.CPU(p.process.Main())
	if _, err := p.in.Write(start); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return nil, p.in.Close()
}

// typeScriptFile matches the name of a file of TypeScript. maxNamed bounds the names that fileNames returns.
var typeScriptFile = regexp.MustCompile(`[A-Za-z0-9_-]{1,64}\.ts\b`)

const maxNamed = 1000

// fileNames lists the files that code names, because it may write a skill and then import it.
func fileNames(code []byte) []string {
	var names []string
	for _, name := range typeScriptFile.FindAll(code, maxNamed) {
		names = append(names, string(name))
	}
	return names
}

// modules writes what the code imports, and checks how the code uses it.
func (p *Interpreter) modules(ctx context.Context, t Task) ([]runapi.Mistake, error) {
	for _, m := range t.Modules {
		var table runner.Table
		if err := json.Unmarshal(m.Table, &table); err != nil {
			return nil, fmt.Errorf("reading what the client of %s knows: %w", m.Name, err)
		}
		text, err := runner.Client(table)
		if err != nil {
			return nil, err
		}
		if err := p.process.WriteFile(jail.ClientDir+"/"+m.Name+".ts", text); err != nil {
			return nil, fmt.Errorf("writing the client of %s: %w", m.Name, err)
		}
	}
	mistakes, err := typecheck.Check(ctx, p.process, t.Modules)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		t.Unchecked(err)
	}
	return mistakes, nil
}
