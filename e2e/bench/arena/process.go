package arena

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a running daemon that is being measured.
type Process struct {
	cmd  *exec.Cmd
	log  *tail
	done chan struct{}
	err  error
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailSize = 8 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - tailSize; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// Start starts a command. Its output goes to /dev/null, or with loud to a buffer that errors quote: copying every log
// line through this process would cost processor time that distorts the measurement.
func Start(cmd *exec.Cmd, loud bool) (*Process, error) {
	p := &Process{cmd: cmd, log: &tail{}, done: make(chan struct{})}
	if loud {
		cmd.Stdout, cmd.Stderr = p.log, p.log
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", strings.Join(cmd.Args, " "), err)
	}
	go func() { p.err = cmd.Wait(); close(p.done) }()
	return p, nil
}

// Await waits until ready returns true, at most d.
func (p *Process) Await(d time.Duration, ready func() bool) error {
	for end := time.Now().Add(d); !ready(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w\n%s", filepath.Base(p.cmd.Path), errors.Join(p.err, errors.New(strings.Join(p.cmd.Args, " "))), p.Log())
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s was not ready after %s\n%s", strings.Join(p.cmd.Args, " "), d, p.Log())
		}
	}
	return nil
}

// Log is the end of what the process printed.
func (p *Process) Log() string {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	return string(p.log.b)
}

// Stop ends the process and waits.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// PID is the pid of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// CPU is the processor time the process has used so far, from the kernel's clock of the process.
func (p *Process) CPU() (time.Duration, error) { return CPU(p.PID()) }

// CPU is the processor time that a process has used so far.
func CPU(pid int) (time.Duration, error) {
	// clock_getcpuclockid(3): the complement of the pid in the upper bits, and CPUCLOCK_SCHED.
	id := int32(^pid)<<3 | 2
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0, fmt.Errorf("reading the processor time of %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// Peak is the peak resident memory of the process since ResetPeak or its start, in bytes (VmHWM).
func (p *Process) Peak() (int64, error) { return status(p.PID(), "VmHWM:") }

// Resident is the memory the process has in use, in bytes (VmRSS).
func (p *Process) Resident() (int64, error) { return status(p.PID(), "VmRSS:") }

// ResetPeak resets Peak (proc(5), clear_refs).
func (p *Process) ResetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0)
}

// status reads a size of /proc/PID/status.
func status(pid int, field string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte(field)); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(string(rest)), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("no " + field + " in /proc/" + strconv.Itoa(pid) + "/status")
}
