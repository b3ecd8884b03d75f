package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/deno"
	"github.com/codeforge-mcp/codeforge/cli/internal/embedded"
	"github.com/codeforge-mcp/codeforge/internal/python"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/version"
	sandboximage "github.com/codeforge-mcp/codeforge/sandbox-image"
)

// checkVersions checks this program, the binaries next to it, and Deno.
func checkVersions(ctx context.Context, c Config) []Finding {
	out := []Finding{newOK("codeforge", version.Version+" on "+runtime.GOOS+"/"+runtime.GOARCH)}
	if runtime.GOOS != "linux" {
		return append(out, newSkip("Deno", "it runs in the container on this system"))
	}
	bin := c.Bin
	if bin == "" {
		self, err := os.Executable()
		if err != nil {
			return append(out, newFailure("binaries", err.Error(), ""))
		}
		bin = filepath.Dir(self)
	}
	var missing []string
	for _, name := range []string{"egress-proxy", "sandboxd", "mcp-server"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			missing = append(missing, name)
		}
	}
	switch len(missing) {
	case 0:
		out = append(out, newOK("binaries", "all in "+bin))
	case 3: // Docker mode leaves the folder like this
		out = append(out, newSkip("binaries", "those of embedded mode are not in "+bin+"; make build makes them"))
		if c.Deno == "" {
			return out
		}
		return append(out, denoFinding(ctx, c.Deno, bin)) // DENO_PATH is set, so a wrong path is a mistake
	default:
		out = append(out, newWarning("binaries", strings.Join(missing, ", ")+" not in "+bin+": embedded mode cannot start",
			"run make build, or pass --bin DIR; Docker mode does not need them"))
	}
	return append(out, denoFinding(ctx, c.Deno, bin), typeScriptFinding(ctx, bin), pythonFinding(ctx, c))
}

// denoFinding checks the version of Deno at path, or of the one next to the binaries in bin if path is "".
func denoFinding(ctx context.Context, path, bin string) Finding {
	found, warning, err := deno.FindDeno(ctx, path, bin)
	switch {
	case err != nil:
		return newWarning("Deno", err.Error(), "make deno fetches it; Docker mode does not need it")
	case warning != "":
		f := newWarning("Deno", warning, "make deno fetches "+deno.Version())
		f.minor = true
		return f
	default:
		return newOK("Deno", deno.Version()+" at "+found+", the pinned version")
	}
}

// typeScriptFinding checks the TypeScript compiler. Without it, code runs unchecked.
func typeScriptFinding(ctx context.Context, bin string) Finding {
	const name, fix = "TypeScript", "make typescript fetches it"
	dir, err := embedded.TypeScript(bin)
	if err != nil {
		return newSkip(name, "there is no compiler: code that uses typed clients is not checked before it runs; "+fix)
	}
	text, err := exec.CommandContext(ctx, filepath.Join(dir, "tsc"), "--version").Output() //nolint:gosec // beside bin
	version, is := strings.CutPrefix(strings.TrimSpace(string(text)), "Version ")
	pinned := sandboximage.TypeScriptVersion()
	switch {
	case err != nil || !is:
		return newWarning(name, "the compiler at "+dir+" does not run: code is not checked before it runs", fix)
	case version != pinned:
		f := newWarning(name, version+" at "+dir+" is not "+pinned+", which CodeForge is tested with", fix)
		f.minor = true
		return f
	}
	return newOK(name, version+" at "+dir+", the pinned version")
}

// pythonFinding checks the Python interpreter, which embedded mode offers if it exists.
func pythonFinding(ctx context.Context, c Config) Finding {
	i, err := python.FindInterpreter(ctx, python.ListCandidates(c.Python))
	switch {
	case err != nil && c.Python != "":
		return newWarning("Python", err.Error(), "correct PYTHON_PATH")
	case err != nil:
		return newSkip("Python", err.Error()+": code is TypeScript only; Docker mode has its own Python")
	case i.Environment != "":
		return newOK("Python", fmt.Sprintf("%s at %s, with the packages of %s", i.Version, i.Program, i.Environment))
	}
	return newOK("Python", i.Version+" at "+i.Program+", with its standard library")
}

// checkMachine checks the kernel features that embedded mode needs.
func checkMachine(ctx context.Context, c Config) []Finding {
	if runtime.GOOS != "linux" {
		return []Finding{newSkip("kernel", embedded.ErrUnsupported.Error())}
	}
	var out []Finding
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		out = append(out, newWarning("kernel", err.Error(), "mount /proc"))
	} else {
		out = append(out, newOK("kernel", "Linux "+strings.TrimSpace(string(release))))
	}
	actions, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil || !strings.Contains(string(actions), "errno") {
		out = append(out, newFailure("seccomp", "the kernel has no seccomp filters",
			"use a kernel with CONFIG_SECCOMP_FILTER"))
	} else {
		out = append(out, newOK("seccomp", "filters are available"))
	}
	text, err := exec.CommandContext(ctx, "bwrap", "--version").Output()
	if err != nil {
		return append(out, newWarning("bubblewrap", "bwrap is not installed: embedded mode cannot start",
			"apt-get install bubblewrap (or dnf, apk, pacman)"))
	}
	out = append(out, newOK("bubblewrap", strings.TrimSpace(string(text))))
	if err := embedded.ProbeKernel(ctx, c.Environ); err != nil {
		return append(out, newWarning("namespaces", err.Error(), ""))
	}
	who := "as this user"
	if os.Geteuid() == 0 {
		who = "as root"
	}
	return append(out, newOK("namespaces", "user, mount, process and network namespaces and bubblewrap work "+who))
}

// checkEngine checks the container engine and CodeForge's containers in it.
func checkEngine(ctx context.Context, c Config) []Finding {
	if _, err := exec.LookPath("docker"); err != nil {
		return []Finding{newSkip("Docker", "the docker command is not installed; only Docker mode needs it")}
	}
	text, err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Output()
	if err != nil {
		return []Finding{newSkip("Docker", "no engine answers"+stderrOf(err)+"; only Docker mode needs one")}
	}
	out := []Finding{newOK("Docker", "engine "+strings.TrimSpace(string(text)))}
	if text, err = exec.CommandContext(ctx, "docker", "compose", "version", "--short").Output(); err != nil {
		out = append(out, newWarning("Docker Compose", "the compose plugin is missing",
			"install docker-compose-plugin (Debian: docker-compose)"))
	} else {
		out = append(out, newOK("Docker Compose", strings.TrimSpace(string(text))))
	}
	text, err = exec.CommandContext(ctx, "docker", "ps", "--all", "--format", "{{.Names}}\t{{.Status}}",
		"--filter", //nolint:gosec // a filter
		"label=com.docker.compose.project="+cmp.Or(c.Project, "codeforge")).Output()
	if err != nil {
		return append(out, newWarning("containers", "they cannot be listed"+stderrOf(err), ""))
	}
	for line := range strings.Lines(string(text)) {
		name, status, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if isContainerHealthy(name, status) {
			out = append(out, newOK("container "+name, status))
		} else {
			out = append(out, newFailure("container "+name, status+lastHealthOutput(ctx, name),
				"docker logs "+name+" shows more; docker compose up -d starts it again"))
		}
	}
	return out
}

// isContainerHealthy reports whether a container's status in docker ps is as expected. The settings container checks
// the settings and then exits.
func isContainerHealthy(name, status string) bool {
	return strings.Contains(name, "-settings-") && strings.HasPrefix(status, "Exited (0)") ||
		strings.HasPrefix(status, "Up ") && !strings.Contains(status, "unhealthy") && !strings.Contains(status, "Paused")
}

// lastHealthOutput returns the output of a container's last healthcheck, in parentheses.
func lastHealthOutput(ctx context.Context, name string) string {
	cmd := exec.CommandContext(ctx, "docker", "inspect", "--format", "{{json .State.Health}}", name) //nolint:gosec
	text, err := cmd.Output()
	var health struct{ Log []struct{ Output string } }
	if err != nil || json.Unmarshal(text, &health) != nil || len(health.Log) == 0 {
		return ""
	}
	said := strings.Join(strings.Fields(health.Log[len(health.Log)-1].Output), " ")
	if said == "" {
		return ""
	}
	return " (" + safetext.OneLine(said) + ")"
}

// stderrOf returns the last line of a failed command's standard error, in parentheses.
func stderrOf(err error) string {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || len(exit.Stderr) == 0 {
		return ""
	}
	text := strings.TrimSpace(string(exit.Stderr))
	return " (" + text[strings.LastIndexByte(text, '\n')+1:] + ")"
}
