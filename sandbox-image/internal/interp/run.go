package interp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/countdown"
	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/output"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Task describes one run.
type Task struct {
	Code []byte
	// Environ is RunRequest.Environ of package sandboxapi.
	Environ map[string]string
	// Servers is RunRequest.Servers of package sandboxapi.
	Servers map[string][]string
	// Modules is RunRequest.Modules of package sandboxapi. The code is checked against them before it runs.
	Modules []sandboxapi.Module
	Timeout time.Duration
	// Pauses, if not nil, stops the time limit with true and resumes it with false.
	Pauses <-chan bool
	// Memory limits the run's memory, and Output its printed output, both in bytes. A run that exceeds a limit is ended.
	Memory, Output int64
	// Emit receives the output as the run prints it. Only one goroutine calls it at a time. An error ends the run.
	Emit func(sandboxapi.Event) error
	// Ended is called when no process of the run is left. Emit may still be called afterwards, for earlier output.
	Ended func()
	// Skills is RunRequest.Skills of package sandboxapi. If Pinned, TypeScript imports them instead of files in /skills.
	Skills map[string]string
	Pinned bool
	// Input is RunRequest.Input of package sandboxapi.
	Input *sandboxapi.Input
	// Keep, if not nil, stores all of standard output.
	Keep *output.OutputFile
	// Unkept is called with the reason if Keep could not be written.
	Unkept func(error)
	// Unchecked is called with the reason if the code could not be checked. The code still runs.
	Unchecked func(error)
	// Watch reports whether the run exceeds another limit: a reason and a sentence, or "". It is called every watchEvery,
	// and once more when no process of the run is left.
	Watch func() (sandboxapi.Reason, string)
}

// Intervals between checks of a run's memory and of its other limits.
const (
	memoryEvery = 10 * time.Millisecond
	watchEvery  = 250 * time.Millisecond
)

type runState struct {
	p    *Interpreter
	task Task

	mu     sync.Mutex // serialises Emit
	failed error      // the first error of Emit

	outBytes, errBytes atomic.Int64
	peak               atomic.Int64
	oomKills           int64 // proc.OOMKills at the start of the run

	why    sync.Once
	reason sandboxapi.Reason
	detail string

	tail outputTail // the end of standard error
}

// Run sends the code to the interpreter and emits its output until all processes have ended. Cancelling ctx ends the
// run with the reason "cancelled". An error makes the Exit invalid: the code was not sent, a process could not be
// killed, or Emit failed.
func (p *Interpreter) Run(ctx context.Context, t Task) (sandboxapi.Exit, error) {
	mistakes, err := p.sendCode(ctx, t)
	if err != nil {
		return sandboxapi.Exit{}, err
	}
	if len(mistakes) > 0 {
		err := p.End()
		t.Ended()
		return sandboxapi.Exit{Code: 1, Reason: sandboxapi.Mistaken, Mistakes: mistakes}, err
	}
	start := time.Now()
	r := &runState{p: p, task: t, oomKills: proc.OOMKills()}
	stdout, stderr, err := p.openStreams()
	if err != nil {
		return sandboxapi.Exit{}, errors.Join(err, p.End())
	}
	defer stdout.Close()
	defer stderr.Close()
	stop := make(chan struct{})
	var watch, read sync.WaitGroup
	watch.Go(func() { r.watchLimits(ctx, stop) })
	var out, errs output.ValidText
	read.Go(func() { r.readStream(stdout, &out, &r.outBytes, r.emitStdout) })
	read.Go(func() { r.readStream(stderr, &errs, &r.errBytes, r.emitStderr) })

	<-p.process.DoneSignal()
	wall := time.Since(start)
	t.Ended()
	close(stop)
	watch.Wait()
	// No process is left that holds the write ends, so the readers reach EOF.
	read.Wait()

	r.watchOnceMore()
	st := p.process.Status()
	r.setEndReason(st)
	exit := sandboxapi.Exit{
		Code: st.Code, Reason: r.reason, Detail: r.detail,
		WallMS: wall.Milliseconds(), CPUMS: max(0, st.CPU-p.before).Milliseconds(), MaxRSS: max(st.MaxRSS, r.peak.Load()),
		StdoutBytes: r.outBytes.Load(), StderrBytes: r.errBytes.Load(), InvalidUTF8: out.Invalid + errs.Invalid,
	}
	if exit.StdoutFile, err = t.Keep.Close(); err != nil {
		t.Unkept(err)
		exit.Unkept = fmt.Sprintf("The whole stdout, %d bytes, could not be kept: %s.", exit.StdoutBytes, explainUnkept(err))
	}
	if st.Leftover != nil {
		return exit, fmt.Errorf("ending the run: %w", st.Leftover)
	}
	return exit, r.failed
}

// explainUnkept returns the reason why output could not be kept, without paths of the host.
func explainUnkept(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok && (errno == syscall.ENOSPC || errno == syscall.EDQUOT) {
		return "the disk of " + jail.RunsDir + " is full"
	}
	return jail.RunsDir + " could not be written"
}

// openStreams returns the output that the interpreter prints from now on.
func (p *Interpreter) openStreams() (stdout, stderr *outputStream, err error) {
	if stdout, err = newStream(p.out, p.process.DoneSignal()); err != nil {
		return nil, nil, fmt.Errorf("reading the output: %w", err)
	}
	if stderr, err = newStream(p.err, p.process.DoneSignal()); err != nil {
		stdout.Close()
		return nil, nil, fmt.Errorf("reading the errors: %w", err)
	}
	return stdout, stderr, nil
}

// endRun kills the run. Only the first reason is reported.
func (r *runState) endRun(reason sandboxapi.Reason, detail string) {
	r.why.Do(func() { r.reason, r.detail = reason, detail })
	r.p.Kill()
}

// watchLimits ends the run at its time limit, at another limit, or when ctx is cancelled.
func (r *runState) watchLimits(ctx context.Context, stop <-chan struct{}) {
	over := make(chan struct{})
	timeout := countdown.New(r.task.Timeout, countdown.MostPaused, func() {
		//defence:time-limit
		close(over)
	})
	defer timeout.Stop()
	paused := false
	memory := time.NewTicker(memoryEvery)
	defer memory.Stop()
	other := time.NewTicker(watchEvery)
	defer other.Stop()
	// Watch runs in a separate goroutine: code can slow it down, and must not delay the limits below.
	checked, checking := make(chan func(), 1), false
	defer func() {
		if checking {
			<-checked
		}
	}()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			r.endRun(sandboxapi.Cancelled, "The run was stopped from outside: its caller left, or the sandbox restarts. "+
				"It may have run in part: check before you run it again.")
			return
		case on := <-r.task.Pauses:
			switch {
			case on && !paused:
				timeout.Pause()
			case !on && paused:
				timeout.Resume()
			}
			paused = on
		case <-over:
			r.endRun(sandboxapi.Timeout, fmt.Sprintf("The run was ended after %s, its timeout. Its output until then is "+
				"kept. Do less in one run, or give a longer timeout.", r.task.Timeout))
			return
		case <-memory.C:
			held := r.p.process.Memory()
			if held > r.peak.Load() {
				r.peak.Store(held)
			}
			//defence:memory-limit
			if held > r.task.Memory {
				r.endRun(sandboxapi.OOM, explainOutOfMemory(r.task.Memory))
				return
			}
		case <-other.C:
			if checking {
				continue
			}
			checking = true
			go func() {
				if reason, detail := r.task.Watch(); reason != "" {
					checked <- func() { r.endRun(reason, detail) }
					return
				}
				checked <- nil
			}()
		case end := <-checked:
			if checking = false; end != nil {
				end()
				return
			}
		}
	}
}

// watchOnceMore calls Watch once more, because the run may have exceeded a limit after the last call and then ended. If
// the run already has a reason, watchOnceMore adds the sentence to it.
func (r *runState) watchOnceMore() {
	reason, detail := r.task.Watch()
	if reason == "" {
		return
	}
	r.why.Do(func() { r.reason = reason })
	if r.detail != detail {
		r.detail = strings.TrimSpace(r.detail + " " + detail)
	}
}

func explainOutOfMemory(limit int64) string {
	return fmt.Sprintf("The run used more memory than its limit of %d MiB and was ended. "+
		"Work on smaller pieces, or stream.", limit>>20)
}

// explainKill returns the most likely killer of an interpreter that sandboxd did not kill. held is the highest memory
// measured, limit the highest allowed, both in bytes. before and after are values of proc.OOMKills.
func explainKill(held, limit, before, after int64) (sandboxapi.Reason, string) {
	seen := fmt.Sprintf("The run held at most %d MiB of its limit of %d MiB.", held>>20, limit>>20)
	switch {
	case held > limit:
		return sandboxapi.OOM, explainOutOfMemory(limit)
	case before >= 0 && after > before:
		return sandboxapi.OOM, "The kernel ended the run: there was no memory left for all the runs together. " + seen +
			" Run it again when fewer others run, or work on smaller pieces."
	}
	// Kernels before 4.13 do not count their kills, so the kernel remains a suspect.
	who, kernel := "The kernel, the code itself", ""
	if before >= 0 && after >= 0 {
		who, kernel = "The code itself", "The kernel reports no kill for lack of memory. "
	}
	return sandboxapi.Cancelled, who + ", an operator or a program on this machine killed the run (SIGKILL). " + kernel +
		seen + " It may have run in part: check before you run it again."
}

// readSize is the largest output in one event, in bytes before encoding.
const readSize = 32 << 10

// readStream passes one stream to sink until EOF.
func (r *runState) readStream(from *outputStream, text *output.ValidText, count *atomic.Int64,
	sink func([]byte, string) error) {
	buf := make([]byte, readSize)
	for {
		n, err := from.Read(buf)
		full := n == len(buf)
		count.Add(int64(n))
		over := r.outBytes.Load() + r.errBytes.Load() - r.task.Output
		//defence:output-limit
		if over > 0 {
			r.endRun(sandboxapi.OutputLimit, fmt.Sprintf("The run printed more than %d MiB and was ended. Print less, or "+
				"write results to a file in /tmp.", r.task.Output>>20))
			n -= int(min(over, int64(n))) // bytes over the limit are counted, not sent
		}
		if n > 0 {
			if e := sink(buf[:n], text.DecodePiece(buf[:n])); e != nil {
				r.endRun(sandboxapi.Cancelled, "The run was cancelled: its caller left.")
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.endRun(sandboxapi.Cancelled, "The output could not be read.")
			}
			_ = sink(nil, text.DecodeRest())
			return
		}
		from.pauseReading(full)
	}
}

func (r *runState) emitStdout(raw []byte, text string) error {
	r.task.Keep.Write(raw)
	return r.emitEvent(sandboxapi.Event{Stdout: text}, text)
}

func (r *runState) emitStderr(raw []byte, text string) error {
	r.tail.write(raw)
	return r.emitEvent(sandboxapi.Event{Stderr: text}, text)
}

func (r *runState) emitEvent(e sandboxapi.Event, text string) error {
	if text == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = r.task.Emit(e)
	}
	return r.failed
}

// setEndReason finds the reason for an end that sandboxd did not cause.
func (r *runState) setEndReason(st jail.Status) {
	r.why.Do(func() {
		r.reason = sandboxapi.Exited
		switch syscall.Signal(st.Signal) {
		case 0:
		case syscall.SIGKILL:
			held := max(st.MaxRSS, r.peak.Load())
			r.reason, r.detail = explainKill(held, r.task.Memory, r.oomKills, proc.OOMKills())
		case syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGILL, syscall.SIGSEGV:
			// V8 aborts when its heap is full, and prints this. Memory of the process may still be below the limit.
			if r.tail.contains("out of memory") {
				r.reason, r.detail = sandboxapi.OOM, explainOutOfMemory(r.task.Memory)
				return
			}
			fallthrough
		default:
			r.detail = fmt.Sprintf("The interpreter crashed: %s (signal %d).", syscall.Signal(st.Signal), st.Signal)
		}
	})
}

// outputTail keeps the last tailSize bytes of a stream.
type outputTail struct{ b []byte }

const tailSize = 8 << 10

func (t *outputTail) write(p []byte) {
	t.b = append(t.b, p...)
	if over := len(t.b) - tailSize; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
}

func (t *outputTail) contains(s string) bool { return bytes.Contains(t.b, []byte(s)) }
