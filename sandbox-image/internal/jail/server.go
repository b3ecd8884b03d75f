package jail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/enter"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// Servers says what the slots of MCP servers are made of. Every path is sandboxd's.
type Servers struct {
	// Slots is how many there are.
	Slots int
	// Bridge is the program that speaks to a server, and starts it.
	Bridge string
	// Packages holds the installed packages, by runapi.PackageKey, and in InstallDir what is being installed.
	Packages string
	// Programs is the operator's folder of programs; empty if there is none.
	Programs string
	// Limits of one server with all its processes.
	Limits Limits
}

const (
	// InstallDir is the folder of Packages in which each slot installs.
	InstallDir = "install"
	// HomeSize bounds what a server has in its home, in bytes.
	HomeSize = 64 << 20
)

// Server is what runs in the slot of an MCP server: the bridge, or Deno, which installs a package.
type Server struct {
	Slot slot.ID
	TZ   string
	// Package is the name and version of an installed package, or of the one to install; empty: none.
	Package string
	// Registry is where the package comes from.
	Registry string
	Install  bool
	// Frozen means that the installation has a lock file to agree with.
	Frozen bool
}

// Installing is the folder in which a slot installs.
func (s Servers) Installing(id slot.ID) string {
	return filepath.Join(s.Packages, InstallDir, strconv.Itoa(int(id)))
}

// Names of the staged sources of servers.
const (
	stageBridge   = "bridge"
	stagePackages = "packages"
	stagePrograms = "programs"
)

// Paths of a server's files inside a bubblewrap sandbox, in addition to those of an interpreter.
const bridgePath = "/usr/bin/mcp-bridge"

// binds are the sources of bind mounts that servers need.
func (s Servers) binds() []enter.Bind {
	if s.Slots == 0 {
		return nil
	}
	list := []enter.Bind{{Name: stagePackages, Source: s.Packages}}
	if s.Bridge != "" {
		list = append(list, enter.Bind{Name: stageBridge, Source: s.Bridge})
	}
	if s.Programs != "" {
		list = append(list, enter.Bind{Name: stagePrograms, Source: s.Programs})
	}
	return list
}

// argv is the program of a server, and its arguments. cache is Deno's folder of packages, as the program sees it.
func (s Server) argv(bridge, deno, cache string) []string {
	if !s.Install {
		return []string{bridge}
	}
	argv := []string{deno, "cache", "--no-config", "--lock=" + cache + "/deno.lock"}
	if s.Frozen {
		argv = append(argv, "--frozen")
	}
	return append(argv, s.Package)
}

// environ is a server's whole environment. The bridge adds the server's own variables to it.
func (s Server) environ(path, ca, cache string) []string {
	home := runapi.HomeDir(s.Slot)
	if s.Package == "" {
		cache = home + "/.deno"
	}
	env := append(environ(cache, s.TZ), "PATH="+path, "TMPDIR="+home, "DENO_NO_PROMPT=1")
	for i, e := range env {
		if e == "HOME="+TmpDir {
			env[i] = "HOME=" + home
		}
	}
	// Every program that does TLS has its own idea of where authorities are.
	for _, name := range []string{
		"DENO_CERT", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
	} {
		env = append(env, name+"="+ca)
	}
	if s.Registry != "" {
		env = append(env, "NPM_CONFIG_REGISTRY="+s.Registry) // Deno's folder of packages is named after it
	}
	return env
}

// serverPlan is the identity, limits and command line of a server's sandbox. Of the host it sees Deno, its libraries
// and the bridge, its package and the operator's programs; nothing that a run sees.
func (e *Embedded) serverPlan(s Server) enter.Plan {
	cache, home := runapi.PackageDir(s.Package), runapi.HomeDir(s.Slot)
	argv := e.box(s.Slot, 0).argv(s.environ(runapi.ProgramsDir+":/usr/bin", caPath, cache))
	argv = append(argv, runtimeFiles(e.libs, filepath.Base(e.cfg.CA))...)
	if e.cfg.Servers.Bridge != "" {
		argv = append(argv, bind("--ro-bind", stageBridge, bridgePath)...)
	}
	switch {
	case s.Install:
		argv = append(argv, bind("--bind", filepath.Join(stagePackages, InstallDir, strconv.Itoa(int(s.Slot))), cache)...)
	case s.Package != "":
		argv = append(argv, bind(readOnly(), filepath.Join(stagePackages, runapi.PackageKey(s.Package)), cache)...)
	}
	if e.cfg.Servers.Programs != "" {
		argv = append(argv, bind("--ro-bind", stagePrograms, runapi.ProgramsDir)...)
	}
	argv = append(argv, "--perms", "0700")
	//defence:server-home
	argv = append(argv, "--size", strconv.Itoa(HomeSize))
	argv = append(argv, "--tmpfs", home)
	argv = append(argv, kernelFiles(denoPath)...)
	argv = append(argv, "--remount-ro", "/", "--chdir", home, "--")
	limits := e.cfg.Servers.Limits
	p := enter.Plan{
		NetNS: netnsFD, MountNS: mountFD, FileSize: limits.FileSize, OpenFiles: limits.OpenFiles,
		Keep: []int{infoFD, filterFD}, Dir: "/", Argv: append(argv, s.argv(bridgePath, denoPath, cache)...),
	}
	e.identify(&p, s.Slot, limits)
	return p
}

// readOnly is the option that mounts what a server must not write.
func readOnly() string {
	//defence:server-package instead "--bind"
	return "--ro-bind"
}

// StartServer implements Jail.
func (e *Embedded) StartServer(s Server, stdio Stdio) (Process, error) {
	b, err := e.launch(s.Slot, e.serverPlan(s), e.serverFilter, e.stage, stdio)
	if err != nil {
		return nil, err
	}
	b.processes = e.cfg.Servers.Limits.Processes
	b.begin()
	return b, nil
}

// PrepareInstall makes the folder in which a slot installs a package.
func (e *Embedded) PrepareInstall(id slot.ID) error {
	dir := e.cfg.Servers.Installing(id)
	if err := errors.Join(e.ClearInstall(id), os.Mkdir(dir, 0o700)); err != nil || !e.ownUIDs {
		return err
	}
	return os.Chown(dir, id.UID(), slot.GroupID)
}

// ShareInstall implements Jail: sandboxd can read everything already.
func (e *Embedded) ShareInstall(slot.ID) error { return nil }

// ClearInstall removes that folder.
func (e *Embedded) ClearInstall(id slot.ID) error { return os.RemoveAll(e.cfg.Servers.Installing(id)) }

// serverGroup is the group of a server's processes.
func serverGroup(id slot.ID) int {
	//defence:server-group instead slot.GroupID
	return BasePrivateGroup + int(id)
}

// serverPlan is the identity, limits and command line of a server. It is in none of the groups that runs are in.
func (c *Container) serverPlan(s Server) enter.Plan {
	sv, group := c.cfg.Servers, serverGroup(s.Slot)
	cache, home := runapi.PackageDir(s.Package), runapi.HomeDir(s.Slot)
	if s.Install {
		cache = sv.Installing(s.Slot)
	}
	reads := append(c.runtimeFiles(), sv.Bridge, home)
	if s.Package != "" {
		reads = append(reads, cache)
	}
	if sv.Programs != "" {
		reads = append(reads, sv.Programs)
	}
	if s.Install { // Deno links files, which Landlock's first version forbids; no code of a package runs
		reads = nil
	}
	l := sv.Limits
	return enter.Plan{
		NetNS: -1, UID: s.Slot.UID(), GID: group, Groups: []int{BasePrivateGroup + int(s.Slot)},
		Processes: l.Processes, FileSize: l.FileSize, OpenFiles: l.OpenFiles,
		NoNewPrivs: true, Filter: true, Forks: l.Forks, Read: reads, Dir: home,
		Argv: s.argv(sv.Bridge, c.cfg.Deno, cache),
		Env:  s.environ(runapi.ProgramsDir+":"+filepath.Dir(c.cfg.Deno), c.cfg.CA, cache),
	}
}

// StartServer implements Jail.
func (c *Container) StartServer(s Server, stdio Stdio) (Process, error) {
	group := BasePrivateGroup + int(s.Slot)
	if err := clearServer(s.Slot); err != nil {
		return nil, fmt.Errorf("preparing slot %d: %w", s.Slot, err)
	}
	if err := groupDir(runapi.HomeDir(s.Slot), group, 0o770); err != nil {
		return nil, fmt.Errorf("preparing slot %d: %w", s.Slot, err)
	}
	t, err := c.launch(s.Slot, c.serverPlan(s), stdio)
	if err != nil {
		return nil, err
	}
	t.remove = func() error { return clearServer(s.Slot) }
	go t.wait()
	return t, nil
}

// clearServer removes a server's home.
func clearServer(id slot.ID) error { return removeAs(id, runapi.HomeDir(id)) }

// removeAs removes a directory in which a slot has written. What its user made unreadable is removed as that user.
func removeAs(id slot.ID, dir string) error {
	err := os.RemoveAll(dir)
	if errors.Is(err, os.ErrPermission) {
		if err = Wipe(id, filepath.Dir(dir), filepath.Base(dir)); err == nil {
			err = os.RemoveAll(dir)
		}
	}
	return err
}

// Home implements Process. All homes are in one file system. While there is little in it, nothing is added up; then it
// is the slot's user who does, who can read what it has closed to others.
func (t *containerProcess) Home() int64 {
	home := runapi.HomeDir(t.slot)
	var fs unix.Statfs_t
	//defence:server-home permits
	if err := unix.Statfs(home, &fs); err != nil {
		return 0
	}
	if int64(fs.Blocks-fs.Bfree)*fs.Bsize <= HomeSize {
		return 0
	}
	return t.count("usage", home)
}

// PrepareInstall makes the folder in which a slot installs a package.
func (c *Container) PrepareInstall(id slot.ID) error {
	if err := c.ClearInstall(id); err != nil {
		return err
	}
	return groupDir(c.cfg.Servers.Installing(id), BasePrivateGroup+int(id), 0o770|os.ModeSetgid)
}

// ShareInstall implements Jail. Where a package has files that its group may not read, only the slot's user can change
// that.
func (c *Container) ShareInstall(id slot.ID) error {
	_, err := asSlot(context.Background(), id, "share", c.cfg.Servers.Installing(id))
	return err
}

// ClearInstall removes that folder.
func (c *Container) ClearInstall(id slot.ID) error { return removeAs(id, c.cfg.Servers.Installing(id)) }
