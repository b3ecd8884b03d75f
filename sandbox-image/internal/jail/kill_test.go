package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// The test binary is also the program in the jail. Code without --allow-run cannot start a process, so helpers act as
// code that has escaped from the interpreter. Each hides its processes from a plain kill.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "reap" {
		_ = syscall.Kill(-1, syscall.SIGKILL)
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "unnamed" { // as code of its user stops it
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "run" {
		prisoner()
	}
	os.Exit(m.Run())
}

// Keeps the main goroutine, and so TestMain, on the main thread.
func init() { runtime.LockOSThread() }

// children is how many processes the prisoner leaves behind.
const children = 5

// prisoner acts as an interpreter that hostile code has taken over. It has Deno's arguments; TZ selects its behaviour.
func prisoner() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	switch kind := os.Getenv("TZ"); kind {
	case "daemons", "stopped", "headless", "exits":
		for range children {
			env := "TZ=leaf"
			if kind == "stopped" || kind == "headless" {
				env = "TZ=" + kind + "-leaf"
			}
			// A double fork: in its own session, from a parent that ends.
			start("TZ=middle", "LEAF="+env)
		}
		time.Sleep(300 * time.Millisecond)
		fmt.Print("\x00")
		if kind == "exits" {
			os.Exit(0)
		}
	case "stopper":
		start("TZ=middle", "LEAF=TZ=stopper-leaf")
		fmt.Print("\x00")
	case "stopper-leaf":
		time.Sleep(500 * time.Millisecond) // until the prisoner has said that it is ready
		for began := time.Now(); time.Since(began) < 2*time.Minute; {
			_ = syscall.Kill(-1, syscall.SIGSTOP)
		}
	case "bomb":
		for range 20 {
			start("TZ=splitter")
		}
		time.Sleep(100 * time.Millisecond)
		fmt.Print("\x00")
	case "heavy":
		for range children {
			start("TZ=weight")
		}
		start("TZ=headless-weight")
		take(weight)
		time.Sleep(500 * time.Millisecond)
		fmt.Print("\x00")
	case "tables":
		tables()
		fmt.Print("\x00")
	case "weight":
		take(weight)
	case "headless-weight":
		take(weight)
		headless()
	case "middle":
		start(os.Getenv("LEAF"))
		os.Exit(0)
	case "splitter": // keeps forking and dying, always somewhere else
		for range 3 {
			start("TZ=splitter")
		}
		os.Exit(0)
	case "headless-leaf":
		headless()
	case "stopped-leaf":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	for {
		time.Sleep(time.Hour)
	}
}

// headless ends the main thread, which makes the process look dead, while another thread goes on.
func headless() {
	go func() {
		runtime.LockOSThread()
		for {
			time.Sleep(time.Millisecond)
		}
	}()
	time.Sleep(20 * time.Millisecond)
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

func start(env ...string) {
	cmd := exec.Command("/proc/self/exe", "run")
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_ = cmd.Start()
}

// prison is a jail that runs the test binary as its interpreter.
func prison(t *testing.T, kind string) Jail {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root")
	}
	// As in sandboxd: orphans become our children, so that we can wait for them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "jail-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.WriteFile(at("program"), self, 0o755), os.WriteFile(at("ca"), []byte("x"), 0o644),
			os.Chmod(dir, 0o755))
	}
	for _, d := range []string{"runs", "skills", "tmp"} {
		err = errors.Join(err, os.Mkdir(at(d), 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	limits := Limits{Memory: 1 << 30, Processes: 200, Forks: true, FileSize: 1 << 20, OpenFiles: 100}
	if kind == "container" {
		groups, err := syscall.Getgroups()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Setgroups(groups) })
		j, err := NewContainer(ContainerConfig{Slots: 98, Deno: at("program"), CA: at("ca"), Work: at("work"), Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		testkit.SkipBecause(t, "no bubblewrap")
	}
	// The network does not matter here: any namespace but our own will do.
	other := exec.Command("sleep", "100")
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", other.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	j, err := NewEmbedded(EmbeddedConfig{
		NetNS: map[slot.ID]*os.File{testSlot: ns}, Bwrap: bwrap, Deno: at("program"), CA: at("ca"), Runs: at("runs"),
		Skills: at("skills"), Tmp: at("tmp"), Work: at("work"), Out: at("out"), Limits: limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// testSlot is a slot whose uid no other process on the machine uses. The test program with the race detector has another
// one, because make test runs both at a time, and each ends all processes of its slot.
var testSlot = slot.ID(97)

func init() {
	if testkit.Race {
		testSlot = 96
	}
}

// nobody is a test for the pids of other slots that matches none.
func nobody(int) bool { return false }

// refused waits until Check fails: the parents of the daemons may still be exiting.
func refused(p Process) bool {
	for end := time.Now().Add(testkit.Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if p.CheckConfinement() != nil {
			return true
		}
	}
	return false
}

// lockUp starts a prisoner and waits until it reports that it is ready. out is the read end of its standard output.
func lockUp(t *testing.T, j Jail, what string) (p Process, out *os.File) {
	t.Helper()
	var ends [8]*os.File
	for i := 0; i < 8; i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = ends[1].Close(), ends[7].Close() })
	p, err := j.Start(InterpreterSpec{Slot: testSlot, TZ: what}, Stdio{In: ends[0], Out: ends[3], Err: ends[5], Gate: ends[6]})
	for _, f := range []*os.File{ends[0], ends[3], ends[5], ends[6]} {
		_ = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ends[7].Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(ends[2], make([]byte, 1)); err != nil {
		said, _ := io.ReadAll(ends[4])
		t.Fatalf("%v: %s", err, said)
	}
	return p, ends[2]
}

func TestNothingIsLeft(t *testing.T) {
	for _, kind := range []string{"embedded", "container"} {
		for _, what := range []string{"daemons", "stopped", "headless", "exits", "bomb"} {
			t.Run(kind+" "+what, func(t *testing.T) {
				j := prison(t, kind)
				before := children1(t)
				p, out := lockUp(t, j, what)
				var alive []int
				var err error
				for end := time.Now().Add(testkit.Patience); what != "bomb" && what != "exits"; {
					if alive, _, err = proc.ListOfUser(testSlot.UID(), nobody); err == nil && len(alive) >= children {
						break
					}
					if time.Now().After(end) {
						t.Fatalf("only %v are alive %v", alive, err)
					}
				}
				if what != "exits" {
					if what == "daemons" && !refused(p) {
						t.Error("Check passes with other processes in the slot")
					}
					p.Kill()
				}
				select {
				case <-p.DoneSignal():
				case <-time.After(time.Minute):
					t.Fatal("it does not end")
				}
				if left := p.Status().Leftover; left != nil {
					t.Error(left)
				}
				for range 20 { // one listing can miss processes that keep forking
					alive, _, err = proc.ListOfUser(testSlot.UID(), nobody)
					if err != nil || len(alive) > 0 {
						t.Fatalf("alive: %v %v", alive, err)
					}
				}
				if _, err := io.ReadAll(out); err != nil { // nobody holds the pipe
					t.Error(err)
				}
				if err := p.Remove(); err != nil {
					t.Error(err)
				}
				if after := children1(t); after != before {
					t.Errorf("children of ours: %s, before %s", after, before)
				}
				if c, ok := j.(*Container); ok && len(c.roots) > 0 { // a reused pid would be skipped
					t.Errorf("still known: %v", c.roots)
				}
			})
		}
	}
}

// TestStopped: processes of a slot that stop everything of their user end all the same, and keep nobody waiting.
// Promise: file-limits
func TestStopped(t *testing.T) {
	for _, kind := range []string{"embedded", "container"} {
		t.Run(kind, func(t *testing.T) {
			j := prison(t, kind)
			p, _ := lockUp(t, j, "stopper")
			time.Sleep(time.Second)
			p.Kill()
			select {
			case <-p.DoneSignal():
			case <-time.After(time.Minute):
				t.Fatal("it does not end")
			}
			if left := p.Status().Leftover; left != nil {
				t.Error(left)
			}
			testkit.Must(t, p.Remove())
			if kind == "embedded" {
				return
			}
			// What does not answer is killed, and counts as too much.
			held := make(chan int64, 1)
			go func() { held <- (&containerProcess{slot: testSlot}).RemovedBytes(1) }()
			select {
			case n := <-held:
				if n < 1<<40 {
					t.Errorf("counted %d", n)
				}
			case <-time.After(time.Minute):
				t.Error("what measures is waited for")
			}
		})
	}
}

// children1 lists our children, zombies included.
func children1(t *testing.T) string {
	t.Helper()
	pids, err := proc.ListChildren(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, p := range pids {
		if s, err := proc.ReadStatus(p); err == nil && s.UID[0] == testSlot.UID() {
			list = append(list, strconv.Itoa(p))
		}
	}
	return strings.Join(list, " ")
}
