package jail

import (
	"context"
	_ "embed" // install.py
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Servers configures the slots of MCP servers. Every path is sandboxd's.
type Servers struct {
	// Slots is the number of slots.
	Slots int
	// Bridge is the program that starts a server and speaks to it.
	Bridge string
	// Packages holds the installed packages, by sandboxapi.PackageKey. Its folder InstallDir holds unfinished
	// installations.
	Packages string
	// Programs is the operator's folder of programs, or empty.
	Programs string
	// UV is the program that installs packages of PyPI, or empty.
	UV string
	// Limits apply to one server with all its processes.
	Limits Limits
}

const (
	// InstallDir is the folder below Packages in which each slot installs.
	InstallDir = "install"
	// HomeSize bounds a server's home, in bytes.
	HomeSize = 64 << 20
)

// Server is the program for the slot of an MCP server: the bridge, or an installer of packages.
type Server struct {
	Slot slot.ID
	TZ   string
	// Package is the package that the server uses, or with Install the package to install, in the form of
	// sandboxapi.ServerHead. Empty: no package.
	Package string
	// Registry is the package's registry.
	Registry string
	Install  bool
	// Frozen means that the installation must agree with an existing lock file.
	Frozen bool
	// Folders are the folders of the host that the server sees.
	Folders []Folder
}

// installFileSize bounds each file of an installation, in bytes. Programs in packages can be larger than the files that
// a server may write.
const installFileSize = 512 << 20

// limitsOf returns the limits of a program in a server slot.
func (s Servers) limitsOf(server Server) Limits {
	l := s.Limits
	if server.Install {
		l.FileSize = max(l.FileSize, installFileSize)
	}
	return l
}

// InstallFolder returns the folder in which a slot installs.
func (s Servers) InstallFolder(id slot.ID) string {
	return filepath.Join(s.Packages, InstallDir, strconv.Itoa(int(id)))
}

// Names of the staged sources of servers.
const (
	stageBridge   = "bridge"
	stagePackages = "packages"
	stagePrograms = "programs"
	stageUV       = "uv"
	stagePython   = "python"
)

// Paths of a server's files inside a bubblewrap sandbox, in addition to those of an interpreter.
const (
	bridgePath = "/usr/bin/mcp-bridge"
	uvPath     = "/usr/bin/uv"
)

// usesPython reports whether a server's program, or the installer of its package, needs Python.
func (s Server) usesPython() bool { return sandboxapi.IsPyPI(s.Package) }

// sources lists the sources of bind mounts that servers need, and those of the host's folders.
func (s Servers) sources(folders []Folder) []confine.StageEntry {
	if s.Slots == 0 {
		return nil
	}
	list := []confine.StageEntry{source(confine.Writable, stagePackages, s.Packages)}
	if s.Bridge != "" {
		list = append(list, source(confine.ReadOnly, stageBridge, s.Bridge))
	}
	if s.Programs != "" {
		list = append(list, source(confine.ReadOnly, stagePrograms, s.Programs))
	}
	for _, f := range folders {
		list = append(list, source(f.kind(), folderSource(f.Name), f.Source))
	}
	if s.UV != "" {
		list = append(list, source(confine.ReadOnly, stageUV, s.UV))
	}
	return list
}

// installer is the Python script that installs a package of PyPI.
//
//go:embed install.py
var installer string

// wheelOption returns the option of uv that installs only wheels. Building a source distribution would run the
// package's code.
func wheelOption() []string {
	//defence:package-wheels instead nil
	return []string{"--only-binary", ":all:"}
}

// commandLine returns a server's program and arguments. cache is the package's folder as the program sees it.
func (s Server) commandLine(bridge, deno, uv, cache string) []string {
	switch {
	case !s.Install:
		return []string{bridge}
	case s.usesPython():
		argv, constraints := []string{sandboxapi.PythonProgram, "-I", "-S", "-B", "-c", installer, uv, cache}, []string{"--"}
		for word := range strings.SplitSeq(s.Package, " ") {
			if pin, ok := strings.CutPrefix(word, "pypi:"); ok {
				argv = append(argv, strings.Replace(pin, "@", "==", 1))
			} else {
				constraints = append(constraints, word)
			}
		}
		return slices.Concat(argv, []string{"--"}, wheelOption(), constraints)
	}
	argv := []string{deno, "cache", "--no-config", "--lock=" + cache + "/deno.lock"}
	if s.Frozen {
		argv = append(argv, "--frozen")
	}
	return append(argv, strings.Split(s.Package, " ")...)
}

// buildEnviron returns a server's whole environment. The bridge adds the server's own variables.
func (s Server) buildEnviron(path, ca, cache string) []string {
	home := sandboxapi.HomeDir(s.Slot)
	if s.Package == "" || s.usesPython() {
		cache = home + "/.deno"
	}
	env := append(baseEnviron(cache, s.TZ), "PATH="+path, "TMPDIR="+home, "DENO_NO_PROMPT=1")
	for i, e := range env {
		if e == "HOME="+TmpDir {
			env[i] = "HOME=" + home
		}
	}
	// Each TLS library reads the path of its authorities from another variable.
	for _, name := range []string{
		"DENO_CERT", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
	} {
		env = append(env, name+"="+ca)
	}
	env = append(env, pythonAuthorities(ca)...)
	switch {
	case s.usesPython() && s.Install:
		// The files get another time when sandboxd copies them, so compiled files must not name the time of their source.
		env = append(env, "UV_DEFAULT_INDEX="+s.Registry, "PYC_INVALIDATION_MODE=UNCHECKED_HASH")
	case s.usesPython():
		// The proxy would refuse and report this framework's request for its newest version.
		env = append(env, "FASTMCP_CHECK_FOR_UPDATES=off")
	case s.Registry != "":
		env = append(env, "NPM_CONFIG_REGISTRY="+s.Registry) // Deno names the package folder after the registry
	}
	return env
}

// serverPlan returns the identity, limits and command line of a server's sandbox. From the host the sandbox sees Deno,
// its libraries, the bridge, the server's package and the operator's programs. It sees no file of a run. python has the
// files of Python, if the package is one of PyPI.
func (e *Embedded) serverPlan(s Server, python []confine.StageEntry) confine.ProcessSpec {
	cache, home := sandboxapi.PackageDir(s.Package), sandboxapi.HomeDir(s.Slot)
	argv := e.newBox(s.Slot, 0).commandPrefix(s.buildEnviron(sandboxapi.ProgramsDir+":/usr/bin", caPath, cache))
	argv = append(argv, runtimeArgs(e.libs, filepath.Base(e.cfg.CA))...)
	program := denoPath
	if s.usesPython() {
		program = pythonPath
		argv = append(argv, e.serverPythonArgs(python)...)
	}
	if s.usesPython() && s.Install {
		argv = append(argv, bindArgs("--ro-bind", stageUV, uvPath)...)
	}
	if e.cfg.Servers.Bridge != "" {
		argv = append(argv, bindArgs("--ro-bind", stageBridge, bridgePath)...)
	}
	switch {
	case s.Install:
		argv = append(argv, bindArgs("--bind", filepath.Join(stagePackages, InstallDir, strconv.Itoa(int(s.Slot))), cache)...)
	case s.Package != "":
		argv = append(argv, bindArgs(readOnly(), filepath.Join(stagePackages, sandboxapi.PackageKey(s.Package)), cache)...)
	}
	if e.cfg.Servers.Programs != "" {
		argv = append(argv, bindArgs("--ro-bind", stagePrograms, sandboxapi.ProgramsDir)...)
	}
	argv = append(argv, bindFolders(s.Folders)...)
	// bubblewrap applies --perms and --size only to the mount that follows.
	argv = append(argv, "--perms", "0700")
	//defence:server-home
	argv = append(argv, "--size", strconv.Itoa(HomeSize))
	argv = append(argv, "--tmpfs", home)
	argv = append(argv, kernelArgs(program)...)
	argv = append(argv, "--remount-ro", "/", "--chdir", home, "--")
	limits := e.cfg.Servers.limitsOf(s)
	p := confine.ProcessSpec{
		NetNS: netnsFD, MountNS: mountFD, FileSize: limits.FileSize, OpenFiles: limits.OpenFiles,
		Keep: []int{infoFD, filterFD}, Dir: "/", Argv: append(argv, s.commandLine(bridgePath, denoPath, uvPath, cache)...),
	}
	e.setIdentity(&p, s.Slot, limits)
	return p
}

// serverPython returns the sources of bind mounts for the files of Python. It leaves out the packages of a virtual
// environment.
func serverPython(files []confine.StageEntry) []confine.StageEntry {
	var list []confine.StageEntry
	for _, f := range files {
		if f.Kind != confine.Link && f.Path != environmentDir {
			list = append(list, source(f.Kind, path.Join(stagePython, f.Path), f.Source))
		}
	}
	return list
}

// serverPythonArgs returns bubblewrap's arguments that mount the files of Python, without those that are mounted for
// Deno.
func (e *Embedded) serverPythonArgs(files []confine.StageEntry) []string {
	var argv []string
	for _, f := range files {
		brought := slices.ContainsFunc(e.libs, func(l confine.StageEntry) bool { return l.Path == f.Path })
		switch {
		case f.Kind == confine.Link:
			argv = append(argv, "--symlink", f.Source, f.Path)
		// The mount of a folder includes the mounts that hide folders below it.
		case f.Kind == confine.ReadOnly && f.Path != environmentDir && !brought:
			argv = append(argv, bindArgs("--ro-bind", path.Join(stagePython, f.Path), f.Path)...)
		}
	}
	return argv
}

// readOnly returns the option that mounts files that a server must not write.
func readOnly() string {
	//defence:server-package instead "--bind"
	return "--ro-bind"
}

// StartServer implements Jail.
func (e *Embedded) StartServer(s Server, stdio Stdio) (Process, error) {
	stage, python := e.stage, pythonFiles{}
	if s.usesPython() {
		var err error
		if python, err = e.python(); err != nil {
			return nil, err
		}
		if stage, err = e.stageOf(stageKind{python: true, server: true}, nil); err != nil {
			return nil, err
		}
	}
	filter := e.cfg.Servers.Limits.filterOptions(s.Folders)
	b, err := e.launchBwrap(s.Slot, e.serverPlan(s, python.entries), filter, stage, stdio)
	if err != nil {
		return nil, err
	}
	b.processes = e.cfg.Servers.Limits.Processes
	b.startWatching()
	return b, nil
}

// PrepareInstall implements Jail.
func (e *Embedded) PrepareInstall(id slot.ID) error {
	dir := e.cfg.Servers.InstallFolder(id)
	if err := errors.Join(e.ClearInstall(id), os.Mkdir(dir, 0o700)); err != nil || !e.ownUIDs {
		return err
	}
	return os.Chown(dir, id.UID(), slot.GroupID)
}

// ShareInstall implements Jail: sandboxd can already read all files.
func (e *Embedded) ShareInstall(slot.ID) error { return nil }

// ClearInstall implements Jail.
func (e *Embedded) ClearInstall(id slot.ID) error {
	return os.RemoveAll(e.cfg.Servers.InstallFolder(id))
}

// serverGroup returns the primary group of a server's processes.
func serverGroup(id slot.ID) int {
	//defence:server-group instead slot.GroupID
	return BasePrivateGroup + int(id)
}

// serverPlan returns the identity, limits and command line of a server. The server is in no group that runs are in.
func (c *Container) serverPlan(s Server) confine.ProcessSpec {
	sv, group := c.cfg.Servers, serverGroup(s.Slot)
	cache, home := sandboxapi.PackageDir(s.Package), sandboxapi.HomeDir(s.Slot)
	if s.Install {
		cache = sv.InstallFolder(s.Slot)
	}
	reads := append(c.runtimeFiles(), sv.Bridge, home)
	if s.Package != "" {
		reads = append(reads, cache)
	}
	if sv.Programs != "" {
		reads = append(reads, sv.Programs)
	}
	reads = append(reads, listInsidePaths(s.Folders)...)
	var keep []int
	if len(s.Folders) > 0 {
		keep = []int{containerFilesFD}
	}
	write := c.writablePaths([]string{home}, s.Folders)
	if py := c.cfg.Python; py != nil && s.usesPython() {
		reads = append(reads, py.Program, zoneDir)
	}
	if s.Install { // Landlock's first version forbids Deno's links; no code of the package runs
		reads, write = nil, nil
	}
	l := sv.limitsOf(s)
	return confine.ProcessSpec{
		NetNS: -1, UID: s.Slot.UID(), GID: group, Groups: []int{BasePrivateGroup + int(s.Slot)},
		Processes: l.Processes, FileSize: l.FileSize, OpenFiles: l.OpenFiles,
		NoNewPrivs: true, Filter: true, FilterOptions: l.filterOptions(s.Folders),
		Read: reads, Write: write, Dir: home, Keep: keep,
		Argv: s.commandLine(sv.Bridge, c.cfg.Deno, sv.UV, cache),
		Env:  s.buildEnviron(sandboxapi.ProgramsDir+":"+filepath.Dir(c.cfg.Deno), c.cfg.CA, cache),
	}
}

// StartServer implements Jail.
func (c *Container) StartServer(s Server, stdio Stdio) (Process, error) {
	group := BasePrivateGroup + int(s.Slot)
	if err := clearServer(s.Slot); err != nil {
		return nil, fmt.Errorf("preparing slot %d: %w", s.Slot, err)
	}
	if err := makeGroupDir(sandboxapi.HomeDir(s.Slot), group, 0o770); err != nil {
		return nil, fmt.Errorf("preparing slot %d: %w", s.Slot, err)
	}
	makeDir := func(path string) error { return makeGroupDir(path, group, 0o750) }
	if err := linkFolders(sandboxapi.HomeDir(s.Slot), s.Folders, makeDir); err != nil {
		return nil, fmt.Errorf("preparing slot %d: %w", s.Slot, err)
	}
	home, err := os.Open(sandboxapi.HomeDir(s.Slot))
	if err != nil {
		return nil, err
	}
	defer home.Close()
	t, err := c.launchProgram(s.Slot, c.serverPlan(s), stdio, nil, home)
	if err != nil {
		return nil, err
	}
	t.remove = func() error { return clearServer(s.Slot) }
	go t.waitForEnd()
	return t, nil
}

// clearServer removes a server's home.
func clearServer(id slot.ID) error { return removeAs(id, sandboxapi.HomeDir(id)) }

// removeAs removes a directory in which a slot has written. It removes unreadable parts as the slot's user.
func removeAs(id slot.ID, dir string) error {
	err := os.RemoveAll(dir)
	if errors.Is(err, os.ErrPermission) {
		if err = WipeDir(id, filepath.Dir(dir), filepath.Base(dir)); err == nil {
			err = os.RemoveAll(dir)
		}
	}
	return err
}

// HomeBytes implements Process. All homes share one file system. If the file system holds less than HomeSize, HomeBytes
// skips the count. Otherwise it counts as the slot's user, who can read folders closed to sandboxd.
func (t *containerProcess) HomeBytes() int64 {
	home := sandboxapi.HomeDir(t.slot)
	var fs unix.Statfs_t
	//defence:server-home permits
	if err := unix.Statfs(home, &fs); err != nil {
		return 0
	}
	// One statfs is cheap; counting starts a process and walks the home.
	if int64(fs.Blocks-fs.Bfree)*fs.Bsize <= HomeSize {
		return 0
	}
	return t.runCountCommand("usage", home)
}

// PrepareInstall implements Jail.
func (c *Container) PrepareInstall(id slot.ID) error {
	if err := c.ClearInstall(id); err != nil {
		return err
	}
	return makeGroupDir(c.cfg.Servers.InstallFolder(id), BasePrivateGroup+int(id), 0o770|os.ModeSetgid)
}

// ShareInstall implements Jail. If a package has files that its group may not read, only the slot's user can change
// that.
func (c *Container) ShareInstall(id slot.ID) error {
	_, err := runAsSlot(context.Background(), id, "share", c.cfg.Servers.InstallFolder(id))
	return err
}

// ClearInstall implements Jail.
func (c *Container) ClearInstall(id slot.ID) error {
	return removeAs(id, c.cfg.Servers.InstallFolder(id))
}
