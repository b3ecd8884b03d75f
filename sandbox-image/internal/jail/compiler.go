package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
)

const (
	// CompilerFile is the compiler's name in its folder. The language's declarations lie beside it.
	CompilerFile = "tsc"
	// stageTypeScript names the staged folder. The compiler sees it as typeScriptDir.
	stageTypeScript = "typescript"
	typeScriptDir   = "/typescript"
	// compilerHeap is the compiler's soft memory limit, in bytes. Garbage is collected only above it, because a run waits.
	compilerHeap = 192 << 20
)

// errNoCompiler means that the jail has no TypeScript compiler.
var errNoCompiler = errors.New("there is no compiler of TypeScript")

// compilerEnviron returns the compiler's whole environment.
func compilerEnviron() []string {
	return []string{"GOGC=off", fmt.Sprintf("GOMEMLIMIT=%d", compilerHeap), "NO_COLOR=1", "HOME=" + CodeDir}
}

// compilerPlan returns the identity, limits and command line of the compiler's sandbox. The sandbox sees the compiler,
// the language's declarations, and the slot's code.
func (e *Embedded) compilerPlan(b *bwrapProcess, args []string) confine.ProcessSpec {
	program := typeScriptDir + "/" + CompilerFile
	argv := e.newBox(b.slot, 0).commandPrefix(compilerEnviron())
	argv = append(argv, bindArgs("--ro-bind", stageTypeScript, typeScriptDir)...)
	argv = append(argv, bindArgs("--ro-bind", stageWork+"/"+filepath.Base(b.dir), CodeDir)...)
	argv = append(argv, kernelArgs(program)...)
	argv = append(argv, "--remount-ro", "/", "--chdir", CodeDir, "--", program)
	limits := e.cfg.Limits
	p := confine.ProcessSpec{
		NetNS: netnsFD, MountNS: mountFD, FileSize: limits.FileSize, OpenFiles: limits.OpenFiles,
		Keep: []int{infoFD, filterFD}, Dir: "/", Argv: append(argv, args...),
	}
	e.setIdentity(&p, b.slot, limits)
	return p
}

// StartCompiler implements Process. The compiler has a separate pid namespace, so it ends independently of the
// interpreter.
func (b *bwrapProcess) StartCompiler(args []string, stdio Stdio) (Compiler, error) {
	e := b.jail
	if e.cfg.TypeScript == "" {
		return nil, errNoCompiler
	}
	c, err := e.launchBwrap(b.slot, e.compilerPlan(b, args), e.cfg.Limits.filterOptions(nil), e.stage, stdio)
	if err != nil {
		return nil, fmt.Errorf("starting the compiler: %w", err)
	}
	c.startWatching()
	return bwrapCompiler{c}, nil
}

// bwrapCompiler is a compiler in a separate sandbox.
type bwrapCompiler struct{ *bwrapProcess }

// Memory implements Compiler: it counts all processes of the sandbox.
func (c bwrapCompiler) Memory() int64 {
	// Reading init before initKnown is closed would be a data race.
	select {
	case <-c.initKnown:
	default:
		return 0
	}
	if c.init == 0 {
		return 0
	}
	return c.memory.totalMemory(c.init)
}

// compilerPlan returns the identity, limits and command line of the compiler in a slot.
func (c *Container) compilerPlan(t *containerProcess, args []string) confine.ProcessSpec {
	dir, l := c.slotDir(t.slot), c.cfg.Limits
	program := filepath.Join(c.cfg.TypeScript, CompilerFile)
	return confine.ProcessSpec{
		NetNS: -1, UID: t.slot.UID(), GID: t.group, Groups: []int{BasePrivateGroup + int(t.slot)},
		Processes: l.Processes, FileSize: l.FileSize, OpenFiles: l.OpenFiles,
		NoNewPrivs: true, Filter: true, FilterOptions: l.filterOptions(nil),
		Read: []string{c.cfg.TypeScript, dir, "/dev/null", "/dev/random", "/dev/urandom"}, Dir: dir,
		Write: c.writablePaths(nil, nil),
		Argv:  append([]string{program}, args...), Env: compilerEnviron(),
	}
}

// StartCompiler implements Process. Until the compiler has ended, the slot's user has two processes.
func (t *containerProcess) StartCompiler(args []string, stdio Stdio) (Compiler, error) {
	if t.jail.cfg.TypeScript == "" {
		return nil, errNoCompiler
	}
	p, err := t.jail.compilerPlan(t, args).Start([]*os.File{stdio.In, stdio.Out, stdio.Err}, together)
	if err != nil {
		return nil, fmt.Errorf("starting the compiler: %w", err)
	}
	c := &containerCompiler{process: p, done: make(chan struct{})}
	go c.waitForEnd()
	return c, nil
}

// containerCompiler is a compiler that runs as the slot's user.
type containerCompiler struct {
	process *os.Process
	done    chan struct{}
	status  Status
}

func (c *containerCompiler) waitForEnd() {
	defer close(c.done)
	state, err := c.process.Wait()
	if err != nil {
		c.status.Leftover = err
		return
	}
	c.status.setExit(state)
}

func (c *containerCompiler) Memory() int64               { return proc.MemoryOf(c.process.Pid) }
func (c *containerCompiler) Kill()                       { _ = c.process.Kill() }
func (c *containerCompiler) DoneSignal() <-chan struct{} { return c.done }
func (c *containerCompiler) Status() Status              { return c.status }
