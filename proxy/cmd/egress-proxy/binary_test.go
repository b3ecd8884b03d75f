package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "egress-proxy")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "egress-proxy")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building: %w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// process is a running egress-proxy.
type process struct {
	cmd    *exec.Cmd
	dir    string
	client *proxyapi.Client
	logs   *logs
}

type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs the binary, as built for use, until the test ends; it must then stop cleanly.
func start(t *testing.T, mode string, env []string, files ...*os.File) *process {
	t.Helper()
	return startWith(t, nil, mode, env, files...)
}

// startWith is start with more arguments.
func startWith(t *testing.T, args []string, mode string, env []string, files ...*os.File) *process {
	t.Helper()
	path, err := build()
	testkit.Must(t, err)
	p := &process{dir: t.TempDir(), logs: &logs{}}
	api := filepath.Join(p.dir, "apis", "demo")
	testkit.Must(t, os.MkdirAll(api, 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(api, "config.json"),
		[]byte(`{"description": "d", "domains": ["api.demo.test"], "credentials": {"DEMO_TOKEN": "value-of-demo-token"}}`), 0o600))
	socket := filepath.Join(p.dir, "c.sock")
	p.cmd = exec.Command(path, append([]string{"--mode", mode, "--apis", filepath.Join(p.dir, "apis"), "--ca-private", filepath.Join(p.dir, "private"),
		"--ca-public", filepath.Join(p.dir, "public"), "--control", socket, "--tokens", filepath.Join(p.dir, "tokens"), "--audit", filepath.Join(p.dir, "audit"), "--credentials", filepath.Join(p.dir, "l.sock")}, args...)...)
	p.cmd.Env, p.cmd.ExtraFiles, p.cmd.Stderr = append([]string{"PATH=" + os.Getenv("PATH")}, env...), files, p.logs
	testkit.Must(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("it did not stop cleanly: %v\n%s", err, p.logs)
		}
	})
	p.client = proxyapi.NewClient(socket)
	t.Cleanup(p.client.Close)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if h, err := p.client.FetchHealth(context.Background()); err == nil && h.Ready {
			return p
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is not ready after 10 s:\n%s", p.logs)
		}
	}
}

// slotFiles are the sockets of slot 0 as a supervisor passes them on.
func slotFiles(t *testing.T) (env []string, files []*os.File, https string) {
	t.Helper()
	env, files, all := filesOfSlots(t, 1)
	return env, files, all[0]
}

// filesOfSlots is slotFiles for the first n slots.
func filesOfSlots(t *testing.T, n slot.ID) (env []string, files []*os.File, https []string) {
	t.Helper()
	var names []string
	for id := range n {
		for _, k := range []slot.Kind{slot.HTTP, slot.HTTPS, slot.DNSTCP} {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			testkit.Must(t, err)
			f, err := l.(*net.TCPListener).File()
			testkit.Must(t, err)
			if k == slot.HTTPS {
				https = append(https, l.Addr().String())
			}
			l.Close()
			files, names = append(files, f), append(names, slot.FileName(id, k))
		}
		u, err := net.ListenPacket("udp4", "127.0.0.1:0")
		testkit.Must(t, err)
		f, err := u.(*net.UDPConn).File()
		testkit.Must(t, err)
		u.Close()
		files, names = append(files, f), append(names, slot.FileName(id, slot.DNSUDP))
	}
	t.Cleanup(func() {
		for _, f := range files {
			f.Close()
		}
	})
	return slot.ChildEnviron(names), files, https
}

// TestPrivileges: once it serves, no thread has a capability but the one that reads apis/, and nothing can be added.
func TestPrivileges(t *testing.T) {
	env, files, _ := slotFiles(t)
	p := start(t, "embedded", env, files...)
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.cmd.Process.Pid))
	testkit.Must(t, err)
	if len(tasks) == 0 {
		t.Fatal("it has no threads")
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		testkit.Must(t, err)
		for _, want := range []string{"CapInh:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q", task, want)
			}
		}
		for _, set := range []string{"CapPrm", "CapEff"} {
			if !strings.Contains(string(text), set+":\t0000000000000004") && !strings.Contains(string(text), set+":\t0000000000000000") {
				t.Errorf("%s: %s is more than CAP_DAC_READ_SEARCH:\n%s", task, set, text)
			}
		}
	}
	var core unix.Rlimit
	testkit.Must(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_CORE, nil, &core))
	if core.Cur != 0 || core.Max != 0 {
		t.Errorf("it may write core files of %d bytes", core.Max)
	}
}

// TestReloadSignal: SIGHUP reloads apis/.
func TestReloadSignal(t *testing.T) {
	env, files, _ := slotFiles(t)
	p := start(t, "embedded", env, files...)
	before, err := p.client.FetchCatalog(context.Background())
	testkit.Must(t, err)
	testkit.Must(t, os.RemoveAll(filepath.Join(p.dir, "apis", "demo")))
	testkit.Must(t, p.cmd.Process.Signal(syscall.SIGHUP))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		now, err := p.client.FetchCatalog(context.Background())
		testkit.Must(t, err)
		if now.Version != before.Version && len(now.APIs) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the catalog did not change")
		}
	}
}

// TestProfile: profiles are served on the control socket with --profile, and never elsewhere.
func TestProfile(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{{nil, http.StatusNotFound}, {[]string{"--profile"}, http.StatusOK}, {[]string{"--profile=false"}, http.StatusNotFound}} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			env, files, https := slotFiles(t)
			p := startWith(t, c.args, "embedded", env, files...)
			dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(p.dir, "c.sock"))
			}
			client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
			for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=0.1"} {
				resp, err := client.Get("http://proxy" + path)
				testkit.Must(t, err)
				text, err := io.ReadAll(resp.Body)
				testkit.Must(t, err)
				resp.Body.Close()
				if resp.StatusCode != c.want || c.want == http.StatusOK && len(text) == 0 {
					t.Errorf("%s: %d, %d bytes; want %d", path, resp.StatusCode, len(text), c.want)
				}
			}
			// Code in the sandbox has no such path, in either state.
			testkit.Must(t, p.client.RegisterRun(context.Background(), 0, proxyapi.Registration{Generation: 1, Run: "r", Deadline: time.Now().Add(time.Minute)}))
			over, err := tls.Dial("tcp", https, &tls.Config{InsecureSkipVerify: true, ServerName: "api.demo.test"})
			testkit.Must(t, err)
			defer over.Close()
			fmt.Fprint(over, "GET /debug/pprof/ HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n")
			if answer, _ := io.ReadAll(over); !strings.Contains(string(answer), "host_mismatch") {
				t.Errorf("the sandbox's side answers %q", answer)
			}
		})
	}
}

// TestFailedStarts: each mistake is one clear error.
func TestFailedStarts(t *testing.T) {
	dir := t.TempDir()
	good := []string{"--mode", "embedded", "--apis", dir, "--ca-private", dir + "/a", "--ca-public", dir + "/b", "--control", dir + "/c.sock", "--tokens", dir + "/tokens", "--audit", dir + "/audit", "--credentials", dir + "/l.sock"}
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want string
	}{
		"no mode":             {[]string{}, nil, `--mode "": want embedded, gateway, pod or shared`},
		"half a shared proxy": {append(slices.Clone(good), "--mode", "shared", "--inside", "10.1.0.1", "--address", "10.2.0.1"), nil, "want all, with --listen"},
		"an address alone":    {append(slices.Clone(good), "--address", "10.2.0.1"), nil, "and only then"},
		"no directory":        {[]string{"--mode", "gateway"}, nil, "is missing"},
		"argument":            {append(good, "x"), nil, `unexpected argument "x"`},
		"setting":             {good, map[string]string{"YOLO_MODE": "perhaps"}, "YOLO_MODE"},
		"no listeners":        {good, nil, "no listener was inherited"},
		"wrong count":         {good, map[string]string{"LISTEN_FDS": "2", "LISTEN_FDNAMES": "slot0-http"}, "does not count"},
		"wrong name":          {good, map[string]string{"LISTEN_FDS": "1", "LISTEN_FDNAMES": "door"}, "want slotN-kind"},
		"unknown option":      {[]string{"--colour"}, nil, "flag provided but not defined"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			err := runCommand(context.Background(), c.args, func(k string) string { return c.env[k] }, &stderr, &stderr)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	shared := []string{"--inside", "10.1.0.1", "--address", "10.2.0.1", "--publish", dir + "/p", "--listen", "127.0.0.1:0"}
	for i := 0; i < len(shared); i += 2 {
		three := slices.Concat(good, []string{"--mode", "shared"}, shared[:i], shared[i+2:])
		if err := runCommand(context.Background(), three, func(string) string { return "" }, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "want all, with --listen") {
			t.Errorf("without %s: %v", shared[i], err)
		}
		one := slices.Concat(good, shared[i:i+2])
		if err := runCommand(context.Background(), one, func(string) string { return "" }, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), ": want") {
			t.Errorf("only %s: %v", shared[i], err)
		}
	}
	if err := runCommand(context.Background(), []string{"health", "--control", dir + "/c.sock"}, os.Getenv, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
		t.Error("nobody serves, and health is content")
	}
}

// TestSharedVersions: proxies that share a database have equal versions of equal catalogs, so that an approval that one
// of them holds is valid at another. They start although the database does not answer.
// Promise: several-proxies
func TestSharedVersions(t *testing.T) {
	version := func(env ...string) string {
		slots, files, _ := slotFiles(t)
		c, err := start(t, modeEmbedded, append(slots, env...), files...).client.FetchCatalog(t.Context())
		testkit.Must(t, err)
		return c.Version
	}
	const shared = "PROXY_DATABASE_URL=postgres://codeforge_proxy:a-password@127.0.0.1:1/codeforge"
	one, other := version(shared), version(shared)
	if another := version(strings.Replace(shared, "a-password", "another", 1)); one == "" || one != other || one == another || version() == one {
		t.Errorf("versions %q, %q and %q", one, other, another)
	}
}
