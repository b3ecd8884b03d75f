package shim

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
)

// serve runs a shim in front of engine and returns its socket.
func serve(t *testing.T, engine string, s Spec) string {
	t.Helper()
	srv, err := New(Config{Engine: engine, Spec: s, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := unixsocket.Listen(t.Context(), path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return path
}

// tripwire listens where an engine would and counts what arrives. It answers nothing.
func tripwire(t *testing.T) (engine string, touched *atomic.Int64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "engine")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	touched = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			touched.Add(1)
			_ = c.Close()
		}
	}()
	return "unix://" + path, touched
}

// send writes raw bytes and returns everything that comes back until the connection is closed.
func send(t *testing.T, socket, raw string) string {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	go func() { _, _ = io.WriteString(c, raw) }()
	data, err := io.ReadAll(c)
	if err != nil && len(data) == 0 {
		t.Fatalf("reading the answer: %v", err)
	}
	return string(data)
}

// post is a request with a JSON body.
func post(path, body string, headers ...string) string {
	h := strings.Join(append([]string{"Host: docker", "Content-Type: application/json",
		fmt.Sprintf("Content-Length: %d", len(body))}, headers...), "\r\n")
	return "POST " + path + " HTTP/1.1\r\n" + h + "\r\n\r\n" + body
}

// TestRefused sends what a hostile caller would, and looks that the engine hears nothing.
// Promise: docker-socket
func TestRefused(t *testing.T) {
	spec := Spec{Container: "box", User: "7:7", Cmd: []string{"/bin/x", "attach"}}
	engine, touched := tripwire(t)
	socket := serve(t, engine, spec)
	body := string(good(t, spec))
	foreign := strings.Repeat("ab", 32)
	cases := map[string]string{
		"another container":        post("/v1.41/containers/other/exec", body),
		"another container's id":   post("/v1.41/containers/"+foreign+"/exec", body),
		"upper case name":          post("/v1.41/containers/BOX/exec", body),
		"name as a prefix":         post("/v1.41/containers/boxx/exec", body),
		"encoded slash":            post("/v1.41/containers%2Fbox/exec", body),
		"encoded name":             post("/v1.41/containers/%62ox/exec", body),
		"encoded slash in name":    post("/v1.41/containers/box%2F..%2Fother/exec", body),
		"dots":                     post("/v1.41/containers/other/../box/exec", body),
		"dots behind the version":  post("/v1.41/../containers/box/exec", body),
		"encoded dots":             post("/v1.41/containers/box/%2e%2e/other/exec", body),
		"doubled slash":            post("//v1.41/containers/box/exec", body),
		"doubled slash inside":     post("/v1.41//containers/box/exec", body),
		"trailing slash":           post("/v1.41/containers/box/exec/", body),
		"no version":               post("/containers/box/exec", body),
		"odd version":              post("/v1.41x/containers/box/exec", body),
		"major version 2":          post("/v2.0/containers/box/exec", body),
		"a query":                  post("/v1.41/containers/box/exec?x=1", body),
		"an empty query":           post("/v1.41/containers/box/exec?", body),
		"a fragment":               post("/v1.41/containers/box/exec#x", body),
		"backslash":                post(`/v1.41/containers\box/exec`, body),
		"absolute form":            post("http://docker/v1.41/containers/box/exec", body),
		"create a container":       post("/v1.41/containers/create", `{"Image":"debian"}`),
		"run privileged":           post("/v1.41/containers/create?name=x", `{"HostConfig":{"Privileged":true}}`),
		"stop":                     post("/v1.41/containers/box/stop", ""),
		"kill":                     post("/v1.41/containers/box/kill", ""),
		"copy out":                 "GET /v1.41/containers/box/archive?path=/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"logs":                     "GET /v1.41/containers/box/logs?stdout=1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"inspect the container":    "GET /v1.41/containers/box/json HTTP/1.1\r\nHost: x\r\n\r\n",
		"list":                     "GET /v1.41/containers/json HTTP/1.1\r\nHost: x\r\n\r\n",
		"info":                     "GET /v1.41/info HTTP/1.1\r\nHost: x\r\n\r\n",
		"version":                  "GET /version HTTP/1.1\r\nHost: x\r\n\r\n",
		"attach":                   post("/v1.41/containers/box/attach?stream=1&stdin=1", "", "Connection: Upgrade", "Upgrade: tcp"),
		"build session":            post("/session", "", "Connection: Upgrade", "Upgrade: h2c"),
		"grpc":                     post("/grpc", "", "Connection: Upgrade", "Upgrade: h2c"),
		"ping with POST":           post("/_ping", ""),
		"versioned ping":           "GET /v1.41/_ping HTTP/1.1\r\nHost: x\r\n\r\n",
		"create with GET":          "GET /v1.41/containers/box/exec HTTP/1.1\r\nHost: x\r\n\r\n",
		"create with PUT":          strings.Replace(post("/v1.41/containers/box/exec", body), "POST", "PUT", 1),
		"create with DELETE":       strings.Replace(post("/v1.41/containers/box/exec", body), "POST", "DELETE", 1),
		"method in lower case":     strings.Replace(post("/v1.41/containers/box/exec", body), "POST", "post", 1),
		"OPTIONS *":                "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT":                  "CONNECT /v1.41/containers/box/exec HTTP/1.1\r\nHost: x\r\n\r\n",
		"start of a foreign id":    post("/v1.41/exec/"+foreign+"/start", `{}`, "Connection: Upgrade", "Upgrade: tcp"),
		"start of a short id":      post("/v1.41/exec/abab/start", `{}`, "Connection: Upgrade", "Upgrade: tcp"),
		"start, not upgraded":      post("/v1.41/exec/"+foreign+"/start", `{}`),
		"start detached":           post("/v1.41/exec/"+foreign+"/start", `{"Detach":true}`, "Connection: Upgrade", "Upgrade: tcp"),
		"upgrade to something":     post("/v1.41/exec/"+foreign+"/start", `{}`, "Connection: Upgrade", "Upgrade: h2c"),
		"inspect of a foreign id":  "GET /v1.41/exec/" + foreign + "/json HTTP/1.1\r\nHost: x\r\n\r\n",
		"resize":                   post("/v1.41/exec/"+foreign+"/resize?h=1&w=1", ""),
		"privileged":               post("/v1.41/containers/box/exec", strings.Replace(body, `"Privileged":false`, `"Privileged":true`, 1)),
		"root":                     post("/v1.41/containers/box/exec", strings.Replace(body, "7:7", "0:0", 1)),
		"a shell":                  post("/v1.41/containers/box/exec", strings.Replace(body, "/bin/x", "/bin/sh", 1)),
		"chunked":                  "POST /v1.41/containers/box/exec HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked and a length":     "POST /v1.41/containers/box/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a huge body":              "POST /v1.41/containers/box/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n{",
		"a body over the bound":    post("/v1.41/containers/box/exec", strings.Replace(body, "{", "{"+strings.Repeat(" ", maxBody), 1)),
		"no body":                  post("/v1.41/containers/box/exec", ""),
		"h2c":                      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"a folded header":          "GET /_ping HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
		"two lengths":              "POST /v1.41/containers/box/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
		"NUL in the path":          "GET /_ping\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
		"a huge header":            "GET /_ping HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n",
		"not HTTP":                 "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"refused, then a good one": post("/v1.41/containers/create", "{}") + post("/v1.41/containers/box/exec", body),
	}
	for name, raw := range cases {
		t.Run(name, func(t *testing.T) {
			answer := send(t, socket, raw)
			status, _, _ := strings.Cut(answer, "\r\n")
			if !strings.Contains(status, " 403 ") && !strings.Contains(status, " 400 ") &&
				!strings.Contains(status, " 431 ") && !strings.Contains(status, " 505 ") {
				t.Errorf("answered %q", status)
			}
			if n := strings.Count(answer, "HTTP/1.1 "); n != 1 {
				t.Errorf("%d answers on one connection", n)
			}
			if strings.Contains(status, " 403 ") && !strings.Contains(answer, `"message":"docker-shim: refused: `) {
				t.Errorf("no reason: %q", answer)
			}
		})
	}
	if n := touched.Load(); n != 0 {
		t.Errorf("the engine was asked %d times", n)
	}
}

// TestSlow holds connections open with half a request: they end by themselves, and others are served meanwhile.
func TestSlow(t *testing.T) {
	t.Parallel()
	engine, _ := tripwire(t)
	socket := serve(t, engine, Spec{Container: "box"})
	waited := readTimeout
	for try := 0; try < 5 && waited >= readTimeout; try++ { // a busy machine may stand still for that long
		began := time.Now()
		var slow []net.Conn
		for i := range maxConns - 1 {
			c, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			slow = append(slow, c)
			half := "POST /v1.41/containers/box/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
			if i%2 == 0 {
				half = "GET /_pi"
			}
			if _, err := io.WriteString(c, half); err != nil {
				t.Fatal(err)
			}
		}
		if got := send(t, socket, "GET /v1.41/info HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got, " 403 ") {
			t.Errorf("another caller got %q", got)
		}
		waited = time.Since(began)
		for _, c := range slow {
			_ = c.Close()
		}
	}
	if waited >= readTimeout {
		t.Errorf("another caller waited %v", waited)
	}
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "POST /v1.41/containers/box/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	_ = c.SetReadDeadline(time.Now().Add(testkit.Patience))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("the slow caller got no answer: %v", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("the slow caller got %s", resp.Status)
	}
}

// TestEngineGone is a good request without an engine: a clear error, and the shim stays.
func TestEngineGone(t *testing.T) {
	spec := Spec{Container: "box", User: "7:7", Cmd: []string{"/bin/x"}}
	socket := serve(t, "unix:///nonexistent/docker.sock", spec)
	for _, request := range []string{"GET /_ping HTTP/1.1\r\nHost: docker\r\n\r\n", post("/v1.41/containers/box/exec", string(good(t, spec)))} {
		got := send(t, socket, request)
		if !strings.Contains(got, " 502 ") && !strings.Contains(got, " 503 ") || !strings.Contains(got, "docker-shim: ") {
			t.Errorf("got %q", got)
		}
	}
}
