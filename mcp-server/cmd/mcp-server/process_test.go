package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestStartRefused: what is wrong at the start is said in one clear text, and nothing is left.
func TestStartRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	skills := t.TempDir()
	good := []string{"--sandbox", "unix:/nowhere/s", "--control", "/nowhere/c", "--skills", skills}
	with := func(args ...string) []string { return append(args, good...) }
	for _, c := range []struct {
		name string
		args []string
		env  map[string]string
		want []string
	}{
		{"nothing", nil, nil, []string{"--listen or --socket is required", "--control is required", "--skills is required", `--sandbox "": want unix:SOCKET, docker:SOCKET:CONTAINER or kubernetes:NAMESPACE/SERVICE`}},
		{"a stray word", with("--listen", "127.0.0.1:0", "word"), nil, []string{`unexpected argument "word"`}},
		{"an unknown flag", []string{"--lisen", "x"}, nil, []string{"flag provided but not defined"}},
		{"the sandbox's kind", []string{"--listen", "127.0.0.1:0", "--sandbox", "tcp:x", "--control", "c", "--skills", skills}, nil, []string{`--sandbox "tcp:x"`}},
		{"no container", []string{"--listen", "127.0.0.1:0", "--sandbox", "docker:/x", "--control", "c", "--skills", skills}, nil, []string{`--sandbox "docker:/x"`}},
		{"an address", with("--listen", "8080"), nil, []string{"want host:port"}},
		{"all addresses", with("--listen", "0.0.0.0:0"), nil, []string{"would let other machines in", "MCP_AUTH_TOKEN"}},
		{"all addresses, shorter", with("--listen", ":0"), nil, []string{"would let other machines in"}},
		{"another address", with("--listen", "127.0.0.1:0", "--also-listen", "192.0.2.1:0"), nil, []string{"would let other machines in"}},
		{"the port is taken", with("--listen", taken.Addr().String()), nil, []string{"address already in use", taken.Addr().String()}},
		{"no skills directory", []string{"--listen", "127.0.0.1:0", "--sandbox", "unix:/x", "--control", "/y", "--skills", "/nowhere"}, nil, []string{"opening the skills directory"}},
		{"settings", with("--listen", "127.0.0.1:0"), map[string]string{"OUTPUT_LIMIT": "much", "TIMEOUT_MAX": "-1"}, []string{"OUTPUT_LIMIT", "much", "TIMEOUT_MAX"}},
		{"a token with a line feed is not shown", with("--listen", "127.0.0.1:0"), map[string]string{"MCP_AUTH_TOKEN": "tok\nsecretpart"}, []string{"MCP_AUTH_TOKEN"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			var log testkit.Buffer
			err := runServer(ctx, c.args, func(k string) string { return c.env[k] }, &log)
			if err == nil {
				t.Fatal("it started")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
			if strings.Contains(err.Error()+log.String(), "secretpart") {
				t.Error("the token is shown")
			}
		})
	}
}

// TestProgramsInCompose: a folder without a slash, which Compose would take for a volume, perhaps one of CodeForge's own.
func TestProgramsInCompose(t *testing.T) {
	for value, ok := range map[string]bool{
		"": true, "./programs": true, "/srv/programs": true, "../programs": true, "~/programs": true, `C:\programs`: true,
		"programs": false, "tokens": false,
	} {
		err := runServer(t.Context(), []string{"settings"}, func(name string) string {
			return map[string]string{"SANDBOX_PROGRAMS": value}[name]
		}, io.Discard)
		if ok != (err == nil) || err != nil && !strings.Contains(err.Error(), `SANDBOX_PROGRAMS: "`+value+`"; want in Docker`) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestContainerMayListenEverywhere(t *testing.T) {
	p := start(t, 1, map[string]string{"CODEFORGE_CONTAINER": "1"}, "--also-listen", "0.0.0.0:0")
	if !strings.Contains(p.log.String(), "listening url=http://[::]:") && !strings.Contains(p.log.String(), "listening url=http://0.0.0.0:") {
		t.Error(p.log.String())
	}
}

// request makes a request with headers, "Name: value" each.
func request(t *testing.T, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func TestPaths(t *testing.T) {
	t.Parallel()
	p := start(t, 1, nil)
	base := "http://" + p.addr
	s := p.connect(t, nil)
	call(t, s, "list_apis", nil)
	for _, c := range []struct {
		method, path string
		headers      []string
		want         int
		body         string
	}{
		{"GET", "/healthz", nil, 200, `"ok":true`},
		{"GET", "/readyz", nil, 200, `"ready":true`},
		{"GET", "/metrics", nil, 200, `codeforge_mcp_tool_calls_total{result="ok",tool="list_apis"} 1`},
		{"GET", "/metrics", nil, 200, "codeforge_proxy_up 1"},
		{"GET", "/", nil, 404, "/mcp"},
		{"POST", "/healthz", nil, 404, ""},
		{"POST", "/mcp", nil, 200, `"name":"codeforge"`},
		{"POST", "/mcp/", nil, 404, ""},
		{"PUT", "/mcp", nil, 405, ""},
		{"OPTIONS", "/mcp", nil, 405, ""},
		{"POST", "/mcp", []string{"Host: evil.com"}, 403, "Host"},
		{"GET", "/healthz", []string{"Host: evil.com"}, 403, "Host"},
		{"GET", "/metrics", []string{"Origin: http://evil.com"}, 403, "web pages"},
		{"POST", "/mcp", []string{"Origin: http://" + p.addr}, 200, ""},
		{"POST", "/mcp", []string{"Content-Type: text/plain"}, 415, ""},
		{"POST", "/mcp", []string{"Accept: application/json"}, 400, ""},
	} {
		code, body := request(t, c.method, base+c.path, initialize, c.headers...)
		if code != c.want || !strings.Contains(body, c.body) {
			t.Errorf("%s %s %v: %d %.300s, want %d with %q", c.method, c.path, c.headers, code, body, c.want, c.body)
		}
	}
	if err := runServer(t.Context(), []string{"health", "--listen", p.addr}, os.Getenv, io.Discard); err != nil {
		t.Errorf("health: %v", err)
	}
	p.proxy.Stop()
	testkit.WaitFor(t, func() bool {
		err := runServer(t.Context(), []string{"health", "--listen", p.addr}, os.Getenv, io.Discard)
		return err != nil && strings.Contains(err.Error(), "not ready")
	})
	if code, _ := request(t, "GET", base+"/healthz", ""); code != 200 {
		t.Errorf("alive, and healthz says %d", code)
	}
	p.proxy.Start()
	testkit.WaitFor(t, func() bool {
		return runServer(t.Context(), []string{"health", "--listen", p.addr}, os.Getenv, io.Discard) == nil
	})
}

func TestToken(t *testing.T) {
	t.Parallel()
	p := start(t, 1, map[string]string{"MCP_AUTH_TOKEN": "correct-horse-battery"})
	base := "http://" + p.addr
	if code, _ := request(t, "POST", base+"/mcp", initialize); code != 401 {
		t.Errorf("without: %d", code)
	}
	if code, _ := request(t, "POST", base+"/mcp", initialize, "Authorization: Bearer wrong"); code != 401 {
		t.Errorf("wrong: %d", code)
	}
	if code, _ := request(t, "GET", base+"/metrics", ""); code != 401 {
		t.Errorf("metrics without: %d", code)
	}
	if code, body := request(t, "POST", base+"/mcp", initialize, "Authorization: Bearer correct-horse-battery"); code != 200 {
		t.Errorf("right: %d %s", code, body)
	}
	if code, _ := request(t, "GET", base+"/healthz", ""); code != 200 {
		t.Errorf("healthz: %d", code)
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: p.url(), HTTPClient: &http.Client{Transport: bearer("correct-horse-battery")}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	call(t, s, "list_apis", nil)
	_ = s.Close()
	if strings.Contains(p.log.String(), "correct-horse") {
		t.Error("the token is in the log")
	}
	p.proxy.Stop()
	testkit.WaitFor(t, func() bool { code, _ := request(t, "GET", base+"/readyz", ""); return code == 503 })
	for header, want := range map[string]bool{"Accept: */*": false, "Authorization: Bearer wrong": false, "Authorization: Bearer correct-horse-battery": true} {
		code, body := request(t, "GET", base+"/readyz", "", header)
		if code != 503 || !strings.Contains(body, `"ready":false`) || strings.Contains(body, "problem") != want {
			t.Errorf("not ready, with %s: %d %s", header, code, body)
		}
	}
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// TestStop: a running call may end when the server is told to stop; one that goes on is cancelled, and nothing is left.
func TestStop(t *testing.T) {
	t.Parallel()
	p := start(t, 2, nil)
	p.sandbox.Script = func(ctx context.Context, r sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		limit := time.Second
		if r.Code == "forever" {
			limit = time.Hour
		}
		select {
		case <-time.After(limit):
			emit(sandboxapi.Event{Stdout: "finished"})
		case <-ctx.Done():
		}
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
	s := p.connect(t, nil)
	results := make(chan string, 2)
	for _, code := range []string{"short", "forever"} {
		go func() {
			res, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": code}})
			if err != nil {
				results <- code + " failed"
				return
			}
			results <- code + " " + strings.Join(texts(res), "|")
		}()
	}
	testkit.WaitFor(t, func() bool { return p.sandbox.CountLeased() == 2 })
	start := time.Now()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > testkit.Patience/2 {
		t.Errorf("stopping took %v", took)
	}
	if got := <-results; got != "short finished" {
		t.Errorf("the short call: %s", got)
	}
	t.Log(<-results)
	if n, m := p.sandbox.WaitForReleases(), p.proxy.CountRegistered(); n != 0 || m != 0 {
		t.Errorf("%d leases and %d registrations are left", n, m)
	}
	if _, err := os.Stat(p.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// TestLog: code and output are in no log line, unless DEBUG_MODE asks for them.
func TestLog(t *testing.T) {
	t.Parallel()
	for _, debug := range []string{"false", "true"} {
		p := start(t, 1, map[string]string{"DEBUG_MODE": debug})
		p.sandbox.SetScript(prints("printed-canary", "error-canary", sandboxapi.Exit{Code: 1}))
		s := p.connect(t, nil)
		call(t, s, "execute_code", map[string]any{"code": "// code-canary"})
		log := p.log.String()
		if got, want := strings.Contains(log, "canary"), debug == "true"; got != want {
			t.Errorf("DEBUG_MODE=%s: %s", debug, log)
		}
		if !strings.Contains(log, "[sandbox] run ended run=r") || !strings.Contains(log, "code=1") {
			t.Error(log)
		}
	}
}

// TestSocketTaken: the socket of a living server is not taken over, that of a dead one is.
func TestSocketTaken(t *testing.T) {
	p := start(t, 1, nil)
	err := runServer(t.Context(), []string{"--socket", p.socket, "--sandbox", "unix:" + p.sandbox.Socket, "--control", p.proxy.Socket, "--skills", p.skills},
		func(string) string { return "" }, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "another process answers there") {
		t.Errorf("a second server: %v", err)
	}
	dead := filepath.Join(filepath.Dir(p.socket), "dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	q := &program{sandbox: p.sandbox, proxy: p.proxy, skills: p.skills, addr: freeAddr(t), socket: dead, log: &testkit.Buffer{}}
	q.launch(t, nil)
	if err := os.WriteFile(filepath.Join(filepath.Dir(p.socket), "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err = runServer(t.Context(), []string{"--socket", filepath.Join(filepath.Dir(p.socket), "file"), "--sandbox", "unix:" + p.sandbox.Socket, "--control", p.proxy.Socket, "--skills", p.skills},
		func(string) string { return "" }, io.Discard)
	if err == nil {
		t.Error("a file was replaced by a socket")
	}
}

// TestBusyAnswer: when all slots stay taken, a call gets a clear answer and nothing runs.
func TestBusyAnswer(t *testing.T) {
	t.Parallel()
	p := start(t, 1, nil)
	release := make(chan struct{})
	p.sandbox.Script = func(context.Context, sandboxapi.RunRequest, func(sandboxapi.Event)) sandboxapi.Exit {
		<-release
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
	s := p.connect(t, nil)
	answers := make(chan string, 100)
	for range 70 {
		go func() {
			res, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "x"}})
			if err != nil {
				answers <- err.Error()
				return
			}
			answers <- strings.Join(texts(res), "|")
		}()
	}
	busy := 0
	for range 5 { // one runs, 64 of the session wait
		if got := <-answers; strings.Contains(got, "Busy, not run: all slots are taken and 64 runs are already waiting.") {
			busy++
		} else {
			t.Error(got)
		}
	}
	if busy != 5 {
		t.Errorf("%d were told busy", busy)
	}
	close(release)
	for range 65 {
		if got := <-answers; !strings.Contains(got, "ran without output") {
			t.Error(got)
		}
	}
}

// TestNoSandbox: without a sandbox a call says so in words for the model, without the operator's details.
func TestNoSandbox(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 10 s; not with -short")
	}
	p := start(t, 1, nil)
	s := p.connect(t, nil)
	p.sandbox.Stop()
	res, got := call(t, s, "execute_code", map[string]any{"code": "x"})
	if !res.IsError || !strings.HasPrefix(got[0], "Not run: the sandbox is not available.") || strings.Contains(fmt.Sprint(got), p.sandbox.Socket) {
		t.Errorf("%q", got)
	}
	if !strings.Contains(p.log.String(), "connecting to sandboxd") {
		t.Error("the log does not have the cause")
	}
}

// TestFirstCall: a call that names APIs and comes before the first catalog waits for it, and is not told that there is
// no such API.
func TestFirstCall(t *testing.T) {
	t.Parallel()
	p := &program{sandbox: fakepeers.NewSandbox(t, 1), proxy: fakepeers.NewProxy(t, stripe), skills: t.TempDir(), addr: freeAddr(t), log: &testkit.Buffer{}}
	p.socket = filepath.Join(filepath.Dir(p.sandbox.Socket), "mcp.sock")
	p.proxy.Stop()
	p.begin(t, nil)
	p.await(t, "/healthz")
	s := p.connect(t, nil)
	answered := make(chan *mcp.CallToolResult, 1)
	go func() {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "x", "apis": []string{"stripe"}}})
		if err != nil {
			t.Error(err)
		}
		answered <- res
	}()
	testkit.WaitFor(t, func() bool {
		_, metrics := request(t, "GET", "http://"+p.addr+"/metrics", "")
		return strings.Contains(metrics, "\ncodeforge_mcp_tool_calls_running 1\n") || len(answered) > 0
	})
	p.proxy.Start()
	if res := <-answered; res == nil || res.IsError {
		t.Errorf("%+v", res)
	}
}
