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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/output"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// Task is one run.
type Task struct {
	Code    []byte
	Timeout time.Duration
	// Memory is what everything of the run may hold in bytes, Output the printed bytes, over which the run is ended.
	Memory, Output int64
	// Emit gets the output as it comes. It is called by one goroutine at a time. An error ends the run.
	Emit func(runapi.Event) error
	// Ended is called when everything of the run has ended; what Emit still carries then was printed before.
	Ended func()
	// Keep gets the whole of standard output.
	Keep *output.File
	// Watch is asked now and then, and when everything of the run has ended, whether the run is over another limit: a
	// reason and a sentence.
	Watch func() (runapi.Reason, string)
}

// Intervals at which a run's memory, and its other limits, are looked at.
const (
	memoryEvery = 10 * time.Millisecond
	watchEvery  = 250 * time.Millisecond
)

// run is the state of one run.
type run struct {
	p    *Interpreter
	task Task

	mu     sync.Mutex // serialises Emit
	failed error      // of Emit

	outBytes, errBytes atomic.Int64
	peak               atomic.Int64

	why    sync.Once
	reason runapi.Reason
	detail string

	tail tail // of standard error
}

// Run hands the code to the interpreter and carries its output until it has ended and nothing of it is alive.
// Cancelling ctx ends the
// run with the reason "cancelled". An error means that there is no Exit: the code was never sent, or something could
// not be ended.
func (p *Interpreter) Run(ctx context.Context, t Task) (runapi.Exit, error) {
	if err := p.send(ctx, t.Code); err != nil {
		return runapi.Exit{}, err
	}
	start := time.Now()
	r := &run{p: p, task: t}
	stop := make(chan struct{})
	var watch, read sync.WaitGroup
	watch.Go(func() { r.watch(ctx, stop) })
	var out, errs output.Text
	read.Go(func() { r.read(p.out, &out, &r.outBytes, r.stdout) })
	read.Go(func() { r.read(p.err, &errs, &r.errBytes, r.stderr) })

	<-p.inmate.Done()
	wall := time.Since(start)
	t.Ended()
	close(stop)
	watch.Wait()
	// Nothing that could hold the other ends is alive: the readers come to the end by themselves.
	read.Wait()

	r.lookBack()
	st := p.inmate.Status()
	r.diagnose(st)
	exit := runapi.Exit{
		Code: st.Code, Reason: r.reason, Detail: r.detail,
		WallMS: wall.Milliseconds(), CPUMS: max(0, st.CPU-p.before).Milliseconds(), MaxRSS: max(st.MaxRSS, r.peak.Load()),
		StdoutBytes: r.outBytes.Load(), StderrBytes: r.errBytes.Load(), InvalidUTF8: out.Invalid + errs.Invalid,
	}
	exit.StdoutFile, _ = t.Keep.Close() // no file is told of when it could not be written
	if st.Leftover != nil {
		return exit, fmt.Errorf("ending the run: %w", st.Leftover)
	}
	return exit, r.failed
}

// end kills the run for a reason; the first one counts.
func (r *run) end(reason runapi.Reason, detail string) {
	r.why.Do(func() { r.reason, r.detail = reason, detail })
	r.p.Kill()
}

// watch ends the run when its time or its memory is over, or when nobody waits for it any more.
func (r *run) watch(ctx context.Context, stop <-chan struct{}) {
	timeout := time.NewTimer(r.task.Timeout)
	defer timeout.Stop()
	memory := time.NewTicker(memoryEvery)
	defer memory.Stop()
	other := time.NewTicker(watchEvery)
	defer other.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			r.end(runapi.Cancelled, "The run was stopped from outside: its caller left, or the sandbox restarts. It may have run in part: check before you run it again.")
			return
		case <-timeout.C:
			if disarm.Off("time-limit") {
				continue
			}
			r.end(runapi.Timeout, fmt.Sprintf("The run was ended after %s, its timeout; what it printed until then is "+
				"kept. Do less in one run, or give a longer timeout.", r.task.Timeout))
			return
		case <-memory.C:
			held := r.p.inmate.Memory()
			if held > r.peak.Load() {
				r.peak.Store(held)
			}
			if held > r.task.Memory && !disarm.Off("memory-limit") {
				r.end(runapi.OOM, outOfMemory(r.task.Memory))
				return
			}
		case <-other.C:
			if reason, detail := r.task.Watch(); reason != "" {
				r.end(reason, detail)
				return
			}
		}
	}
}

// lookBack asks for the last time whether the run was over another limit: it may have gone there and ended since it was
// last asked. What is said of the run then is told beside its other reason, if it has one.
func (r *run) lookBack() {
	reason, detail := r.task.Watch()
	if reason == "" {
		return
	}
	r.why.Do(func() { r.reason = reason })
	if r.detail != detail {
		r.detail = strings.TrimSpace(r.detail + " " + detail)
	}
}

func outOfMemory(limit int64) string {
	return fmt.Sprintf("The run used more memory than its limit of %d MiB and was ended. Work on smaller pieces, or stream.",
		limit>>20)
}

// noMemory is the end of a run that the kernel chose when all runs together had taken what there is.
const noMemory = "The kernel ended the run: there was no memory left for all the runs together. Run it again when fewer others run, or work on smaller pieces."

// readSize is how much output one event carries at most, in bytes before encoding.
const readSize = 32 << 10

// read carries one stream to its end.
func (r *run) read(f *os.File, text *output.Text, count *atomic.Int64, sink func([]byte, string) error) {
	buf := make([]byte, readSize)
	for {
		n, err := f.Read(buf)
		count.Add(int64(n))
		over := r.outBytes.Load() + r.errBytes.Load() - r.task.Output
		if over > 0 && !disarm.Off("output-limit") {
			r.end(runapi.OutputLimit, fmt.Sprintf("The run printed more than %d MiB and was ended. Print less, or "+
				"write results to a file in /tmp.", r.task.Output>>20))
			n -= int(min(over, int64(n))) // what goes over is counted, not carried
		}
		if n > 0 {
			if e := sink(buf[:n], text.Next(buf[:n])); e != nil {
				r.end(runapi.Cancelled, "The run was cancelled: its reader has gone.")
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.end(runapi.Cancelled, "The output could not be read.")
			}
			_ = sink(nil, text.End())
			return
		}
	}
}

func (r *run) stdout(raw []byte, text string) error {
	r.task.Keep.Write(raw)
	return r.emit(runapi.Event{Stdout: text}, text)
}

func (r *run) stderr(raw []byte, text string) error {
	r.tail.write(raw)
	return r.emit(runapi.Event{Stderr: text}, text)
}

func (r *run) emit(e runapi.Event, text string) error {
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

// diagnose names the reason of an end that nobody here asked for.
func (r *run) diagnose(st jail.Status) {
	r.why.Do(func() {
		r.reason = runapi.Exited
		switch syscall.Signal(st.Signal) {
		case syscall.SIGKILL: // code cannot signal itself: this was the kernel, out of memory
			r.reason, r.detail = runapi.OOM, outOfMemory(r.task.Memory)
			if r.peak.Load() < r.task.Memory/4*3 { // not for its own limit
				r.detail = noMemory
			}
		case syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGILL, syscall.SIGSEGV:
			if r.tail.contains("out of memory") {
				r.reason, r.detail = runapi.OOM, outOfMemory(r.task.Memory)
			}
		}
	})
}

// tail remembers the last bytes of a stream.
type tail struct{ b []byte }

const tailSize = 8 << 10

func (t *tail) write(p []byte) {
	t.b = append(t.b, p...)
	if over := len(t.b) - tailSize; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
}

func (t *tail) contains(s string) bool { return bytes.Contains(t.b, []byte(s)) }
