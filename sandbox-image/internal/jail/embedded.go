package jail

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/python"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/seccomp"
)

// Descriptors in "sandboxd enter", in the order in which launch passes the files. All are inherited: a descriptor
// opened later could have any number, including one that the Go runtime uses.
const (
	netnsFD  = 3
	infoFD   = 4
	mountFD  = 5
	gateFD   = 6
	filterFD = 7
	cacheFD  = 8 // the first of denoCache's files
)

// EmbeddedConfig configures an Embedded. Every path is the host's.
type EmbeddedConfig struct {
	// NetNS holds the network namespace of each slot.
	NetNS       map[slot.ID]*os.File
	Bwrap, Deno string
	// Python is nil if the host has no Python.
	Python *python.Interpreter
	// TypeScript is the folder of the TypeScript compiler, or empty if there is no compiler.
	TypeScript string
	// CA, Runs, Skills and Tmp are bound into the sandbox. Work is the directory of private files, and Out has the folders
	// that interpreters see as OutDir. NewEmbedded empties both.
	CA, Runs, Skills, Tmp, Work, Out string
	SkillsReadonly                   bool
	// Folders are the folders of the host, for runs and servers that may see them.
	Folders []Folder
	Limits  Limits
	Servers Servers
}

// Embedded is the jail that makes one bubblewrap sandbox per interpreter.
type Embedded struct {
	cfg     EmbeddedConfig
	netns   map[slot.ID]uint64   // inodes
	ours    map[string]uint64    // inodes of sandboxd's namespaces, by kind: no sandbox may share one
	libs    []confine.StageEntry // Deno's libraries, as a sandbox sees them
	bwrap   []confine.StageEntry // the files that bubblewrap needs to start
	stage   *os.File             // the mount namespace from which servers and the compiler start
	filters map[seccomp.Options][]byte
	cache   denoCache
	// ownUIDs means that each slot has a separate uid. Without root, all slots share the user's uid.
	ownUIDs bool
	// python collects the files that Python needs, on its first call.
	python func() (pythonFiles, error)

	mu     sync.Mutex
	seq    int
	stages map[stageKind]*os.File
}

// stageKind is a kind of interpreter with a separate root. With server it means the slots of MCP servers in Python.
type stageKind struct {
	python, private, server bool
	folders                 string // FolderNames
}

const resolvConf = "nameserver 127.0.0.1\noptions attempts:5 timeout:1\n"

// NewEmbedded prepares the jail. Work must not be in use by another jail.
func NewEmbedded(cfg EmbeddedConfig) (*Embedded, error) {
	e := &Embedded{cfg: cfg, netns: map[slot.ID]uint64{}, ours: map[string]uint64{}, stages: map[stageKind]*os.File{},
		filters: map[seccomp.Options][]byte{}}
	e.python = sync.OnceValues(e.findPythonFiles)
	// "net" is not in the list, because each slot's network namespace is compared with an exact inode instead.
	for _, kind := range []string{"user", "pid", "mnt", "ipc", "uts"} {
		ns, err := proc.NamespaceOf(os.Getpid(), kind)
		if err != nil {
			return nil, err
		}
		e.ours[kind] = ns
	}
	own, err := netnsInode("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	for id, f := range cfg.NetNS {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return nil, fmt.Errorf("looking at the network namespace of slot %d: %w", id, err)
		}
		// A run in sandboxd's network namespace would reach everything that the host reaches.
		if st.Ino == own {
			return nil, fmt.Errorf("the network namespace of slot %d is sandboxd's own", id)
		}
		e.netns[id] = st.Ino
		unix.CloseOnExec(int(f.Fd()))
	}
	var deno, bwrap libraryFinder
	if err := errors.Join(deno.interpreter(cfg.Deno, denoPath), bwrap.addProgram(cfg.Bwrap)); err != nil {
		return nil, err
	}
	e.libs = deno.files[1:]
	e.bwrap = append(bwrap.files, confine.StageEntry{Kind: confine.Plain, Path: cfg.Bwrap, Source: cfg.Bwrap},
		confine.StageEntry{Kind: confine.Plain, Path: "/proc", Source: "/proc"},
		// bubblewrap builds the root of a sandbox on /tmp.
		confine.StageEntry{Kind: confine.Folder, Path: "/tmp"})
	if e.ownUIDs, err = canBecomeSlots(); err != nil {
		return nil, err
	}
	for _, dir := range []string{cfg.Work, cfg.Out} {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(e.resolvPath(), []byte(resolvConf), 0o644); err != nil {
		return nil, err
	}
	if err := e.shareDirs(); err != nil {
		return nil, err
	}
	for _, forks := range []bool{false, true} {
		for _, o := range []seccomp.Options{{Processes: forks}, {Processes: forks, HostFolder: true}} {
			if e.filters[o], err = seccomp.MachineFilter(o); err != nil {
				return nil, err
			}
		}
	}
	if e.stage, err = confine.NewStage(append(e.sources(), e.bwrap...)); err != nil {
		return nil, err
	}
	_, err = e.stageOf(stageKind{}, nil)
	return e, err
}

// sources lists the sources of bind mounts for servers and the compiler.
func (e *Embedded) sources() []confine.StageEntry {
	list := append([]confine.StageEntry{
		source(confine.ReadOnly, stageDeno, e.cfg.Deno), source(confine.ReadOnly, stageCA, filepath.Dir(e.cfg.CA)),
		source(confine.ReadOnly, stageWork, e.cfg.Work),
	}, e.cfg.Servers.sources(e.cfg.Folders)...)
	for i, l := range e.libs {
		list = append(list, source(confine.ReadOnly, libraryName(i), l.Source))
	}
	for _, name := range devices() {
		list = append(list, source(confine.Device, name, name))
	}
	if e.cfg.TypeScript != "" {
		list = append(list, source(confine.ReadOnly, stageTypeScript, e.cfg.TypeScript))
	}
	return list
}

func libraryName(n int) string { return "lib" + strconv.Itoa(n) }

// stageOf returns the mount namespace from which a kind of interpreter starts. Its first call makes the namespace.
// folders are those that kind names.
func (e *Embedded) stageOf(kind stageKind, folders []Folder) (*os.File, error) {
	program := denoPath
	files := append([]confine.StageEntry{
		{Kind: confine.ReadOnly, Path: denoPath, Source: e.cfg.Deno}, {Kind: confine.Folder, Path: denoDir},
	}, e.libs...)
	if kind.python {
		f, err := e.python() // takes a while, so before Lock
		if err != nil {
			return nil, err
		}
		program, files = pythonPath, f.entries
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if stage := e.stages[kind]; stage != nil {
		return stage, nil
	}
	entries := e.interpreterRoot(program, files, kind, folders)
	if kind.server {
		entries = append(e.sources(), serverPython(files)...)
	}
	stage, err := confine.NewStage(append(entries, e.bwrap...))
	if err == nil {
		e.stages[kind] = stage
	}
	return stage, err
}

// anonymousFile returns a file in memory, whose position is its start.
func anonymousFile(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file for %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(data, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("writing %s: %w", name, err), f.Close())
	}
	return f, nil
}

func (e *Embedded) resolvPath() string { return filepath.Join(e.cfg.Work, resolvName) }

func netnsInode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("looking at %s: %w", path, err)
	}
	return st.Ino, nil
}

// canBecomeSlots reports whether sandboxd is root and its user namespace has the slots' uids and group.
func canBecomeSlots() (bool, error) {
	if os.Geteuid() != 0 {
		return false, nil
	}
	for _, m := range []struct {
		path        string
		first, last int
	}{
		{"/proc/self/uid_map", slot.BaseUID, slot.BaseUID + slot.Total - 1},
		{"/proc/self/gid_map", slot.GroupID, slot.GroupID},
	} {
		data, err := os.ReadFile(m.path)
		if err != nil {
			return false, err
		}
		if !proc.HasIDRange(string(data), m.first, m.last) {
			return false, nil
		}
	}
	return true, nil
}

// shareDirs opens /tmp and /skills to the slots' group.
func (e *Embedded) shareDirs() error {
	if err := os.Chmod(e.cfg.Tmp, 0o777|os.ModeSticky); err != nil {
		return err
	}
	if !e.ownUIDs || e.cfg.SkillsReadonly {
		return nil
	}
	if err := os.Chown(e.cfg.Skills, -1, slot.GroupID); err != nil {
		return err
	}
	return os.Chmod(e.cfg.Skills, 0o775|os.ModeSetgid)
}

// Close removes the private files.
func (e *Embedded) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var err error
	for _, stage := range e.stages {
		err = errors.Join(err, stage.Close())
	}
	return errors.Join(err, e.stage.Close(), os.RemoveAll(e.cfg.Work), os.RemoveAll(e.cfg.Out))
}

// codeDir makes a fresh directory for one interpreter, with the files that run before the code.
func (e *Embedded) codeDir(spec InterpreterSpec) (string, error) {
	e.mu.Lock()
	e.seq++
	dir := filepath.Join(e.cfg.Work, fmt.Sprintf("slot%d-%d", spec.Slot, e.seq))
	e.mu.Unlock()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	folders := linkFolders(dir, spec.Folders, func(path string) error { return os.Mkdir(path, 0o755) })
	if err := errors.Join(fillCodeDir(dir, spec), folders, e.makeOutFolder(spec.Slot, dir)); err != nil {
		return "", errors.Join(err, e.removeFolders(dir)) // on a full disk, remove the written part
	}
	return dir, nil
}

// outFolder returns the folder that the interpreter with a code directory sees as OutDir.
func (e *Embedded) outFolder(codeDir string) string {
	return filepath.Join(e.cfg.Out, filepath.Base(codeDir))
}

func (e *Embedded) makeOutFolder(id slot.ID, codeDir string) error {
	out := e.outFolder(codeDir)
	err := os.Mkdir(out, 0o700)
	if err == nil && e.ownUIDs {
		err = os.Chown(out, id.UID(), slot.GroupID)
	}
	return err
}

// removeFolders removes a code directory and the folder of outFolder.
func (e *Embedded) removeFolders(codeDir string) error {
	out := e.outFolder(codeDir)
	err := os.RemoveAll(out)
	if errors.Is(err, os.ErrPermission) { // code has closed folders, and the count opens them again
		_ = os.Chmod(out, 0o700)
		quota.CountTree(out, math.MaxInt64)
		err = os.RemoveAll(out)
	}
	return errors.Join(err, os.RemoveAll(codeDir))
}

func fillCodeDir(dir string, spec InterpreterSpec) error {
	b := canaryBait(spec.Canary)
	for _, name := range b.listFolders() {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	for name, text := range b.fileContents() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	_, first, source := spec.codeFiles()
	return os.WriteFile(filepath.Join(dir, first), source, 0o644)
}

// newPlan returns the command line of one sandbox.
func (e *Embedded) newPlan(spec InterpreterSpec, dir string) bwrapPlan {
	return bwrapPlan{
		bwrapBox: e.newBox(spec.Slot, gateFD), net: spec.Net, tz: spec.TZ, memory: e.cfg.Limits.Memory,
		code: filepath.Base(dir),
		bait: canaryBait(spec.Canary), private: spec.Private, pinned: spec.Pinned,
		packages: spec.Packages.withDir(packagesPath),
		folders:  spec.Folders,
	}
}

// enterPlan returns the identity and limits of an interpreter's sandbox with a command line.
func (e *Embedded) enterPlan(id slot.ID, argv []string) confine.ProcessSpec {
	p := confine.ProcessSpec{
		NetNS:     netnsFD,
		MountNS:   mountFD,
		FileSize:  e.cfg.Limits.FileSize,
		OpenFiles: e.cfg.Limits.OpenFiles,
		Keep:      []int{infoFD, gateFD, filterFD},
		Dir:       "/",
		Argv:      argv,
	}
	e.setIdentity(&p, id, e.cfg.Limits)
	return p
}

func (e *Embedded) newBox(id slot.ID, gate int) bwrapBox {
	return bwrapBox{
		bwrap: e.cfg.Bwrap, uid: id.UID(), gid: slot.GroupID, infoFD: infoFD, gateFD: gate, filterFD: filterFD,
	}
}

// setIdentity sets the slot's user in the plan, if slots have separate users.
func (e *Embedded) setIdentity(p *confine.ProcessSpec, id slot.ID, l Limits) {
	//defence:uid
	if e.ownUIDs {
		p.UID, p.GID, p.Processes = id.UID(), slot.GroupID, l.Processes
	}
}

// Start implements Jail.
func (e *Embedded) Start(spec InterpreterSpec, stdio Stdio) (Process, error) {
	dir, err := e.codeDir(spec)
	if err != nil {
		return nil, err
	}
	b, err := e.startInterpreter(spec, dir, stdio)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting an interpreter: %w", err), e.removeFolders(dir))
	}
	main, _, _ := spec.codeFiles()
	b.dir, b.code, b.processes, b.isDeno = dir, filepath.Join(dir, main), e.cfg.Limits.Processes, !spec.Python
	b.startWatching()
	return b, nil
}

func (e *Embedded) startInterpreter(spec InterpreterSpec, dir string, stdio Stdio) (*bwrapProcess, error) {
	p := e.newPlan(spec, dir)
	kind := stageKind{python: spec.Python, private: p.writableFolder() != "", folders: FolderNames(spec.Folders)}
	stage, err := e.stageOf(kind, spec.Folders)
	if err != nil {
		return nil, err
	}
	filter := e.cfg.Limits.filterOptions(spec.Folders)
	if spec.Python {
		files, err := e.python()
		if err != nil {
			return nil, err
		}
		return e.launchBwrap(spec.Slot, e.enterPlan(spec.Slot, p.pythonArgv(files)), filter, stage, stdio)
	}
	var cache []*os.File
	defer func() { closeFiles(cache) }()
	for name, data := range e.cache.listFiles() {
		f, err := anonymousFile(name, data)
		if err != nil {
			return nil, err
		}
		p.cache, cache = append(p.cache, name), append(cache, f)
	}
	plan := e.enterPlan(spec.Slot, p.commandLine())
	for i := range cache {
		plan.Keep = append(plan.Keep, cacheFD+i)
	}
	return e.launchBwrap(spec.Slot, plan, filter, stage, stdio, cache...)
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// launchBwrap starts bubblewrap in a slot's network namespace through "sandboxd enter", with further files after
// filterFD. The caller still owns these, completes the returned process, and calls startWatching.
func (e *Embedded) launchBwrap(
	id slot.ID, plan confine.ProcessSpec, filter seccomp.Options, stage *os.File, stdio Stdio,
	further ...*os.File,
) (*bwrapProcess, error) {
	ns, ok := e.cfg.NetNS[id]
	if !ok {
		return nil, fmt.Errorf("slot %d has no network namespace", id)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// bubblewrap must hold the only write end: readInfo ends when bubblewrap does.
	defer w.Close()
	// bubblewrap reads the filter to the end, so each sandbox needs a file with a separate position.
	own, err := anonymousFile("seccomp", e.filters[filter])
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	defer own.Close()
	files := []*os.File{stdio.In, stdio.Out, stdio.Err, ns, w, stage, stdio.Gate, own}
	p, err := plan.Start(append(files, further...), together)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	b := &bwrapProcess{jail: e, slot: id, outer: p, info: r, initKnown: make(chan struct{}), done: make(chan struct{})}
	b.memory.list, b.memory.uid, b.memory.alone = b.listProcesses, os.Geteuid(), true
	if plan.UID != 0 {
		b.memory.uid = plan.UID
	}
	return b, nil
}
