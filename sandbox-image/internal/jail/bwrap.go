package jail

import (
	"path"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/enter"
)

// Where things are inside a bubblewrap sandbox.
const (
	denoPath = "/usr/bin/deno"
	caPath   = "/etc/codeforge/ca.pem"
	denoDir  = "/deno"
	// denoDirSize bounds the private DENO_DIR (localStorage, transpiled modules), in bytes.
	denoDirSize = 64 << 20
)

// Names of the staged sources (see enter.Stage). Where a file may be replaced, its directory is staged instead.
const (
	stageDeno   = "deno"
	stageCA     = "ca"
	stageWork   = "work"
	stageTmp    = "tmp"
	stageSkills = "skills"
	stageRuns   = "runs"

	resolvName = "resolv.conf"
)

// box is what the argv of every sandbox depends on.
type box struct {
	bwrap    string
	uid, gid int
	infoFD   int
	gateFD   int // 0: no gate
	filterFD int
}

// argv is the beginning of the command line: the namespaces, the identity, the filter and the environment.
func (b box) argv(environ []string) []string {
	a := []string{
		b.bwrap,
		"--unshare-user", "--uid", strconv.Itoa(b.uid), "--gid", strconv.Itoa(b.gid),
		"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--hostname", "codeforge",
		capabilities(), "ALL", "--disable-userns", "--new-session", dieWithParent(), "--clearenv",
		"--seccomp", strconv.Itoa(b.filterFD), "--info-fd", strconv.Itoa(b.infoFD),
	}
	if b.gateFD != 0 {
		a = append(a, "--block-fd", strconv.Itoa(b.gateFD))
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		a = append(a, "--setenv", name, value)
	}
	return a
}

// bind mounts something staged at a path of the sandbox.
func bind(how, name, to string) []string { return []string{how, path.Join(enter.StageDir, name), to} }

// bwrapPlan is everything that the argv of an interpreter's sandbox depends on.
type bwrapPlan struct {
	box
	net            []string
	bait           bait
	tz             string
	memory         int64
	skillsReadonly bool
	private        bool
	pinned         bool
	libraries      []library
	// ca and code are names in their staged directories.
	ca, code string
}

// library is one file that the dynamic loader needs: its path in the sandbox, and the name it is staged under.
type library struct{ path, name string }

// argv is the command line of bubblewrap. Of the host, the sandbox sees only what is bound here: the interpreter, its
// shared libraries, the CA, a resolv.conf, and the run's directories.
func (p bwrapPlan) argv() []string {
	a := p.box.argv(p.bait.environ(environ(denoDir, p.tz), CodeDir))
	a = append(a, runtimeFiles(p.libraries, p.ca)...)
	a = append(a, p.runFiles()...)
	a = append(a, "--perms", "0700", "--size", strconv.Itoa(denoDirSize), "--tmpfs", denoDir)
	a = append(a, kernelFiles(denoPath)...)
	a = append(a, "--remount-ro", "/", "--chdir", TmpDir, "--", denoPath)
	return append(a, denoArgs(CodeDir, p.own(), p.pinned, p.net, caPath, p.memory, p.bait)...)
}

// own is the folder that a private run may write: a /tmp in memory.
func (p bwrapPlan) own() string {
	//defence:private-files
	if p.private {
		return TmpDir
	}
	return ""
}

// runFiles are the run's directories.
func (p bwrapPlan) runFiles() []string {
	a := bind("--ro-bind", path.Join(stageWork, p.code), CodeDir)
	if p.own() != "" {
		return append(a, "--perms", "0700", "--size", strconv.Itoa(HomeSize), "--tmpfs", p.own())
	}
	a = append(a, bind("--ro-bind", stageRuns, RunsDir)...)
	skills := "--bind"
	if p.skillsReadonly {
		skills = "--ro-bind"
	}
	a = append(a, bind(skills, stageSkills, SkillsDir)...)
	return append(a, bind("--bind", stageTmp, TmpDir)...)
}

// authority shows the CA at a path.
func (p bwrapPlan) authority(at string) []string {
	return bind("--ro-bind", path.Join(stageCA, p.ca), at)
}

// runtimeFiles are what Deno needs: itself, its libraries, the CA and the resolver's configuration.
func runtimeFiles(libraries []library, ca string) []string {
	a := bind("--ro-bind", stageDeno, denoPath)
	for _, l := range libraries {
		a = append(a, bind("--ro-bind", l.name, l.path)...)
	}
	a = append(a, bind("--ro-bind", path.Join(stageCA, ca), caPath)...)
	return append(a, bind("--ro-bind", path.Join(stageWork, resolvName), "/etc/resolv.conf")...)
}

// kernelFiles are what the sandbox of a program sees of /proc and /dev. Deno needs no permission to import a file, so
// whatever can be opened can be read. So there is no /proc except the one link that Deno needs, and no device that
// gives memory (a shared mapping of /dev/zero) or access to anything else.
func kernelFiles(program string) []string {
	a := []string{"--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"}
	for _, name := range [...]string{"/dev/random", "/dev/urandom"} {
		a = append(a, "--dev-bind-try", name, name)
	}
	//defence:host-files instead append(a, "--proc", "/proc")
	return append(a, "--dir", "/proc/self", "--symlink", program, "/proc/self/exe")
}

// capabilities is the option that drops them.
func capabilities() string {
	//defence:capabilities instead "--cap-add"
	return "--cap-drop"
}

// dieWithParent is the option that kills the sandbox when the outer bwrap dies.
func dieWithParent() string {
	//defence:kill instead "--new-session"
	return "--die-with-parent"
}
