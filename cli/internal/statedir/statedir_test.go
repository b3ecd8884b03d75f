//go:build unix

package statedir

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func create(t *testing.T) Dir {
	t.Helper()
	d, err := CreateDir(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestCreate: no other user may access the directory, even if it was open before.
func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := CreateDir(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(d.Path())
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v; want 0700", info.Mode(), err)
	}
	if _, err := CreateDir("/dev/null/state"); err == nil || !strings.Contains(err.Error(), "--state DIR") {
		t.Errorf("%v does not say what to do", err)
	}
}

// TestOwner: another user's directory is refused.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "only root can make a directory of another user")
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateDir(path); err == nil || !strings.Contains(err.Error(), "belongs to user id 12345") {
		t.Errorf("got %v", err)
	}
}

// TestLock: one holder at a time; FindHolder does not disturb Lock.
func TestLock(t *testing.T) {
	d := create(t)
	if pid, held := d.FindHolder(); held {
		t.Fatalf("held by %d before Lock", pid)
	}
	stop := make(chan struct{})
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for {
			select {
			case <-stop:
				return
			default:
				d.FindHolder()
				time.Sleep(time.Millisecond)
			}
		}
	}()
	f, err := d.Lock()
	close(stop)
	<-asked
	if err != nil {
		t.Fatal(err)
	}
	if pid, held := d.FindHolder(); !held || pid != os.Getpid() {
		t.Errorf("holder %d, %v; want this process", pid, held)
	}
	if _, err := d.Lock(); !errors.Is(err, ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	if _, err := d.ReadUp(); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "it is starting") {
		t.Errorf("Running without up.json: %v", err)
	}
	if err := d.WriteUp(UpState{PID: 7, URL: "http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	if up, err := d.ReadUp(); err != nil || up.PID != 7 || up.Endpoint() != "http://127.0.0.1:1/mcp" {
		t.Errorf("Running: %+v, %v", up, err)
	}
	_ = f.Close()
	// The up.json of a killed supervisor does not count.
	if _, err := d.ReadUp(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Running without a holder: %v", err)
	}
	d.RemoveLeftovers()
	if _, err := os.Stat(d.Join("up.json")); err == nil {
		t.Error("Sweep left up.json")
	}
}

// TestLockLink: a symbolic link in place of the lock is not followed.
func TestLockLink(t *testing.T) {
	d := create(t)
	target := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, d.Join("lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(); err == nil {
		t.Error("the link was followed")
	}
	if text, _ := os.ReadFile(target); string(text) != "precious" {
		t.Errorf("the link's target is now %q", text)
	}
}

// TestPlantedLock: what came with somebody's folder in the place of a lock does not make its up.json that of a supervisor.
// Promise: foreign-folders
func TestPlantedLock(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"a link to itself":            func(path string) error { return os.Symlink("lock", path) },
		"a link below no folder":      func(path string) error { return os.Symlink("/dev/null/lock", path) },
		"a link to another's lock":    func(path string) error { return os.Symlink(lockedFile(t), path) },
		"a pipe":                      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a file that nobody may read": func(path string) error { return os.WriteFile(path, nil, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			d := create(t)
			testkit.Must(t, plant(d.Join("lock")))
			testkit.Must(t, d.WriteUp(UpState{PID: 7, URL: "http://evil.example"}))
			if up, err := d.ReadUp(); !errors.Is(err, ErrNotRunning) {
				t.Errorf("Running: %+v, %v", up, err)
			}
		})
	}
}

// lockedFile is a file that is locked until the test ends.
func lockedFile(t *testing.T) string {
	t.Helper()
	f, err := create(t).Lock()
	testkit.Must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f.Name()
}

// TestDeepSocket: a socket can be reached however long the directory's path is.
func TestDeepSocket(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("embedded mode needs Linux")
	}
	d, err := CreateDir(filepath.Join(t.TempDir(), strings.Repeat(strings.Repeat("d", 60)+"/", 5)))
	if err != nil {
		t.Fatal(err)
	}
	path, release, err := d.Socket(MCPSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatalf("listening at %s: %v", path, err)
	}
	defer l.Close()
	if _, err := os.Lstat(d.Join("run", MCPSocket)); err != nil {
		t.Errorf("the socket is elsewhere: %v", err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}
