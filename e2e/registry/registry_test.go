package registry

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testca"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// small is a package with few dependencies.
const small = "@modelcontextprotocol/server-everything@2026.8.31"

// Deno installs a package from the registry, and refuses other bytes than the lock file names.
func TestDenoInstalls(t *testing.T) {
	deno, root := testkit.DenoPath(t), testkit.RootDir(t)
	if err := Fetch(root, small); err != nil {
		testkit.SkipBecause(t, err.Error())
	}
	ca, err := testca.New("registry")
	testkit.Must(t, err)
	leaf, err := ca.IssueLeaf("localhost", "localhost", time.Now().Add(time.Hour))
	testkit.Must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	host := strings.Replace(listener.Addr().String(), "127.0.0.1", "localhost", 1)
	r, err := New(Dir(root), host)
	testkit.Must(t, err)
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*leaf},
	}}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	defer server.Close()
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "ca.pem"), ca.PEM(), 0o600))
	install := func(to string) (string, error) {
		cmd := exec.CommandContext(t.Context(), deno, "cache", "--no-config", "--lock="+filepath.Join(dir, "deno.lock"), "npm:"+small) //nolint:gosec // fixed
		cmd.Dir = dir
		cmd.Env = []string{
			"HOME=" + dir, "NO_COLOR=1", "DENO_DIR=" + filepath.Join(dir, to), "DENO_CERT=" + filepath.Join(dir, "ca.pem"),
			"NPM_CONFIG_REGISTRY=https://" + host + "/", "DENO_NO_UPDATE_CHECK=1",
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := install("first"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(r.Asked()) < 50 {
		t.Errorf("only %d questions", len(r.Asked()))
	}
	r.Broken.Store(true)
	if out, err := install("second"); err == nil || !strings.Contains(strings.ToLower(out), "checksum did not match") {
		t.Errorf("other bytes were taken: %v\n%s", err, out)
	}
}
