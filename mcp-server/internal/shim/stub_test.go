package shim

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/moby/moby/client"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// stub is an engine that says what it is told to say and remembers what it was asked.
type stub struct {
	mu    sync.Mutex
	asked []string
	state map[string]any // of the container; nil: an exec can be made
	made  int
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.Path
	if i := strings.Index(path[1:], "/"); i > 0 && strings.HasPrefix(path, "/v") {
		path = path[i+1:]
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(path, "/_ping") || path == "/_ping":
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Ostype", "linux")
		return
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/exec"):
		if s.state != nil {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"message":"not running"}`)
			return
		}
		s.made++
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"Id":"%064x"}`, s.made)
		return
	case r.Method == http.MethodGet && strings.HasPrefix(path, "/containers/"):
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": "x", "State": s.state})
		return
	}
	s.asked = append(s.asked, r.Method+" "+path)
	w.WriteHeader(http.StatusNoContent)
}

func (s *stub) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, ", ")
}

// listen serves the stub and gives its address.
func (s *stub) listen(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "engine")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s} //nolint:gosec // ends with the test
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return "unix://" + path
}

// TestOwnExec: of the exec that the shim itself made, nothing but the one attached start reaches the engine.
// Promise: docker-socket
func TestOwnExec(t *testing.T) {
	spec := Spec{Container: "box", User: "7:7", Cmd: []string{"/bin/x", "attach"}}
	create := post("/v1.41/containers/box/exec", string(good(t, spec)))
	upgrade := []string{"Connection: Upgrade", "Upgrade: tcp"}
	for name, c := range map[string]struct {
		body    string
		headers []string
		passes  bool
	}{
		"right":               {`{"Detach":false,"Tty":false}`, upgrade, true},
		"an empty object":     {`{}`, upgrade, true},
		"detached":            {`{"Detach":true,"Tty":false}`, upgrade, false},
		"detached, lower":     {`{"detach":true}`, upgrade, false},
		"a terminal":          {`{"Tty":true}`, upgrade, false},
		"a console":           {`{"ConsoleSize":[1,1]}`, upgrade, false},
		"an unknown field":    {`{"Privileged":true}`, upgrade, false},
		"a field twice":       {`{"Detach":false,"Detach":true}`, upgrade, false},
		"no JSON":             {`x`, upgrade, false},
		"something behind":    {`{}{"Detach":true}`, upgrade, false},
		"bytes":               {"{\"Tty\":false,\"\xff\":1}", upgrade, false},
		"not upgraded":        {`{}`, nil, false},
		"another protocol":    {`{}`, []string{"Connection: Upgrade", "Upgrade: h2c"}, false},
		"two protocols":       {`{}`, []string{"Connection: Upgrade", "Upgrade: tcp, h2c"}, false},
		"Connection too long": {`{}`, []string{"Connection: Upgrade, close", "Upgrade: tcp"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			engine := &stub{}
			socket := serve(t, engine.listen(t), spec)
			if answer := send(t, socket, create); !strings.HasPrefix(answer, "HTTP/1.1 201 ") {
				t.Fatalf("create: %q", answer)
			}
			id := fmt.Sprintf("%064x", 1)
			answer := send(t, socket, post("/v1.41/exec/"+id+"/start", c.body, c.headers...))
			if c.passes {
				if engine.heard() != "POST /exec/"+id+"/start" {
					t.Errorf("the engine was asked: %q, and the caller told %q", engine.heard(), answer)
				}
				return
			}
			if engine.heard() != "" || !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
				t.Errorf("the engine was asked %q, and the caller told %q", engine.heard(), answer)
			}
		})
	}
}

// countedConn counts calls of Close.
type countedConn struct {
	net.Conn
	closed atomic.Int32
}

func (c *countedConn) Close() error {
	c.closed.Add(1)
	return c.Conn.Close()
}

// TestStreamsEnd: after the end of an exec's output, or of the shim, neither connection stays open.
func TestStreamsEnd(t *testing.T) {
	for _, byShim := range []bool{false, true} {
		caller, fromCaller := net.Pipe()
		exec, fromExec := net.Pipe()
		conn, engine := &countedConn{Conn: fromCaller}, &countedConn{Conn: fromExec}
		ctx, cancel := context.WithCancel(t.Context())
		if byShim {
			cancel()
		} else {
			testkit.Must(t, exec.Close())
		}
		joinStreams(ctx, conn, client.HijackedResponse{Conn: engine, Reader: bufio.NewReader(engine)})
		cancel()
		if conn.closed.Load() == 0 || engine.closed.Load() == 0 {
			t.Errorf("by the shim %v: closed the caller's %d times, the engine's %d times", byShim, conn.closed.Load(), engine.closed.Load())
		}
		_, _ = caller.Close(), exec.Close()
	}
}

// TestByteBehind: even one byte behind a start keeps it from the engine.
// Promise: docker-socket
func TestByteBehind(t *testing.T) {
	spec := Spec{Container: "box", User: "7:7", Cmd: []string{"/bin/x", "attach"}}
	engine := &stub{}
	socket := serve(t, engine.listen(t), spec)
	send(t, socket, post("/v1.41/containers/box/exec", string(good(t, spec))))
	start := post(fmt.Sprintf("/v1.41/exec/%064x/start", 1), `{}`, "Connection: Upgrade", "Upgrade: tcp")
	if answer := send(t, socket, start+"x"); engine.heard() != "" || !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
		t.Errorf("the engine was asked %q, and the caller told %q", engine.heard(), answer)
	}
}

// TestChunkedBody: a body that does not say how long it is is refused, the one that is allowed too.
// Promise: docker-socket
func TestChunkedBody(t *testing.T) {
	spec := Spec{Container: "box", User: "7:7", Cmd: []string{"/bin/x", "attach"}}
	engine := &stub{}
	socket := serve(t, engine.listen(t), spec)
	body := string(good(t, spec))
	head := "POST /v1.41/containers/box/exec HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	if answer := send(t, socket, head+fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)); !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
		t.Errorf("answered %q", answer)
	}
	if engine.made != 0 {
		t.Error("an exec was made")
	}
}

// TestReviveStates: only a container that is down, by an error of the engine, is started.
// Promise: docker-socket
func TestReviveStates(t *testing.T) {
	spec := Spec{Container: "box", User: "7:7", Cmd: []string{"/bin/x", "attach"}}
	for name, c := range map[string]struct {
		state   map[string]any
		revived bool
	}{
		"failed to start":        {map[string]any{"Status": "exited", "Error": "no such network"}, true},
		"stopped by somebody":    {map[string]any{"Status": "exited", "Error": ""}, false},
		"running, with an error": {map[string]any{"Status": "running", "Running": true, "Error": "earlier"}, false},
		"restarting":             {map[string]any{"Status": "restarting", "Restarting": true, "Error": "earlier"}, false},
	} {
		engine := &stub{state: c.state}
		answer := send(t, serve(t, engine.listen(t), spec), post("/v1.41/containers/box/exec", string(good(t, spec))))
		if got := engine.heard() == "POST /containers/box/start"; got != c.revived || !got && engine.heard() != "" {
			t.Errorf("%s: the engine was asked %q", name, engine.heard())
		}
		if strings.HasPrefix(answer, "HTTP/1.1 2") {
			t.Errorf("%s: answered %q", name, answer)
		}
	}
}
