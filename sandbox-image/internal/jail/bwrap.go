package jail

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
)

// Paths inside a bubblewrap sandbox.
const (
	denoPath = "/usr/bin/deno"
	caPath   = "/etc/codeforge/ca.pem"
	denoDir  = "/deno"
	// DenoDirSize bounds the private DENO_DIR (localStorage, caches, transpiled modules), in bytes. In a container, all
	// slots share 128 MiB for it.
	DenoDirSize = 16 << 20
)

// Folders of a stage (see confine.StageBinds).
const (
	// rootDir is the root of an interpreter's sandbox, without the parts that differ between runs.
	rootDir = "/root"
	// sourceDir has the sources of bind mounts. If a file may be replaced later, it has the file's folder.
	sourceDir = "/source"
)

// Names of sources.
const (
	stageDeno = "deno"
	stageCA   = "ca"
	stageWork = "work"
	stageOut  = "out"

	resolvName = "resolv.conf"
)

// bwrapBox holds the options that every sandbox needs.
type bwrapBox struct {
	bwrap    string
	uid, gid int
	infoFD   int
	gateFD   int // 0: no gate
	filterFD int
}

// commandPrefix returns the start of the command line: namespaces, identity, filter and environment.
func (b bwrapBox) commandPrefix(environ []string) []string {
	a := []string{
		b.bwrap,
		"--unshare-user", "--uid", strconv.Itoa(b.uid), "--gid", strconv.Itoa(b.gid),
		"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--hostname", "codeforge",
		capabilityOption(), "ALL", "--disable-userns", "--new-session", parentDeathOption(), "--clearenv",
		"--seccomp", strconv.Itoa(b.filterFD), "--info-fd", strconv.Itoa(b.infoFD),
	}
	// Only interpreters have a gate: they are sandboxed early and start later (see Stdio).
	if b.gateFD != 0 {
		a = append(a, "--block-fd", strconv.Itoa(b.gateFD))
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		a = append(a, "--setenv", name, value)
	}
	return a
}

// source returns a source of bind mounts as an entry of the stage.
func source(kind confine.Kind, name, at string) confine.StageEntry {
	return confine.StageEntry{Kind: kind, Path: path.Join(sourceDir, name), Source: at}
}

// bindArgs mounts the source name at the path to. how is bubblewrap's option.
func bindArgs(how, name, to string) []string { return []string{how, path.Join(sourceDir, name), to} }

// bwrapPlan holds everything from which the command line of an interpreter's sandbox is built.
type bwrapPlan struct {
	bwrapBox
	net      []string
	bait     canaryBait
	tz       string
	memory   int64
	private  bool
	pinned   bool
	packages CodePackages
	folders  []Folder
	// code is the name of the code directory, and of the folder below EmbeddedConfig.Out.
	code string
	// cache has the names of denoCache's files, in the order of their descriptors from cacheFD.
	cache []string
}

// commandLine returns bubblewrap's command line for Deno. From the host the sandbox sees only the code directory and
// the root of interpreterRoot.
func (p bwrapPlan) commandLine() []string {
	a := p.commandPrefix(p.packages.addToEnviron(p.bait.addToEnviron(baseEnviron(denoDir, p.tz), CodeDir)))
	a = append(a, p.files()...)
	a = append(a, "--perms", "0700", "--size", strconv.Itoa(DenoDirSize), "--tmpfs", denoDir)
	for i, name := range p.cache {
		a = append(a, "--perms", "0600", "--file", strconv.Itoa(cacheFD+i), path.Join(denoDir, name))
	}
	a = append(a, p.packages.bindForDeno()...)
	a = append(a, "--chdir", TmpDir, "--", denoPath)
	return append(a, denoProcess{
		dir: CodeDir, out: OutDir, ca: caPath, own: p.writableFolder(), pinned: p.pinned, folders: p.folders,
		packages: p.packages, net: p.net, memory: p.memory, bait: p.bait,
	}.args()...)
}

// writableFolder returns the folder that a private run may write, a /tmp in memory. It is empty for other runs.
func (p bwrapPlan) writableFolder() string {
	//defence:private-files
	if p.private {
		return TmpDir
	}
	return ""
}

// files mounts the root and the run's directories.
func (p bwrapPlan) files() []string {
	// --dev-bind keeps the flags of the root's mounts. --ro-bind would make /tmp read-only and disable the devices.
	a := append([]string{"--dev-bind", rootDir, "/"}, bindArgs("--ro-bind", path.Join(stageWork, p.code), CodeDir)...)
	a = append(a, bindArgs("--bind", path.Join(stageOut, p.code), OutDir)...)
	if p.writableFolder() != "" {
		a = append(a, "--perms", "0700", "--size", strconv.Itoa(HomeSize), "--tmpfs", p.writableFolder())
	}
	return hideProc(a)
}

// runFolders are the folders that runs share. A private run gets neither /runs nor /skills.
func (c EmbeddedConfig) runFolders() []confine.StageEntry {
	skills := confine.Writable
	if c.SkillsReadonly {
		skills = confine.ReadOnly
	}
	return []confine.StageEntry{
		{Kind: confine.ReadOnly, Path: RunsDir, Source: c.Runs},
		{Kind: skills, Path: SkillsDir, Source: c.Skills},
		{Kind: confine.Writable, Path: TmpDir, Source: c.Tmp},
	}
}

// interpreterRoot returns the entries of an interpreter's root. program is its path there, files its own files.
func (e *Embedded) interpreterRoot(
	program string, files []confine.StageEntry, kind stageKind, folders []Folder,
) []confine.StageEntry {
	root := append([]confine.StageEntry{
		{Kind: confine.Copy, Path: caPath, Source: e.cfg.CA},
		{Kind: confine.Copy, Path: "/etc/resolv.conf", Source: e.resolvPath()},
		{Kind: confine.Folder, Path: CodeDir}, {Kind: confine.Folder, Path: OutDir},
		// Deno needs this link to start, and a sandbox has no other file of /proc.
		{Kind: confine.Link, Path: "/proc/self/exe", Source: program},
		{Kind: confine.Link, Path: FilesDir, Source: CodeDir + "/" + InputDir},
	}, slices.Concat(files, folderEntries(folders))...)
	for _, name := range devices() {
		root = append(root, confine.StageEntry{Kind: confine.Device, Path: name, Source: name})
	}
	if kind.private {
		root = append(root, confine.StageEntry{Kind: confine.Folder, Path: TmpDir})
	} else {
		root = append(root, e.cfg.runFolders()...)
	}
	for i := range root {
		root[i].Path = path.Join(rootDir, root[i].Path)
	}
	root = append(root, source(confine.ReadOnly, stageWork, e.cfg.Work), source(confine.Writable, stageOut, e.cfg.Out))
	return append(root, e.cfg.Servers.packagesSource(kind.python)...)
}

// runtimeArgs mounts Deno, its libraries, the CA and the resolver's configuration.
func runtimeArgs(libraries []confine.StageEntry, ca string) []string {
	a := bindArgs("--ro-bind", stageDeno, denoPath)
	for i, l := range libraries {
		a = append(a, bindArgs("--ro-bind", libraryName(i), l.Path)...)
	}
	a = append(a, bindArgs("--ro-bind", path.Join(stageCA, ca), caPath)...)
	return append(a, bindArgs("--ro-bind", path.Join(stageWork, resolvName), "/etc/resolv.conf")...)
}

// devices lists the devices of a sandbox, which give neither memory (unlike /dev/zero, mapped shared) nor access.
func devices() []string {
	list := []string{"/dev/null"}
	for _, name := range [...]string{"/dev/random", "/dev/urandom"} {
		if _, err := os.Stat(name); err == nil {
			list = append(list, name)
		}
	}
	return list
}

// kernelArgs mounts the parts of /proc and /dev that a program may see.
func kernelArgs(program string) []string {
	a := []string{"--dir", "/dev"}
	for _, name := range devices() {
		a = append(a, "--dev-bind", path.Join(sourceDir, name), name)
	}
	return hideProc(append(a, "--dir", "/proc/self", "--symlink", program, "/proc/self/exe"))
}

// hideProc leaves the options of a sandbox without /proc. Deno imports a file without asking for a permission, so code
// can read every file that can be opened. Of /proc, a sandbox has only the link /proc/self/exe.
func hideProc(a []string) []string {
	//defence:host-files instead append(a, "--proc", "/proc")
	return a
}

// capabilityOption returns the option that drops all capabilities.
func capabilityOption() string {
	//defence:capabilities instead "--cap-add"
	return "--cap-drop"
}

// parentDeathOption returns the option that kills the sandbox if the outer bwrap dies.
func parentDeathOption() string {
	//defence:kill instead "--new-session"
	return "--die-with-parent"
}
