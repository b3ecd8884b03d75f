package embedded

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// daemonConfig describes the daemon to start.
type daemonConfig struct {
	// Name is the binary's name, for messages.
	Name string
	Path string
	Args []string
	// Env is the whole environment, except LISTEN_FDS.
	Env []string
	// Files are inherited from descriptor 3 on. LISTEN_FDNAMES names them.
	Files []slot.File
	// User is the user of the process. Nil: the supervisor's user.
	User *syscall.Credential
	// Log receives the output of the process, in whole lines.
	Log io.Writer
}

// childProcess is a running child process of the supervisor.
type childProcess struct {
	name string
	cmd  *exec.Cmd
	out  *lineTail
	done chan struct{}
	err  error
}

// startDaemon starts the process. Its working directory is /.
func startDaemon(c daemonConfig) (*childProcess, error) {
	cmd := exec.Command(c.Path, c.Args...) //nolint:gosec,noctx // our own binaries; Stop ends them
	cmd.Dir = "/"
	cmd.Env = c.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.User, Setpgid: true}
	if len(c.Files) > 0 {
		var names []string
		for _, f := range c.Files {
			cmd.ExtraFiles = append(cmd.ExtraFiles, f.File)
			names = append(names, slot.FileName(f.Slot, f.Kind))
		}
		cmd.Env = append(append([]string(nil), c.Env...), slot.ChildEnviron(names)...)
	}
	d := &childProcess{name: c.Name, cmd: cmd, out: &lineTail{to: c.Log}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = d.out, d.out
	// A grandchild may keep the pipe open. Without this limit, waitForFirst would then never return.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	go func() {
		d.err = cmd.Wait()
		d.out.flushLine()
		close(d.done)
	}()
	return d, nil
}

// Done is closed when the process has ended.
func (d *childProcess) Done() <-chan struct{} { return d.done }

// Cause returns how an ended process ended, with the last line that it printed. If it was killed, that line is
// unrelated and left out. Call Cause only after Done.
func (d *childProcess) Cause() error {
	how := "exit status 0"
	var exit *exec.ExitError
	switch {
	case errors.As(d.err, &exit):
		how = exit.String()
	case d.err != nil:
		how = d.err.Error()
	}
	status, ok := syscall.WaitStatus(0), false
	if exit != nil {
		status, ok = exit.Sys().(syscall.WaitStatus)
	}
	killed := ok && status.Signal() == syscall.SIGKILL
	if last := d.out.lastLine(); last != "" && !killed {
		return fmt.Errorf("%s stopped (%s): %s", d.name, how, last)
	}
	return fmt.Errorf("%s stopped (%s)", d.name, how)
}

// Stop asks the process to end, kills it after the grace period, and returns when it has ended.
func (d *childProcess) Stop(grace time.Duration) {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.done:
		return
	case <-time.After(grace):
	}
	_ = d.cmd.Process.Kill()
	<-d.done
}

// lineTail writes whole lines to another writer and remembers the last one.
type lineTail struct {
	mu   sync.Mutex
	to   io.Writer
	part []byte
	last string
}

// maxLine bounds the buffered part of an unfinished line, in bytes.
const maxLine = 64 << 10

func (t *lineTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part = append(t.part, p...)
	end := strings.LastIndexByte(string(t.part), '\n') + 1
	// A program that prints without line feeds must not take all memory.
	if end == 0 && len(t.part) > maxLine {
		t.part = append(t.part, '\n')
		end = len(t.part)
	}
	if end == 0 {
		return len(p), nil
	}
	t.forwardLines(t.part[:end])
	t.part = append(t.part[:0], t.part[end:]...)
	return len(p), nil
}

func (t *lineTail) forwardLines(lines []byte) {
	text := strings.TrimSpace(string(lines))
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	if text != "" {
		t.last = text
	}
	if t.to != nil {
		_, _ = t.to.Write(lines)
	}
}

func (t *lineTail) flushLine() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.part) > 0 {
		t.forwardLines(append(t.part, '\n'))
		t.part = nil
	}
}

func (t *lineTail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// waitForFirst returns the daemon that ends first, or nil if stop is closed first.
func waitForFirst(stop <-chan struct{}, list ...*childProcess) *childProcess {
	// The channel has room for all, so that the goroutines of the other daemons end, too.
	first := make(chan *childProcess, len(list))
	for _, d := range list {
		go func() {
			<-d.done
			first <- d
		}()
	}
	select {
	case d := <-first:
		return d
	case <-stop:
		return nil
	}
}
