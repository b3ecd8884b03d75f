// Package scripts tests the scripts behind the Makefile as they run on macOS: with a small PATH, with tools that are not
// GNU's (busybox), and with a docker command that stands for Docker Desktop's.
package scripts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// tools are those that the scripts for users need. All of them are on macOS, which has neither timeout nor flock nor
// sha256sum.
var tools = []string{
	"awk", "cat", "chmod", "cut", "date", "dirname", "grep", "head", "id", "kill", "mkdir", "mktemp", "mv", "rm", "sed",
	"sleep", "sort", "tail", "tar", "tr", "uniq", "xargs",
}

// machine is a folder with the scripts, and a PATH.
type machine struct {
	t         *testing.T
	dir, path string
}

// newMachine makes a machine of a system whose docker is a script, or not there.
func newMachine(t *testing.T, system, docker string) machine {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		testkit.SkipBecause(t, "busybox is not installed")
	}
	root, err := testkit.FindRoot()
	testkit.Must(t, err)
	m := machine{t, t.TempDir(), t.TempDir()}
	for _, tool := range tools {
		testkit.Must(t, os.Symlink(busybox, filepath.Join(m.path, tool)))
	}
	m.program(filepath.Join(m.path, "uname"), "[ \"$1\" = -s ] && echo "+system+" || echo "+system+" arm64")
	if docker != "" {
		m.program(filepath.Join(m.path, "docker"), "echo \"docker $*\" >>"+m.dir+"/calls\n"+docker)
	}
	testkit.Must(t, os.Mkdir(filepath.Join(m.dir, "make"), 0o755))
	scripts, err := filepath.Glob(filepath.Join(root, "make", "*.sh"))
	testkit.Must(t, err)
	for _, from := range append(scripts, filepath.Join(root, "rebuild.sh")) {
		text, err := os.ReadFile(from)
		testkit.Must(t, err)
		rel, err := filepath.Rel(root, from)
		testkit.Must(t, err)
		m.program(filepath.Join(m.dir, rel), strings.TrimPrefix(string(text), "#!/bin/sh\n"))
	}
	return m
}

// program writes a script for the system's shell: that of busybox would take its own tools, whatever PATH says.
func (m machine) program(path, text string) {
	m.t.Helper()
	testkit.Must(m.t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755)) //nolint:gosec // a program
}

// run runs a script and returns what it printed, its exit code, and what docker was called with.
func (m machine) run(script string, env ...string) (out string, code int, calls string) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), filepath.Join(m.dir, script))
	cmd.Dir, cmd.Env = "/", append(env, "PATH="+m.path, "HOME="+m.dir)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	log, _ := os.ReadFile(filepath.Join(m.dir, "calls"))
	if strings.Contains(string(text), "not found") {
		m.t.Errorf("%s uses what macOS does not have:\n%s", script, text)
	}
	return string(text), cmd.ProcessState.ExitCode(), string(log)
}

// Docker Desktop, with a stack of this folder, without one, and with an engine that does not run.
const (
	running = `case "$*" in
"version "*) echo 28.0 ;;
"ps -a --filter"*) ;;
"ps "*) echo 0123456789ab ;;
"compose ps"*) echo 0123456789ab ;;
"compose exec -T mcp-server codeforge connect") echo "this is how clients connect" ;;
esac`
	empty   = `case "$*" in "version "*) echo 28.0 ;; esac`
	stopped = `echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?" >&2; exit 1`
)

func TestMacOS(t *testing.T) {
	rows := []struct {
		name, system, docker, script string
		code                         int
		says                         []string
		calls                        string
	}{
		{"up", "Darwin", running, "make/up.sh", 0, []string{"docker mode", " s] Building", "this is how clients connect"}, "docker compose up -d --no-build --remove-orphans --wait"},
		{"codeforge for macOS", "Darwin", running, "rebuild.sh", 0, nil, "docker build --quiet --target host --build-arg HOST_OS=darwin"},
		{"codeforge for Linux", "Linux", running, "rebuild.sh", 0, nil, "docker compose cp mcp-server:/usr/local/bin/codeforge"},
		{"up without an engine", "Darwin", stopped, "make/up.sh", 1, []string{"Cannot connect to the Docker daemon", "Start Docker"}, ""},
		{"up without docker", "Darwin", "", "make/up.sh", 1, []string{"docker is not installed", "Start Docker"}, ""},
		{"rebuild with a wrong setting", "Darwin", strings.Replace(running, "esac", "\"compose run\"*) exit 1 ;;\nesac", 1), "rebuild.sh", 1,
			[]string{"CodeForge was not replaced"}, "docker compose run --rm --no-deps -T settings\n"},
		{"rebuild without an engine", "Darwin", stopped, "rebuild.sh", 1, []string{"Cannot connect to the Docker daemon", "Docker Desktop"}, ""},
		{"mode on Linux without an engine", "Linux", stopped, "make/mode.sh", 0, []string{"Cannot connect to the Docker daemon", "embedded\n"}, ""},
		{"down", "Darwin", running, "make/down.sh", 0, nil, "docker compose down"},
		{"down with nothing", "Darwin", empty, "make/down.sh", 0, []string{"CodeForge does not run in"}, "docker ps"},
		{"down without an engine", "Darwin", stopped, "make/down.sh", 0, []string{"The containers were not stopped: no Docker engine answers: Cannot connect"}, ""},
		{"deno", "Darwin", "", "make/deno.sh", 1, []string{"embedded mode needs Linux"}, ""},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			m := newMachine(t, r.system, r.docker)
			testkit.Must(t, os.Mkdir(filepath.Join(m.dir, "sandbox-image"), 0o755))
			testkit.Must(t, os.WriteFile(filepath.Join(m.dir, "sandbox-image", "deno.version"), []byte("version 2.0.0\n"), 0o600))
			env := []string{}
			if r.name == "deno" {
				m.program(filepath.Join(m.dir, "make", "call.sh"), `exec "$(dirname "$0")/deno.sh" .tools/deno`)
				r.script = "make/call.sh"
			}
			out, code, calls := m.run(r.script, env...)
			if code != r.code {
				t.Errorf("exit %d, want %d", code, r.code)
			}
			for _, want := range r.says {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q", want)
				}
			}
			if !strings.Contains(calls, r.calls) || r.calls == "" && strings.Contains(calls, "docker compose") {
				t.Errorf("docker was called with\n%swant %q", calls, r.calls)
			}
			if t.Failed() {
				t.Logf("it printed\n%s", out)
			}
		})
	}
}

// TestUninstall: everything is listed before it is removed, and the user's own files stay.
func TestUninstall(t *testing.T) {
	const docker = `case "$1 $2" in
"version --format") echo 28.0 ;;
"compose config") echo "name: codeforge" ;;
"ps -aq") echo c1; echo c2 ;;
"volume ls") echo codeforge_skills; echo codeforge_run-sandbox ;;
"network ls") echo n1 ;;
"images -q") echo i2; echo i1; echo i1 ;;
esac`
	folders := []string{".codeforge/skills", "bin", ".tools", "bench/out", "apis/shop"}
	m := newMachine(t, "Darwin", docker)
	for _, folder := range folders {
		testkit.Must(t, os.MkdirAll(filepath.Join(m.dir, folder), 0o755))
	}
	left := func() string {
		var names []string
		for _, folder := range folders {
			if _, err := os.Stat(filepath.Join(m.dir, folder)); err == nil {
				names = append(names, folder)
			}
		}
		return strings.Join(names, " ")
	}
	const listed = "  folders      .codeforge bin .tools bench/out\n  containers   2\n  volumes      codeforge_skills codeforge_run-sandbox\n" +
		"  networks     1\n  images       2\nEvery folder on this machine whose Docker project is codeforge shares these volumes and images.\n"
	out, code, calls := m.run("make/uninstall.sh")
	if code != 1 || !strings.Contains(out, listed) || !strings.Contains(out, "Not removed: set YES=1") {
		t.Errorf("without an answer: exit %d\n%s", code, out)
	}
	if strings.Contains(calls, " rm") || left() != strings.Join(folders, " ") {
		t.Errorf("it removed something without asking; left: %s\n%s", left(), calls)
	}
	out, code, calls = m.run("make/uninstall.sh", "YES=1")
	if code != 0 || !strings.Contains(out, listed) || !strings.Contains(out, "docker builder prune") || !strings.Contains(out, "npm cache clean") {
		t.Errorf("exit %d\n%s", code, out)
	}
	for _, want := range []string{"docker rm -f c1 c2\n", "docker volume rm codeforge_skills codeforge_run-sandbox\n", "docker network rm n1\n", "docker rmi -f i1 i2\n"} {
		if !strings.Contains(calls, want) {
			t.Errorf("docker was not called with %s%s", want, calls)
		}
	}
	if left() != "apis/shop" {
		t.Errorf("left: %s", left())
	}
}

// TestUninstallElsewhere: a stack of the same name that was started in another folder is left alone.
func TestUninstallElsewhere(t *testing.T) {
	m := newMachine(t, "Darwin", `case "$*" in
"version "*) echo 28.0 ;;
"ps "*working_dir*) ;;
"ps "*) echo c1 ;;
esac`)
	if out, code, calls := m.run("make/uninstall.sh", "YES=1"); code != 1 || !strings.Contains(out, "another folder") || strings.Contains(calls, " rm") {
		t.Errorf("exit %d\n%s%s", code, out, calls)
	}
}

// TestRebuildElsewhere: a stack of the same name that was started in another folder is not replaced.
func TestRebuildElsewhere(t *testing.T) {
	m := newMachine(t, "Darwin", `case "$*" in
"version "*) echo 28.0 ;;
"ps -a --filter"*) echo /home/me/other ;;
esac`)
	out, code, calls := m.run("rebuild.sh")
	if code != 1 || !strings.Contains(out, "The stack codeforge is that of /home/me/other.") || strings.Contains(calls, "compose build") {
		t.Errorf("exit %d\n%s%s", code, out, calls)
	}
}

// TestRebuildClosedClone: in a clone that was made with umask 077, what code must read becomes readable.
func TestRebuildClosedClone(t *testing.T) {
	m := newMachine(t, "Darwin", running)
	resolver := filepath.Join(m.dir, "sandbox-image", "resolv.conf")
	testkit.Must(t, os.Mkdir(filepath.Dir(resolver), 0o700))
	testkit.Must(t, os.WriteFile(resolver, nil, 0o600))
	out, code, _ := m.run("rebuild.sh")
	if info, err := os.Stat(resolver); err != nil || info.Mode().Perm() != 0o644 || code != 0 {
		t.Errorf("%v %v, exit %d\n%s", info, err, code, out)
	}
}

// TestRebuildRegistry: when npm was asked for the registry, it says that Compose alone does not ask, and not otherwise.
func TestRebuildRegistry(t *testing.T) {
	for env, want := range map[string]bool{"": true, "PACKAGE_REGISTRY=https://packages.example": false} {
		m := newMachine(t, "Darwin", running)
		m.program(filepath.Join(m.path, "npm"), "echo https://npm.example")
		testkit.Must(t, os.MkdirAll(filepath.Join(m.dir, "apis", "memory"), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(m.dir, "apis", "memory", "config.json"), []byte(`{"mcp": {"package": "npm:m@1.0.0"}}`), 0o600))
		out, code, _ := m.run("rebuild.sh", env)
		if code != 0 || strings.Contains(out, "write PACKAGE_REGISTRY into .env") != want {
			t.Errorf("%s: exit %d\n%s", env, code, out)
		}
	}
}

// TestUpNeeds: what embedded mode needs is looked for before anything is built, and all that is missing is said at once.
func TestUpNeeds(t *testing.T) {
	const arm64 = "#!/bin/sh\n[ \"$1\" = -s ] && echo Linux || echo aarch64\n"
	for _, r := range []struct {
		name, golang string
		says         string
	}{
		{"nothing is there", "", "Go is not installed"},
		{"an old Go", "go1.19.8", "This Go is go1.19.8"},
	} {
		t.Run(r.name, func(t *testing.T) {
			m := newMachine(t, "Linux", "")
			testkit.Must(t, os.WriteFile(filepath.Join(m.path, "uname"), []byte(arm64), 0o755)) //nolint:gosec // a program
			if r.golang != "" {
				m.program(filepath.Join(m.path, "go"), "echo "+r.golang)
			}
			m.program(filepath.Join(m.path, "make"), "echo RECIPE >&2")
			testkit.Must(t, os.Mkdir(filepath.Join(m.dir, "sandbox-image"), 0o755))
			pins := "version 2.0.0\nlinux-arm64-glibc -\n"
			testkit.Must(t, os.WriteFile(filepath.Join(m.dir, "sandbox-image", "deno.version"), []byte(pins), 0o600))
			out, code, _ := m.run("make/up.sh")
			for _, want := range []string{r.says, "Install Go 1.26 or newer", "Missing: bubblewrap.", "npm is not installed"} {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q", want)
				}
			}
			if code != 1 || strings.Contains(out, "RECIPE") || t.Failed() {
				t.Errorf("exit %d:\n%s", code, out)
			}
		})
	}
}

// TestEngineHangs: an engine that does not answer is waited for, and not for ever. The machine's sleep is a short one.
func TestEngineHangs(t *testing.T) {
	m := newMachine(t, "Darwin", "exec tail -f /dev/null")
	testkit.Must(t, os.Remove(filepath.Join(m.path, "sleep")))
	m.program(filepath.Join(m.path, "sleep"), "[ $1 = 10 ]")
	if out, code, _ := m.run("make/engine.sh"); code != 1 || !strings.Contains(out, "does not answer within 10 s") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

// TestNoGNU: no script for users has an option that only GNU's tools know. What busybox happens to know too is not seen
// by running them.
func TestNoGNU(t *testing.T) {
	root, err := testkit.FindRoot()
	testkit.Must(t, err)
	gnu := regexp.MustCompile(`((?:^|[^-])timeout \d|readlink -f|realpath|sed -i|grep -\w*P|date -d|stat -c|xargs -r|cp -\w*t |sort -V|base64 -w|ls --|tail --|head --|mktemp --|find [^|]*-printf|echo -[en])`)
	scripts, err := filepath.Glob(filepath.Join(root, "make", "*.sh"))
	testkit.Must(t, err)
	if len(scripts) == 0 {
		t.Fatal("no scripts")
	}
	for _, path := range append(scripts, filepath.Join(root, "rebuild.sh")) {
		text, err := os.ReadFile(path)
		testkit.Must(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			if what := gnu.FindString(line); what != "" && !strings.HasPrefix(strings.TrimSpace(line), "#") {
				t.Errorf("%s:%d uses %s", filepath.Base(path), i+1, what)
			}
		}
	}
}

// TestLineFeeds: a checkout on Windows has line feeds in every text, as it is mounted into Linux containers, and none is
// stored with others.
func TestLineFeeds(t *testing.T) {
	root, err := testkit.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "--eol")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		testkit.SkipBecause(t, "not a git checkout")
	}
	files := 0
	for line := range strings.Lines(string(out)) {
		files++
		about, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if !strings.Contains(about, "attr/text=auto eol=lf") || strings.Contains(about, "i/crlf") || strings.Contains(about, "i/mixed") {
			t.Errorf("%s: %s", name, about)
		}
	}
	if files < 100 {
		t.Errorf("git lists %d files", files)
	}
}
