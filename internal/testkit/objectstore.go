package testkit

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// versitygw is an S3 server that verifies every signature and stores objects as files.
const versitygw = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// BuildObjectStore builds the S3 server for tests. The first build takes a minute or more.
func BuildObjectStore(root string) error { return BuildProgram(root, versitygw, "versitygw") }

// ObjectStore is a real S3 server for a test, on a loopback address. It stops with the test.
type ObjectStore struct {
	// Address is its host and port. Dir has a folder for each bucket, with a file for each object.
	Address, Dir string

	tb      testing.TB
	id, key string
	region  string
	cmd     *exec.Cmd
}

// NewObjectStore starts a server with an access key. If the server cannot be built, it skips the test.
func NewObjectStore(tb testing.TB, id, key, region string) *ObjectStore {
	tb.Helper()
	root := RootDir(tb)
	if err := BuildObjectStore(root); err != nil {
		SkipBecause(tb, err.Error())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(tb, err)
	Must(tb, l.Close())
	s := &ObjectStore{Address: l.Addr().String(), Dir: tb.TempDir(), tb: tb, id: id, key: key, region: region}
	s.Start()
	tb.Cleanup(s.Stop)
	return s
}

// Start restarts the server after Stop, at the same address and with the same objects.
func (s *ObjectStore) Start() {
	s.tb.Helper()
	program := filepath.Join(ProgramsDir(RootDir(s.tb)), "versitygw")
	args := []string{"--port", s.Address, "--region", s.region, "--quiet", "posix", s.Dir}
	s.cmd = exec.Command(program, args...) //nolint:gosec // built here
	s.cmd.Env = []string{"ROOT_ACCESS_KEY=" + s.id, "ROOT_SECRET_KEY=" + s.key}
	s.cmd.Stderr, s.cmd.WaitDelay = os.Stderr, 5*time.Second
	Must(s.tb, s.cmd.Start())
	WaitFor(s.tb, func() bool {
		resp, err := http.Get("http://" + s.Address + "/")
		return err == nil && resp.Body.Close() == nil
	})
}

// Stop kills the server.
func (s *ObjectStore) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Hang stops the server from answering until resume is called.
func (s *ObjectStore) Hang() (resume func()) {
	Must(s.tb, s.cmd.Process.Signal(syscall.SIGSTOP))
	err := error(syscall.EINTR)
	for errors.Is(err, syscall.EINTR) { // wait until all threads have stopped; a running one may still answer
		_, err = syscall.Wait4(s.cmd.Process.Pid, nil, syscall.WUNTRACED, nil)
	}
	Must(s.tb, err)
	return func() { Must(s.tb, s.cmd.Process.Signal(syscall.SIGCONT)) }
}

// Bucket makes a bucket.
func (s *ObjectStore) Bucket(name string) { Must(s.tb, os.MkdirAll(filepath.Join(s.Dir, name), 0o755)) }

// Environment returns CodeForge's settings for the server, except the addresses of buckets.
func (s *ObjectStore) Environment() map[string]string {
	s.tb.Helper()
	return map[string]string{
		"BUCKET_ENDPOINT": "http://" + s.Address, "BUCKET_REGION": s.region,
		"BUCKET_CREDENTIALS_FILE": Credentials(s.tb, s.id, s.key),
	}
}

// Settings returns the settings of an environment.
func Settings(tb testing.TB, env map[string]string) settings.Settings {
	tb.Helper()
	s, err := settings.Parse(func(name string) string { return env[name] })
	Must(tb, err)
	return s
}

// Credentials returns the path of a file with an access key, in the format of AWS's tools.
func Credentials(tb testing.TB, id, key string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "credentials")
	text := "[default]\naws_access_key_id = " + id + "\naws_secret_access_key = " + key + "\n"
	Must(tb, os.WriteFile(path, []byte(text), 0o600))
	return path
}
