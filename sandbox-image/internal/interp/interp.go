// Package interp runs one interpreter once: started ahead of time, it waits in its slot until it gets code, and ends
// with it.
package interp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
)

// upDeadline bounds the time in which an interpreter must be up.
const upDeadline = 20 * time.Second

// Interpreter is one Deno process in a slot.
type Interpreter struct {
	inmate jail.Inmate
	gate   *os.File // write end of what it waits at until Start
	in     *os.File // write end of its standard input
	out    *os.File // read ends
	err    *os.File

	start   sync.Once
	up      chan struct{} // closed when it waits for code, or has failed
	failure error         // valid after up
	cleanup sync.Once
	before  time.Duration // processor time it had when it got the code

	idle   func() bool
	mu     sync.Mutex
	wanted bool // there is code for it
}

// Prepare shuts a process into the seat that becomes the interpreter at Start. It does not wait until that is done. What
// most code needs is loaded when idle says that there is nothing else to do.
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
	inmate, err := j.Start(seat, theirs)
	closeAll([]*os.File{theirs.In, theirs.Out, theirs.Err, theirs.Gate})
	ours := []*os.File{files[1], files[2], files[4], files[7]}
	if err != nil {
		closeAll(ours)
		return nil, err
	}
	p := &Interpreter{inmate: inmate, in: ours[0], out: ours[1], err: ours[2], gate: ours[3], up: make(chan struct{}), idle: idle}
	go p.awaitUp()
	return p, nil
}

// Start starts the interpreter. It does not wait until it is up.
func (p *Interpreter) Start() {
	p.start.Do(func() {
		_ = p.out.SetReadDeadline(time.Now().Add(upDeadline))
		// An error means that it has ended, which is noticed otherwise too.
		_, _ = p.gate.Write([]byte{runner.GoByte})
		_ = p.gate.Close()
	})
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// awaitUp reads the byte that says the interpreter waits, and has the kernel say that it is shut in.
func (p *Interpreter) awaitUp() {
	defer close(p.up)
	var b [1]byte
	_, err := io.ReadFull(p.out, b[:])
	_ = p.out.SetReadDeadline(time.Time{})
	if err == nil && b[0] != runner.ReadyByte {
		err = fmt.Errorf("the interpreter said %q first", b)
	}
	if err == nil {
		err = p.inmate.Check()
	}
	if err != nil {
		p.inmate.Kill()
		p.failure = fmt.Errorf("starting an interpreter: %w%s", err, p.complaint())
		return
	}
	time.AfterFunc(loadPause, p.load)
}

// loadPause is how long an interpreter that is up only waits, before it loads something and between two looks whether it
// may.
const loadPause = 30 * time.Millisecond

// load has the interpreter load what most code needs, once there is nothing else to do, unless there is code for it.
func (p *Interpreter) load() {
	idle := p.idle()
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.inmate.Done():
		return
	default:
	}
	switch {
	case p.wanted:
	case !idle:
		time.AfterFunc(loadPause, p.load)
	default:
		_, _ = p.in.Write([]byte{runner.LoadByte}) // an error means that it has ended
	}
}

// complaint is what a failed interpreter printed.
func (p *Interpreter) complaint() string {
	_ = p.err.SetReadDeadline(time.Now().Add(time.Second))
	data, _ := io.ReadAll(io.LimitReader(p.err, 4<<10))
	if text := strings.TrimSpace(string(bytes.ToValidUTF8(data, []byte("?")))); text != "" {
		return ": " + text
	}
	return ""
}

// Up is closed when the interpreter waits for code or has failed; Failure then tells which.
func (p *Interpreter) Up() <-chan struct{} { return p.up }

// Failure is why the interpreter never came up, nil when it did. Valid after Up.
func (p *Interpreter) Failure() error { return p.failure }

// Ended is closed when the interpreter has ended and nothing of it is alive.
func (p *Interpreter) Ended() <-chan struct{} { return p.inmate.Done() }

// Unnamed is what it holds in open files of a file system that no directory names, in bytes.
func (p *Interpreter) Unnamed(device uint64) int64 { return p.inmate.Unnamed(device) }

// Kill ends the interpreter.
func (p *Interpreter) Kill() { p.inmate.Kill() }

// End kills the interpreter and waits until nothing of it is alive. The error is of something that could not be ended:
// the slot must not be used again.
func (p *Interpreter) End() error {
	p.inmate.Kill()
	<-p.inmate.Done()
	<-p.up
	return p.inmate.Status().Leftover
}

// Close ends the interpreter as End does, and removes its private files. After an error the slot must not be used again.
func (p *Interpreter) Close() error {
	ended := p.End()
	var err error
	p.cleanup.Do(func() {
		closeAll([]*os.File{p.in, p.out, p.err})
		p.start.Do(func() { _ = p.gate.Close() })
		err = p.inmate.Remove()
	})
	return errors.Join(ended, err)
}

// ErrNotSent says that the interpreter ended before it got the code: another one may be tried.
var ErrNotSent = errors.New("the interpreter ended before it got the code")

// send hands over the code.
func (p *Interpreter) send(ctx context.Context, code []byte) error {
	p.mu.Lock()
	p.wanted = true
	p.mu.Unlock()
	select {
	case <-p.up:
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.failure != nil {
		return p.failure
	}
	// Not by the pipe: others of the sandbox may hold its other end.
	if !proc.Lives(p.inmate.Main()) {
		return ErrNotSent
	}
	if err := p.inmate.WriteMain(code); err != nil {
		return fmt.Errorf("writing the code: %w", err)
	}
	p.before = proc.CPU(p.inmate.Main())
	if _, err := p.in.Write([]byte{runner.GoByte}); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return p.in.Close()
}
