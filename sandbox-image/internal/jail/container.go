package jail

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/python"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// BasePrivateGroup is the private group of slot 0; slot N has BasePrivateGroup+N. Only this group may read the slot's
// code and write its DENO_DIR. sandboxd joins all these groups, to give files to a slot without CAP_CHOWN.
const BasePrivateGroup = 21000

// Descriptors in "sandboxd enter". The program keeps the last two. The image has links from OutDir to /proc/self/fd/4,
// and from FilesDir to /proc/self/fd/5/files, because all slots of the container share one view of the file system.
const (
	containerGateFD  = 3
	containerOutFD   = 4
	containerFilesFD = 5 // the code directory, or the home of a server with folders
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
	// RestrictWrites means that a program may change only its own places and its folders of the host. It requires Landlock
	// in the kernel. Without it, file permissions alone separate slots, and there must be no folders of the host.
	RestrictWrites bool
	// Shared means that the only slot has sandboxd's user and groups, and that sandboxd has no capability. It requires
	// RestrictWrites, because no uid protects sandboxd's files and processes from code.
	Shared bool
}

// Container is the jail in which each slot is a uid of one container. sandboxd is process 1 there. It has only the
// capabilities SETUID, SETGID and KILL, or, if Shared, the uid of the only slot.
type Container struct {
	cfg   ContainerConfig
	cache denoCache

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
	for _, id := range slot.IDs(cfg.Slots, cfg.Servers.Slots) {
		if err := c.clearSlot(id); err != nil {
			return nil, fmt.Errorf("clearing slot %d: %w", id, err)
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
	case !cfg.RestrictWrites:
		return errors.New("the kernel has no Landlock, and without SETUID only Landlock keeps code from sandboxd's files")
	}
	return nil
}

// newPlan returns the identity, limits and command line of one interpreter.
func (c *Container) newPlan(spec InterpreterSpec) confine.ProcessSpec {
	dir, b, own := c.slotDir(spec.Slot), canaryBait(spec.Canary), writableFolder(spec)
	l, out := c.cfg.Limits, sandboxapi.OutDir(spec.Slot)
	packages := spec.Packages.withDir(sandboxapi.PackageDir(spec.Packages.Set))
	deno := denoProcess{
		dir: dir, out: OutDir + "," + out, ca: c.cfg.CA, own: own, pinned: spec.Pinned, folders: spec.Folders,
		packages: packages, net: spec.Net, memory: l.Memory, bait: b,
	}
	p := confine.ProcessSpec{
		NetNS: -1, UID: spec.Slot.UID(), GID: slot.GroupID, Groups: []int{BasePrivateGroup + int(spec.Slot)},
		Processes: l.Processes, FileSize: l.FileSize, OpenFiles: l.OpenFiles,
		NoNewPrivs: true, Filter: true, FilterOptions: l.filterOptions(spec.Folders),
		Read: slices.Concat(c.readablePaths(dir, own), listInsidePaths(spec.Folders), []string{out}),
		Gate: containerGateFD, Keep: []int{containerOutFD, containerFilesFD},
		Dir:  TmpDir,
		Argv: append([]string{c.cfg.Deno}, deno.args()...),
		Env: packages.addToEnviron(
			replaceTmpDir(own, b.addToEnviron(baseEnviron(filepath.Join(dir, "deno"), spec.TZ), dir))),
	}
	if packages.Set != "" {
		p.Read = append(p.Read, packages.dir)
	}
	if py := c.cfg.Python; spec.Python {
		p.Argv = append([]string{py.Program}, pythonArgs(dir)...)
		p.Env = replaceTmpDir(own, b.addToEnviron(pythonEnviron(dir, c.cfg.CA, spec.TZ, packages.pythonFolder()), dir))
		p.Read = append(p.Read, py.Program, py.Library, zoneDir)
		if py.System != "" {
			p.Read = append(p.Read, py.System)
		}
	}
	if own != "" { // the group slot.GroupID gives access to /tmp, /skills and /runs
		p.GID, p.Dir = BasePrivateGroup+int(spec.Slot), own
	}
	write := []string{filepath.Join(dir, "deno"), out, cmp.Or(own, TmpDir)}
	switch {
	case c.cfg.Shared: // file permissions do not separate code from sandboxd, which owns SkillsDir
		p.GID = slot.GroupID
	case own == "":
		write = append(write, SkillsDir)
	}
	p.Write = c.writablePaths(write, spec.Folders)
	return p
}

// writablePaths returns the ProcessSpec.Write of a program that may change some places and its folders of the host. All
// slots see the mounts of all folders, whose owner may have opened them for every user.
func (c *Container) writablePaths(places []string, folders []Folder) []string {
	//defence:container-writes permits
	if !c.cfg.RestrictWrites {
		return nil
	}
	list := append([]string{"/dev/null"}, places...)
	for _, f := range folders {
		if f.Write {
			list = append(list, f.inside())
		}
	}
	return list
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
func (c *Container) Start(spec InterpreterSpec, stdio Stdio) (Process, error) {
	if spec.Python && c.cfg.Python == nil {
		return nil, errNoPython
	}
	if err := c.prepareDir(spec); err != nil {
		return nil, fmt.Errorf("preparing slot %d: %w", spec.Slot, err)
	}
	out, err := os.Open(sandboxapi.OutDir(spec.Slot))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	files, err := os.Open(c.slotDir(spec.Slot))
	if err != nil {
		return nil, err
	}
	defer files.Close()
	t, err := c.launchProgram(spec.Slot, c.newPlan(spec), stdio, out, files)
	if err != nil {
		return nil, fmt.Errorf("starting an interpreter: %w", err)
	}
	main, _, _ := spec.codeFiles()
	t.writeMain = func(code []byte) error { return c.writePrivate(spec.Slot, main, code) }
	t.remove, t.isDeno = func() error { return c.clearFiles(spec.Slot) }, !spec.Python
	go t.waitForEnd()
	return t, nil
}

// together are the attributes of a program that dies with sandboxd, in a separate process group.
var together = syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}

// launchProgram starts a program as a slot's user through "sandboxd enter", with further files after stdio. The caller
// completes the returned process and calls waitForEnd in a goroutine.
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
	errs := convert.Each(slot.IDs(c.cfg.Slots, c.cfg.Servers.Slots), c.clearSlot)
	return errors.Join(errs...)
}
