package bridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

// endTime is how long a server may take to end after its input was closed, and again after SIGTERM.
const endTime = time.Second

// silentTime is how long a server may stay silent before it is started again, if time is left.
const silentTime = 15 * time.Second

// childServer is a server that is a process beside the bridge.
type childServer struct {
	cmd     *exec.Cmd
	wire    *stdioConn
	stdout  *os.File
	current *mcp.ClientSession
	logs    *logRelay
	reading sync.WaitGroup
	done    chan struct{} // closed when the process has ended
	state   error         // how the process ended; set before done is closed
}

// connectChild starts the server and connects to it. It first sends server/discover. A server that does not know this
// request gets initialize, as before 2026. A server that ends or falls silent after server/discover is started once
// more and gets initialize at once.
func (b *Bridge) connectChild(ctx context.Context) (serverConn, error) {
	began := time.Now()
	first := b.limit
	// Half of the time at least stays for the second start.
	if b.start.Protocol == "" {
		first = max(b.limit/2, min(b.limit, silentTime))
	}
	c, err := b.startChild(ctx, b.start.Protocol, discoverTime, first)
	// A program that does not exist, or a fixed protocol version, gives a second start nothing else to try.
	if failed := (*startError)(nil); err == nil || b.start.Protocol != "" || ctx.Err() != nil || errors.As(err, &failed) {
		return serverOr(c, err)
	}
	left := b.limit - time.Since(began)
	if left <= 0 {
		return nil, err
	}
	protocol, patience := legacy, discoverTime
	if late := (*lateError)(nil); errors.As(err, &late) { // it knows the request, and was only slow to start
		protocol, patience = "", b.limit
	}
	c, err = b.startChild(ctx, protocol, patience, left)
	return serverOr(c, err)
}

// serverOr returns a nil server instead of a nil *child.
func serverOr(c *childServer, err error) (serverConn, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// startError means that the program cannot be started, so a second start is pointless.
type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// lateError means that the server answered server/discover after discoverTime.
type lateError struct{ err error }

func (e *lateError) Error() string { return e.err.Error() }
func (e *lateError) Unwrap() error { return e.err }

// startChild starts the process once and connects to it.
func (b *Bridge) startChild(ctx context.Context, protocol string, patience, limit time.Duration) (*childServer, error) {
	c := &childServer{logs: b.logs, done: make(chan struct{})}
	b.logs.dropLast()
	if err := c.startProcess(b.newCommand(ctx)); err != nil {
		return nil, &startError{&bridgewire.Error{Code: bridgewire.NotStarted,
			Message: "starting the server: " + err.Error()}}
	}
	c.wire.patience = patience
	session, err := b.dialSession(ctx, connectedTransport{c.wire}, protocol, limit)
	if err != nil {
		return nil, c.endUnconnected(err)
	}
	c.current = session
	return c, nil
}

// endUnconnected ends a server that could not be connected, and returns the reason.
func (c *childServer) endUnconnected(err error) error {
	code, text := bridgewire.NotConnected, "connecting to the server: "+err.Error()
	// A slow server still runs, so there is no need to wait for its end.
	if slow := (*slowError)(nil); !errors.As(err, &slow) {
		select {
		case <-c.done:
			code, text = bridgewire.NotStarted, "the server ended during the connection"+c.describeEnd()
		case <-time.After(endTime / 10): // its output may end shortly before the process
		}
	}
	c.closeServer()
	if words := c.logs.lastOutput(); words != "" {
		text += "; its last output: " + words
	}
	err = &bridgewire.Error{Code: code, Message: text}
	if c.wire.late.Load() {
		return &lateError{err}
	}
	return err
}

// newCommand returns the server's process, not started yet.
func (b *Bridge) newCommand(ctx context.Context) *exec.Cmd {
	argv := b.start.Command
	// Without ctx's end: closeServer ends the server step by step, so that it can clean up.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), b.findProgram(argv[0]), argv[1:]...)
	cmd.Env = slices.Clone(b.cfg.Env)
	// Sorted, so that each start has the same environment.
	for _, name := range slices.Sorted(maps.Keys(b.start.Env)) {
		cmd.Env = append(cmd.Env, name+"="+b.start.Env[name])
	}
	cmd.Dir = b.start.Env["HOME"]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its child processes end with it
	return cmd
}

// findProgram finds a program by its name: in the operator's folder first, then on PATH.
func (b *Bridge) findProgram(name string) string {
	if b.cfg.Programs == "" || strings.ContainsRune(name, '/') {
		return name
	}
	path := filepath.Join(b.cfg.Programs, name)
	// A file that cannot be executed must not hide a program on PATH.
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		return path
	}
	return name
}

// startProcess starts the process with pipes, and follows its output.
func (c *childServer) startProcess(cmd *exec.Cmd) error {
	c.cmd = cmd
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	// Not StdoutPipe, because Wait would close it before all output is read.
	stdout, stdoutWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	stderr, stderrWrite, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdout.Close(), stdoutWrite.Close())
	}
	cmd.Stdout, cmd.Stderr = stdoutWrite, stderrWrite
	err = cmd.Start()
	_, _ = stdoutWrite.Close(), stderrWrite.Close() // the child has copies
	if err != nil {
		_, _ = stdout.Close(), stderr.Close()
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			// Linux reports a missing interpreter or loader in the same way as a missing program.
			if _, there := os.Stat(cmd.Path); there == nil {
				return fmt.Errorf("the program %q exists, but not the interpreter in its first line, or the loader of its "+
					"libraries: put a static binary, or the interpreter too, into the folder of programs", cmd.Args[0])
			}
			return fmt.Errorf("there is no program %q", cmd.Args[0])
		}
		return err
	}
	c.stdout = stdout
	c.wire = newWire(stdout, stdin, c.logs)
	c.reading.Go(func() {
		c.logs.followOutput(stderr)
		_ = stderr.Close()
	})
	go c.waitForEnd()
	return nil
}

// waitForEnd records the end of the process after its last output has been read.
func (c *childServer) waitForEnd() {
	err := c.cmd.Wait()
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // ends child processes that the server left behind
	read := make(chan struct{})
	go func() {
		c.reading.Wait()
		close(read)
	}()
	select {
	case <-read:
	case <-time.After(endTime): // a process outside of its group holds the pipe
	}
	// endReason quotes the last output as soon as done is closed, so the output is read first.
	c.state = err
	close(c.done)
	select {
	case <-c.wire.closed:
	case <-time.After(endTime): // its output is held in the same way
		c.wire.endWith(nil)
	}
}

// describeEnd returns how the process ended. c.done must be closed.
func (c *childServer) describeEnd() string {
	if c.state == nil {
		return " (exit status 0)"
	}
	return " (" + c.state.Error() + ")"
}

func (c *childServer) ensureSession() (*mcp.ClientSession, error) {
	return c.current, nil
}

func (c *childServer) isSessionLost(*mcp.ClientSession, *wireCapture, error) bool { return false }

func (c *childServer) isProcess() bool { return true }

// endSignal is closed with the connection: when the process or its output ends.
func (c *childServer) endSignal() <-chan struct{} { return c.wire.closed }

func (c *childServer) endReason() error {
	text := "the server closed its output"
	select {
	case <-c.done:
		text = "the server ended" + c.describeEnd()
	case <-time.After(endTime):
	}
	if err := c.wire.failureReason(); err != nil {
		text += ": " + err.Error()
	}
	if words := c.logs.lastOutput(); words != "" {
		text += "; its last output: " + words
	}
	return &bridgewire.Error{Code: bridgewire.Gone, Message: text}
}

// closeServer ends the process: it closes the input, then sends SIGTERM, then SIGKILL.
func (c *childServer) closeServer() {
	_ = c.wire.Close()
	// MCP, Lifecycle, Shutdown: a server ends if its input closes, so the first round only waits.
	for _, signal := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGKILL} {
		if signal != 0 {
			_ = syscall.Kill(-c.cmd.Process.Pid, signal)
		}
		select {
		case <-c.done:
			_ = c.stdout.Close()
			return
		case <-time.After(endTime):
		}
	}
	_ = c.stdout.Close()
}
