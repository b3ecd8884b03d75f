package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
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
	defer func() { CloseFiles(cache) }()
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

// CloseFiles closes files whose errors do not matter.
func CloseFiles(files []*os.File) {
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
