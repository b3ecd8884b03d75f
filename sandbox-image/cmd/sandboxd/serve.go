package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/health"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/privilege"
	"github.com/codeforge-mcp/codeforge/internal/python"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/version"
	sandboximage "github.com/codeforge-mcp/codeforge/sandbox-image"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/endpoint"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/generation"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/network"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/output"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/pool"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Limits of a run that cannot be configured.
const (
	maxOutput    = 16 << 20 // bytes printed, both streams together
	keepFrom     = 4 << 10  // bytes of output above which it is kept in a file
	maxProcesses = 256      // threads included
	// maxOfNode replaces maxProcesses if the slots of all pods are the same user of the node, because they share the
	// limit. It keeps code from exhausting the node's processes.
	maxOfNode    = 8192
	maxOpenFiles = 1024
)

// maxProcesses returns the number of processes that the user of a slot may have.
func (f serveFlags) maxProcesses() uint64 {
	if f.isProxyShared() {
		return maxOfNode
	}
	return maxProcesses
}

// sharedDirs bounds the files that one run may add to the directories shared by all runs.
func sharedDirs(f serveFlags) []quota.SharedDir {
	dirs := []quota.SharedDir{{Path: f.tmp, Name: jail.TmpDir, Bytes: 128 << 20, Files: 10000, MakeRoom: true}}
	if !f.skillsReadonly {
		dirs = append(dirs, quota.SharedDir{Path: f.skills, Name: jail.SkillsDir, Bytes: 16 << 20, Files: 500})
	}
	out := quota.SharedDir{Path: f.out, Name: jail.OutDir, Bytes: jail.HomeSize, Files: 10000}
	if f.mode == container { // it has the homes of private runs, too
		out.Path, out.Name = sandboxapi.HomesDir, "its folder or "+jail.OutDir
	}
	// The slots of a container share one file system for code and caches. The only slot of a pod harms only itself.
	if f.mode == container && !f.isProxyShared() {
		dirs = append(dirs, quota.SharedDir{Path: f.code, Name: "Deno's caches", Bytes: jail.DenoDirSize, Files: 1000})
	}
	return append(dirs, out)
}

// serveRuns runs until ctx ends.
func serveRuns(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) (err error) {
	serving := false
	defer func() {
		if !serving {
			err = health.CannotStart(err)
		}
	}()
	s, err := settings.Parse(getenv)
	if err != nil {
		return err
	}
	f, err := parseServe(args, s)
	if err != nil {
		return err
	}
	log := logline.New(stderr, s.LogFormat, nil).With(logline.Tag("sandbox"))
	// Both programs are asked while Deno is asked below.
	findingPython, findingCompiler := startPythonSearch(ctx, f), startCompilerSearch(ctx, f.typescript, log)
	denoVersion, err := sandboximage.AskDeno(ctx, f.deno)
	if err != nil {
		return err
	}
	interpreter, python := findingPython()
	typescript := findingCompiler()
	if typescript == "" {
		f.typescript = ""
	}
	// sandboxd becomes the parent of orphans, so that it can wait for them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the reaper of orphans: %w", err)
	}
	if err := os.MkdirAll(f.state, 0o711); err != nil {
		return err
	}
	generations, err := generation.OpenCounter(filepath.Join(f.state, "generation"), firstGeneration(f, time.Now()))
	if err != nil {
		return err
	}
	keep, err := output.NewRunFiles(output.RunFilesConfig{Dir: f.runs, Inside: jail.RunsDir, From: keepFrom})
	if err != nil {
		return err
	}
	defer keep.Close()
	servers, err := serverSlots(f, python)
	if err != nil {
		return err
	}
	if f.servers > 0 && servers.PyPIProblem == "" && f.listen == "" { // mcp-server installs no packages in pods
		python.Add = addToList
	}
	folders, err := findFolders(f)
	if err != nil {
		return err
	}
	j, owner, err := newJail(f, folders, interpreter, getenv)
	if err != nil {
		return err
	}
	// The socket comes after the jail: a client that connects must find the slots cleared.
	socket, err := endpoint.ListenAs(f.socket, owner)
	if err != nil {
		return errors.Join(err, j.Close())
	}
	far, err := listenForPod(ctx, f)
	if err != nil {
		return errors.Join(err, socket.Close(), j.Close())
	}
	meter, err := quota.New(quota.Config{Dirs: sharedDirs(f), OwnUsers: owner != os.Geteuid(), Wipe: jail.WipeDir,
		Log: log})
	if err != nil {
		return errors.Join(err, socket.Close(), j.Close())
	}
	defer meter.Close()
	p := pool.New(pool.Config{
		Slots: f.slots, Warm: f.warm, WarmPython: f.warmPython, Python: python, Canaries: f.canaries, Jail: j,
		Generations: generations, Keep: keep, Quota: meter, CA: f.ca, Servers: servers,
		Memory: f.memory, Output: maxOutput, TZ: s.TZ, Deno: denoVersion, TypeScript: typescript, Version: version.Version,
		Folders: folders, Log: log,
	})
	if f.mode == container && !confine.CanRestrictReads() {
		log.Warn("the kernel has no Landlock, or it is switched off: " +
			"code can import /proc, /sys and /etc of this container, which hold no credential")
	}
	var sandbox sandboxapi.Sandbox = p
	var trial *trialPool
	if f.mode == container {
		trial = newTrialPool(p, f, log)
		sandbox = trial
	}
	server := sandboxapi.NewServer(sandboxapi.ServerConfig{Sandbox: sandbox, Log: log})
	log.Info("serving runs", "mode", f.mode, "slots", f.slots, "warm", f.warm, "servers", f.servers,
		"deno", denoVersion, "typescript", cmp.Or(typescript, "none"), "python", cmp.Or(python.Version, "none"),
		"socket", f.socket)
	serving = true
	served := make(chan error, 3)
	go func() { served <- server.Serve(socket, endpoint.NewPeerCheck(0, owner)) }()
	if far != nil {
		go func() { served <- server.Serve(far, nil) }()
	}
	if f.health != "" {
		// The health server runs until this process ends, because runs may continue after SIGTERM.
		go func() { served <- serveHealth(context.WithoutCancel(ctx), f.health, sandbox) }()
		go followAuthority(ctx, f, log)
	}
	lost := make(chan error, 1)
	if f.mode == container {
		go func() { lost <- network.AwaitLoss(ctx, s.Network, f.owner != "") }()
		trying, stop := context.WithCancel(ctx)
		var tries sync.WaitGroup
		tries.Go(func() { trial.repeatTrial(trying) })
		defer tries.Wait()
		defer stop()
	}
	select {
	case err = <-served:
	case <-ctx.Done():
		// ctx has ended, but runs may take until --drain.
		last, stop := context.WithTimeout(context.WithoutCancel(ctx), f.drain)
		p.Drain(last)
		stop()
	// Without a network every run would fail, so end and be restarted.
	case err = <-lost:
	}
	err = errors.Join(err, shutDownAll(p, server, j, log))
	// The engine restarts this container only once, so it must not exit before the new namespace exists.
	if errors.Is(err, network.ErrLost) && f.owner != "" {
		log.Error("waiting for sandbox-net to come back", "error", err)
		network.AwaitSuccessor(ctx, f.owner)
	}
	return err
}

// shutdownTime bounds the wait for responses in flight when sandboxd stops.
const shutdownTime = 8 * time.Second

// shutDownAll ends all runs, then the responses that report them, then the jail.
func shutDownAll(p *pool.Pool, server *sandboxapi.Server, j jail.Jail, log *slog.Logger) error {
	closed := p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	// Other errors come from removing the socket's file. A container may not remove it, and the next start replaces it.
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		log.Warn("responses in flight were cut off", "error", err)
	}
	return errors.Join(closed, j.Close())
}

// newJail prepares the jail of the mode, and returns it with the uid that owns the socket.
func newJail(
	f serveFlags, folders []jail.Folder, python *python.Interpreter, getenv func(string) string,
) (jail.Jail, int, error) {
	limits := jail.Limits{
		Memory: f.memory, Processes: maxProcesses, FileSize: sandboxapi.MaxFile, OpenFiles: maxOpenFiles,
	}
	if f.mode == container {
		limits.Processes = f.maxProcesses()
		j, err := jail.NewContainer(jail.ContainerConfig{
			Slots: f.slots, Deno: f.deno, Python: python, TypeScript: f.typescript, CA: f.ca, Work: f.code, Limits: limits,
			Servers: jailServers(f), RestrictWrites: confine.CanRestrictReads(), Shared: f.isProxyShared(),
		})
		switch {
		case err != nil:
		case f.isProxyShared():
			return j, os.Geteuid(), errors.Join(shipSkills(f.skills), privilege.HideMemory())
		default:
			err = closeFolders(f, sandboxapi.HomesDir)
		}
		return j, slot.ServiceUID, err
	}
	files, err := slot.InheritedFiles(getenv)
	if err != nil {
		return nil, 0, err
	}
	netns := map[slot.ID]*os.File{}
	for _, file := range files {
		if file.Kind == slot.NetNS {
			netns[file.Slot] = file.File
		}
	}
	for _, id := range slot.IDs(f.slots, f.servers) {
		if netns[id] == nil {
			return nil, 0, fmt.Errorf("no inherited file %s", slot.FileName(id, slot.NetNS))
		}
	}
	if f.bwrap == "" {
		if f.bwrap, err = exec.LookPath("bwrap"); err != nil {
			return nil, 0, errors.New("bubblewrap (bwrap) is not installed")
		}
	}
	j, err := jail.NewEmbedded(jail.EmbeddedConfig{
		NetNS: netns, Bwrap: f.bwrap, Deno: f.deno, Python: python, TypeScript: f.typescript, CA: f.ca,
		Runs: f.runs, Skills: f.skills, Tmp: f.tmp, Work: f.code, Out: f.out,
		SkillsReadonly: f.skillsReadonly, Limits: limits, Servers: jailServers(f), Folders: folders,
	})
	return j, dirOwner(f.socket), err
}

// findFolders lists the folders of the host. In a container only Landlock keeps a run or an MCP server from the folders
// of others.
func findFolders(f serveFlags) ([]jail.Folder, error) {
	if f.folders == "" {
		return nil, nil
	}
	list, err := jail.ListFolders(f.folders)
	if err == nil && len(list) > 0 && f.mode == container && !confine.CanRestrictReads() {
		return nil, fmt.Errorf("folders of the host need Landlock, which this kernel lacks or has switched off: remove %s "+
			"with codeforge folder rm", jail.FolderNames(list))
	}
	return list, err
}

// dirOwner returns the owner of the socket's directory. The supervisor gave the directory to mcp-server's user.
func dirOwner(socket string) int {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Dir(socket), &st); err != nil {
		return os.Geteuid()
	}
	return int(st.Uid)
}

// startCompilerSearch asks the TypeScript compiler for its version in the background. The returned function waits for
// the version, which is empty if there is no compiler.
func startCompilerSearch(ctx context.Context, dir string, log *slog.Logger) func() string {
	if dir == "" {
		return func() string { return "" }
	}
	done := make(chan string, 1)
	go func() {
		version, err := askCompiler(ctx, filepath.Join(dir, jail.CompilerFile))
		if err != nil {
			log.Warn("code is not checked before it runs", "error", err)
		}
		done <- version
	}()
	return func() string { return <-done }
}

// askCompiler returns the version of a compiler, e.g. "7.0.2".
func askCompiler(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{"NO_COLOR=1", "HOME=/nonexistent"}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("starting TypeScript's compiler (%s): %w", path, err)
	}
	version, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "Version ")
	if !ok {
		return "", fmt.Errorf("%s is not TypeScript's compiler: it says %.40q", path, out)
	}
	return version, nil
}

// Texts for a model: how a user adds packages. The first one is for sandboxes that install packages of PyPI.
const (
	addToList        = "run codeforge package add pypi:NAME@VERSION"
	addToEnvironment = "make a virtual environment, install them there with pip, and set PYTHON_PATH to its python3"
	addToImage       = "name packages of Debian in .env, e.g. SANDBOX_PYTHON_PACKAGES=python3-pandas, and run rebuild.sh"
)

// startPythonSearch looks for Python in the background. The returned function waits for the interpreter, or nil, and
// for the description that clients receive.
func startPythonSearch(ctx context.Context, f serveFlags) func() (*python.Interpreter, sandboxapi.Python) {
	if len(f.pythons) == 0 {
		return func() (*python.Interpreter, sandboxapi.Python) {
			return nil, sandboxapi.Python{Problem: python.ErrNone.Error()}
		}
	}
	type found struct {
		interpreter python.Interpreter
		err         error
	}
	done := make(chan found, 1)
	go func() {
		i, err := python.FindInterpreter(ctx, f.pythons)
		done <- found{i, err}
	}()
	return func() (*python.Interpreter, sandboxapi.Python) {
		r := <-done
		if r.err != nil {
			return nil, sandboxapi.Python{Problem: r.err.Error()}
		}
		info := sandboxapi.Python{Version: r.interpreter.Version, Add: addToEnvironment}
		if f.mode == container {
			info.Add, info.Packages = addToImage, python.ListPackages(r.interpreter.System)
		} else if r.interpreter.Environment != "" {
			info.Packages = python.ListPackages(r.interpreter.Environment)
		}
		return &r.interpreter, info
	}
}
