package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridge"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

func TestMain(m *testing.M) { os.Exit(fakepeers.RunTests(m)) }

// local launches real bridges in this process, without a sandbox. They start the commands of the catalog.
type local struct {
	t     testing.TB
	slots int

	mu        sync.Mutex
	open      map[*localSlot]bool
	launches  int
	tenants   []string             // for whom they were
	told      proxyapi.ServerCalls // the last list of calls
	deaf      error                // of the proxy that is told
	installed map[string]bool      // nil: all packages are
	installs  int
}

type localSlot struct {
	launcher *local
	api      proxyapi.API
	in       *io.PipeWriter
	out      *io.PipeReader
	cancel   context.CancelFunc
	done     chan struct{}
	home     string
	once     sync.Once
	freed    bool          // the proxy knows it no more
	stuck    chan struct{} // what freeing it waits for; nil: nothing
}

func (l *local) Launch(_ context.Context, api proxyapi.API, tenant string) (Slot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.installed != nil && api.Server.Package != "" && !l.installed[api.Server.Package] {
		return nil, ErrNotInstalled
	}
	if len(l.open) >= l.slots {
		return nil, ErrFull
	}
	l.launches++
	l.tenants = append(l.tenants, tenant)
	home, err := os.MkdirTemp(l.t.TempDir(), "home")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	in, inWrite := io.Pipe()
	out, outWrite := io.Pipe()
	s := &localSlot{launcher: l, api: api, in: inWrite, out: out, cancel: cancel, done: make(chan struct{}), home: home}
	b := bridge.New(bridge.Config{In: in, Out: outWrite, Env: os.Environ(), Version: "test"})
	go func() {
		_ = b.Run(ctx)
		outWrite.Close()
		in.Close()
		close(s.done)
	}()
	l.open[s] = true
	return s, nil
}

func (l *local) Install(_ context.Context, api proxyapi.API, progress func(string)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.installs++
	progress("downloading")
	if strings.Contains(api.Server.Package, "no-such") {
		return errors.New("the registry has no such version")
	}
	l.installed[api.Server.Package] = true
	return nil
}

func (s *localSlot) Read(p []byte) (int, error)  { return s.out.Read(p) }
func (s *localSlot) Write(p []byte) (int, error) { return s.in.Write(p) }

func (s *localSlot) Start() bridgewire.Start {
	return bridgewire.Start{
		Command: s.api.Server.Command, Env: map[string]string{"HOME": s.home}, ConnectTimeoutMS: s.api.Server.ConnectTimeoutMS,
	}
}

func (s *localSlot) SetCalls(_ context.Context, list proxyapi.ServerCalls) error {
	s.launcher.mu.Lock()
	defer s.launcher.mu.Unlock()
	s.launcher.told = list
	return s.launcher.deaf
}

func (s *localSlot) Drain(context.Context, proxyapi.Cause) (proxyapi.Receipt, error) {
	s.launcher.mu.Lock()
	defer s.launcher.mu.Unlock()
	if s.freed {
		return proxyapi.Receipt{}, proxyapi.ErrFenced
	}
	return proxyapi.Receipt{Exchanges: []proxyapi.Exchange{{Host: s.api.Name + ".example"}}}, nil
}

func (s *localSlot) Stop() {
	s.once.Do(func() {
		s.cancel()
		s.in.Close()
		s.out.Close()
	})
}

func (s *localSlot) Close() error {
	s.launcher.mu.Lock()
	s.freed = true
	s.launcher.mu.Unlock()
	s.Stop()
	<-s.done
	s.launcher.mu.Lock()
	stuck := s.stuck
	s.launcher.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	s.launcher.mu.Lock()
	defer s.launcher.mu.Unlock()
	delete(s.launcher.open, s)
	return nil
}

// world is a broker with hostile servers.
type world struct {
	t        *testing.T
	broker   *Broker
	launcher *local

	mu       sync.Mutex
	catalog  proxyapi.Catalog
	over     map[string]bool // runs that have ended
	outcomes map[string]int
}

// hostile is a server of the catalog that runs testdata/hostile.
func hostile(t *testing.T, name string, change func(*mcpserver.Settings), faults ...string) proxyapi.API {
	t.Helper()
	s := &mcpserver.Settings{Command: append([]string{fakepeers.BuildHostile(t)}, faults...), TimeoutMS: 60_000, ConnectTimeoutMS: 60_000,
		IdleMS: 600_000, MaxConcurrent: 8, State: "shared"}
	if change != nil {
		change(s)
	}
	return proxyapi.API{Name: name, Server: s}
}

// newQuiet is New for tests: every run is a session that never ends, and no client answers or watches.
func newQuiet(cfg Config) *Broker {
	if cfg.Session == nil {
		cfg.Session = func(run string) (string, bool) { return run, true }
	}
	if cfg.Called == nil {
		cfg.Called = func(string, string, time.Duration) {}
	}
	if cfg.Started == nil {
		cfg.Started = func(string, bool) {}
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string, string) {}
	}
	if cfg.Ask == nil {
		cfg.Ask = func(context.Context, string, userform.Question) (userform.Answer, error) {
			return userform.Answer{}, userform.ErrNobody
		}
	}
	return New(cfg)
}

func newWorld(t *testing.T, slots int, apis ...proxyapi.API) *world {
	t.Helper()
	return newWorldIn(t, "", slots, apis...)
}

// newWorldIn is newWorld with a folder of accepted tools.
func newWorldIn(t *testing.T, pins string, slots int, apis ...proxyapi.API) *world {
	t.Helper()
	w := &world{t: t, over: map[string]bool{}, outcomes: map[string]int{}, catalog: proxyapi.Catalog{Version: "1", APIs: apis}}
	w.launcher = &local{t: t, slots: slots, open: map[*localSlot]bool{}}
	before := runtime.NumGoroutine()
	w.broker = newQuiet(Config{
		Launcher: w.launcher, Slots: slots,
		Catalog: func() proxyapi.Catalog {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.catalog
		},
		Session: func(run string) (string, bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			session, _, _ := strings.Cut(run, "-")
			return session, !w.over[run]
		},
		Called: func(_, outcome string, _ time.Duration) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.outcomes[outcome]++
		},
		Log: logline.New(t.Output(), "text", nil), Pins: pins,
	})
	t.Cleanup(func() {
		w.broker.Close(context.Background())
		w.launcher.mu.Lock()
		if n := len(w.launcher.open); n > 0 {
			t.Errorf("%d slots are still taken", n)
		}
		w.launcher.mu.Unlock()
		for end := time.Now().Add(testkit.Patience); time.Now().Before(end); {
			if runtime.NumGoroutine() <= before+2 {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, before %d\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
	})
	return w
}

func (w *world) change(version string, apis ...proxyapi.API) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catalog = proxyapi.Catalog{Version: version, APIs: apis}
}

// answer is what a request got.
type answer struct {
	status int
	body   []byte
	proxyapi.Refusal
}

// text is the answer in short: the texts of a result, or the code of a failure.
func (a answer) text() string {
	if a.Code != "" {
		return a.Code
	}
	var r struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(a.body, &r); err != nil {
		return err.Error()
	}
	var all []string
	for _, c := range r.Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "\n")
}

// send makes a request of a run.
func (w *world) send(ctx context.Context, run, method, path, body string, timeout time.Duration) answer {
	w.t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Header.Set(proxyapi.HeaderRun, run)
	if timeout > 0 {
		r.Header.Set(proxyapi.HeaderTimeout, fmt.Sprint(timeout.Milliseconds()))
	}
	rec := httptest.NewRecorder()
	w.broker.ServeHTTP(rec, r)
	a := answer{status: rec.Code, body: rec.Body.Bytes()}
	if rec.Code != http.StatusOK {
		if err := json.Unmarshal(a.body, &a.Refusal); err != nil || a.Code == "" || a.Error == "" {
			w.t.Errorf("%s: %d %s: no refusal", path, rec.Code, a.body)
		}
		if got := rec.Header().Get(proxyapi.HeaderCode); got != a.Code {
			w.t.Errorf("%s: header %q, code %q", path, got, a.Code)
		}
	}
	return a
}

func (w *world) call(path, body string) answer {
	w.t.Helper()
	return w.send(w.t.Context(), "s1-r1", http.MethodPost, path, body, 0)
}

// meeting is a directory where a test meets the calls of a hostile server's tools meet, never and block.
type meeting struct {
	t    *testing.T
	dir  string
	call string // the arguments of such a call. meet answers "met"
}

func newMeeting(t *testing.T) *meeting {
	dir := t.TempDir()
	return &meeting{t: t, dir: dir, call: fmt.Sprintf(`{"text":"met","dir":%q}`, dir)}
}

// await waits until the server has so many calls.
func (m *meeting) await(n int) {
	m.t.Helper()
	testkit.WaitFor(m.t, func() bool {
		files, err := os.ReadDir(m.dir)
		return err == nil && len(files) == n
	})
}

// end lets meet answer.
func (m *meeting) end() {
	m.t.Helper()
	testkit.Must(m.t, os.WriteFile(filepath.Join(m.dir, "go"), nil, 0o600))
}

func TestCall(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", nil, "banner"))
	for range 3 {
		a := w.call("/a/echo", `{"text":"hi"}`)
		if a.text() != "hi" || !bytes.HasSuffix(a.body, []byte(`,"_schema":false,"_hint":""}`)) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if w.launcher.launches != 1 {
		t.Errorf("%d launches", w.launcher.launches)
	}
	list := w.send(t.Context(), "s1-r1", http.MethodGet, "/a", "", 0)
	var tools struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(list.body, &tools); err != nil || len(tools.Tools) != 22 {
		t.Errorf("%s %v", list.body, err)
	}
	if known, ok := w.broker.KnownTools("a"); !ok || len(known) != 22 {
		t.Errorf("%v %v", known, ok)
	}
	if got := w.send(t.Context(), "s1-r1", http.MethodGet, "/a/$resources", "", 0); !bytes.Contains(got.body, []byte(`"resources":[]`)) {
		t.Errorf("%s", got.body)
	}
	if got := w.call("/a/$read", `{"uri":"x://y"}`); got.Code != serverError {
		t.Errorf("%s", got.body)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, 4,
		hostile(t, "a", func(s *mcpserver.Settings) { s.Deny = []string{"d*"}; s.ExclusiveWith = []string{"b"} }),
		hostile(t, "b", func(s *mcpserver.Settings) { s.Allow = []string{"ech?"} }),
		hostile(t, "dead", nil, "dies-at-start"),
	)
	for _, c := range []struct {
		run, path, body string
		status          int
		code, says      string
	}{
		{"s1-r1", "/nowhere/echo", `{}`, 404, serverNotFound, "nowhere"},
		{"s1-r1", "/a/ecko", `{}`, 404, toolNotFound, `"echo"`},
		{"s1-r1", "/a/die", `{"text":""}`, 403, toolDenied, ""},
		{"s1-r1", "/a/echo", `{}`, 422, badArguments, "text: missing; want string"},
		{"s1-r1", "/a/echo", `{"text":1}`, 422, badArguments, "text: found integer, want string"},
		{"s1-r1", "/a/echo", `[]`, 422, badArguments, "one object"},
		{"s1-r1", "/a/echo", `{"text"`, 422, badArguments, "echo({text: string, dir?: string, ms?: number})"},
		{"s1-r1", "/a/echo", strings.Repeat("[", 600), 422, badArguments, "too deep"},
		{"s1-r1", "/a/error", `{"text":""}`, 502, serverError, "the tool says no"},
		{"s1-r1", "/b/echo", `{"text":""}`, 403, exclusive, "a"},
		{"s1-r2", "/b/read", `{"text":""}`, 403, toolDenied, ""},
		{"s1-r2", "/a/echo", `{"text":""}`, 403, exclusive, "b"},
		{"s1-r3", "/dead/echo", `{}`, 503, serverUnavailable, "KEY is required"},
		{"s1-r3", "/a/b/c", `{}`, 400, badRequest, ""},
		{"", "/a/echo", `{}`, 400, badRequest, ""},
		{"s1-r1", "/a/echo", `{"text":"` + strings.Repeat("a", maxBody) + `"}`, 422, badArguments, "larger than 16 MiB"},
	} {
		got := w.send(t.Context(), c.run, http.MethodPost, c.path, c.body, 0)
		if got.status != c.status || got.Code != c.code || !strings.Contains(got.Error+got.Hint, c.says) {
			t.Errorf("%s %.80s: %d %.300s, want %d %s %q", c.path, c.body, got.status, got.body, c.status, c.code, c.says)
		}
	}
	for text, want := range map[string]string{"x": `{"n":12345678901234567890,"text":"x"}`, strings.Repeat("x", maxErrorData): ""} {
		got := w.send(t.Context(), "s1-r1", http.MethodPost, "/a/error", `{"text":"`+text+`"}`, 0)
		if string(got.Data) != want || got.Error != "the tool says no" {
			t.Errorf("the data of an error: %.100s", got.body)
		}
	}
	if got := w.send(t.Context(), "s1-r2", http.MethodPost, "/b/echo", `{"text":"hi"}`, 0); got.text() != "hi" {
		t.Errorf("b, in a run of its own: %s", got.body)
	}
}

// TestSilentServer: a server that never answers is unavailable after the time that connecting may take, and is not
// started again for the same call; nor is one that never lists its tools.
func TestSilentServer(t *testing.T) {
	for _, fault := range []string{"silent-at-initialize", "silent-at-tools-list"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 4, hostile(t, "a", func(s *mcpserver.Settings) { s.ConnectTimeoutMS = 5000 }, fault))
			got := w.call("/a/echo", `{"text":"hi"}`)
			if got.Code != serverUnavailable || !got.Retryable || !strings.Contains(got.Error, "within 5s") {
				t.Errorf("%s", got.body)
			}
			if w.launcher.launches != 1 {
				t.Errorf("%d launches", w.launcher.launches)
			}
		})
	}
}

// TestTaskOnly: a tool that runs as a task only is not listed, and a call of it says why it fails. Whatever else the
// definition says of its execution, it is a tool.
func TestTaskOnly(t *testing.T) {
	list := filepath.Join(t.TempDir(), "tools")
	testkit.Must(t, os.WriteFile(list, []byte(`[{"name":"long","execution":{"taskSupport":"required"}},`+
		`{"name":"short","execution":{"taskSupport":"optional"}},{"name":"odd","execution":[1]}]`), 0o600))
	w := newWorld(t, 1, hostile(t, "a", nil, "lists="+list))
	got := w.send(t.Context(), "s1-r1", http.MethodGet, "/a", "", 0)
	if all := string(got.body); strings.Contains(all, "long") || !strings.Contains(all, "short") || !strings.Contains(all, "odd") {
		t.Errorf("listed: %s", all)
	}
	if got := w.call("/a/long", `{}`); got.Code != toolDenied || !strings.Contains(got.Error, "only as a task") {
		t.Errorf("called: %s", got.body)
	}
	if got := w.call("/a/short", `{}`); got.Code != "" {
		t.Errorf("called: %s", got.body)
	}
}

// TestStartsOnce: many first calls at once start one process.
func TestStartsOnce(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", nil, "slow-start"))
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			if got := w.call("/a/echo", fmt.Sprintf(`{"text":"%d"}`, n)); got.text() != fmt.Sprint(n) {
				t.Errorf("%d: %s", n, got.body)
			}
		})
	}
	all.Wait()
	if w.launcher.launches != 1 {
		t.Errorf("%d launches", w.launcher.launches)
	}
}

// TestQueue: no more calls are in flight than the configuration says, and waiting is bounded by the call's time.
func TestQueue(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", func(s *mcpserver.Settings) { s.MaxConcurrent = 2 }))
	w.call("/a/echo", `{"text":""}`)
	began := time.Now()
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if got := w.call("/a/slow", `{"text":"x","ms":200}`); got.text() != "x" {
				t.Errorf("%s", got.body)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took < 600*time.Millisecond {
		t.Errorf("six calls of 200 ms, two at a time, took %v", took)
	}
	m := newMeeting(t)
	for range 2 {
		all.Go(func() { w.call("/a/meet", m.call) })
	}
	m.await(2)
	got := w.send(t.Context(), "s1-r1", http.MethodPost, "/a/echo", `{"text":"x"}`, 200*time.Millisecond)
	if got.Code != timedOut || !got.Retryable {
		t.Errorf("%s", got.body)
	}
	m.end()
	all.Wait()
}
