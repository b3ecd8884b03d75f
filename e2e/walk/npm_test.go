package walk

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/registry"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	sandboximage "github.com/codeforge-mcp/codeforge/sandbox-image"
)

// npmVersion is the version of the packages that the test makes.
const npmVersion = "0.0.0-test.1"

// TestNPM makes the npm packages of a release, serves them from a registry, and uses them as a user without Go would: one
// command of npx in an empty folder starts CodeForge, the next ones run code and stop it.
func TestNPM(t *testing.T) {
	embeddedOnly(t)
	platform, known := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	if !known {
		testkit.SkipBecause(t, "no npm package is made for "+runtime.GOARCH)
	}
	dir := t.TempDir()
	tarballs := makeNPM(t, dir, platform)
	server := httptest.NewUnstartedServer(nil)
	packages, err := registry.New(tarballs, server.Listener.Addr().String())
	testkit.Must(t, err)
	server.Config.Handler = packages
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(dir, "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	testkit.Must(t, os.WriteFile(ca, pem.EncodeToMemory(block), 0o600))

	home, empty := filepath.Join(dir, "home"), filepath.Join(dir, "empty")
	testkit.Must(t, errors.Join(os.Mkdir(home, 0o755), os.Mkdir(empty, 0o755))) //nolint:gosec // as a home directory
	env := map[string]string{
		"HOME": home, "DENO_PATH": "", "npm_config_registry": server.URL + "/", "npm_config_cafile": ca,
		"npm_config_update_notifier": "false", "npm_config_audit": "false",
	}
	do := func(script string, want ...string) {
		t.Helper()
		out, code, err := world.Shell(within(t, 120), empty, script, env)
		if err != nil || code != 0 {
			t.Errorf("%s: %v, exit code %d\n%s", script, err, code, out)
		}
		says(t, out, want...)
	}
	// Programs of the working directory, which npx puts first into PATH.
	bin := filepath.Join(empty, "node_modules", ".bin")
	planted := filepath.Join(dir, "planted")
	testkit.Must(t, os.MkdirAll(bin, 0o755)) //nolint:gosec // as npm makes it
	for _, name := range []string{"bwrap", "docker", "python3"} {
		script := []byte("#!/bin/sh\ntouch " + planted + "\nexit 1\n")
		testkit.Must(t, os.WriteFile(filepath.Join(bin, name), script, 0o755)) //nolint:gosec // a program
	}
	before := world.TakeSnapshot()
	began := time.Now()
	readme := releaseReadme(t)
	do(readme, "codeforge is new", "is ready", "npx -y codeforge-mcp run FILE.ts", "npx -y codeforge-mcp try")
	do(`npx -y codeforge-mcp run -e "console.log(6 * 7)"`, "42\n")
	t.Logf("from nothing to the first result: %s", time.Since(began).Round(100*time.Millisecond))
	do("ls "+filepath.Join(home, "codeforge", "apis", "github"), "config.json.example\n")
	if _, err := os.Stat(filepath.Join(home, "codeforge", "apis", "github", "config.json")); err == nil {
		t.Error("up copied a config.json that it found beside its programs")
	}
	do("npx -y codeforge-mcp status", "running", filepath.Join(home, "codeforge"))
	do("npx -y codeforge-mcp down", "stopped")
	if left := before.Leftovers(); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	if files, err := os.ReadDir(empty); err != nil || len(files) != 1 {
		t.Errorf("the working directory has %v, %v; want only node_modules", files, err)
	}
	if _, err := os.Stat(planted); err == nil {
		t.Error("a program of the working directory ran")
	}

	out, code, err := world.Shell(within(t, 120), empty, "npm install --silent --prefix "+dir+"/omitted --omit=optional codeforge-mcp\n"+
		dir+"/omitted/node_modules/.bin/codeforge status", env)
	if err != nil || code != 1 {
		t.Errorf("without the package of the platform: %v, exit code %d", err, code)
	}
	says(t, out, "@codeforge-mcp/linux-"+platform+" is missing", "--omit=optional")
}

// releaseReadme is the command with which the README of a release starts CodeForge. The rest of that README is the one of
// the source.
func releaseReadme(t *testing.T) string {
	t.Helper()
	made, err := exec.CommandContext(t.Context(), filepath.Join(root(t), "make/release-readme.sh"), npmVersion).Output()
	testkit.Must(t, err)
	if strings.Contains(string(made), "unreleased") || !strings.Contains(string(made), "\nv"+npmVersion+" · ") {
		t.Error("the README of a release has another version")
	}
	found, source := blocks(string(made)), blocks(document(t, "README.md"))
	step := slices.IndexFunc(found, func(b block) bool { return strings.HasPrefix(b.Text, "npx ") })
	if step < 0 || len(found) != len(source)+2 || !strings.HasSuffix(found[step+1].Text, "./up.sh\n") || found[step+2] != source[step] {
		t.Fatalf("the README of a release has the blocks %+v", found)
	}
	return found[step].Text
}

// makeNPM makes the packages of this machine's platform in dir, of the binaries of make build, and the tarballs that a
// registry has of them. It returns the folder of the tarballs.
func makeNPM(t *testing.T, dir, platform string) string {
	t.Helper()
	archives, files, out := filepath.Join(dir, "archives"), filepath.Join(dir, "files"), filepath.Join(dir, "out")
	stage := filepath.Join(dir, "codeforge_"+npmVersion)
	own := filepath.Join(files, runtime.GOARCH)
	for _, folder := range []string{archives, stage, own} {
		testkit.Must(t, os.MkdirAll(folder, 0o755)) //nolint:gosec // public
	}
	for _, name := range []string{"codeforge", "egress-proxy", "sandboxd", "mcp-server", "docker-shim", "mcp-bridge"} {
		program, err := world.Program(name)
		testkit.Must(t, err)
		copyProgram(t, program, filepath.Join(stage, name))
	}
	testkit.Must(t, os.CopyFS(filepath.Join(own, "typescript"), os.DirFS(testkit.TypeScript(t))))
	examples := filepath.Join(stage, "apis", "github")
	testkit.Must(t, os.MkdirAll(examples, 0o755)) //nolint:gosec // public
	example := []byte(document(t, "apis/github/config.json.example"))
	testkit.Must(t, os.WriteFile(filepath.Join(examples, "config.json.example"), example, 0o600))
	// A key beside it, as in a folder that somebody uses, stays there.
	testkit.Must(t, os.WriteFile(filepath.Join(examples, "config.json"), []byte("{}"), 0o600))
	writeTarball(t, stage, filepath.Base(stage), filepath.Join(archives, filepath.Base(stage)+"_linux_"+runtime.GOARCH+".tar.gz"))
	made, err := exec.CommandContext(t.Context(), filepath.Join(root(t), "make/npm-release.sh"), npmVersion, archives, files, out).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, made)
	}

	interpreter := filepath.Join(out, "deno")
	testkit.Must(t, os.Mkdir(interpreter, 0o755)) //nolint:gosec // public
	copyProgram(t, testkit.DenoPath(t), filepath.Join(interpreter, "deno"))
	manifest, err := json.Marshal(map[string]string{"name": "@deno/linux-" + platform + "-glibc", "version": sandboximage.DenoVersion()})
	testkit.Must(t, errors.Join(err, os.WriteFile(filepath.Join(interpreter, "package.json"), manifest, 0o600)))
	tarballs := filepath.Join(dir, "tarballs")
	testkit.Must(t, os.Mkdir(tarballs, 0o755)) //nolint:gosec // public
	for _, name := range []string{"codeforge-mcp", "linux-" + platform, "deno"} {
		writeTarball(t, filepath.Join(out, name), "package", filepath.Join(tarballs, name+".tgz"))
	}
	return tarballs
}

// copyProgram copies an executable file.
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	testkit.Must(t, errors.Join(err, os.WriteFile(to, data, 0o755))) //nolint:gosec // a program
}

// writeTarball packs a folder's files below the folder prefix of a tarball.
func writeTarball(t *testing.T, dir, prefix, target string) {
	t.Helper()
	file, err := os.Create(target)
	testkit.Must(t, err)
	zip, err := gzip.NewWriterLevel(file, gzip.NoCompression) // faster
	testkit.Must(t, err)
	files := tar.NewWriter(zip)
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		head, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		head.Name = prefix + "/" + name
		source, err := os.Open(path)
		if err != nil {
			return err
		}
		defer source.Close()
		if err := files.WriteHeader(head); err != nil {
			return err
		}
		_, err = io.Copy(files, source)
		return err
	})
	testkit.Must(t, errors.Join(err, files.Close(), zip.Close(), file.Close()))
}
