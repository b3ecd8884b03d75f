package jail

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// index is a package index of one folder of files, over HTTP.
type index struct {
	mu    sync.Mutex
	files map[string][]byte
}

func (x *index) addFile(name string, data []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.files[name] = data
}

func (x *index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if data, ok := x.files[strings.TrimPrefix(r.URL.Path, "/files/")]; ok {
		_, _ = w.Write(data)
		return
	}
	name, ok := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/"), "/simple/")
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	for file, data := range x.files {
		if strings.HasPrefix(file, name+"-") {
			fmt.Fprintf(w, "<a href=\"/files/%s#sha256=%x\">%s</a>\n", file, sha256.Sum256(data), file)
		}
	}
}

// wheel returns a wheel of the package probe 1.0.0 with these files.
func wheel(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	all := map[string]string{
		"probe-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: probe\nVersion: 1.0.0\n",
		"probe-1.0.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"probe-1.0.0.dist-info/RECORD":   "",
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		f, err := w.Create(name)
		testkit.Must(t, err)
		_, err = f.Write([]byte(text))
		testkit.Must(t, err)
	}
	testkit.Must(t, w.Close())
	return b.Bytes()
}

// touch is code in Python that leaves a file at $MARK.
const touch = "import os; open(os.environ['MARK'], 'a').close()\n"

// sourceDistribution returns a package probe that has to be built. Its build leaves a file at $MARK.
func sourceDistribution(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, file := range [][2]string{
		{"PKG-INFO", "Metadata-Version: 2.1\nName: probe\nVersion: 1.0.0\n"},
		{"pyproject.toml", "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n"},
		{"backend.py", touch + "raise SystemExit('built')\n"},
	} {
		testkit.Must(t, w.WriteHeader(&tar.Header{Name: "probe-1.0.0/" + file[0], Mode: 0o644, Size: int64(len(file[1]))}))
		_, err := w.Write([]byte(file[1]))
		testkit.Must(t, err)
	}
	testkit.Must(t, w.Close())
	testkit.Must(t, z.Close())
	return b.Bytes()
}

// wheelRig installs packages with the real installer, real uv and an index.
type wheelRig struct {
	index *index
	mark  string
	url   string
}

func newWheelRig(t *testing.T) *wheelRig {
	t.Helper()
	r := &wheelRig{index: &index{files: map[string][]byte{}}, mark: filepath.Join(t.TempDir(), "code-of-the-package-ran")}
	server := httptest.NewServer(r.index)
	t.Cleanup(server.Close)
	r.url = server.URL + "/simple/"
	return r
}

// install runs the installer's command line in a folder.
func (r *wheelRig) install(t *testing.T, pkg, dir string) (string, error) {
	t.Helper()
	s := Server{Package: pkg, Registry: r.url, Install: true}
	argv := s.commandLine("", "", testkit.UVPath(t), dir)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(s.buildEnviron(os.Getenv("PATH"), "", dir), "HOME="+t.TempDir(), "TMPDIR="+t.TempDir(), "MARK="+r.mark)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(e string) bool { return strings.HasSuffix(e, "=") }) // there is no TLS here
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *wheelRig) hasRun() bool {
	_, err := os.Stat(r.mark)
	return err == nil
}

// TestWheels runs the installer with real uv and an index: no code of a package runs, a package without a wheel is
// refused, and with a lock file other bytes under the same version are refused.
// Promise: first-installed-package
func TestWheels(t *testing.T) {
	t.Run("hooks", func(t *testing.T) {
		r := newWheelRig(t)
		r.index.addFile("probe-1.0.0-py3-none-any.whl", wheel(t, map[string]string{
			"probe/__init__.py": touch, "zz.pth": "import probe\n", "sitecustomize.py": touch, "usercustomize.py": touch,
		}))
		dir := t.TempDir()
		if out, err := r.install(t, "pypi:probe@1.0.0", dir); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		store := filepath.Join(dir, sandboxapi.PythonDir)
		run := func(env string, args ...string) {
			cmd := exec.CommandContext(t.Context(), sandboxapi.PythonProgram, args...)
			cmd.Env = []string{"MARK=" + r.mark, env}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		// As a server starts.
		run("PYTHONPATH="+store, "-I", "-S", "-B", "-c", "import sys; sys.path.append(sys.argv[1])", store)
		if r.hasRun() {
			t.Error("code of the package ran")
		}
		// The control: each of these starts runs it.
		for name, args := range map[string][]string{
			"sitecustomize": {"-c", ""}, "pth": {"-I", "-c", "import site, sys; site.addsitedir(sys.argv[1])", store},
		} {
			_ = os.Remove(r.mark)
			run("PYTHONPATH="+store, args...)
			if !r.hasRun() {
				t.Errorf("%s: the package is not hostile", name)
			}
		}
	})
	t.Run("source", func(t *testing.T) {
		r := newWheelRig(t)
		r.index.addFile("probe-1.0.0.tar.gz", sourceDistribution(t))
		out, err := r.install(t, "pypi:probe@1.0.0", t.TempDir())
		if err == nil || !strings.Contains(out, "no usable wheels") || r.hasRun() {
			t.Errorf("%v, ran: %v: %s", err, r.hasRun(), out)
		}
	})
	t.Run("lock", func(t *testing.T) {
		r := newWheelRig(t)
		const file = "probe-1.0.0-py3-none-any.whl"
		first := wheel(t, map[string]string{"probe.py": "1\n"})
		r.index.addFile(file, first)
		dir := t.TempDir()
		if out, err := r.install(t, "pypi:probe@1.0.0", dir); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		lock, err := os.ReadFile(filepath.Join(dir, "requirements.lock"))
		if want := fmt.Sprintf("probe==1.0.0 \\\n    --hash=sha256:%x\n", sha256.Sum256(first)); string(lock) != want || err != nil {
			t.Fatalf("%q, %v; want %q", lock, err, want)
		}
		for _, row := range []struct{ name, code, want string }{{"same", "1\n", ""}, {"other", "2\n", "Hash mismatch"}} {
			if r.index.addFile(file, first); row.want != "" {
				r.index.addFile(file, wheel(t, map[string]string{"probe.py": row.code}))
			}
			again := t.TempDir()
			testkit.Must(t, os.WriteFile(filepath.Join(again, "requirements.lock"), lock, 0o644))
			out, err := r.install(t, "pypi:probe@1.0.0", again)
			if (err == nil) != (row.want == "") || !strings.Contains(out, row.want) {
				t.Errorf("%s bytes: %v: %s", row.name, err, out)
			}
		}
	})
	t.Run("known files", func(t *testing.T) {
		r := newWheelRig(t)
		first, later := wheel(t, map[string]string{"probe.py": "1\n"}), wheel(t, map[string]string{"probe.py": "2\n"})
		r.index.addFile("probe-1.0.0-py3-none-any.whl", first)
		r.index.addFile("probe-1.0.0-1-py3-none-any.whl", later) // a later build, which uv would prefer
		sum := func(file []byte) string { return fmt.Sprintf("--hash=sha256:%x", sha256.Sum256(file)) }
		for known, want := range map[string]string{
			"probe==1.0.0 " + sum(first) + "\n": "probe==1.0.0 \\\n    " + sum(first) + "\n",
			"probe==1.0.0 --hash=sha256:00\n":   sum(later),
			"other==1.0.0 " + sum(first) + "\n": sum(later),
		} {
			dir := t.TempDir()
			testkit.Must(t, os.WriteFile(filepath.Join(dir, "known"), []byte(known), 0o644))
			out, err := r.install(t, "pypi:probe@1.0.0", dir)
			lock, _ := os.ReadFile(filepath.Join(dir, "requirements.lock"))
			code, _ := os.ReadFile(filepath.Join(dir, sandboxapi.PythonDir, "probe.py"))
			if isFirst := string(code) == "1\n"; err != nil || !strings.Contains(string(lock), want) || isFirst != strings.HasPrefix(want, "probe") {
				t.Errorf("known %q: %v: %s\nlock %q, code %q", known, err, out, lock, code)
			}
		}
	})
	t.Run("constraints", func(t *testing.T) {
		r := newWheelRig(t)
		r.index.addFile("probe-1.0.0-py3-none-any.whl", wheel(t, map[string]string{"probe.py": ""}))
		out, err := r.install(t, "pypi:probe@1.0.0 probe<1", t.TempDir())
		if err == nil || !strings.Contains(out, "No solution found") {
			t.Errorf("%v: %s", err, out)
		}
	})
}
