package execution_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/catalogwatch"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/queue"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandbox"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

type world struct {
	sandbox *fakepeers.FakeSandbox
	proxy   *fakepeers.FakeProxy
	watcher *catalogwatch.Watcher
	queue   *queue.Queue
	*execution.Executor
}

func newWorld(t *testing.T, slots int) *world {
	t.Helper()
	return newWorldWith(t, slots, nil, 0)
}

func newWorldWith(t *testing.T, slots int, servers execution.Servers, maxWait time.Duration) *world {
	t.Helper()
	w := &world{sandbox: fakepeers.NewSandbox(t, slots), proxy: fakepeers.NewProxy(t, proxyapi.API{Name: "a", Domains: []string{"b.example.com", "a.example.com"}})}
	log := logline.New(t.Output(), "text", nil)
	runs, control := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: w.sandbox.Dial}), proxyapi.NewClient(w.proxy.Socket)
	w.watcher = catalogwatch.New(catalogwatch.Config{Control: control, Sandbox: runs, Log: log})
	w.queue = queue.New(queue.Config{
		Source: &sandbox.Sandbox{Runs: runs, Control: control, Catalog: w.watcher}, MaxWait: maxWait,
	})
	w.Executor = execution.New(execution.Config{Queue: w.queue, Catalog: w.watcher, Servers: servers, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.watcher.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		w.queue.Close()
		_ = runs.Close()
		control.Close()
	})
	return w
}

func (w *world) run(ctx context.Context, r execution.RunRequest) (execution.Outcome, string, error) {
	if r.Timeout == 0 {
		r.Timeout = testkit.Patience
	}
	var out strings.Builder
	o, err := w.Run(ctx, r, func(e sandboxapi.Event) { out.WriteString(e.Stdout + e.Stderr) })
	return o, out.String(), err
}

// clean checks that nothing of a run is left.
func (w *world) clean(t *testing.T) {
	t.Helper()
	if n := w.sandbox.WaitForReleases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if n := w.proxy.CountRegistered(); n != 0 {
		t.Errorf("%d registrations are left", n)
	}
}

// Promise: tenant-shares
func TestOrder(t *testing.T) {
	w := newWorld(t, 1)
	var during []string
	w.sandbox.Script = func(_ context.Context, r sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		during = w.proxy.Journal()
		emit(sandboxapi.Event{Stdout: "out "})
		emit(sandboxapi.Event{Stderr: "err"})
		return sandboxapi.Exit{Code: 3, Reason: sandboxapi.Exited}
	}
	w.proxy.Receipt = func(r proxyapi.Registration) proxyapi.Receipt {
		// The slot must still be held when the receipt is asked for.
		if w.sandbox.CountLeased() != 1 || !slices.Contains(w.sandbox.Journal(), "exit 1") {
			t.Error("the receipt was asked for before the run ended, or after its lease")
		}
		return proxyapi.Receipt{Count: proxyapi.Count{Exchanges: 2}}
	}
	start := time.Now()
	o, out, err := w.run(t.Context(), execution.RunRequest{
		Code: "x", APIs: []string{"a"}, Timeout: 7 * time.Second,
		Tenant: &execution.TenantSources{Tenant: &tenant.Tenant{Tenant: tokenfile.Tenant{Name: "alice"}}},
	})
	if err != nil || out != "out err" || o.Exit.Code != 3 || o.Receipt.Count.Exchanges != 2 || o.Receipt.Run != o.Run || o.Lost {
		t.Errorf("got %+v, %q, %v", o, out, err)
	}
	w.sandbox.WaitForReleases()
	if got := fmt.Sprint(w.sandbox.Journal(), during, w.proxy.Journal()); got != "[lease 1 run 1 exit 1 release 1] [register 1] [register 1 unregister 1]" {
		t.Errorf("order: %s", got)
	}
	reg := w.proxy.ListRegistrations()[0]
	if left := reg.Deadline.Sub(start); left < 7*time.Second || left > testkit.Patience || !slices.Equal(reg.APIs, []string{"a"}) || reg.Tenant != "alice" {
		t.Errorf("registration %+v, deadline in %v", reg, left)
	}
	w.clean(t)
}

// tools are the known tools by server.
type tools map[string][]toolsignature.Tool

func (t tools) KnownTools(server string) ([]toolsignature.Tool, bool) {
	list, ok := t[server]
	return list, ok
}

func (t tools) Pause(string, bool) {}

func (t tools) TakeRequestsCausedBy(string) []proxyapi.CausedRequests {
	return []proxyapi.CausedRequests{{Cause: proxyapi.Cause{Call: "git.log", Among: 1}, Exchanges: []proxyapi.Exchange{{URL: "https://git.example.com/"}}}}
}

// A run is told the servers among its APIs, and its session can be found while it runs. The sandbox may reach the host
// of servers as long as there is one.
func TestServers(t *testing.T) {
	many := make([]toolsignature.Tool, 1500)
	for i := range many {
		many[i].Name = fmt.Sprintf("tool_with_a_long_name_%d", i)
	}
	w := newWorldWith(t, 1, tools{"git": {{Name: "log"}, {Name: "blame"}}, "large": many, "git2": {{Name: "log"}}}, 0)
	server := &mcpserver.Settings{Package: "npm:x@1.0.0"}
	w.proxy.SetCatalog(proxyapi.Catalog{APIs: []proxyapi.API{
		{Name: "a", Domains: []string{"a.example.com"}}, {Name: "git", Server: server}, {Name: "asleep", Server: server},
		{Name: "large", Server: server}, {Name: "git2", Server: server},
	}})
	var told map[string][]string
	var session string
	w.sandbox.Script = func(_ context.Context, r sandboxapi.RunRequest, _ func(sandboxapi.Event)) sandboxapi.Exit {
		told = r.Servers
		session, _ = w.SessionOf(r.Run)
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
	testkit.WaitFor(t, func() bool { return len(w.watcher.Catalog().APIs) == 5 })
	for _, c := range []struct {
		apis []string
		want map[string][]string
	}{
		{nil, map[string][]string{"git": {"log", "blame"}, "asleep": {}, "large": {}, "git2": {"log"}}},
		{[]string{"a", "git"}, map[string][]string{"git": {"log", "blame"}}},
		{[]string{"a"}, nil},
	} {
		w.proxy.Receipt = func(proxyapi.Registration) proxyapi.Receipt {
			return proxyapi.Receipt{Exchanges: []proxyapi.Exchange{{URL: "https://a.example.com/"}, {URL: "https://mcp.codeforge.internal/git/log"}}}
		}
		o, _, err := w.run(t.Context(), execution.RunRequest{Code: "x", APIs: c.apis, Session: "me"})
		if x := o.Receipt.Exchanges; len(x) != 2 || x[0].Caused != nil || x[1].Among != 1 || len(x[1].Caused) != 1 {
			t.Errorf("receipt %+v", o.Receipt)
		}
		if err != nil || !reflect.DeepEqual(told, c.want) || session != "me" {
			t.Errorf("%v: told %v, session %q, %v", c.apis, told, session, err)
		}
		if _, ok := w.SessionOf(o.Run); ok {
			t.Error("the run's session is still known")
		}
	}
	if allow := w.sandbox.AllowedHosts(); !slices.Equal(allow, []string{"a.example.com", proxyapi.ServersHost}) {
		t.Errorf("code may reach %v", allow)
	}
	w.proxy.SetCatalog(proxyapi.Catalog{APIs: []proxyapi.API{{Name: "a", Domains: []string{"a.example.com"}}}})
	testkit.WaitFor(t, func() bool {
		return slices.Equal(w.sandbox.AllowedHosts(), []string{"a.example.com", proxyapi.ServersHost})
	})
}

func TestCancelUnwinds(t *testing.T) {
	w := newWorld(t, 1)
	w.sandbox.Script = func(ctx context.Context, _ sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		emit(sandboxapi.Event{Stdout: "half"})
		<-ctx.Done()
		return sandboxapi.Exit{Reason: sandboxapi.Cancelled}
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := ""
	o, err := w.Run(ctx, execution.RunRequest{Code: "x", Timeout: time.Minute}, func(e sandboxapi.Event) {
		out += e.Stdout
		cancel()
	})
	if !errors.Is(err, context.Canceled) || out != "half" || o.Receipt.Run == "" {
		t.Errorf("got %+v, %q, %v", o, out, err)
	}
	w.clean(t)
}

func TestProxyGone(t *testing.T) {
	w := newWorld(t, 1)
	if _, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"}); err != nil {
		t.Fatal(err)
	}
	w.proxy.Stop()
	if _, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"}); err == nil {
		t.Error("a run without the proxy")
	}
	w.clean(t)
	if n := len(w.sandbox.Journal()); n != 6 { // lease, run, exit, release; lease, release
		t.Errorf("the code ran although the proxy did not know of it: %v", w.sandbox.Journal())
	}
	w.proxy.Start()
	if _, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"}); err != nil {
		t.Errorf("after its return: %v", err)
	}
	w.clean(t)
}

// TestProxyHangs: a proxy that does not answer a registration ends the run, and the slot becomes free. No code has run.
func TestProxyHangs(t *testing.T) {
	w := newWorld(t, 1)
	hung := make(chan struct{})
	w.proxy.Registering = func() {
		<-hung
		panic(http.ErrAbortHandler) // it never registers the run
	}
	time.AfterFunc(testkit.Patience, func() { w.proxy.Stop() })
	began := time.Now()
	_, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"})
	took := time.Since(began)
	close(hung)
	if err == nil || !strings.Contains(err.Error(), "registering the run") || took > testkit.Patience {
		t.Errorf("after %s: %v", took, err)
	}
	if slices.ContainsFunc(w.sandbox.Journal(), func(line string) bool { return strings.HasPrefix(line, "run") }) {
		t.Errorf("the code ran: %v", w.sandbox.Journal())
	}
	w.clean(t)
}

// TestProxyDiesDuringRun: the run's result arrives, and the receipt is said to be lost.
func TestProxyDiesDuringRun(t *testing.T) {
	w := newWorld(t, 1)
	w.sandbox.Script = func(context.Context, sandboxapi.RunRequest, func(sandboxapi.Event)) sandboxapi.Exit {
		w.proxy.Stop()
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
	o, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"})
	if err != nil || !o.Lost {
		t.Errorf("got %+v, %v", o, err)
	}
	if n := w.sandbox.WaitForReleases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// TestSandboxRestarts: a sandboxd that was started anew knows no permissions; they are told again and the run goes on.
func TestSandboxRestarts(t *testing.T) {
	w := newWorld(t, 1)
	if _, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"}); err != nil {
		t.Fatal(err)
	}
	w.sandbox.Stop()
	w.sandbox.Start()
	if _, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"}); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if got := w.sandbox.AllowedHosts(); !slices.Equal(got, []string{"a.example.com", "b.example.com", proxyapi.ServersHost}) {
		t.Errorf("permissions %v", got)
	}
	w.clean(t)
}

func TestSandboxDiesDuringRun(t *testing.T) {
	w := newWorld(t, 1)
	seen := make(chan struct{})
	w.sandbox.Script = func(_ context.Context, _ sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		emit(sandboxapi.Event{Stdout: "half"})
		<-seen
		w.sandbox.Stop()
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
	out := ""
	_, err := w.Run(t.Context(), execution.RunRequest{Code: "x", Timeout: testkit.Patience}, func(e sandboxapi.Event) {
		out += e.Stdout
		close(seen)
	})
	if !errors.Is(err, sandboxapi.ErrInterrupted) || out != "half" {
		t.Errorf("got %q, %v", out, err)
	}
	if n := w.proxy.CountRegistered(); n != 0 {
		t.Errorf("%d registrations are left", n)
	}
}

// TestOldGenerations: a sandboxd that lost its count is one whose leases the proxy refuses; new ones are tried.
// Promise: one-run-one-identity
func TestOldGenerations(t *testing.T) {
	w := newWorld(t, 1)
	control := proxyapi.NewClient(w.proxy.Socket)
	defer control.Close()
	if err := control.RegisterRun(t.Context(), 0, proxyapi.Registration{Generation: 2, Run: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"}); err != nil {
		t.Errorf("generation 3 is new enough: %v", err)
	}
	if n := w.sandbox.WaitForReleases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if err := control.RegisterRun(t.Context(), 0, proxyapi.Registration{Generation: 1000, Run: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"}); !errors.Is(err, proxyapi.ErrFenced) {
		t.Errorf("got %v, want fenced", err)
	}
	if n := w.sandbox.WaitForReleases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// TestCatalogChanges: the permission set follows the catalog, and runs that come meanwhile use the one in force.
func TestCatalogChanges(t *testing.T) {
	w := newWorld(t, 4)
	w.sandbox.Script = func(context.Context, sandboxapi.RunRequest, func(sandboxapi.Event)) sandboxapi.Exit {
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
	for i := range 30 {
		w.proxy.SetCatalog(proxyapi.Catalog{APIs: []proxyapi.API{{Name: "n", Domains: []string{fmt.Sprintf("h%d.example.com", i)}}}})
		if _, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); !slices.Equal(w.sandbox.AllowedHosts(), []string{"h29.example.com", proxyapi.ServersHost}); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("permissions %v", w.sandbox.AllowedHosts())
		}
	}
	w.proxy.SetCatalog(proxyapi.Catalog{YOLO: true})
	for deadline := time.Now().Add(time.Minute); !slices.Equal(w.sandbox.AllowedHosts(), []string{"*"}); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("permissions under YOLO %v", w.sandbox.AllowedHosts())
		}
	}
	w.clean(t)
}

// TestCatalogChangesAllTheTime: runs go on while one edit follows the other, as it is with files that are written in
// steps.
func TestCatalogChangesAllTheTime(t *testing.T) {
	w := newWorld(t, 4)
	w.sandbox.Script = func(context.Context, sandboxapi.RunRequest, func(sandboxapi.Event)) sandboxapi.Exit {
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
			}
			w.proxy.SetCatalog(proxyapi.Catalog{APIs: []proxyapi.API{{Name: "n", Domains: []string{fmt.Sprintf("h%d.example.com", i)}}}})
		}
	}()
	for range 300 {
		if _, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"}); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	<-stopped
	w.clean(t)
}

func TestBusy(t *testing.T) {
	w := newWorldWith(t, 1, nil, time.Second)
	release := make(chan struct{})
	w.sandbox.Script = func(context.Context, sandboxapi.RunRequest, func(sandboxapi.Event)) sandboxapi.Exit {
		<-release
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
	ended := make(chan error, 1)
	go func() {
		_, _, err := w.run(context.Background(), execution.RunRequest{Code: "x"})
		ended <- err
	}()
	for w.sandbox.CountLeased() == 0 {
		time.Sleep(time.Millisecond)
	}
	var busy *queue.BusyError
	if o, _, err := w.run(t.Context(), execution.RunRequest{Code: "x"}); !errors.As(err, &busy) || o.Waited < 900*time.Millisecond {
		t.Errorf("got %+v, %v", o, err)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	w.clean(t)
}
