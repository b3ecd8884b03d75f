package attach

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// pair is a connection to a Listener: the client's end and the accepted one.
func pair(t *testing.T) (*net.UnixConn, net.Conn) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := (&net.Dialer{}).DialContext(context.Background(), "unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := Listener{l}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = far.Close(), near.Close() })
	return far.(*net.UnixConn), near
}

// handed passes two pipes and returns their other ends.
func handed(t *testing.T) (in, out *os.File, near net.Conn, ended <-chan error) {
	t.Helper()
	far, near := pair(t)
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		result <- PassPipes(far, theirIn, theirOut)
		_, _ = theirIn.Close(), theirOut.Close()
	}()
	t.Cleanup(func() { _, _ = in.Close(), out.Close() })
	return in, out, near, result
}

func want(t *testing.T, r io.Reader, text string) {
	t.Helper()
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(r, buf); err != nil || string(buf) != text {
		t.Fatalf("read %q %v, want %q", buf, err, text)
	}
}

func TestPipes(t *testing.T) {
	in, out, near, ended := handed(t)
	for _, text := range []string{"one", "two"} {
		_, _ = io.WriteString(in, text)
		want(t, near, text)
		_, _ = io.WriteString(near, text+" back")
		want(t, out, text+" back")
	}
	_ = near.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read beyond its deadline: %v", err)
	}
	_ = near.SetReadDeadline(time.Time{})
	_ = in.Close()
	if n, err := near.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after the end of the input: %d %v", n, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the end of the input is no error: %v", err)
	}
	_ = near.Close()
	if _, err := out.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the output after the end: %v", err)
	}
}

// When a process is killed while its pipes are in use, blocked reads and writes of them end.
func TestKilled(t *testing.T) {
	far, near := pair(t)
	theirIn, in, _ := os.Pipe()
	out, theirOut, _ := os.Pipe()
	defer in.Close()
	defer out.Close()
	rights, err := withDescriptors(theirIn, theirOut, func(a, b int) []byte { return syscall.UnixRights(a, b) })
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := far.WriteMsgUnix([]byte{passPipes}, rights, nil); err != nil {
		t.Fatal(err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	_, _ = io.WriteString(in, "x")
	want(t, near, "x")
	ends := make(chan error, 2)
	go func() { _, err := near.Read(make([]byte, 1)); ends <- err }()
	go func() { _, err := near.Write(make([]byte, 1<<20)); ends <- err }()
	time.Sleep(20 * time.Millisecond)
	_ = far.Close() // as the kernel does when the process ends
	for range 2 {
		select {
		case err := <-ends:
			if err == nil {
				t.Error("no error")
			}
		case <-time.After(testkit.Patience):
			t.Fatal("still waiting")
		}
	}
}

func TestHungUp(t *testing.T) {
	in, _, near, ended := handed(t)
	_, _ = io.WriteString(in, "x")
	want(t, near, "x")
	_ = near.Close()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "sandboxd closed the connection") {
		t.Errorf("got %v", err)
	}
}

// A connection without pipes works like any other.
func TestPlain(t *testing.T) {
	far, near := pair(t)
	_, _ = io.WriteString(far, "PRI * HTTP/2.0")
	want(t, near, "PRI * HTTP/2.0")
	_, _ = io.WriteString(near, "back")
	want(t, far, "back")
	_ = far.Close()
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// Only two pipes are accepted, and refused descriptors are closed.
func TestRefused(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for name, m := range map[string]struct {
		first byte
		fds   []*os.File
	}{
		"a file":       {passPipes, []*os.File{file, w}},
		"one":          {passPipes, []*os.File{w}},
		"three":        {passPipes, []*os.File{w, w, w}},
		"another byte": {'P', []*os.File{w, w}},
	} {
		t.Run(name, func(t *testing.T) {
			far, near := pair(t)
			var fds []int
			for _, f := range m.fds {
				fds = append(fds, int(f.Fd()))
			}
			if _, _, err := far.WriteMsgUnix([]byte{m.first}, syscall.UnixRights(fds...), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := near.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("read: %v", err)
			}
			if _, err := near.Write([]byte("x")); err == nil {
				t.Error("wrote")
			}
		})
	}
	far, _ := pair(t)
	if err := PassPipes(far, file, w); !errors.Is(err, errNoPipes) {
		t.Errorf("passing a file: %v", err)
	}
	_ = w.Close()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a refused descriptor is still open: %v", err)
	}
}
