package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/python"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/seccomp"
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
