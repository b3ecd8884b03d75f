package interp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// standIn is a jail whose only process is a goroutine of the test. Methods that it lacks are not called.
type standIn struct {
	jail.Jail
	jail.Process
	first    byte                        // the first byte that it prints
	program  func(s *standIn, in string) // gets all of standard input
	out, err *os.File                    // of the program
	status   jail.Status
	fails    map[string]error // by the method
	memory   int64
	noPID    bool
	files    map[string]string
	main     string
	links    []string
	removed  int

	done chan struct{}
	kill sync.Once
	end  chan struct{}
}

func (s *standIn) Start(_ jail.InterpreterSpec, io3 jail.Stdio) (jail.Process, error) {
	if err := s.fails["Start"]; err != nil {
		return nil, err
	}
	s.done, s.end, s.files = make(chan struct{}), make(chan struct{}), map[string]string{}
	dup := func(f *os.File) *os.File {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err = errors.Join(err, unix.SetNonblock(fd, true)); err != nil { // so that Close ends a Read
			panic(err)
		}
		return os.NewFile(uintptr(fd), "stand-in")
	}
	in, gate := dup(io3.In), dup(io3.Gate)
	s.out, s.err = dup(io3.Out), dup(io3.Err)
	go func() {
		<-s.end
		_ = gate.Close()
		_ = in.Close()
	}()
	go func() {
		defer close(s.done)
		defer func() {
			for _, f := range []*os.File{in, gate, s.out, s.err} {
				_ = f.Close()
			}
		}()
		if n, _ := gate.Read(make([]byte, 1)); n == 0 {
			return
		}
		if _, err := s.out.Write([]byte{s.first}); err != nil || s.first != runner.ReadyByte {
			return
		}
		text, _ := io.ReadAll(in)
		s.program(s, strings.TrimPrefix(string(text), string(rune(runner.LoadByte))))
	}()
	return s, nil
}

func (s *standIn) CheckConfinement() error { return s.fails["CheckConfinement"] }
func (s *standIn) WriteMain(code []byte) error {
	s.main = string(code)
	return s.fails["WriteMain"]
}

func (s *standIn) WriteFile(name string, data []byte) error {
	s.files[name] = string(data)
	return s.fails["WriteFile "+name]
}

func (s *standIn) LinkSkills(names []string) error {
	s.links = names
	return s.fails["LinkSkills"]
}

func (s *standIn) MainPID() int {
	if s.noPID {
		return 1 << 30
	}
	return os.Getpid()
}
func (s *standIn) Memory() int64               { return s.memory }
func (s *standIn) Kill()                       { s.kill.Do(func() { close(s.end) }) }
func (s *standIn) DoneSignal() <-chan struct{} { return s.done }
func (s *standIn) Status() jail.Status         { return s.status }
func (s *standIn) OutFolder() string           { return "/out of the stand-in" }
func (s *standIn) Remove() error {
	s.removed++
	return s.fails["Remove"]
}

// waitForKill is a program that runs until it is killed.
func waitForKill(s *standIn, _ string) { <-s.end }

// printTexts returns a program that prints a text to both streams and ends.
func printTexts(out, err string) func(*standIn, string) {
	return func(s *standIn, _ string) {
		_, _ = io.WriteString(s.out, out)
		_, _ = io.WriteString(s.err, err)
	}
}

// newTask returns a task with limits that no test reaches, and the texts that it emits.
func newTask(code string) (Task, *[2]string) {
	var got [2]string
	return Task{
		Code: []byte(code), Timeout: time.Minute, Memory: 1 << 30, Output: 1 << 20, Ended: func() {}, Unkept: func(error) {}, Unchecked: func(error) {},
		Emit:  func(e sandboxapi.Event) error { got[0] += e.Stdout; got[1] += e.Stderr; return nil },
		Watch: func() (sandboxapi.Reason, string) { return "", "" },
	}, &got
}

func start(t *testing.T, s *standIn) *Interpreter {
	t.Helper()
	p, err := Prepare(s, jail.InterpreterSpec{}, func() bool { return false })
	testkit.Must(t, err)
	p.Start()
	<-p.UpSignal()
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// TestEnds: the end of a run and its reason.
func TestEnds(t *testing.T) {
	gone := errors.New("gone")
	for name, c := range map[string]struct {
		program func(*standIn, string)
		status  jail.Status
		memory  int64
		change  func(*Task)
		want    string // the reason, the code and the detail
		out     string
		err     error
	}{
		"success":         {program: printTexts("héllo", "warning"), want: "exited 0 ", out: "héllo|warning"},
		"exit code":       {program: printTexts("", ""), status: jail.Status{Code: 3}, want: "exited 3 ", out: "|"},
		"no UTF-8":        {program: printTexts("a\xffb\xc3", ""), want: "exited 0 ", out: "a\uFFFDb\uFFFD|"},
		"crash":           {program: printTexts("", "bad"), status: jail.Status{Code: 139, Signal: 11}, want: "exited 139 The interpreter crashed: segmentation fault (signal 11).", out: "|bad"},
		"full heap":       {program: printTexts("", "V8: out of memory"), status: jail.Status{Code: 133, Signal: 5}, want: "oom 133 The run used more memory", out: "|V8: out of memory"},
		"another signal":  {program: printTexts("", "out of memory"), status: jail.Status{Code: 143, Signal: 15}, want: "exited 143 The interpreter crashed: terminated (signal 15).", out: "|out of memory"},
		"killed, too big": {program: printTexts("", ""), status: jail.Status{Code: 137, Signal: 9, MaxRSS: 2 << 30}, want: "oom 137 The run used more memory", out: "|"},
		"killed":          {program: printTexts("", ""), status: jail.Status{Code: 137, Signal: 9}, want: "cancelled 137 ", out: "|"},
		"leftover":        {program: printTexts("", ""), status: jail.Status{Leftover: gone}, want: "exited 0 ", out: "|", err: gone},
		"timeout":         {program: waitForKill, change: func(t *Task) { t.Timeout = 20 * time.Millisecond }, want: "timeout 0 The run was ended after 20ms", out: "|"},
		"memory":          {program: waitForKill, memory: 1<<30 + 1, want: "oom 0 The run used more memory than its limit of 1024 MiB", out: "|"},
		"output":          {program: func(s *standIn, _ string) { printTexts("abcdef", "")(s, ""); <-s.end }, change: func(t *Task) { t.Output = 5 }, want: "output_limit 0 The run printed more than 0 MiB", out: "abcde|"},
		"all the output":  {program: printTexts("abcde", ""), change: func(t *Task) { t.Output = 5 }, want: "exited 0 ", out: "abcde|"},
		"no caller": {program: func(s *standIn, _ string) { printTexts("x", "")(s, ""); <-s.end }, change: func(t *Task) { t.Emit = func(sandboxapi.Event) error { return gone } },
			want: "cancelled 0 The run was cancelled: its caller left.", out: "|", err: gone},
		"watched": {program: waitForKill, change: func(t *Task) {
			n := 0
			t.Watch = func() (sandboxapi.Reason, string) {
				if n++; n < 2 {
					return "", ""
				}
				return sandboxapi.OOM, "Too many files."
			}
		}, want: "oom 0 Too many files.", out: "|"},
		"watched at the end": {program: printTexts("", ""), status: jail.Status{Code: 1}, change: func(t *Task) {
			t.Watch = func() (sandboxapi.Reason, string) { return sandboxapi.OOM, "Too many files." }
		}, want: "oom 1 Too many files.", out: "|"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &standIn{program: c.program, status: c.status, memory: c.memory}
			p := start(t, s)
			work, got := newTask("code")
			ended := 0
			work.Ended = func() { ended++ }
			if c.change != nil {
				c.change(&work)
			}
			exit, err := p.Run(t.Context(), work)
			text := fmt.Sprint(exit.Reason, " ", exit.Code, " ", exit.Detail)
			if !errors.Is(err, c.err) || c.err == nil && err != nil || text != c.want && (!strings.HasPrefix(text, c.want) || strings.HasSuffix(c.want, " ") && exit.Reason == sandboxapi.Exited) {
				t.Errorf("%s, %v, want %s, %v", text, err, c.want, c.err)
			}
			if out := got[0] + "|" + got[1]; out != c.out || ended != 1 || s.main != "code" {
				t.Errorf("printed %q, want %q; ended %d times", out, c.out, ended)
			}
			if exit.MaxRSS != max(c.memory, c.status.MaxRSS) && c.memory > 0 || exit.StdoutBytes < int64(len(got[0])) && name != "no UTF-8" || name == "no UTF-8" && exit.InvalidUTF8 != 2 {
				t.Errorf("%+v", exit)
			}
		})
	}
}

// TestPauses: a paused run does not reach its time limit, also after several signals to pause.
func TestPauses(t *testing.T) {
	pauses := make(chan bool)
	s := &standIn{program: waitForKill}
	p := start(t, s)
	work, _ := newTask("")
	work.Timeout, work.Pauses = 60*time.Millisecond, pauses
	began := time.Now()
	go func() {
		pauses <- true
		pauses <- true
		time.Sleep(300 * time.Millisecond)
		pauses <- false
		pauses <- false
	}()
	exit, err := p.Run(t.Context(), work)
	if took := time.Since(began); err != nil || exit.Reason != sandboxapi.Timeout || took < 300*time.Millisecond || took > testkit.Patience {
		t.Errorf("%+v, %v after %v", exit, err, took)
	}
}

// TestCancelledRun: a context that ends stops the run, and before the interpreter is up it keeps the code from being sent.
func TestCancelledRun(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := &standIn{program: func(s *standIn, _ string) { stop(); <-s.end }}
	work, _ := newTask("")
	if exit, err := start(t, s).Run(ctx, work); err != nil || exit.Reason != sandboxapi.Cancelled || !strings.Contains(exit.Detail, "stopped from outside") {
		t.Errorf("%+v, %v", exit, err)
	}
	waiting := &standIn{program: waitForKill}
	p, err := Prepare(waiting, jail.InterpreterSpec{}, func() bool { return false })
	testkit.Must(t, err)
	if _, err := p.Run(ctx, work); !errors.Is(err, context.Canceled) || waiting.main != "" {
		t.Errorf("before the start: %v, %q", err, waiting.main)
	}
	if err := p.Close(); err != nil || waiting.removed != 1 {
		t.Errorf("closing it: %v, removed %d times", err, waiting.removed)
	}
	if err := p.Close(); err != nil || waiting.removed != 1 {
		t.Errorf("closing it again: %v, removed %d times", err, waiting.removed)
	}
}

// TestSendFails: each step that fails ends the run before the code starts.
func TestSendFails(t *testing.T) {
	broken := errors.New("broken")
	work, _ := newTask("import './b.ts'; env")
	work.Skills, work.Pinned = map[string]string{"a.ts": "skill"}, true
	work.Input = &sandboxapi.Input{Stdin: []byte("typed"), Files: map[string][]byte{"f": []byte("data")}}
	work.Environ = map[string]string{"A": "1"}
	for step, want := range map[string]string{
		"WriteMain": "writing the code: broken", "WriteFile " + jail.SkillDir + "/a.ts": "writing the skill a.ts: broken", "LinkSkills": "linking the skills: broken",
		"WriteFile " + jail.InputDir + "/f": "writing the file f of the run: broken", "CheckConfinement": "starting an interpreter: broken",
	} {
		p := start(t, &standIn{program: waitForKill, fails: map[string]error{step: broken}})
		if _, err := p.Run(t.Context(), work); !errors.Is(err, broken) || err.Error() != want {
			t.Errorf("%s: %v", step, err)
		}
	}
	for name, s := range map[string]*standIn{"another byte first": {first: 'x'}, "no process": {program: waitForKill, noPID: true}} {
		p := start(t, s)
		_, err := p.Run(t.Context(), work)
		if name == "no process" && !errors.Is(err, ErrNotSent) || name != "no process" && (p.Failure() == nil || !strings.Contains(err.Error(), `said "x" first`)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Prepare(&standIn{fails: map[string]error{"Start": broken}}, jail.InterpreterSpec{}, nil); !errors.Is(err, broken) {
		t.Errorf("no process: %v", err)
	}
	var in string
	s := &standIn{program: func(_ *standIn, text string) { in = text }}
	if exit, err := start(t, s).Run(t.Context(), work); err != nil || exit.Reason != sandboxapi.Exited || in != `e00000009{"A":"1"}`+"\ntyped" {
		t.Errorf("%+v, %v, the input is %q", exit, err, in)
	}
	want := map[string]string{jail.SkillDir + "/a.ts": "skill", jail.InputDir + "/f": "data"}
	if !maps.Equal(s.files, want) || !slices.Equal(s.links, []string{"b.ts"}) {
		t.Errorf("files %q, links %q", s.files, s.links)
	}
}

// TestClose: a process that cannot be killed is an error, and files that cannot be deleted may be deleted later.
func TestClose(t *testing.T) {
	broken := errors.New("broken")
	p := start(t, &standIn{program: waitForKill, status: jail.Status{Leftover: broken}})
	if err := p.Close(); !errors.Is(err, broken) {
		t.Errorf("a process is left: %v", err)
	}
	s := &standIn{program: waitForKill, fails: map[string]error{"Remove": broken}}
	var files *jail.FilesError
	if err := start(t, s).Close(); !errors.As(err, &files) {
		t.Errorf("files are left: %v", err)
	}
}

// TestTail keeps the end of a stream.
func TestTail(t *testing.T) {
	var tail outputTail
	tail.write([]byte("start" + strings.Repeat("x", tailSize-5)))
	if !tail.contains("start") || len(tail.b) != tailSize {
		t.Errorf("%d bytes", len(tail.b))
	}
	tail.write([]byte("end"))
	if tail.contains("start") || tail.contains("sta") || !tail.contains("rtx") || !tail.contains("xend") || len(tail.b) != tailSize {
		t.Errorf("%d bytes: %q", len(tail.b), tail.b[:10])
	}
}

// TestExplainUnkept names a full disk, without paths of the host.
func TestExplainUnkept(t *testing.T) {
	for err, want := range map[error]string{
		&os.PathError{Op: "write", Path: "/secret", Err: syscall.ENOSPC}: "the disk of /runs is full", syscall.EDQUOT: "the disk of /runs is full",
		syscall.EIO: "/runs could not be written", errors.New("x"): "/runs could not be written",
	} {
		if got := explainUnkept(err); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
}
