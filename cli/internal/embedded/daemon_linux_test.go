package embedded

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// sink collects what daemons print.
type sink struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func sh(t *testing.T, script string, files ...slot.File) (*childProcess, *sink) {
	t.Helper()
	out := &sink{}
	d, err := startDaemon(daemonConfig{Name: "thing", Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=/bin:/usr/bin"}, Files: files, Log: out})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Stop(0) })
	return d, out
}

// TestCause: the cause says how a daemon ended, and the last line it printed.
func TestCause(t *testing.T) {
	for script, want := range map[string]string{
		"echo first; echo 'it broke' >&2; exit 3": "thing stopped (exit status 3): it broke",
		"exit 0":                            "thing stopped (exit status 0)",
		"printf 'no line feed'; kill -9 $$": "thing stopped (signal: killed)",
		"printf 'no line feed'; exit 4":     "thing stopped (exit status 4): no line feed",
	} {
		d, _ := sh(t, script)
		<-d.Done()
		if got := d.Cause().Error(); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
}

// TestStop: SIGTERM first, SIGKILL after the grace period.
func TestStop(t *testing.T) {
	d, out := sh(t, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done")
	for !strings.Contains(out.String(), "up") {
		time.Sleep(time.Millisecond)
	}
	d.Stop(testkit.Patience)
	if !strings.Contains(out.String(), "bye") {
		t.Error("it got no SIGTERM")
	}
	d, out = sh(t, "trap '' TERM; echo up; while :; do sleep 0.01; done")
	for !strings.Contains(out.String(), "up") {
		time.Sleep(time.Millisecond)
	}
	d.Stop(20 * time.Millisecond)
	if got := d.Cause().Error(); !strings.Contains(got, "killed") {
		t.Errorf("%q, want killed", got)
	}
}

// TestFiles: files are inherited from descriptor 3 on and named.
func TestFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d, out := sh(t, `echo "$LISTEN_FDS $LISTEN_FDNAMES"; echo through >&3`, slot.File{Slot: 4, Kind: slot.HTTPS, File: w})
	_ = w.Close()
	<-d.Done()
	if got := out.String(); got != "1 slot4-https\n" {
		t.Errorf("environment %q", got)
	}
	through := make([]byte, 16)
	if n, _ := r.Read(through); string(through[:n]) != "through\n" {
		t.Errorf("read %q", through[:n])
	}
}

// TestWholeLines: the lines of two daemons never mix.
func TestWholeLines(t *testing.T) {
	out := &sink{}
	a := &lineTail{to: out}
	for _, part := range []string{"one ", "line\nsecond", " line\n", "rest"} {
		_, _ = a.Write([]byte(part))
		if text := out.String(); text != "" && !strings.HasSuffix(text, "\n") {
			t.Errorf("part of a line was forwarded: %q", text)
		}
	}
	a.flushLine()
	if got := out.String(); got != "one line\nsecond line\nrest\n" {
		t.Errorf("got %q", got)
	}
	long := &lineTail{to: &sink{}}
	_, _ = long.Write(bytes.Repeat([]byte("x"), 3*maxLine))
	if len(long.part) > maxLine {
		t.Error("a line without end is held without bound")
	}
}

func TestWait(t *testing.T) {
	a, _ := sh(t, "exec sleep 100")
	b, _ := sh(t, "exit 1")
	if got := waitForFirst(nil, a, b); got != b {
		t.Errorf("%v ended first, want b", got)
	}
	stop := make(chan struct{})
	close(stop)
	if got := waitForFirst(stop, a); got != nil {
		t.Errorf("got %v, want nil", got)
	}
}
