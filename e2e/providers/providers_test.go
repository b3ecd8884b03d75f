// Package providers lets CodeForge obtain credentials from real servers, which know nothing of it: an OpenID provider,
// an S3 server, password managers.
package providers

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/registry"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// The packages from npm, pinned, by the folder that they are in.
var packages = map[string][]string{
	"oidc": {"oidc-provider@9.13.3"},
	"mcp":  {"@modelcontextprotocol/sdk@1.32.2"},
	"grpc": {"@grpc/grpc-js@1.14.7", "esbuild@0.25.12"},
	"sdks": {"@aws-sdk/client-s3@3.1169.0", "@aws-sdk/lib-storage@3.1169.0", "@supabase/supabase-js@2.119.1", "esbuild@0.25.12"},
}

// zitadel is the module of another OpenID provider.
const zitadel = "github.com/zitadel/oidc/v3@v3.51.17"

func TestMain(m *testing.M) { os.Exit(world.Main(m, install)) }

func npmDir(root, name string) string { return filepath.Join(root, ".tools", "npm", name) }

// install fetches what the tests need. A failure is printed; the tests will find it missing.
func install(root string) {
	for name, list := range packages {
		if _, err := testkit.InstallNPM(context.Background(), root, npmDir(root, name), list...); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
		}
	}
	for _, p := range pinnedPackages {
		if err := registry.Fetch(root, p.pin); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
		}
	}
	if err := world.BuildMain(root, filepath.Join(root, "e2e/providers/testdata/zitadel/main.go"), zitadel, "zitadel"); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	if os.Getenv(withS3) == "" {
		return
	}
	if err := world.BuildProgram(root, versitygw, "versitygw"); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
}

// modules is the folder of npm packages.
func modules(t *testing.T, name string) string {
	t.Helper()
	root, err := world.Root()
	testkit.Must(t, err)
	dir := filepath.Join(npmDir(root, name), "node_modules")
	if _, err := os.Stat(dir); err != nil {
		testkit.SkipBecause(t, "packages from npm could not be installed")
	}
	return dir
}

// node makes dir a folder in which node runs a script of testdata that imports packages.
func node(t *testing.T, dir, script, packages string) string {
	t.Helper()
	folder := modules(t, packages)
	text, err := os.ReadFile(filepath.Join("testdata", script))
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, script), text, 0o600))
	testkit.Must(t, os.Symlink(folder, filepath.Join(dir, "node_modules")))
	return dir
}

// program is the path of a Go program that install built.
func program(t *testing.T, name string) string {
	t.Helper()
	root, err := world.Root()
	testkit.Must(t, err)
	path := filepath.Join(world.ProgramsDir(root), name)
	if _, err := os.Stat(path); err != nil {
		testkit.SkipBecause(t, name+" could not be built")
	}
	return path
}

// embedded skips a test in Docker mode.
func embedded(t *testing.T) {
	t.Helper()
	if world.CurrentMode() != world.Embedded {
		t.Skip("embedded mode only: the server runs beside the tests")
	}
}

// server is a program that serves HTTP on a unix socket.
type server struct {
	http.Handler
	socket string

	mu    sync.Mutex
	lines []string
}

// start starts a program that prints "ready" when it serves on the socket.
func start(t *testing.T, socket string, dir string, argv ...string) *server {
	t.Helper()
	s := &server{Handler: upstream.Forward(socket), socket: socket}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...) //nolint:gosec // a test's program
	cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.mu.Lock()
			s.lines = append(s.lines, lines.Text())
			s.mu.Unlock()
		}
	}()
	testkit.WaitFor(t, func() bool { return len(s.said("ready")) > 0 })
	return s
}

// said are the second words of the lines that begin with a word.
func (s *server) said(word string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, line := range s.lines {
		if first, rest, _ := strings.Cut(line, " "); first == word {
			out = append(out, rest)
		}
	}
	return out
}

// post sends a form to the server itself.
func (s *server) post(t *testing.T, path string, form url.Values) {
	t.Helper()
	resp, err := (&http.Client{Transport: upstream.Socket(s.socket)}).PostForm("http://"+issuer+path, form)
	testkit.Must(t, err)
	testkit.Must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
}

// insecure is for clients of the tests' own upstream, whose authority a world does not tell.
func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} } //nolint:gosec // see above
