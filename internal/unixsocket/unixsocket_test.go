package unixsocket

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Promise: operators-socket
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := Listen(t.Context(), path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Listen(t.Context(), path, 0o600); err == nil {
		t.Error("a socket that is answered on was replaced")
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	for _, end := range []net.Conn{c, served} {
		if uid, err := PeerUID(end); err != nil || uid != os.Geteuid() {
			t.Errorf("the peer is user %d, %v", uid, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a closed socket: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestListenReplaces: what a dead process left is replaced, another file never is.
func TestListenReplaces(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	l, err := Listen(t.Context(), stale, 0o600)
	if err != nil {
		t.Fatal("a dead socket is not replaced: ", err)
	}
	_ = l.Close()

	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), file, 0o600); err == nil {
		t.Error("a file was replaced")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file is %q, %v", text, err)
	}
}

func TestPeerUIDOfNoSocket(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := PeerUID(a); err == nil {
		t.Error("a pipe has a user")
	}
}

// TestListenElsewhere: a path that cannot be looked at is refused with that error.
func TestListenElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "s.sock"), filepath.Join(t.TempDir(), "none", "s.sock")} {
		if l, err := Listen(t.Context(), path, 0o600); err == nil {
			_ = l.Close()
			t.Errorf("%s: a socket is there", path)
		}
	}
	if err := checkReplaceable(t.Context(), filepath.Join(file, "s.sock")); err == nil {
		t.Error("below a file there is room for a socket")
	}
}

// TestListenFails: no step that fails leaves a file behind. Close accepts that the file is gone.
func TestListenFails(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("d", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		filepath.Join(long, "s"): syscall.EINVAL, filepath.Join(dir, strings.Repeat("n", 256)): syscall.ENAMETOOLONG,
		filepath.Join(dir, "none", "s"): fs.ErrNotExist,
	} {
		if _, err := listenPrivately(t.Context(), path, 0o600); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	path := filepath.Join(dir, "s")
	l, err := Listen(t.Context(), path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), l.Close()); err != nil {
		t.Errorf("closing a socket without a file: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener: %v", err)
	}
}

// TestPeerUIDOfClosed: a closed connection has no descriptor, and a TCP connection has no user.
func TestPeerUIDOfClosed(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if uid, err := PeerUID(c); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed connection: %d, %v", uid, err)
	}
	if err := withDescriptor(&net.TCPConn{}, func(uintptr) {}); err == nil {
		t.Error("a connection that is not open has a descriptor")
	}
}
