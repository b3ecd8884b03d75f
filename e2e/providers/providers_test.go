// Package providers lets CodeForge obtain credentials from real servers, which know nothing of it: an OpenID provider,
// an S3 server, password managers.
package providers

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// The packages from npm, pinned, by the folder that they are in.
var packages = map[string][]string{
	"oidc": {"oidc-provider@9.13.3"},
	"s3":   {"@aws-sdk/client-s3@3.1169.0", "@aws-sdk/lib-storage@3.1169.0", "esbuild@0.25.12"},
}

func TestMain(m *testing.M) { os.Exit(world.Main(m, install)) }

func npmDir(root, name string) string { return filepath.Join(root, ".tools", "npm", name) }

// install fetches what the tests need. A failure is printed; the tests will find it missing.
func install(root string) {
	for name, list := range packages {
		if name == "s3" && os.Getenv(withS3) == "" {
			continue
		}
		if _, err := testkit.InstallNPM(context.Background(), root, npmDir(root, name), list...); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
		}
	}
	if os.Getenv(withS3) == "" {
		return
	}
	if err := testkit.BuildProgram(root, versitygw, "versitygw"); err != nil {
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
		testkit.Skip(t, "packages from npm could not be installed")
	}
	return dir
}

// embedded skips a test in Docker mode, whose upstream has no further servers.
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
	s := &server{socket: socket}
	s.Handler = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "socket"})
			r.Out.Host = r.In.Host
			r.Out.Header.Set("X-Forwarded-Proto", "https")
			r.Out.Header.Set("X-Forwarded-Host", r.In.Host)
		},
		Transport: s.transport(), FlushInterval: -1,
	}
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

// transport leads to the socket.
func (s *server) transport() http.RoundTripper {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	}}
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

// post sends an empty form to the server itself.
func (s *server) post(t *testing.T, path string) {
	t.Helper()
	resp, err := (&http.Client{Transport: s.transport()}).Post("http://socket"+path, "text/plain", http.NoBody)
	testkit.Must(t, err)
	testkit.Must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
}

// insecure is for clients of the tests' own upstream, whose authority a world does not tell.
func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} } //nolint:gosec // see above
