package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/shim"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// serveStdio as the first argument makes the test binary the far end of the stream, inside a container.
const serveStdio = "serve-stdio"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveStdio {
		fmt.Fprintln(os.Stderr, "far end is up")
		serveFarEnd()
		return
	}
	os.Exit(m.Run())
}

// stdio is one connection over standard input and output.
type stdio struct{ net.Conn }

func (stdio) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdio) Close() error                { os.Exit(0); return nil }

// oneConn is a listener of one connection.
type oneConn struct {
	net.Listener
	conn chan net.Conn
}

func (l oneConn) Accept() (net.Conn, error) { return <-l.conn, nil }

// serve answers sandboxapi's HTTP/2 on stdio: health at once, and runs that print and never end.
func serveFarEnd() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/health", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(sandboxapi.Health{Ready: true, Slots: os.Getpid()})
	})
	mux.HandleFunc("POST /v1/runs", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(sandboxapi.Event{Stdout: "running"})
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("PUT /v1/permissions", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_ = json.NewEncoder(w).Encode(sandboxapi.PermissionSet{Hash: fmt.Sprint(n), AllowNet: []string{strings.Repeat("x", int(n))}})
	})
	near, _ := net.Pipe() // for addresses and deadlines only
	l := oneConn{conn: make(chan net.Conn, 1)}
	l.conn <- stdio{near}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: mux, Protocols: protocols}
	_ = srv.Serve(l)
}

// Close, Addr: a net.Listener that nobody closes.
func (oneConn) Close() error   { return nil }
func (oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// lines collects log lines.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// stack is a container with the far end in it and a shim in front of the engine.
type dockerStack struct {
	name, socket string
	cfg          execConfig
	log          *logLines
}

func newDockerStack(t *testing.T) *dockerStack {
	t.Helper()
	if out, err := exec.Command("docker", "version").CombinedOutput(); err != nil {
		reason := "no Docker engine: " + string(out)
		testkit.SkipBecause(t, reason)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &dockerStack{name: fmt.Sprintf("cfdock-exec-%d-%d", os.Getpid(), time.Now().UnixNano()), log: new(logLines)}
	runDocker(t, "run", "-d", "--name", s.name, "--network", "none", "-v", self+":/far:ro", "debian:bookworm-slim", "sleep", "300")
	t.Cleanup(func() { runDocker(t, "rm", "-f", s.name) })
	spec := shim.Spec{Container: s.name, User: "10001:10001", Cmd: []string{"/far", serveStdio}}
	srv, err := shim.New(shim.Config{Engine: "unix:///var/run/docker.sock", Spec: spec, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.socket = filepath.Join(t.TempDir(), "s")
	l, err := unixsocket.Listen(t.Context(), s.socket, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-done })
	s.cfg = execConfig{Socket: s.socket, Spec: spec, Log: slog.New(slog.NewTextHandler(s.log, nil))}
	return s
}

func runDocker(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestStream runs sandboxapi's client over an exec: many calls on one stream, bodies larger than a frame, stderr logged.
func TestExecStream(t *testing.T) {
	s := newDockerStack(t)
	c := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: s.cfg.Dial})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	first, err := c.Health(ctx)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	const n = 200
	for range n {
		h, err := c.Health(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if h.Slots != first.Slots {
			t.Fatalf("another process answered: %d, then %d", first.Slots, h.Slots)
		}
	}
	t.Logf("%v per call", time.Since(began)/n)
	big := []string{strings.Repeat("h", 1<<20)}
	set, err := c.SetPermissions(ctx, sandboxapi.Permissions{AllowNet: big})
	if err != nil || len(set.AllowNet[0]) < 1<<20 {
		t.Errorf("a large body: %q, %v", set.Hash, err)
	}
	if !strings.Contains(s.log.String(), "far end is up") {
		t.Errorf("stderr is not in the log: %q", s.log.String())
	}
}

// TestReconnect kills the container during a run: the run ends with ErrInterrupted, calls fail with the reason while
// it is away, and work again when it is back, without a new client.
func TestExecReconnect(t *testing.T) {
	s := newDockerStack(t)
	c := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: s.cfg.Dial})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*testkit.Patience)
	defer cancel()
	killed := make(chan struct{})
	_, err := c.Run(ctx, sandboxapi.RunRequest{Run: "r"}, func(sandboxapi.Event) {
		go func() { defer close(killed); runDocker(t, "kill", s.name) }()
	})
	<-killed
	if !errors.Is(err, sandboxapi.ErrInterrupted) {
		t.Errorf("the run ended with %v", err)
	}
	if _, err := c.Health(ctx); err == nil || !strings.Contains(err.Error(), "is not running") {
		t.Errorf("without the container: %v", err)
	}
	runDocker(t, "start", s.name)
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if _, err = c.Health(ctx); err == nil {
			break
		}
		if time.Since(began) > testkit.Patience {
			t.Fatalf("not healed: %v", err)
		}
	}
}

// TestClose ends the far end, whether or not something is in flight.
func TestExecClose(t *testing.T) {
	s := newDockerStack(t)
	conn, err := s.cfg.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn)
		read <- err
	}()
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-read:
	case <-time.After(testkit.Patience):
		t.Fatal("a read outlives Close")
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		out, _ := exec.Command("docker", "top", s.name).CombinedOutput()
		if !strings.Contains(string(out), serveStdio) {
			break
		}
		if time.Since(began) > testkit.Patience {
			t.Fatalf("the far end still runs:\n%s", out)
		}
	}
}

// TestDeadline is what HTTP/2 needs of a net.Conn.
func TestExecDeadline(t *testing.T) {
	s := newDockerStack(t)
	conn, err := s.cfg.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The far end speaks first only in answer to a preface, so nothing is there to read.
	if err := conn.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var e net.Error
	if _, err := conn.Read(make([]byte, 1)); !errors.As(err, &e) || !e.Timeout() {
		t.Errorf("read: %v", err)
	}
}

// TestNoShim names what is missing.
func TestNoShim(t *testing.T) {
	_, err := newExecDialer(filepath.Join(t.TempDir(), "none"), "codeforge-sandbox")(context.Background())
	if err == nil || !strings.Contains(err.Error(), "connecting to the sandbox") {
		t.Errorf("got %v", err)
	}
}
