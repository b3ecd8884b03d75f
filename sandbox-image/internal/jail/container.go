package jail

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/python"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// BasePrivateGroup is the private group of slot 0; slot N has BasePrivateGroup+N. Only this group may read the slot's
// code and write its DENO_DIR. sandboxd joins all these groups, to give files to a slot without CAP_CHOWN.
const BasePrivateGroup = 21000

// Descriptors in "sandboxd enter". The program keeps containerOutFD. The image has a link from OutDir to
// /proc/self/fd/4, because all slots of the container share one view of the file system.
const (
	containerGateFD = 3
	containerOutFD  = 4
)

// ContainerConfig configures a Container.
type ContainerConfig struct {
	Slots int
	Deno  string
	// Python is nil if the container has no Python.
	Python *python.Interpreter
	CA     string
	// TypeScript is the folder of the TypeScript compiler, or empty if the container has none.
	TypeScript string
	// Work is the directory of private files. Slots must be able to enter it. NewContainer clears the slots' files in it.
	Work    string
	Limits  Limits
	Servers Servers
	// Shared means that the only slot has sandboxd's user and groups, and that sandboxd has no capability. It requires
	// Landlock in the kernel, because no uid protects sandboxd's files and processes from code.
	Shared bool
}

// Container is the jail in which each slot is a uid of one container. sandboxd is process 1 there. It has only the
// capabilities SETUID, SETGID and KILL, or, if Shared, the uid of the only slot.
type Container struct {
	cfg ContainerConfig

	mu    sync.Mutex
	roots map[int]slot.ID // slot of each interpreter by pid, until the interpreter has been waited for
}

// NewContainer prepares the jail: it joins the slots' groups, and removes the files that earlier runs left.
func NewContainer(cfg ContainerConfig) (*Container, error) {
	groups := []int{slot.GroupID}
	for _, id := range slot.IDs(cfg.Slots, cfg.Servers.Slots) {
		groups = append(groups, BasePrivateGroup+int(id))
	}
	if cfg.Shared {
		if err := checkShareable(cfg); err != nil {
			return nil, err
		}
	} else if err := syscall.Setgroups(groups); err != nil {
		return nil, fmt.Errorf("joining the slots' groups: %w", err)
	}
	c := &Container{cfg: cfg, roots: map[int]slot.ID{}}
	// 0711: slots must pass through to their own directory, but not list the others.
	if err := os.MkdirAll(cfg.Work, 0o711); err != nil {
		return nil, err
	}
	for n := range cfg.Slots {
		if err := c.clearFiles(slot.ID(n)); err != nil {
			return nil, fmt.Errorf("clearing slot %d: %w", n, err)
		}
	}
	for n := range cfg.Servers.Slots {
		if err := clearServer(slot.ID(slot.Max + n)); err != nil {
			return nil, fmt.Errorf("clearing slot %d: %w", slot.Max+n, err)
		}
	}
	return c, nil
}

// checkShareable returns an error if code must not run as sandboxd's user. Processes inside a pid namespace cannot kill
// or stop its process 1, so sandboxd must be that process.
func checkShareable(cfg ContainerConfig) error {
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	one := slot.ID(0)
	switch {
	case cfg.Slots != 1 || cfg.Servers.Slots != 0:
		return fmt.Errorf("%d slots and %d for MCP servers: without SETUID, want 1 and 0", cfg.Slots, cfg.Servers.Slots)
	case os.Getuid() != one.UID() || os.Getgid() != slot.GroupID || !slices.Contains(groups, BasePrivateGroup):
		return fmt.Errorf("user %d, group %d, groups %v: without SETUID, want %d, %d and %d",
			os.Getuid(), os.Getgid(), groups, one.UID(), slot.GroupID, BasePrivateGroup)
	case os.Getpid() != 1:
		return errors.New("without SETUID, sandboxd must be process 1: code could end any other")
	case !confine.CanRestrictReads():
		return errors.New("the kernel has no Landlock, and without SETUID only Landlock keeps code from sandboxd's files")
	}
	return nil
}

func (c *Container) slotDir(id slot.ID) string {
	return filepath.Join(c.cfg.Work, strconv.Itoa(int(id)))
}

// clearFiles removes a slot's private files. If the slot's user made files unreadable, clear removes them as that user.
func (c *Container) clearFiles(id slot.ID) error {
	// The home is that of a private run.
	if err := errors.Join(removeAs(id, sandboxapi.HomeDir(id)), removeAs(id, sandboxapi.OutDir(id))); err != nil {
		return err
	}
	dir := c.slotDir(id)
	err := os.RemoveAll(dir)
	if errors.Is(err, os.ErrPermission) {
		if err = WipeDir(id, dir, "deno"); err == nil {
			err = os.RemoveAll(dir)
		}
	}
	return err
}

// WipeDir empties the directory name below dir as the slot's user.
func WipeDir(id slot.ID, dir, name string) error {
	_, err := runAsSlot(context.Background(), id, "wipe", dir, name)
	return err
}

const (
	// measureTime and reapTime bound programs that run beside processes of the same user, which can stop them.
	measureTime = 15 * time.Second
	reapTime    = 3 * time.Second
)

// runBesideSlot is runAsSlot with a time limit, for use while processes of the slot run. If they stop or kill the
// program, runBesideSlot returns an error.
func runBesideSlot(id slot.ID, limit time.Duration, command string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return runAsSlot(ctx, id, command, args...)
}

// runAsSlot runs a command of sandboxd, such as "wipe", as the slot's user and returns its output, at most 4 KiB. It
// kills the command when ctx ends.
func runAsSlot(ctx context.Context, id slot.ID, command string, args ...string) (string, error) {
	plan := confine.ProcessSpec{
		NetNS: -1, UID: id.UID(), GID: slot.GroupID, Groups: []int{BasePrivateGroup + int(id)}, NoNewPrivs: true,
		Dir: "/", Argv: append([]string{"/proc/self/exe", command}, args...),
	}
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	p, err := plan.Start([]*os.File{nil, w, os.Stderr}, syscall.SysProcAttr{Setpgid: true})
	// Without this Close, ReadAll below would never see the end of the pipe.
	_ = w.Close()
	if err != nil {
		return "", fmt.Errorf("starting %s as slot %d: %w", command, id, err)
	}
	defer context.AfterFunc(ctx, func() { _ = p.Kill() })()
	out, _ := io.ReadAll(io.LimitReader(r, 4<<10))
	state, err := p.Wait()
	if err != nil {
		return "", err
	}
	if !state.Success() {
		return "", fmt.Errorf("%s as slot %d: %s", command, id, state)
	}
	return string(out), nil
}

// prepareDir makes the slot's directory, with code that only the slot can read. Deno also gets a DENO_DIR it can write.
func (c *Container) prepareDir(seat InterpreterSpec) error {
	id := seat.Slot
	if err := c.clearFiles(id); err != nil {
		return err
	}
	dir, group := c.slotDir(id), BasePrivateGroup+int(id)
	if err := makeGroupDir(dir, group, 0o750); err != nil {
		return err
	}
	_, first, source := seat.codeFiles()
	if !seat.Python {
		if err := makeGroupDir(filepath.Join(dir, "deno"), group, 0o770|os.ModeSetgid); err != nil {
			return err
		}
	}
	// Code's files belong to the slot's private group, in which sandboxd is, and not to the group of all slots.
	if err := makeGroupDir(sandboxapi.OutDir(id), group, 0o770|os.ModeSetgid); err != nil {
		return err
	}
	if writableFolder(seat) != "" {
		if err := makeGroupDir(writableFolder(seat), group, 0o770); err != nil {
			return err
		}
	}
	b := canaryBait(seat.Canary)
	for _, name := range b.listFolders() {
		if err := makeGroupDir(filepath.Join(dir, name), group, 0o750); err != nil {
			return err
		}
	}
	for name, text := range b.fileContents() {
		if err := c.writePrivate(id, name, []byte(text)); err != nil {
			return err
		}
	}
	return c.writePrivate(id, first, source)
}

// writableFolder returns the folder that a private run may write. It is empty for other runs.
func writableFolder(seat InterpreterSpec) string {
	//defence:private-files
	if seat.Private {
		return sandboxapi.HomeDir(seat.Slot)
	}
	return ""
}

// makeGroupDir makes a directory for a group. The directory stays closed until it belongs to the group.
func makeGroupDir(path string, group int, mode os.FileMode) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if err := os.Chown(path, -1, group); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// writePrivate writes a new file that only the slot can read.
func (c *Container) writePrivate(id slot.ID, name string, data []byte) error {
	// The mode stays 0600 until the group is set.
	f, err := os.OpenFile(filepath.Join(c.slotDir(id), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chown(-1, BasePrivateGroup+int(id)), f.Chmod(0o640), f.Close())
}

// newPlan returns the identity, limits and command line of one interpreter.
func (c *Container) newPlan(seat InterpreterSpec) confine.ProcessSpec {
	dir, b, own := c.slotDir(seat.Slot), canaryBait(seat.Canary), writableFolder(seat)
	l, out := c.cfg.Limits, sandboxapi.OutDir(seat.Slot)
	p := confine.ProcessSpec{
		NetNS: -1, UID: seat.Slot.UID(), GID: slot.GroupID, Groups: []int{BasePrivateGroup + int(seat.Slot)},
		Processes: l.Processes, FileSize: l.FileSize, OpenFiles: l.OpenFiles,
		NoNewPrivs: true, Filter: true, Forks: l.Forks, Read: append(c.readablePaths(dir, own), out),
		Gate: containerGateFD, Keep: []int{containerOutFD},
		Dir: TmpDir,
		Argv: append([]string{c.cfg.Deno},
			denoArgs(dir, OutDir+","+out, own, seat.Pinned, seat.Net, c.cfg.CA, l.Memory, b)...),
		Env: replaceTmpDir(own, b.addToEnviron(baseEnviron(filepath.Join(dir, "deno"), seat.TZ), dir)),
	}
	if py := c.cfg.Python; seat.Python {
		p.Argv = append([]string{py.Program}, pythonArgs(dir)...)
		p.Env = replaceTmpDir(own, b.addToEnviron(pythonEnviron(dir, c.cfg.CA, "", seat.TZ), dir))
		p.Read = append(p.Read, py.Program, py.Library, zoneDir)
		if py.System != "" {
			p.Read = append(p.Read, py.System)
		}
	}
	if own != "" { // the group slot.GroupID gives access to /tmp, /skills and /runs
		p.GID, p.Dir = BasePrivateGroup+int(seat.Slot), own
	}
	// Without SETUID, file permissions do not separate code from sandboxd. Landlock must restrict writes too.
	if c.cfg.Shared {
		p.GID, p.Write = slot.GroupID, []string{"/dev/null", filepath.Join(dir, "deno"), out, cmp.Or(own, TmpDir)}
	}
	return p
}

// readablePaths lists the paths that a slot may read in the container: Deno's files and the run's directories. Deno
// imports files without a permission, and the container's /proc, /sys and /etc describe the host.
func (c *Container) readablePaths(dir, own string) []string {
	if own != "" {
		return append(c.runtimeFiles(), dir, own)
	}
	return append(c.runtimeFiles(), dir, TmpDir, SkillsDir, RunsDir)
}

// runtimeFiles lists Deno, its libraries, the resolver's configuration, and the CA.
func (c *Container) runtimeFiles() []string {
	return []string{
		c.cfg.Deno, "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/resolv.conf", "/etc/nsswitch.conf",
		"/dev/null", "/dev/random", "/dev/urandom", filepath.Dir(c.cfg.CA),
	}
}

// Start implements Jail.
func (c *Container) Start(seat InterpreterSpec, stdio Stdio) (Process, error) {
	if seat.Python && c.cfg.Python == nil {
		return nil, errNoPython
	}
	if err := c.prepareDir(seat); err != nil {
		return nil, fmt.Errorf("preparing slot %d: %w", seat.Slot, err)
	}
	out, err := os.Open(sandboxapi.OutDir(seat.Slot))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	t, err := c.launchProgram(seat.Slot, c.newPlan(seat), stdio, out)
	if err != nil {
		return nil, fmt.Errorf("starting an interpreter: %w", err)
	}
	main, _, _ := seat.codeFiles()
	t.writeMain = func(code []byte) error { return c.writePrivate(seat.Slot, main, code) }
	t.remove = func() error { return c.clearFiles(seat.Slot) }
	go t.waitForEnd()
	return t, nil
}

// together are the attributes of a program that dies with sandboxd, in a separate process group.
var together = syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}

// launchProgram starts a program as a slot's user through "sandboxd enter", with further files after stdio. The caller
// completes the returned process and calls wait in a goroutine.
func (c *Container) launchProgram(
	id slot.ID, plan confine.ProcessSpec, stdio Stdio, further ...*os.File,
) (*containerProcess, error) {
	p, err := plan.Start(append([]*os.File{stdio.In, stdio.Out, stdio.Err, stdio.Gate}, further...), together)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.roots[p.Pid] = id
	c.mu.Unlock()
	t := &containerProcess{jail: c, slot: id, group: plan.GID, root: p, done: make(chan struct{})}
	t.memory.uid = id.UID()
	t.memory.list = func() []int {
		// After an error, only the interpreter is counted.
		alive, _, _ := proc.ListOfUser(t.slot.UID(), c.newOthersMatcher(t.slot))
		return alive
	}
	return t, nil
}

// forgetRoot waits until an interpreter has ended, without reaping it, and removes it from roots. The order matters:
// once it is reaped, its pid can belong to another process.
func (c *Container) forgetRoot(pid int) {
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

// newOthersMatcher returns a test for pids of sandboxd and of other slots' interpreters, which a search for the
// processes of slot id can skip. The kernel cannot reuse those pids, because sandboxd has not waited for them yet.
func (c *Container) newOthersMatcher(id slot.ID) func(pid int) bool {
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
		errs = append(errs, c.clearFiles(slot.ID(n)))
	}
	for n := range c.cfg.Servers.Slots {
		errs = append(errs, clearServer(slot.ID(slot.Max+n)))
	}
	return errors.Join(errs...)
}

// containerProcess is a program that runs as the slot's user in the container.
type containerProcess struct {
	jail      *Container
	slot      slot.ID
	group     int // its primary group
	root      *os.Process
	main      int
	remove    func() error // deletes its private files
	writeMain func(code []byte) error

	done   chan struct{}
	ending atomic.Bool // the other processes are being killed, or have been
	status Status

	memory memoryMeter
}

// waitForEnd waits for the interpreter, then kills every other process of its user.
func (t *containerProcess) waitForEnd() {
	defer close(t.done)
	t.jail.forgetRoot(t.root.Pid)
	// Set before sweep can kill a measuring program: count must not take that for an attack.
	t.ending.Store(true)
	state, err := t.root.Wait()
	if err == nil {
		ws := state.Sys().(syscall.WaitStatus)
		t.status.Code = ws.ExitStatus()
		if ws.Signaled() {
			t.status.Signal = int(ws.Signal())
			t.status.Code = 128 + t.status.Signal
		}
		t.status.addUsage(state.SysUsage().(*syscall.Rusage))
	}
	t.status.Leftover = errors.Join(err, t.jail.killSlotProcesses(t.slot))
}

// killSlotProcesses kills the processes of the slot's user until none is left. It returns an error after killTimeout.
func (c *Container) killSlotProcesses(id slot.ID) error {
	var last error
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		alive, none, err := c.findAlive(id)
		if err != nil {
			return err
		}
		if none {
			return nil
		}
		// kill(-1) as the user kills all its processes at once; signals sent one by one lose against a fork bomb. Those
		// processes may kill or stop the reaper first, so the reaper's error alone is not fatal. killEach ends a small
		// number.
		killEach(alive, id.UID())
		_, last = runBesideSlot(id, reapTime, "reap")
	}
	return errors.Join(fmt.Errorf("processes of slot %d do not end", id), last)
}

// killEach kills the listed processes that belong to a user.
func killEach(pids []int, uid int) {
	for _, pid := range pids {
		// The pidfd comes first: a pid may be reused at any time, but a pidfd always means the same process.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if s, err := proc.ReadStatus(pid); err == nil && slices.Contains(s.UID[:], uid) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended
		}
		_ = unix.Close(fd)
	}
}

// findAlive reports whether the slot's user has no process, or lists those alive. While /proc is being read, a process
// can start another one in the part already read, and end. So a reading counts only if no process started during it.
// The zombies in such a reading are sandboxd's children, since all other possible parents have ended. empty reaps them.
func (c *Container) findAlive(id slot.ID) (alive []int, none bool, err error) {
	for range 3 {
		before, err := proc.LastPID()
		if err != nil {
			return nil, false, err
		}
		alive, dead, err := proc.ListOfUser(id.UID(), c.newOthersMatcher(id))
		if err != nil || len(alive) > 0 {
			return alive, false, err
		}
		after, err := proc.LastPID()
		if err != nil {
			return nil, false, err
		}
		if before == after {
			for _, pid := range dead {
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
			return nil, true, nil
		}
	}
	return nil, false, nil
}

func (t *containerProcess) OutFolder() string           { return sandboxapi.OutDir(t.slot) }
func (t *containerProcess) MainPID() int                { return t.main }
func (t *containerProcess) Memory() int64               { return t.memory.totalMemory(t.main) }
func (t *containerProcess) DoneSignal() <-chan struct{} { return t.done }
func (t *containerProcess) Status() Status              { return t.status }
func (t *containerProcess) Remove() error               { return t.remove() }

// RemovedBytes implements Process. Only the slot's user may read the descriptors of its processes.
func (t *containerProcess) RemovedBytes(device uint64) int64 {
	return t.runCountCommand("unnamed", strconv.FormatUint(device, 10))
}

// runCountCommand returns the number that a command prints beside the slot's processes. If those stop the command, the
// result exceeds any limit.
func (t *containerProcess) runCountCommand(command string, args ...string) int64 {
	out, err := runBesideSlot(t.slot, measureTime, command, args...)
	if err == nil {
		var n int64
		if n, err = strconv.ParseInt(out, 10, 64); err == nil {
			return n
		}
	}
	if t.ending.Load() { // sweep, not code, may have killed the command
		return 0
	}
	return math.MaxInt64
}

// CountWritten implements Process.
func (t *containerProcess) CountWritten(dir string, since time.Time, enough int64) (c quota.FileCount) {
	dirs := []string{dir}
	if dir == sandboxapi.HomesDir { // no slot can list HomesDir
		dirs = []string{sandboxapi.HomeDir(t.slot), sandboxapi.OutDir(t.slot)}
	}
	for _, dir := range dirs {
		var one quota.FileCount
		out, err := runBesideSlot(t.slot, measureTime, "written", dir, fmt.Sprint(since.UnixNano()), fmt.Sprint(enough))
		if err != nil || json.Unmarshal([]byte(out), &one) != nil {
			return quota.FileCount{Hidden: !t.ending.Load()} // as in count
		}
		c = quota.FileCount{Bytes: c.Bytes + one.Bytes, Files: c.Files + one.Files, Hidden: c.Hidden || one.Hidden}
	}
	return c
}

func (t *containerProcess) WriteMain(code []byte) error { return t.writeMain(code) }

func (t *containerProcess) WriteFile(name string, data []byte) error {
	if dir := filepath.Dir(name); dir != "." {
		err := makeGroupDir(filepath.Join(t.jail.slotDir(t.slot), dir), BasePrivateGroup+int(t.slot), 0o750)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return t.jail.writePrivate(t.slot, name, data)
}

func (t *containerProcess) LinkSkills(names []string) error {
	return linkSkills(filepath.Join(t.jail.slotDir(t.slot), SkillDir), SkillsDir, names)
}

// Kill implements Process. wait kills the user's other processes.
func (t *containerProcess) Kill() { _ = t.root.Kill() }

func (t *containerProcess) CheckConfinement() error {
	pid := t.root.Pid
	s, err := proc.ReadStatus(pid)
	if err != nil {
		return err
	}
	if err := checkStatus(s, t.slot.UID(), t.group); err != nil {
		return err
	}
	groups := s.Groups
	if t.jail.cfg.Shared { // container engines add the primary group to the supplementary groups
		groups = slices.DeleteFunc(slices.Clone(groups), func(g int) bool { return g == t.group })
	}
	if want := []int{BasePrivateGroup + int(t.slot)}; !slices.Equal(groups, want) {
		return fmt.Errorf("the interpreter is in the groups %v, want %v", s.Groups, want)
	}
	if s.Seccomp != 2 {
		return errors.New("no seccomp filter is loaded")
	}
	// Code has not been sent yet, so the user must have no other process, such as one left by the previous run.
	alive, _, err := proc.ListOfUser(t.slot.UID(), t.jail.newOthersMatcher(t.slot))
	if err != nil {
		return err
	}
	if !slices.Equal(alive, []int{pid}) {
		return fmt.Errorf("user %d has the processes %v, want only the interpreter %d", t.slot.UID(), alive, pid)
	}
	t.main = pid
	return nil
}
