package jail

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/enter"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
)

// BasePrivateGroup is the private group of slot 0. It alone may read the slot's code and write its DENO_DIR; sandboxd
// is in all of them, so that it can give files to a slot without CAP_CHOWN.
const BasePrivateGroup = 21000

// containerGateFD is the descriptor of the gate in "sandboxd enter".
const containerGateFD = 3

// ContainerConfig says what a slot of the container is made of.
type ContainerConfig struct {
	Slots int
	Deno  string
	CA    string
	// Work is a directory for private files, made anew. Slots must be able to reach it.
	Work   string
	Limits Limits
}

// Container is the jail of uids in one container. sandboxd is process 1 there, with SETUID, SETGID and KILL only.
type Container struct {
	cfg ContainerConfig

	mu    sync.Mutex
	roots map[int]slot.ID // whose interpreter a process is that we started and have not waited for
}

// NewContainer prepares the jail: it joins the slots' groups and makes their directories.
func NewContainer(cfg ContainerConfig) (*Container, error) {
	groups := []int{slot.GroupID}
	for n := range cfg.Slots {
		groups = append(groups, BasePrivateGroup+n)
	}
	if err := syscall.Setgroups(groups); err != nil {
		return nil, fmt.Errorf("joining the slots' groups: %w", err)
	}
	c := &Container{cfg: cfg, roots: map[int]slot.ID{}}
	if err := os.MkdirAll(cfg.Work, 0o711); err != nil {
		return nil, err
	}
	for n := range cfg.Slots {
		if err := c.clear(slot.ID(n)); err != nil {
			return nil, fmt.Errorf("clearing slot %d: %w", n, err)
		}
	}
	return c, nil
}

func (c *Container) dir(id slot.ID) string { return filepath.Join(c.cfg.Work, strconv.Itoa(int(id))) }

// clear removes a slot's private files. What the slot's user made unreadable is removed as that user.
func (c *Container) clear(id slot.ID) error {
	dir := c.dir(id)
	err := os.RemoveAll(dir)
	if errors.Is(err, os.ErrPermission) {
		if err = Wipe(id, dir, "deno"); err == nil {
			err = os.RemoveAll(dir)
		}
	}
	return err
}

// Wipe empties the directory name below dir as the slot's user.
func Wipe(id slot.ID, dir, name string) error {
	_, err := asSlot(id, "wipe", dir, name)
	return err
}

// asSlot runs "sandboxd wipe", "reap" or "unnamed" as the slot's user, and gives what it said.
func asSlot(id slot.ID, command string, args ...string) (string, error) {
	plan := enter.Plan{
		NetNS: -1, UID: id.UID(), GID: slot.GroupID, Groups: []int{BasePrivateGroup + int(id)}, NoNewPrivs: true,
		Dir: "/", Argv: append([]string{"/proc/self/exe", command}, args...),
	}
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	p, err := os.StartProcess("/proc/self/exe", append([]string{"sandboxd"}, plan.Args()...), &os.ProcAttr{
		Files: []*os.File{nil, w, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	_ = w.Close()
	if err != nil {
		return "", fmt.Errorf("starting %s as slot %d: %w", command, id, err)
	}
	said, _ := io.ReadAll(io.LimitReader(r, 4<<10))
	state, err := p.Wait()
	if err != nil {
		return "", err
	}
	if !state.Success() {
		return "", fmt.Errorf("%s as slot %d: %s", command, id, state)
	}
	return string(said), nil
}

// prepare makes the slot's directory: code readable by the slot alone, and a DENO_DIR it can write.
func (c *Container) prepare(id slot.ID) error {
	if err := c.clear(id); err != nil {
		return err
	}
	dir, group := c.dir(id), BasePrivateGroup+int(id)
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{{dir, 0o750}, {filepath.Join(dir, "deno"), 0o770 | os.ModeSetgid}} {
		if err := os.Mkdir(d.path, 0o700); err != nil {
			return err
		}
		if err := os.Chown(d.path, -1, group); err != nil {
			return err
		}
		if err := os.Chmod(d.path, d.mode); err != nil {
			return err
		}
	}
	return c.write(id, WarmFile, runner.Warm)
}

// write puts a file where only the slot can read it.
func (c *Container) write(id slot.ID, name string, data []byte) error {
	f, err := os.OpenFile(filepath.Join(c.dir(id), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chown(-1, BasePrivateGroup+int(id)), f.Chmod(0o640), f.Close())
}

// plan is the whole of what one interpreter becomes.
func (c *Container) plan(seat Seat) enter.Plan {
	dir := c.dir(seat.Slot)
	l := c.cfg.Limits
	return enter.Plan{
		NetNS: -1, UID: seat.Slot.UID(), GID: slot.GroupID, Groups: []int{BasePrivateGroup + int(seat.Slot)},
		Processes: l.Processes, FileSize: l.FileSize, OpenFiles: l.OpenFiles,
		NoNewPrivs: true, Filter: true, Forks: l.Forks, Read: c.readable(dir), Gate: containerGateFD, Dir: TmpDir,
		Argv: append([]string{c.cfg.Deno}, denoArgs(dir, seat.Net, c.cfg.CA, l.Memory)...),
		Env:  environ(filepath.Join(dir, "deno"), seat.TZ),
	}
}

// readable is all of the container that a slot may read: what Deno is made of and needs to look up a host, and the
// run's own directories. Imports of files need no permission in Deno, and the container's /proc, /sys and /etc tell of the
// host.
func (c *Container) readable(dir string) []string {
	return []string{
		c.cfg.Deno, "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/resolv.conf", "/etc/nsswitch.conf",
		"/dev/null", "/dev/random", "/dev/urandom", filepath.Dir(c.cfg.CA), dir, TmpDir, SkillsDir, RunsDir,
	}
}

// Start implements Jail.
func (c *Container) Start(seat Seat, stdio Stdio) (Inmate, error) {
	if err := c.prepare(seat.Slot); err != nil {
		return nil, fmt.Errorf("preparing slot %d: %w", seat.Slot, err)
	}
	plan := c.plan(seat)
	p, err := os.StartProcess("/proc/self/exe", append([]string{"sandboxd"}, plan.Args()...), &os.ProcAttr{
		Files: []*os.File{stdio.In, stdio.Out, stdio.Err, stdio.Gate},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("starting an interpreter: %w", err)
	}
	c.mu.Lock()
	c.roots[p.Pid] = seat.Slot
	c.mu.Unlock()
	t := &tenant{jail: c, slot: seat.Slot, root: p, done: make(chan struct{})}
	t.scale.uid = seat.Slot.UID()
	t.scale.list = func() []int {
		alive, _, _ := proc.OfUser(t.slot.UID(), c.others(t.slot)) // an error leaves it at the interpreter
		return alive
	}
	go t.wait()
	return t, nil
}

// forget waits until a process that we started has ended, while its number is still its own, and forgets it.
func (c *Container) forget(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.roots, pid)
}

// others gives a test for the interpreters of other slots than id, and sandboxd itself, which a look for id's processes
// need not look at. No other process can have their numbers before we have waited for them.
func (c *Container) others(id slot.ID) func(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	roots, self := maps.Clone(c.roots), os.Getpid()
	return func(pid int) bool {
		of, ours := roots[pid]
		return ours && of != id || pid == self
	}
}

// Close removes the private files.
func (c *Container) Close() error {
	var errs []error
	for n := range c.cfg.Slots {
		errs = append(errs, c.clear(slot.ID(n)))
	}
	return errors.Join(errs...)
}

// tenant is one interpreter that runs as the slot's user.
type tenant struct {
	jail *Container
	slot slot.ID
	root *os.Process
	main int

	done   chan struct{}
	status Status

	scale scale
}

// wait sees the interpreter end, and ends everything else of its user.
func (t *tenant) wait() {
	defer close(t.done)
	t.jail.forget(t.root.Pid)
	state, err := t.root.Wait()
	if err == nil {
		ws := state.Sys().(syscall.WaitStatus)
		t.status.Code = ws.ExitStatus()
		if ws.Signaled() {
			t.status.Signal = int(ws.Signal())
			t.status.Code = 128 + t.status.Signal
		}
		t.status.add(state.SysUsage().(*syscall.Rusage))
	}
	t.status.Leftover = errors.Join(err, t.jail.sweep(t.slot))
}

// sweep ends every process of the slot's user, until there is none.
func (c *Container) sweep(id slot.ID) error {
	var last error
	for deadline := time.Now().Add(killDeadline); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		none, err := c.empty(id)
		if err != nil {
			return err
		}
		if none {
			return nil
		}
		// As the user itself kill(-1) ends all of them at once: signals sent one by one lose against a fork bomb. What
		// it ends may also end it first.
		_, last = asSlot(id, "reap")
	}
	return errors.Join(fmt.Errorf("processes of slot %d do not end", id), last)
}

// empty reports whether the slot's user has no process. A look at /proc takes time, in which a process can start
// another one where the look has been already, and end: so it counts only if none was started meanwhile. The dead ones
// it finds then are process 1's, as all that could be their parents have ended: it waits for them.
func (c *Container) empty(id slot.ID) (bool, error) {
	for range 3 {
		before, err := proc.LastPID()
		if err != nil {
			return false, err
		}
		alive, dead, err := proc.OfUser(id.UID(), c.others(id))
		if err != nil {
			return false, err
		}
		if len(alive) > 0 {
			return false, nil
		}
		after, err := proc.LastPID()
		if err != nil {
			return false, err
		}
		if before == after {
			for _, pid := range dead {
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
			return true, nil
		}
	}
	return false, nil
}

func (t *tenant) Main() int             { return t.main }
func (t *tenant) Memory() int64         { return t.scale.weigh(t.main) }
func (t *tenant) Done() <-chan struct{} { return t.done }
func (t *tenant) Status() Status        { return t.status }
func (t *tenant) Remove() error         { return t.jail.clear(t.slot) }

// Unnamed implements Inmate. Only as the slot's user can it be looked at.
func (t *tenant) Unnamed(device uint64) int64 {
	said, err := asSlot(t.slot, "unnamed", strconv.FormatUint(device, 10))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(said, 10, 64)
	return n
}

// WriteMain implements Inmate.
func (t *tenant) WriteMain(code []byte) error { return t.jail.write(t.slot, MainFile, code) }

// Kill implements Inmate. The rest of the user's processes end in wait.
func (t *tenant) Kill() { _ = t.root.Kill() }

// Check implements Inmate.
func (t *tenant) Check() error {
	pid := t.root.Pid
	s, err := proc.ReadStatus(pid)
	if err != nil {
		return err
	}
	if err := checkStatus(s, t.slot.UID(), slot.GroupID); err != nil {
		return err
	}
	if want := []int{BasePrivateGroup + int(t.slot)}; !slices.Equal(s.Groups, want) {
		return fmt.Errorf("the interpreter is in the groups %v, want %v", s.Groups, want)
	}
	if s.Seccomp != 2 {
		return errors.New("no seccomp filter is loaded")
	}
	alive, _, err := proc.OfUser(t.slot.UID(), t.jail.others(t.slot))
	if err != nil {
		return err
	}
	if !slices.Equal(alive, []int{pid}) {
		return fmt.Errorf("user %d has the processes %v, want only the interpreter %d", t.slot.UID(), alive, pid)
	}
	t.main = pid
	return nil
}
