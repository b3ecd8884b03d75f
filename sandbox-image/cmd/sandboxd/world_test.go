package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/python"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Mode is the way in which sandboxd runs.
type Mode string

// The modes.
const (
	Root      Mode = "embedded-root" // embedded, started by root
	User      Mode = "embedded-user" // embedded, in a user namespace of an ordinary user
	Container Mode = "container"     // as process 1 of a pid namespace
)

// UserUID is the ordinary user of mode User.
const UserUID = 31234

// Options of a World.
type Options struct {
	Mode        Mode
	Slots, Warm int
	Memory      int64
	// Servers is the number of slots for MCP servers, Bridge their program, and Programs the operator's folder.
	Servers          int
	ServerMemory     int64
	Bridge, Programs string
	// NoSys hides /sys from sandboxd, and with it the processor limits of cgroups: the Go runtime then keeps no file open.
	// Closed closes the standard streams before sandboxd starts.
	NoSys, Closed bool
	// Python offers the machine's Python, and skips the test if the machine has none. Runs then use Python, unless
	// World.Language is set.
	Python bool
	// TypeScript offers the compiler, and skips the test if the compiler was not fetched.
	TypeScript bool
	// Folders are the folders of the host.
	Folders []jail.Folder
	// Args are appended to the command line of serve.
	Args []string
}

// World is one running sandboxd.
type World struct {
	Dir     string // its directories
	Socket  string
	Process *os.Process
	Client  *sandboxapi.Client
	Hash    string // of the current permission set
	// Environ are the variables of the runs.
	Environ map[string]string
	// Servers are the MCP servers that runs may call.
	Servers map[string][]string
	// Modules are the typed clients that runs import.
	Modules []sandboxapi.Module
	// Packages are those that AllowHosts permits.
	Packages []string
	// Private makes runs private, with these Skills.
	Private bool
	Skills  map[string]string
	// Folders are the folders of the host that runs see. Nil means all.
	Folders []string
	// Input is the input of the runs.
	Input *sandboxapi.Input
	// Language is the language of the runs. Empty means TypeScript.
	Language sandboxapi.Language
	// OnEvent, if set, receives each event of a run as it arrives.
	OnEvent func(sandboxapi.Event)

	mode   Mode
	python python.Interpreter
	start  func() (*os.Process, error)
	log    *testkit.Buffer
	done   chan error
}

var build struct {
	once sync.Once
	path string
	err  error
}

// BuildBinary builds sandboxd once for all tests of the process.
func BuildBinary(t testing.TB) string {
	t.Helper()
	build.once.Do(func() {
		dir, err := os.MkdirTemp("", "sandboxd-test-")
		if err != nil {
			build.err = err
			return
		}
		build.path = filepath.Join(dir, "sandboxd")
		_ = os.Chmod(dir, 0o755)
		args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", build.path}
		env := append(os.Environ(), "CGO_ENABLED=0")
		if os.Getenv("SANDBOX_RACE") != "" { // with the race detector, which needs a C compiler
			args, env = append(args, "-race"), os.Environ()
		}
		cmd := exec.Command("go", append(args, "github.com/codeforge-mcp/codeforge/sandbox-image/cmd/sandboxd")...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.path
}

// RunInModes runs a test in every mode.
func RunInModes(t *testing.T, f func(t *testing.T, m Mode)) {
	for _, m := range []Mode{Root, User, Container} {
		t.Run(string(m), func(t *testing.T) { f(t, m) })
	}
}

// OneMode runs a test in one mode, or in every mode if testkit.IsThorough. Use it for behaviour that is the same in all
// modes.
func OneMode(t *testing.T, f func(t *testing.T, m Mode)) {
	if testkit.IsThorough() {
		RunInModes(t, f)
		return
	}
	t.Run(string(Root), func(t *testing.T) { f(t, Root) })
}

// StartWorld starts sandboxd, waits until it is ready, and stops it with the test. The test fails if sandboxd does not
// exit cleanly.
func StartWorld(t testing.TB, o Options) *World {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root")
	}
	o.Slots = cmp.Or(o.Slots, 2)
	o.Memory = cmp.Or(o.Memory, 512<<20)
	o.ServerMemory = cmp.Or(o.ServerMemory, 512<<20)
	deno := testkit.DenoPath(t)
	if o.Mode != Container {
		if _, err := exec.LookPath("bwrap"); err != nil {
			testkit.SkipBecause(t, "no bubblewrap")
		}
	}
	w := &World{mode: o.Mode, log: &testkit.Buffer{}, done: make(chan error, 1)}
	if o.Python {
		w.python, w.Language = testkit.FindPython(t), sandboxapi.LanguagePython
	}
	w.prepareDirs(t, o)
	w.start = func() (*os.Process, error) {
		cmd := w.newCommand(t, o, deno)
		cmd.Stdout, cmd.Stderr = w.log, w.log
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		go func() { w.done <- cmd.Wait() }()
		return cmd.Process, nil
	}
	var err error
	if w.Process, err = w.start(); err != nil {
		t.Fatal(err)
	}
	w.Client = sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: w.Dial})
	t.Cleanup(func() { w.stopDaemon(t) })
	w.awaitReady(t)
	w.AllowHosts(t)
	return w
}

// Dial connects to sandboxd as the owner of its socket.
func (w *World) Dial(ctx context.Context) (net.Conn, error) {
	return dialAs(ctx, socketOwner(w.mode), w.Socket)
}

// socketOwner returns the user that may connect to sandboxd.
func socketOwner(m Mode) int {
	switch m {
	case User:
		return UserUID
	case Container:
		return slot.ServiceUID
	}
	return slot.ServerUID
}

// dialAs connects from a thread that becomes the user temporarily. The thread must live on, because its children die
// with it (Pdeathsig).
func dialAs(ctx context.Context, uid int, socket string) (net.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const same = ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
		return nil, errno
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, 0, same); errno != 0 {
		panic(errno)
	}
	return conn, err
}

func (w *World) awaitReady(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		h, err := w.Client.Health(ctx)
		cancel()
		if err == nil && h.Ready {
			return
		}
		select {
		case err := <-w.done:
			w.done <- err
			t.Fatalf("sandboxd ended: %v\n%s", err, w.log)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("sandboxd is not ready: %v %+v\n%s", err, h, w.log)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Pid returns the pid of sandboxd. In mode User, sandboxd is a child of the started process, its supervisor.
func (w *World) Pid() int {
	if w.mode == User {
		if children, err := proc.ListChildren(w.Process.Pid); err == nil && len(children) == 1 {
			return children[0]
		}
	}
	return w.Process.Pid
}

// Restart ends sandboxd with a signal and starts it again on the same directories.
func (w *World) Restart(t testing.TB, how syscall.Signal) {
	t.Helper()
	_ = syscall.Kill(w.Pid(), how)
	select {
	case err := <-w.done:
		if err != nil && how != syscall.SIGKILL {
			t.Errorf("sandboxd did not end cleanly: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("sandboxd does not end")
	}
	var err error
	if w.Process, err = w.start(); err != nil {
		t.Fatal(err)
	}
	w.awaitReady(t)
	w.AllowHosts(t)
}

// stopDaemon ends sandboxd as its supervisor does.
func (w *World) stopDaemon(t testing.TB) {
	_ = w.Client.Close()
	_ = w.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-w.done:
		if err != nil {
			t.Errorf("sandboxd did not end cleanly: %v", err)
		}
	case <-time.After(time.Minute):
		_ = w.Process.Kill()
		t.Error("sandboxd does not end")
	}
	if t.Failed() {
		t.Logf("sandboxd:\n%s", w.log)
	}
}

// ReadLog returns sandboxd's log so far.
func (w *World) ReadLog() string { return w.log.String() }

// AllowHosts sets the permission set.
func (w *World) AllowHosts(t testing.TB, hosts ...string) {
	t.Helper()
	set, err := w.Client.SetPermissions(context.Background(),
		sandboxapi.Permissions{AllowNet: hosts, Packages: w.Packages})
	if err != nil {
		t.Fatal(err)
	}
	w.Hash = set.Hash
}

// Result is the outcome of a run.
type Result struct {
	Lease          sandboxapi.Lease
	Stdout, Stderr string
	Exit           sandboxapi.Exit
}

// RunCode runs code with a new lease.
func (w *World) RunCode(t testing.TB, code string, timeout time.Duration) Result {
	t.Helper()
	r, err := w.TryCode(context.Background(), code, timeout)
	if err != nil {
		t.Fatalf("run: %v\nsandboxd:\n%s", err, w.log)
	}
	return r
}

// TryCode is Run for runs that may fail.
func (w *World) TryCode(ctx context.Context, code string, timeout time.Duration) (r Result, err error) {
	// Not cancelled with ctx, as in mcp-server: if the response is lost, the lease keeps its slot until it expires.
	folders := w.Folders
	if folders == nil {
		folders = []string{sandboxapi.AllFolders}
	}
	r.Lease, err = w.Client.Acquire(context.WithoutCancel(ctx),
		sandboxapi.LeaseRequest{Language: w.Language, Private: w.Private, Folders: folders})
	if err != nil {
		return r, err
	}
	defer func() {
		if e := w.Client.Release(context.WithoutCancel(ctx), r.Lease.Generation); err == nil {
			err = e
		}
	}()
	var out, errs bytes.Buffer
	r.Exit, err = w.Client.Run(ctx, sandboxapi.RunRequest{
		Generation: r.Lease.Generation, Run: "run-" + strconv.FormatUint(r.Lease.Generation, 10),
		Language: cmp.Or(w.Language, sandboxapi.LanguageTypeScript), Code: code, Environ: w.Environ,
		Servers: w.Servers, Modules: w.Modules,
		Private: w.Private, Skills: w.Skills, Input: w.Input,
		Permissions: w.Hash,
		TimeoutMS:   timeout.Milliseconds(),
	}, func(e sandboxapi.Event) {
		out.WriteString(e.Stdout)
		errs.WriteString(e.Stderr)
		if w.OnEvent != nil {
			w.OnEvent(e)
		}
	})
	r.Stdout, r.Stderr = out.String(), errs.String()
	return r, err
}
