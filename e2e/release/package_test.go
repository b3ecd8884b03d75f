// Package release tests what a release offers besides images: that a package of .goreleaser.yaml installs on a machine
// where nothing else was installed, works there, and leaves nothing when it is removed.
package release

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the format of the package
	"go.yaml.in/yaml/v3"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// binaries are what a package for Linux holds.
var binaries = []string{"codeforge", "egress-proxy", "sandboxd", "mcp-server", "docker-shim", "mcp-bridge"}

// TestPackage installs the package on a Debian with nothing but the packages that it names, and uses it there without
// any network: a project is made, CodeForge starts, code runs and is checked, and everything is removed.
func TestPackage(t *testing.T) {
	if os.Getenv("CODEFORGE_E2E_MODE") != "docker" {
		t.Skip("only with CODEFORGE_E2E_MODE=docker")
	}
	dir := t.TempDir()
	makePackage(t, filepath.Join(dir, "codeforge.deb"))
	image := strings.TrimSpace(docker(t, "build", "--quiet", "--build-arg", "HTTP_PROXY", "--build-arg", "HTTPS_PROXY",
		"--file", filepath.Join(testkit.RootDir(t), "e2e/release/testdata/Dockerfile"), dir))
	t.Cleanup(func() { docker(t, "image", "rm", "--force", image) })
	// Almost --privileged, which fails where the engine itself lacks a capability.
	machine := strings.TrimSpace(docker(t, "run", "--detach", "--init", "--network", "none", "--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE",
		"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--security-opt", "systempaths=unconfined",
		image, "sleep", "infinity"))
	t.Cleanup(func() { docker(t, "rm", "--force", "--volumes", machine) })

	for _, step := range []struct{ command, want string }{
		{"codeforge version", "codeforge"},
		{"codeforge init && ls -A", "apis"},
		{"ls apis/github", "config.json.example"},
		{"codeforge check", ""},
		{"codeforge up --detach", "is ready"},
		{"codeforge run -e 'console.log(6 * 7)'", "42"},
		{"codeforge status", "running"},
		{"codeforge doctor --offline", ""},
		{"codeforge down", ""},
		{"bash -ic 'source /usr/share/bash-completion/completions/codeforge && complete -p codeforge' 2>/dev/null", "codeforge"},
		{"dpkg --listfiles codeforge", "/usr/share/man/man1/codeforge.1"},
		{"dpkg --verify codeforge && apt-get remove -qq codeforge && ls /usr/lib/codeforge /usr/bin/codeforge 2>&1 | grep -c 'No such'", "2"},
	} {
		out, err := exec.CommandContext(t.Context(), "docker", "exec", "--workdir", "/project", machine, "bash", "-c", step.command).CombinedOutput()
		if err != nil || !strings.Contains(string(out), step.want) {
			t.Errorf("%s: %v, want %q in\n%s", step.command, err, step.want, out)
		}
	}
}

// makePackage makes the package for this machine's architecture as goreleaser does, of the binaries of make build.
func makePackage(t *testing.T, target string) {
	t.Helper()
	root := testkit.RootDir(t)
	files := filepath.Join(t.TempDir(), "files")
	// What make build has fetched is not fetched again.
	own := filepath.Join(files, runtime.GOARCH)
	testkit.Must(t, os.MkdirAll(own, 0o755))
	testkit.Must(t, os.CopyFS(filepath.Join(own, "typescript"), os.DirFS(testkit.TypeScript(t))))
	testkit.Must(t, os.Link(testkit.DenoPath(t), filepath.Join(own, "deno")))
	run(t, root, "make/release.sh", files, runtime.GOARCH)

	config := packageConfig(t, root, strings.NewReplacer(".tools/release", files, "{{ .Arch }}", runtime.GOARCH))
	t.Chdir(root) // the paths in the configuration are relative to it
	parsed, err := nfpm.Parse(strings.NewReader(config))
	if err != nil {
		t.Fatalf("%v\n%s", err, config)
	}
	info, err := parsed.Get("deb")
	testkit.Must(t, err)
	packager, err := nfpm.Get("deb")
	testkit.Must(t, err)
	testkit.Must(t, nfpm.PrepareForPackager(info, "deb"))
	out, err := os.Create(target)
	testkit.Must(t, err)
	testkit.Must(t, errors.Join(packager.Package(info, out), out.Close()))
}

// packageConfig is the first package of .goreleaser.yaml as nfpm reads it.
func packageConfig(t *testing.T, root string, paths *strings.Replacer) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	testkit.Must(t, err)
	var goreleaser struct {
		NFPMs []map[string]any `yaml:"nfpms"`
	}
	testkit.Must(t, yaml.Unmarshal([]byte(paths.Replace(string(text))), &goreleaser))
	config := goreleaser.NFPMs[0]
	contents, _ := config["contents"].([]any)
	for _, name := range binaries {
		program, err := world.Program(name)
		testkit.Must(t, err)
		contents = append(contents, map[string]any{"src": program, "dst": config["bindir"].(string) + "/" + name})
	}
	config["contents"] = contents
	config["name"], config["depends"] = config["package_name"], config["dependencies"]
	config["arch"] = runtime.GOARCH
	config["version"] = "v0.0.0-test"
	config["deb"] = map[string]string{"compression": "none"} // faster
	for _, goreleasers := range []string{"id", "package_name", "dependencies", "file_name_template", "formats", "bindir"} {
		delete(config, goreleasers)
	}
	out, err := yaml.Marshal(config)
	testkit.Must(t, err)
	return string(out)
}

func docker(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, ".", "docker", args...)
}

// run returns what a command prints on standard output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...) //nolint:noctx // cleanup uses it, when the test's context has ended
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, exit.Stderr)
		}
		t.Fatal(err)
	}
	return string(out)
}
