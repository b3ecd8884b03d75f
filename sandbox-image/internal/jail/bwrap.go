package jail

import (
	"path"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
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

// bwrapPlan is everything that the argv depends on.
type bwrapPlan struct {
	bwrap          string
	uid, gid       int
	net            []string
	tz             string
	memory         int64
	skillsReadonly bool
	libraries      []library
	infoFD         int
	gateFD         int
	filterFD       int
	// ca and code are names in their staged directories.
	ca, code string
}

// library is one file that the dynamic loader needs: its path in the sandbox, and the name it is staged under.
type library struct{ path, name string }

// argv is the command line of bubblewrap. Of the host, the sandbox sees only what is bound here: the interpreter, its
// shared libraries, the CA, a resolv.conf, and the run's directories.
func (p bwrapPlan) argv() []string {
	a := []string{
		p.bwrap,
		"--unshare-user", "--uid", strconv.Itoa(p.uid), "--gid", strconv.Itoa(p.gid),
		"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--hostname", "codeforge",
		capabilities(), "ALL", "--disable-userns", "--new-session", dieWithParent(), "--clearenv",
		"--seccomp", strconv.Itoa(p.filterFD), "--info-fd", strconv.Itoa(p.infoFD),
		"--block-fd", strconv.Itoa(p.gateFD),
	}
	for _, e := range environ(denoDir, p.tz) {
		name, value, _ := strings.Cut(e, "=")
		a = append(a, "--setenv", name, value)
	}
	bind := func(how, name, to string) { a = append(a, how, path.Join(enter.StageDir, name), to) }
	bind("--ro-bind", stageDeno, denoPath)
	for _, l := range p.libraries {
		bind("--ro-bind", l.name, l.path)
	}
	bind("--ro-bind", path.Join(stageCA, p.ca), caPath)
	bind("--ro-bind", path.Join(stageWork, resolvName), "/etc/resolv.conf")
	bind("--ro-bind", path.Join(stageWork, p.code), CodeDir)
	bind("--ro-bind", stageRuns, RunsDir)
	if p.skillsReadonly {
		bind("--ro-bind", stageSkills, SkillsDir)
	} else {
		bind("--bind", stageSkills, SkillsDir)
	}
	bind("--bind", stageTmp, TmpDir)
	a = append(a, "--perms", "0700", "--size", strconv.Itoa(denoDirSize), "--tmpfs", denoDir)
	a = append(a, kernelFiles()...)
	a = append(a, "--remount-ro", "/", "--chdir", TmpDir, "--", denoPath)
	return append(a, denoArgs(CodeDir, p.net, caPath, p.memory)...)
}

// kernelFiles are what the sandbox sees of /proc and /dev. Deno needs no permission to import a file, so whatever can
// be opened can be read. So there is no /proc except the one link that Deno needs, and no device that gives memory (a
// shared mapping of /dev/zero) or access to anything else.
func kernelFiles() []string {
	a := []string{"--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"}
	for _, name := range [...]string{"/dev/random", "/dev/urandom"} {
		a = append(a, "--dev-bind-try", name, name)
	}
	if disarm.Off("host-files") {
		return append(a, "--proc", "/proc")
	}
	return append(a, "--dir", "/proc/self", "--symlink", denoPath, "/proc/self/exe")
}

// capabilities is the option that drops them.
func capabilities() string {
	if disarm.Off("capabilities") {
		return "--cap-add"
	}
	return "--cap-drop"
}

// dieWithParent is the option that kills the sandbox when the outer bwrap dies.
func dieWithParent() string {
	if disarm.Off("kill") {
		return "--new-session" // already in the argv: no effect
	}
	return "--die-with-parent"
}
