package jail

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// tarball is a package with one module, and a script that npm would run.
func tarball(t *testing.T, code string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, file := range [][2]string{
		{"package/package.json", `{"name": "probe", "version": "1.0.0", "main": "index.js", "bin": "index.js",
			"scripts": {"preinstall": "touch $MARK", "install": "touch $MARK", "postinstall": "touch $MARK"}}`},
		{"package/index.js", code},
	} {
		testkit.Must(t, w.WriteHeader(&tar.Header{Name: file[0], Mode: 0o644, Size: int64(len(file[1]))}))
		if _, err := w.Write([]byte(file[1])); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Must(t, w.Close())
	testkit.Must(t, z.Close())
	return b.Bytes()
}

// TestInstaller runs the installer's command line with real Deno and a registry: no script of a package runs, and where a
// lock file is given, other bytes under the same version are refused.
// Promise: first-installed-package
func TestInstaller(t *testing.T) {
	deno := testkit.DenoPath(t)
	var content atomic.Value // []byte, the tarball
	var registry *httptest.Server
	registry = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".tgz") {
			_, _ = w.Write(content.Load().([]byte))
			return
		}
		sum := sha512.Sum512(content.Load().([]byte))
		fmt.Fprintf(w, `{"name": "probe", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "probe", "version": "1.0.0",
			"hasInstallScript": true, "scripts": {"postinstall": "touch $MARK"}, "bin": {"probe": "index.js"},
			"dist": {"tarball": "%s/probe/-/probe-1.0.0.tgz", "integrity": "sha512-%s"}}}}`,
			registry.URL, base64.StdEncoding.EncodeToString(sum[:]))
	}))
	defer registry.Close()
	mark := filepath.Join(t.TempDir(), "a-script-ran")
	install := func(s Server, dir string) (string, error) {
		argv := s.commandLine("", deno, "", dir)
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Env = append(s.buildEnviron(os.Getenv("PATH"), "", dir), "HOME="+t.TempDir(), "MARK="+mark)
		cmd.Env = slices.DeleteFunc(cmd.Env, func(e string) bool { return e == "DENO_CERT=" }) // there is no TLS here
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	s := Server{Package: "npm:probe@1.0.0", Registry: registry.URL + "/", Install: true}
	content.Store(tarball(t, "console.log(1)"))
	first := t.TempDir()
	if out, err := install(s, first); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a script of the package ran")
	}
	lock, err := os.ReadFile(filepath.Join(first, "deno.lock"))
	if err != nil || !strings.Contains(string(lock), "sha512-") {
		t.Fatalf("%s %v", lock, err)
	}
	for _, row := range []struct{ name, code, want string }{{"same", "console.log(1)", ""}, {"other", "console.log(2)", "checksum did not match"}} {
		content.Store(tarball(t, row.code))
		again := t.TempDir()
		testkit.Must(t, os.WriteFile(filepath.Join(again, "deno.lock"), lock, 0o644))
		frozen := s
		frozen.Frozen = true
		out, err := install(frozen, again)
		if (err == nil) != (row.want == "") || !strings.Contains(out, row.want) {
			t.Errorf("%s bytes: %v: %s", row.name, err, out)
		}
	}
}
