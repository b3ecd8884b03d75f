package serverslot

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// shellJail starts a shell without confinement. Its zero value starts a shell that passes each check.
type shellJail struct {
	jail.Jail
	jail.Process

	script     string
	startErr   error
	confineErr error
	leftover   error
	removeErr  error
	memory     int64         // what a measurement finds
	measured   int           // counts measurements
	enough     chan struct{} // closed after ten measurements

	cmd  *exec.Cmd
	done chan struct{}
}

func (j *shellJail) StartServer(_ jail.Server, stdio jail.Stdio) (jail.Process, error) {
	if j.startErr != nil {
		return nil, j.startErr
	}
	j.enough, j.done = make(chan struct{}), make(chan struct{})
	j.cmd = exec.Command("/bin/sh", "-c", j.script)
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	j.cmd.Stdin, j.cmd.Stdout, j.cmd.Stderr = stdio.In, stdio.Out, stdio.Err
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = j.cmd.Wait()
		close(j.done)
	}()
	return j, nil
}

func (j *shellJail) CheckConfinement() error     { return j.confineErr }
func (j *shellJail) Kill()                       { _ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL) }
func (j *shellJail) DoneSignal() <-chan struct{} { return j.done }
func (j *shellJail) Remove() error               { return j.removeErr }

func (j *shellJail) Memory() int64 {
	if j.measured++; j.measured == 10 {
		close(j.enough)
	}
	return j.memory
}

func (j *shellJail) Status() jail.Status {
	st := jail.Status{CPU: 7 * time.Millisecond, MaxRSS: 12, Leftover: j.leftover}
	wait := j.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if st.Code = wait.ExitStatus(); wait.Signaled() {
		st.Signal = int(wait.Signal())
		st.Code = 128 + st.Signal
	}
	return st
}

// runServer runs a script as a server, with changes of its configuration. ended counts calls of Ended.
func runServer(t *testing.T, ctx context.Context, j *shellJail, change func(*Config)) (exit sandboxapi.Exit, ended int, broken, err error) {
	t.Helper()
	cfg := Config{
		Jail: j, Memory: 64 << 20, Input: strings.NewReader(""), Output: io.Discard,
		Started: func() error { return nil },
		Ended:   func() { ended++ },
		Watch:   func(jail.Process) (sandboxapi.Reason, string) { return "", "" },
	}
	if change != nil {
		change(&cfg)
	}
	r, err := StartServer(cfg)
	if err != nil {
		return exit, ended, nil, err
	}
	exit, broken, err = r.Run(ctx)
	if r.Memory() != 0 && r.Memory() != j.memory {
		t.Errorf("the last measurement is %d bytes, want %d", r.Memory(), j.memory)
	}
	return exit, ended, broken, err
}

// TestExit: a server gets its input and is explained by its code and the end of its standard error, an installer by its
// output.
func TestExit(t *testing.T) {
	for name, c := range map[string]struct {
		script, output, detail string
		code                   int
		install                bool
	}{
		"success":             {"cat; echo warning >&2", "input", "", 0, false},
		"failure":             {"cat; echo '  no key  ' >&2; exit 3", "input", "It ended with code 3: no key", 3, false},
		"silent failure":      {"exit 4", "", "It ended with code 4", 4, false},
		"an error of its own": {"echo 'error: no key' >&2; exit 1", "", "It ended with code 1: error: no key", 1, false},
		"only output":         {"echo text; exit 1", "text\n", "It ended with code 1", 1, false},
		"odd characters":      {`printf 'a\033b' >&2; exit 1`, "", `It ended with code 1: a\u001bb`, 1, false},
		"installer":           {"echo 'error: no such package' >&2; exit 1", "error: no such package\n", "no such package", 1, true},
		"installer's output":  {"echo text; exit 1", "text\n", "It ended with code 1: text", 1, true},
		"terminated":          {"kill -TERM $$", "", "It ended with code 143", 143, false},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			exit, ended, broken, err := runServer(t, t.Context(), &shellJail{script: c.script}, func(cfg *Config) {
				cfg.Input, cfg.Output, cfg.Server.Install = strings.NewReader("input"), &out, c.install
			})
			want := sandboxapi.Exit{Code: c.code, Reason: sandboxapi.Exited, Detail: c.detail, CPUMS: 7, MaxRSS: 12, WallMS: exit.WallMS}
			if err != nil || broken != nil || !reflect.DeepEqual(exit, want) || exit.WallMS < 0 {
				t.Errorf("%+v, want %+v; %v, %v", exit, want, broken, err)
			}
			if out.String() != c.output || ended != 1 {
				t.Errorf("it printed %q, want %q; Ended was called %d times", out.String(), c.output, ended)
			}
		})
	}
}

// TestNoInput: without a verified confinement, or without Started, the program gets no input, and Ended is not called.
func TestNoInput(t *testing.T) {
	unconfined := errors.New("unconfined")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		jail    shellJail
		ctx     context.Context
		started error
		want    string
	}{
		"no start":     {shellJail{startErr: unconfined}, t.Context(), nil, "starting a server: unconfined"},
		"early end":    {shellJail{script: "echo bad flag >&2", confineErr: unconfined}, t.Context(), nil, "starting a server: the program ended at once: bad flag"},
		"cancelled":    {shellJail{script: "cat", confineErr: unconfined}, cancelled, nil, "starting a server: context canceled"},
		"not accepted": {shellJail{script: "cat"}, t.Context(), errors.New("gone"), "starting a server: gone"},
	} {
		t.Run(name, func(t *testing.T) {
			_, ended, broken, err := runServer(t, c.ctx, &c.jail, func(cfg *Config) {
				cfg.Input, cfg.Started = readerFunc(func([]byte) (int, error) {
					t.Error("the input is read")
					return 0, io.EOF
				}), func() error { return c.started }
			})
			if err == nil || err.Error() != c.want || broken != nil || ended != 0 {
				t.Errorf("%v, want %s; %v, Ended was called %d times", err, c.want, broken, ended)
			}
			if c.started != nil && !errors.Is(err, c.started) {
				t.Errorf("the cause of %v is lost", err)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestLimits: a server that exceeds a limit, or whose caller has left, is killed. The first reason is reported.
func TestLimits(t *testing.T) {
	const memory = 64 << 20
	left := errors.New("left")
	for name, c := range map[string]struct {
		held   int64
		change func(*Config, context.CancelFunc)
		reason sandboxapi.Reason
		detail string
	}{
		"memory": {memory + 1, func(*Config, context.CancelFunc) {}, sandboxapi.OOM, "The server and its processes used more memory than their limit of 64 MiB (SANDBOX_SERVER_MEMORY)."},
		"another limit": {memory / 2, func(cfg *Config, _ context.CancelFunc) {
			cfg.Watch = func(jail.Process) (sandboxapi.Reason, string) { return sandboxapi.OutputLimit, "too many files" }
		}, sandboxapi.OutputLimit, "too many files"},
		"cancelled": {0, func(cfg *Config, cancel context.CancelFunc) {
			cfg.Started = func() error {
				cancel()
				return nil
			}
		}, sandboxapi.Cancelled, "The server was stopped."},
		"caller left": {0, func(cfg *Config, _ context.CancelFunc) {
			cfg.Output = writerFunc(func([]byte) (int, error) { return 0, left })
		}, sandboxapi.Cancelled, "The server was stopped: its caller left."},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			input, end := io.Pipe()
			exit, ended, _, err := runServer(t, ctx, &shellJail{script: "echo text; cat", memory: c.held}, func(cfg *Config) {
				was := cfg.Ended
				cfg.Input, cfg.Ended = input, func() {
					was()
					_ = end.Close()
				}
				c.change(cfg, cancel)
			})
			if err != nil || exit.Reason != c.reason || exit.Detail != c.detail || exit.Code != 128+int(syscall.SIGKILL) || ended != 1 {
				t.Errorf("%+v, want %s: %s; %v, Ended was called %d times", exit, c.reason, c.detail, err, ended)
			}
		})
	}
}

// TestAtLimit: a server may hold all of its memory.
func TestAtLimit(t *testing.T) {
	j := &shellJail{script: "cat", memory: 64 << 20}
	input, end := io.Pipe()
	exit, _, _, err := runServer(t, t.Context(), j, func(cfg *Config) {
		cfg.Input, cfg.Started = input, func() error {
			go func() {
				<-j.enough
				_ = end.Close()
			}()
			return nil
		}
	})
	if err != nil || exit.Reason != sandboxapi.Exited || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
}

// TestKilled: of a server that nobody stopped, the report says what is known about the killer.
func TestKilled(t *testing.T) {
	exit, _, _, err := runServer(t, t.Context(), &shellJail{script: "kill -KILL $$"}, nil)
	if err != nil || exit.Code != 137 || !strings.HasPrefix(exit.Detail, "The server was killed (SIGKILL)") {
		t.Errorf("%+v, %v", exit, err)
	}
	const by, kernel = "The server was killed (SIGKILL): by itself, an operator or the kernel. ",
		"The server was killed (SIGKILL), probably by the kernel: it killed processes for lack of memory while the server ran. "
	for _, c := range []struct {
		before, after int64
		reason        sandboxapi.Reason
		detail        string
	}{
		{-1, -1, sandboxapi.Cancelled, by}, {-1, 5, sandboxapi.Cancelled, by}, {5, 5, sandboxapi.Cancelled, by},
		{5, 6, sandboxapi.OOM, kernel}, {0, 1, sandboxapi.OOM, kernel},
	} {
		reason, detail := explainKill(3<<20, 64<<20, c.before, c.after)
		if want := c.detail + "It last held 3 MiB of its limit of 64 MiB."; reason != c.reason || detail != want {
			t.Errorf("%d, %d: %s, %s\nwant %s, %s", c.before, c.after, reason, detail, c.reason, want)
		}
	}
}

// TestBroken: a slot with a process or files of the last server is reported as broken, whether or not the server ran.
func TestBroken(t *testing.T) {
	stuck, full := errors.New("a process is left"), errors.New("no space left on device")
	for _, started := range []error{nil, errors.New("gone")} {
		for _, c := range []struct {
			jail shellJail
			want error
			can  bool // the files can be removed later
		}{{shellJail{}, nil, false}, {shellJail{leftover: stuck}, stuck, false}, {shellJail{removeErr: full}, full, true}} {
			c.jail.script = "exit 0"
			_, _, broken, err := runServer(t, t.Context(), &c.jail, func(cfg *Config) { cfg.Started = func() error { return started } })
			var files *jail.FilesError
			if can := errors.As(broken, &files); can != c.can || can && !errors.Is(files.Again(), full) || !can && !errors.Is(broken, c.want) || (err != nil) != (started != nil) {
				t.Errorf("%v, want %v; %v", broken, c.want, err)
			}
		}
	}
}

// TestFilesClosed: no descriptor stays open, whether or not the program has started.
func TestFilesClosed(t *testing.T) {
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := 0
	for i := range 4 {
		_, _, _, _ = runServer(t, t.Context(), &shellJail{script: "cat"}, nil)
		_, _, _, _ = runServer(t, t.Context(), &shellJail{startErr: errors.New("no namespaces")}, nil)
		if i == 0 { // the first use of a pipe opens the poller
			before = count()
		}
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors were open, and %d are", before, after)
	}
}

// TestTail: of a long stream the last bytes are kept.
func TestTail(t *testing.T) {
	for _, size := range []int{1, 7, tailSize, tailSize + 1} {
		var tail outputTail
		long := strings.Repeat("a", tailSize) + strings.Repeat("b", size)
		for rest := long; rest != ""; rest = rest[min(size, len(rest)):] {
			if n, err := tail.Write([]byte(rest[:min(size, len(rest))])); n != min(size, len(rest)) || err != nil {
				t.Fatal(n, err)
			}
		}
		if got, want := tail.tailText(), ": "+long[len(long)-tailSize:]; got != want {
			t.Errorf("in pieces of %d bytes, the last %d bytes are kept", size, len(got)-2)
		}
	}
}
