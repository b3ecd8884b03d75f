package jail

import (
	"path"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/enter"
)

// Paths inside a bubblewrap sandbox.
const (
	denoPath = "/usr/bin/deno"
	caPath   = "/etc/codeforge/ca.pem"
	denoDir  = "/deno"
	// denoDirSize bounds the private DENO_DIR (localStorage, transpiled modules), in bytes.
	denoDirSize = 64 << 20
)

// Names of the staged sources (see enter.StageBinds). If a file may be replaced later, its directory is staged instead.
const (
	stageDeno   = "deno"
	stageCA     = "ca"
	stageWork   = "work"
	stageTmp    = "tmp"
	stageSkills = "skills"
	stageRuns   = "runs"

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

// commandStart returns the start of the command line: namespaces, identity, filter and environment.
func (b bwrapBox) commandStart(environ []string) []string {
	a := []string{
		b.bwrap,
		"--unshare-user", "--uid", strconv.Itoa(b.uid), "--gid", strconv.Itoa(b.gid),
		"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--hostname", "codeforge",
		dropCapabilities(), "ALL", "--disable-userns", "--new-session", dieWithParent(), "--clearenv",
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

// bindArgs mounts the staged source name at the path to. how is bubblewrap's option.
func bindArgs(how, name, to string) []string {
	return []string{how, path.Join(enter.StageDir, name), to}
}

// bwrapPlan holds everything from which the command line of an interpreter's sandbox is built.
type bwrapPlan struct {
	bwrapBox
	net            []string
	bait           canaryBait
	tz             string
	memory         int64
	skillsReadonly bool
	private        bool
	pinned         bool
	libraries      []libraryFile
	// ca and code are names inside their staged directories.
	ca, code string
}

// libraryFile is one file for the dynamic loader: its path in the sandbox, and its name in the stage.
type libraryFile struct{ path, name string }

// commandLine returns bubblewrap's command line for Deno. From the host the sandbox sees only these mounts: the
// interpreter, its shared libraries, the CA, a resolv.conf, and the run's directories.
func (p bwrapPlan) commandLine() []string {
	a := p.bwrapBox.commandStart(p.bait.addToEnviron(baseEnviron(denoDir, p.tz), CodeDir))
	a = append(a, runtimeFiles(p.libraries, p.ca)...)
	a = append(a, p.runFiles()...)
	a = append(a, "--perms", "0700", "--size", strconv.Itoa(denoDirSize), "--tmpfs", denoDir)
	a = append(a, kernelFiles(denoPath)...)
	// Only now may the root become read-only: the mount points above are created in it.
	a = append(a, "--remount-ro", "/", "--chdir", TmpDir, "--", denoPath)
	return append(a, denoArgs(CodeDir, p.writableFolder(), p.pinned, p.net, caPath, p.memory, p.bait)...)
}

// writableFolder returns the folder that a private run may write, a /tmp in memory. It is empty for other runs.
func (p bwrapPlan) writableFolder() string {
	//defence:private-files
	if p.private {
		return TmpDir
	}
	return ""
}

// runFiles mounts the run's directories.
func (p bwrapPlan) runFiles() []string {
	a := bindArgs("--ro-bind", path.Join(stageWork, p.code), CodeDir)
	// A private run gets a tmpfs at /tmp, and neither /runs nor /skills: those are shared with other runs.
	if p.writableFolder() != "" {
		return append(a, "--perms", "0700", "--size", strconv.Itoa(HomeSize), "--tmpfs", p.writableFolder())
	}
	a = append(a, bindArgs("--ro-bind", stageRuns, RunsDir)...)
	skills := "--bind"
	if p.skillsReadonly {
		skills = "--ro-bind"
	}
	a = append(a, bindArgs(skills, stageSkills, SkillsDir)...)
	return append(a, bindArgs("--bind", stageTmp, TmpDir)...)
}

// mountCA mounts the CA at a path.
func (p bwrapPlan) mountCA(at string) []string {
	return bindArgs("--ro-bind", path.Join(stageCA, p.ca), at)
}

// runtimeFiles mounts Deno, its libraries, the CA and the resolver's configuration.
func runtimeFiles(libraries []libraryFile, ca string) []string {
	a := bindArgs("--ro-bind", stageDeno, denoPath)
	for _, l := range libraries {
		a = append(a, bindArgs("--ro-bind", l.name, l.path)...)
	}
	a = append(a, bindArgs("--ro-bind", path.Join(stageCA, ca), caPath)...)
	return append(a, bindArgs("--ro-bind", path.Join(stageWork, resolvName), "/etc/resolv.conf")...)
}

// kernelFiles mounts the parts of /proc and /dev that a program may see. Deno imports a file without asking for a
// permission, so code can read every file that can be opened. Therefore the sandbox has no /proc except the link
// /proc/self/exe, and only devices that give neither memory (unlike /dev/zero, mapped shared) nor access.
func kernelFiles(program string) []string {
	a := []string{"--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"}
	for _, name := range [...]string{"/dev/random", "/dev/urandom"} {
		a = append(a, "--dev-bind-try", name, name)
	}
	//defence:host-files instead append(a, "--proc", "/proc")
	return append(a, "--dir", "/proc/self", "--symlink", program, "/proc/self/exe")
}

// dropCapabilities returns the option that drops all capabilities.
func dropCapabilities() string {
	//defence:capabilities instead "--cap-add"
	return "--cap-drop"
}

// dieWithParent returns the option that kills the sandbox if the outer bwrap dies.
func dieWithParent() string {
	//defence:kill instead "--new-session"
	return "--die-with-parent"
}
