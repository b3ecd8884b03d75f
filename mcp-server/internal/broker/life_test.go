package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// pid is the process that answers a run's calls of a server.
func (w *world) pid(run, server string) string {
	w.t.Helper()
	got := w.send(w.t.Context(), run, http.MethodPost, "/"+server+"/pid", `{"text":""}`, 0)
	if got.status != http.StatusOK {
		w.t.Errorf("%s for %s: %s", server, run, got.body)
	}
	return got.text()
}

// TestTimeout: a call that takes too long is cancelled for real. A server that answers after all goes on; one that does
// not say whether it stopped gets no new calls; one that hangs is ended.
func TestTimeout(t *testing.T) {
	for tool, stays := range map[string]bool{"meet": true, "never": false, "block": false} {
		t.Run(tool, func(t *testing.T) {
			w := newWorld(t, 4, hostile(t, "a", nil))
			before := w.pid("s1-r1", "a")
			began := time.Now()
			got := w.send(t.Context(), "s1-r1", http.MethodPost, "/a/"+tool, `{"text":"x","ms":120000}`, 1500*time.Millisecond)
			if took := time.Since(began); got.Code != timedOut || took > 30*time.Second || got.Hint == "" {
				t.Errorf("%s after %v", got.body, took)
			}
			testkit.WaitFor(t, func() bool { return w.broker.idle("a") })
			if after := w.pid("s1-r1", "a"); (after == before) != stays {
				t.Errorf("the process before was %s and is %s", before, after)
			}
			testkit.WaitFor(t, func() bool {
				w.launcher.mu.Lock()
				defer w.launcher.mu.Unlock()
				return len(w.launcher.open) == 1
			})
		})
	}
}

// giveUp calls a tool, and ends the request when the server has it.
func (w *world) giveUp(server, tool string) answer {
	w.t.Helper()
	return w.giveUpOf("s1-r1", server, tool)
}

// giveUpOf is giveUp for a run.
func (w *world) giveUpOf(run, server, tool string) answer {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	m, done := newMeeting(w.t), make(chan answer, 1)
	go func() { done <- w.send(ctx, run, http.MethodPost, "/"+server+"/"+tool, m.call, 0) }()
	m.await(1)
	cancel()
	return <-done
}

// TestCallerGone: the end of a request cancels its call.
func TestCallerGone(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", nil))
	before := w.pid("s1-r1", "a")
	if got := w.giveUp("a", "never"); got.Code != cancelled {
		t.Errorf("%s", got.body)
	}
	testkit.WaitFor(t, func() bool { return w.broker.CountRunning() == 0 })
	if after := w.pid("s1-r1", "a"); after == before {
		t.Error("the process that may still work on the call is used")
	}
}

// TestAbandonedSession: a server with a session's state is kept when it lives on after a cancelled call.
func TestAbandonedSession(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", func(s *mcpserver.Settings) { s.State = "session" }))
	before := w.pid("s1-r1", "a")
	w.giveUp("a", "never")
	testkit.WaitFor(t, func() bool { return w.broker.idle("a") })
	if after := w.pid("s1-r1", "a"); after != before {
		t.Error("the session's state is lost")
	}
}

// TestAbandonedEnds: a server that may still work on a call is ended with the call's run, of a tenant and with the state
// of a session too. A server of a tenant that calls share is ended at once.
// Promise: calls-end-with-their-run
func TestAbandonedEnds(t *testing.T) {
	alice := (&tenant.Tenant{Tenant: tokenfile.Tenant{Name: "alice"}}).SessionName("s")
	for name, row := range map[string]struct {
		run, state string
		atOnce     bool
	}{
		"shared": {"s1-r1", "shared", true}, "shared by a tenant's calls": {alice + "-r1", "shared", true},
		"session": {"s1-r1", "session", false}, "a tenant's session": {alice + "-r1", "session", false},
		"run": {"s1-r1", "run", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, hostile(t, "a", func(s *mcpserver.Settings) { s.State = row.state }))
			before := w.pid(row.run, "a")
			w.giveUpOf(row.run, "a", "never")
			testkit.WaitFor(t, func() bool { return w.broker.idle("a") })
			if after := w.pid(row.run, "a"); (after != before) != row.atOnce {
				t.Errorf("the process before was %s and is %s", before, after)
			}
			session, _, _ := strings.Cut(row.run, "-")
			w.pid(session+"-r2", "a")
			w.mu.Lock()
			w.over[row.run] = true
			w.mu.Unlock()
			testkit.WaitFor(t, func() bool {
				w.broker.mu.Lock()
				defer w.broker.mu.Unlock()
				instances := w.broker.servers["a"].instances
				return row.atOnce || instances[row.run] == nil && instances["session "+session] == nil
			})
		})
	}
}

// TestRunOver: a run that is over calls no server, whatever calls share its process.
// Promise: calls-end-with-their-run
func TestRunOver(t *testing.T) {
	state := func(name string) func(*mcpserver.Settings) { return func(s *mcpserver.Settings) { s.State = name } }
	w := newWorld(t, 4, hostile(t, "shared", nil), hostile(t, "session", state("session")), hostile(t, "run", state("run")))
	w.over["s1-r1"] = true
	for _, server := range []string{"shared", "session", "run"} {
		if got := w.call("/"+server+"/pid", `{"text":""}`); got.Code != cancelled {
			t.Errorf("%s: %s", server, got.body)
		}
	}
}

func TestState(t *testing.T) {
	w := newWorld(t, 8,
		hostile(t, "shared", nil),
		hostile(t, "session", func(s *mcpserver.Settings) { s.State = "session" }),
		hostile(t, "run", func(s *mcpserver.Settings) { s.State = "run" }),
	)
	for server, same := range map[string][2]bool{"shared": {true, true}, "session": {true, false}, "run": {false, false}} {
		first, second, other := w.pid("s1-r1", server), w.pid("s1-r2", server), w.pid("s2-r1", server)
		if (first == second) != same[0] || (first == other) != same[1] {
			t.Errorf("%s: %s, %s in the same session, %s in another", server, first, second, other)
		}
		if again := w.pid("s1-r1", server); again != first {
			t.Errorf("%s: %s, then %s", server, first, again)
		}
	}
	running := w.broker.CountRunning()
	w.mu.Lock()
	w.over["s1-r1"] = true
	w.mu.Unlock()
	testkit.WaitFor(t, func() bool { return w.broker.CountRunning() == running-1 })
}

func TestIdle(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", func(s *mcpserver.Settings) { s.IdleMS = 500 }))
	w.pid("s1-r1", "a")
	testkit.WaitFor(t, func() bool { return w.broker.CountRunning() == 0 })
	launched := w.launcher.launches
	if tools, known := w.broker.KnownTools("a"); !known || len(tools) == 0 {
		t.Error("its tools are forgotten")
	}
	w.pid("s1-r1", "a")
	if w.launcher.launches == launched {
		t.Error("it was not launched again")
	}
}

// TestSlots: of idle servers the one that was used least recently gives way; of busy ones none does.
func TestSlots(t *testing.T) {
	specs := []proxyapi.API{hostile(t, "a", nil), hostile(t, "b", nil), hostile(t, "c", nil)}
	w := newWorld(t, 2, specs...)
	a, b := w.pid("s1-r1", "a"), w.pid("s1-r1", "b")
	if again := w.pid("s1-r1", "a"); again != a {
		t.Error("a was not kept")
	}
	testkit.WaitFor(t, func() bool { return w.broker.idle("a") && w.broker.idle("b") })
	w.pid("s1-r1", "c")
	if again := w.pid("s1-r1", "a"); again != a {
		t.Error("a gave way, and b was older")
	}
	if again := w.pid("s1-r1", "b"); again == b {
		t.Error("b did not give way")
	}
	var busy sync.WaitGroup
	m := newMeeting(t)
	for _, server := range []string{"a", "b"} {
		busy.Go(func() { w.call("/"+server+"/meet", m.call) })
	}
	m.await(2)
	w.change("2", specs[0], specs[1], hostile(t, "c", func(s *mcpserver.Settings) { s.ConnectTimeoutMS = 500 }))
	if got := w.call("/c/echo", `{"text":""}`); got.Code != slotsFull || !got.Retryable || !strings.Contains(got.Hint, "SANDBOX_SERVERS") {
		t.Errorf("%s", got.body)
	}
	m.end()
	busy.Wait()
	w.change("3", specs...)
	if got := w.call("/c/echo", `{"text":"hi"}`); got.text() != "hi" {
		t.Errorf("when there is room again: %s", got.body)
	}
}

// TestReplay: a call that may have been carried out is repeated only if the tool says that is harmless, and the
// configuration believes it.
func TestReplay(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "careful", nil), hostile(t, "trusting", func(s *mcpserver.Settings) { s.Retry = true }))
	dir := t.TempDir()
	body := func(name string) string { return fmt.Sprintf(`{"text":%q}`, filepath.Join(dir, name)) }
	if got := w.call("/careful/die-once", body("1")); got.Code != serverUnavailable || got.Retryable || !strings.Contains(got.Hint, "may have been") {
		t.Errorf("%s", got.body)
	}
	if got := w.call("/trusting/die-once", body("2")); got.text() != filepath.Join(dir, "2") {
		t.Errorf("%s", got.body)
	}
	if got := w.call("/trusting/die", `{"text":""}`); got.Code != serverUnavailable || got.Retryable {
		t.Errorf("a tool that does not say so: %s", got.body)
	}
}

// TestAnotherServer: what becomes another server under the same name, or gets other hosts, ends at once, with its
// calls.
func TestAnotherServer(t *testing.T) {
	a := hostile(t, "a", nil)
	w := newWorld(t, 4, a)
	w.pid("s1-r1", "a")
	var inFlight sync.WaitGroup
	m := newMeeting(t)
	inFlight.Go(func() {
		if got := w.call("/a/meet", m.call); got.Code != serverUnavailable {
			t.Errorf("%s", got.body)
		}
	})
	m.await(1)
	a.Domains = append(a.Domains, "other.test")
	w.change("2", a)
	w.pid("s1-r1", "a")
	inFlight.Wait()
}

// TestAnotherServerLater: so does one that was removed, or changed otherwise, and still has a call when another server
// gets its name.
func TestAnotherServerLater(t *testing.T) {
	a, other := hostile(t, "a", nil), hostile(t, "other", nil)
	for name, between := range map[string][]proxyapi.API{
		"removed": {other}, "changed": {other, hostile(t, "a", func(s *mcpserver.Settings) { s.TimeoutMS = 9000 })},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, a, other)
			var inFlight sync.WaitGroup
			m := newMeeting(t)
			defer m.end()
			inFlight.Go(func() {
				if got := w.call("/a/meet", m.call); got.Code != serverUnavailable {
					t.Errorf("%s", got.body)
				}
			})
			m.await(1)
			w.change("2", between...)
			w.pid("s1-r1", "other")
			next := a
			next.Domains = []string{"other.test"}
			w.change("3", other, next)
			w.pid("s1-r1", "a")
			inFlight.Wait()
			testkit.WaitFor(t, func() bool {
				w.broker.mu.Lock()
				defer w.broker.mu.Unlock()
				return len(w.broker.retired) == 0
			})
		})
	}
}

func TestListChanged(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", func(s *mcpserver.Settings) { s.Pins = "off" }))
	if got := w.call("/a/grown0", `{"text":""}`); got.Code != toolNotFound {
		t.Errorf("%s", got.body)
	}
	w.call("/a/grow", `{"text":""}`)
	testkit.WaitFor(t, func() bool { return w.call("/a/grown0", `{"text":"hi"}`).text() == "hi" })
}

// TestListPause: a server that says without end that its tools changed is asked for them once in a while.
func TestListPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &configuredServer{broker: &Broker{}, fresh: true, asked: time.Now()}
		fresh := func() bool {
			s.broker.mu.Lock()
			defer s.broker.mu.Unlock()
			was := s.fresh
			s.fresh = true
			return was
		}
		for range 100 {
			s.handleChange("")
		}
		if !fresh() {
			t.Error("asked again at once")
		}
		time.Sleep(listPause + time.Millisecond)
		synctest.Wait()
		if fresh() {
			t.Error("a change was forgotten")
		}
		s.handleChange("")
		if fresh() {
			t.Error("a change long after the last question is not noticed")
		}
		s.handleChange("r1")
		if !fresh() {
			t.Error("one run's own process changed what all see")
		}
	})
}

// TestToolThatCame: a tool that another one has just added is found, however short ago the tools were listed.
func TestToolThatCame(t *testing.T) {
	w := newWorld(t, 8, hostile(t, "a", nil))
	for _, wait := range []time.Duration{0, listPause + 100*time.Millisecond} {
		time.Sleep(wait)
		w.call("/a/grow", `{"text":"x"}`)
		if got := w.call("/a/grown0", `{"text":"came"}`); got.text() != "came" && got.Code != quarantined {
			t.Errorf("after %s: %s", wait, got.body)
		}
		testkit.Must(t, w.broker.RestartServer("a"))
		w.call("/a/echo", `{"text":"x"}`)
	}
	fastest := time.Hour // of three, because a busy machine adds to single ones
	for range 3 {
		began := time.Now()
		if got := w.call("/a/grwn", `{}`); !strings.Contains(string(got.body), "there is no tool") {
			t.Errorf("a misspelt name: %s", got.body)
		}
		fastest = min(fastest, time.Since(began))
	}
	if fastest > listPause/2 {
		t.Errorf("a misspelt name waits for a listing: %s", fastest)
	}
}

// TestCatalogChanges: a server that is configured otherwise, or no longer, ends; the others go on.
func TestCatalogChanges(t *testing.T) {
	a, b, c := hostile(t, "a", nil), hostile(t, "b", nil), hostile(t, "c", nil)
	w := newWorld(t, 8, a, b, c)
	before := map[string]string{"a": w.pid("s1-r1", "a"), "b": w.pid("s1-r1", "b"), "c": w.pid("s1-r1", "c")}
	var inFlight sync.WaitGroup
	m := newMeeting(t)
	inFlight.Go(func() {
		if got := w.call("/b/meet", m.call); got.text() != "met" {
			t.Errorf("in flight: %s", got.body)
		}
	})
	m.await(1)
	w.change("2", a, hostile(t, "b", func(s *mcpserver.Settings) { s.TimeoutMS = 9000 }))
	if pid := w.pid("s1-r1", "a"); pid != before["a"] {
		t.Error("a was restarted")
	}
	if pid := w.pid("s1-r1", "b"); pid == before["b"] {
		t.Error("b is used as it was")
	}
	if got := w.call("/c/echo", `{"text":""}`); got.Code != serverNotFound {
		t.Errorf("c: %s", got.body)
	}
	m.end()
	inFlight.Wait()
	testkit.WaitFor(t, func() bool { return w.broker.CountRunning() == 2 })
}

// TestInstall: a missing package is installed once for all that wait, and then the server starts.
func TestInstall(t *testing.T) {
	w := newWorld(t, 8,
		hostile(t, "a", func(s *mcpserver.Settings) { s.Package = "npm:a@1.0.0" }),
		hostile(t, "b", func(s *mcpserver.Settings) { s.Package = "npm:no-such@1.0.0" }),
	)
	w.launcher.installed = map[string]bool{}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if got := w.call("/a/echo", `{"text":"hi"}`); got.text() != "hi" {
				t.Errorf("%s", got.body)
			}
		})
	}
	all.Wait()
	if w.launcher.installs != 1 {
		t.Errorf("%d installations", w.launcher.installs)
	}
	got := w.call("/b/echo", `{"text":"hi"}`)
	if got.Code != installFailed || !strings.Contains(got.Error, "the registry has no such version") || got.Hint == "" {
		t.Errorf("%s", got.body)
	}
}

// TestDies: a server that dies at a step of a call is a clear error, and does not hurt its neighbour.
func TestDies(t *testing.T) {
	for fault, says := range map[string]string{
		"dies-at-start": "KEY is required", "dies-at-initialize": "exit status 4", "dies-at-notifications-initialized": "exit status 4",
		"dies-at-tools-list": "exit status 4", "dies-at-tools-call": "exit status 4",
	} {
		t.Run(fault, func(t *testing.T) {
			w := newWorld(t, 4, hostile(t, "bad", nil, fault), hostile(t, "good", nil))
			good := w.pid("s1-r1", "good")
			got := w.call("/bad/echo", `{"text":"hi"}`)
			if got.Code != serverUnavailable || !strings.Contains(got.Error, says) {
				t.Errorf("%s", got.body)
			}
			if w.pid("s1-r1", "good") != good {
				t.Error("the neighbour was restarted")
			}
		})
	}
}

// TestKilled: whatever kills a server's slot, the next call starts it anew.
func TestKilled(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", nil))
	for range 3 {
		before := w.pid("s1-r1", "a")
		w.launcher.killAll()
		testkit.WaitFor(t, func() bool { return w.broker.CountRunning() == 0 })
		if after := w.pid("s1-r1", "a"); after == before {
			t.Error("a dead process answers")
		}
	}
}

// killAll ends all bridges, as the loss of the sandbox does.
func (l *local) killAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.open {
		s.cancel()
		s.out.Close()
	}
}

// TestBreakerOpens: a server that dies at every call is not started for ever.
func TestBreakerOpens(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "bad", nil), hostile(t, "good", nil))
	codes := map[string]int{}
	for range 12 {
		got := w.call("/bad/die", `{"text":""}`)
		switch {
		case got.Code != serverUnavailable:
			t.Errorf("%s", got.body)
		case strings.Contains(got.Error, "failed too often"):
			codes["open"]++
		default:
			codes["died"]++
		}
	}
	if codes["died"] > breakerFailures+1 || codes["open"] == 0 || w.launcher.launches > breakerFailures+2 {
		t.Errorf("%v, %d launches", codes, w.launcher.launches)
	}
	if got := w.call("/good/echo", `{"text":"hi"}`); got.text() != "hi" {
		t.Errorf("another server: %s", got.body)
	}
}

func TestBreaker(t *testing.T) {
	var b serverBreaker
	now := time.Now()
	admitted := func(want, wantProbe bool) {
		t.Helper()
		if ok, probe := b.admitCall(now); ok != want || probe != wantProbe {
			t.Errorf("admitted %v, probe %v", ok, probe)
		}
	}
	for range breakerFailures - 1 {
		b.countFailure(now)
	}
	admitted(true, false)
	now = now.Add(breakerTime + time.Second)
	b.countFailure(now) // the others are too long ago
	admitted(true, false)
	for range breakerFailures - 1 {
		b.countFailure(now)
	}
	admitted(false, false)
	now = now.Add(breakerTime)
	admitted(true, true)
	admitted(false, false) // one probe at a time
	b.countFailure(now)
	admitted(false, false)
	now = now.Add(breakerTime)
	admitted(true, true)
	b.releaseProbe()
	admitted(true, true)
	b.resetFailures()
	admitted(true, false)
	if b.restartPause() != 0 {
		t.Errorf("a pause of %v after success", b.restartPause())
	}
	for range 20 {
		b.countFailure(now)
	}
	if b.restartPause() != lastPause {
		t.Errorf("a pause of %v after many failures", b.restartPause())
	}
}

// idle reports whether no call holds a server.
func (b *Broker) idle(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range b.servers[name].instances {
		if i.users > 0 {
			return false
		}
	}
	return true
}

// TestCloseIsBounded: a slot that cannot be freed does not hold up the end of the daemon.
func TestCloseIsBounded(t *testing.T) {
	stuck := make(chan struct{})
	w := newWorld(t, 1, hostile(t, "a", nil))
	w.pid("s1-r1", "a")
	w.launcher.mu.Lock()
	for s := range w.launcher.open {
		s.stuck = stuck
	}
	w.launcher.mu.Unlock()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	w.broker.Close(ctx)
	if took := time.Since(began); took < 100*time.Millisecond || took > 30*time.Second {
		t.Errorf("closing took %v", took)
	}
	close(stuck)
}

// TestCausedAtEnd: what a server sent in a call is known, also if it ends during the call or right after it.
func TestCausedAtEnd(t *testing.T) {
	const each = 5
	ways := map[string]func(w *world, s *configuredServer){
		"it dies":     nil,
		"it restarts": func(w *world, s *configuredServer) { testkit.Must(w.t, w.broker.RestartServer(s.api.Name)) },
		"it gives way": func(w *world, s *configuredServer) {
			w.broker.mu.Lock()
			defer w.broker.mu.Unlock()
			w.broker.retireInstance(s.instances[""])
		},
	}
	for way, end := range ways {
		t.Run(way, func(t *testing.T) {
			var apis []proxyapi.API
			for i := range each {
				a := hostile(t, fmt.Sprint("a", i), nil)
				a.Domains = []string{a.Name + ".example"}
				apis = append(apis, a)
			}
			w := newWorld(t, each, apis...)
			lost := 0
			for i, a := range apis {
				run := fmt.Sprint("s1-r", i)
				if end == nil {
					w.send(t.Context(), run, http.MethodPost, "/"+a.Name+"/die", `{"text":""}`, 0)
				} else {
					m := newMeeting(t)
					var parts sync.WaitGroup
					parts.Go(func() { w.send(t.Context(), run, http.MethodPost, "/"+a.Name+"/meet", m.call, 0) })
					m.await(1)
					end(w, w.broker.findServer(a.Name))
					m.end()
					parts.Wait()
				}
				if got := w.broker.TakeRequestsCausedBy(run); len(got) != 1 || got[0].Exchanges[0].Host != a.Name+".example" {
					lost++
				}
			}
			if lost > 0 {
				t.Errorf("lost %d of %d", lost, each)
			}
		})
	}
}

// TestSentAtEnd: what a server had sent when it ended is told, whatever the proxy's events tell.
func TestSentAtEnd(t *testing.T) {
	sandbox, proxy := fakepeers.NewSandbox(t, 1), fakepeers.NewProxy(t)
	proxy.Receipt = func(r proxyapi.Registration) proxyapi.Receipt {
		return proxyapi.Receipt{Exchanges: []proxyapi.Exchange{{ID: "x1", Run: r.Run}}}
	}
	var sent []proxyapi.Exchange
	l := &BridgeLauncher{
		Client: sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: sandbox.Dial}), Control: proxyapi.NewClient(proxy.Socket),
		Sent: func(list []proxyapi.Exchange) { sent = append(sent, list...) },
	}
	t.Cleanup(func() { _ = l.Client.Close(); l.Control.Close() })
	lease, err := l.Client.Acquire(t.Context(), sandboxapi.LeaseRequest{})
	testkit.Must(t, err)
	testkit.Must(t, l.Control.RegisterRun(t.Context(), lease.Slot, proxyapi.Registration{
		Generation: lease.Generation, Run: proxyapi.ServerPrefix + "a", Deadline: time.Now().Add(lifeTime),
	}))
	s := &sandboxSlot{launcher: l, lease: lease, end: func() {}}
	testkit.Must(t, s.Close())
	if len(sent) != 1 || sent[0].ID != "x1" || sent[0].Run != "server-a" {
		t.Errorf("%+v", sent)
	}
}

// TestAskedTooLate: a call that an instance can no longer get was not sent, and may be sent to the next one.
func TestAskedTooLate(t *testing.T) {
	i := newInstance(&configuredServer{}, "", nil)
	i.err = newEnded("it died", false)
	close(i.gone)
	for n := range 10 {
		if _, f := i.sendAndWait(t.Context(), bridgewire.CallMethod, nil, func(callState) {}); !f.unsent {
			t.Fatalf("call %d: %+v", n, f)
		}
	}
}

// TestInstallPause: a failed installation is not tried again at once, whoever asks.
func TestInstallPause(t *testing.T) {
	l := &broken{}
	b := newQuiet(Config{Launcher: l, Log: logline.New(t.Output(), "text", nil)})
	defer b.Close(t.Context())
	s := &configuredServer{broker: b, spec: mcpserver.Settings{Package: "npm:x@1.0.0"}}
	for range 5 {
		if err := b.installOnce(t.Context(), s); err == nil {
			t.Fatal("it was installed")
		}
	}
	if n := l.tried.Load(); n != 1 {
		t.Errorf("tried %d times", n)
	}
}

// broken is a Launcher whose installations fail.
type broken struct {
	Launcher
	tried atomic.Int32
}

func (l *broken) Install(context.Context, proxyapi.API, func(string)) error {
	l.tried.Add(1)
	return errors.New("no registry")
}

// TestWhy: a server that ends before it has read anything says why, although writing to it fails first.
func TestWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := proxyapi.API{Name: "a", Server: &mcpserver.Settings{Command: []string{"x"}, TimeoutMS: 60_000, ConnectTimeoutMS: 30_000, IdleMS: 600_000, MaxConcurrent: 8, State: "shared"}}
		b := newQuiet(Config{
			Launcher: dying{}, Catalog: func() proxyapi.Catalog { return proxyapi.Catalog{Version: "1", APIs: []proxyapi.API{api}} },
			Log: logline.New(t.Output(), "text", nil),
		})
		defer b.Close(context.WithoutCancel(t.Context()))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/a", nil)
		r.Header.Set(proxyapi.HeaderRun, "s1-r1")
		rec := httptest.NewRecorder()
		b.ServeHTTP(rec, r)
		if got := rec.Body.String(); !strings.Contains(got, "KEY is required") {
			t.Errorf("%s", got)
		}
	})
}

// dying is a Launcher of bridges that read nothing, and say after a second that the server did not start.
type dying struct{ Launcher }

func (dying) Launch(context.Context, proxyapi.API, string) (Slot, error) {
	s := &dyingSlot{}
	err := bridgewire.NewWriter(&s.said).Write(bridgewire.FromBridge{Failed: &bridgewire.Failed{Code: bridgewire.NotStarted, Message: "KEY is required"}})
	return s, err
}

type dyingSlot struct {
	Slot
	said bytes.Buffer
}

func (s *dyingSlot) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return s.said.Read(p)
}

func (*dyingSlot) Write([]byte) (int, error)                            { return 0, io.ErrClosedPipe }
func (*dyingSlot) Start() bridgewire.Start                              { return bridgewire.Start{ConnectTimeoutMS: 60_000} }
func (*dyingSlot) Stop()                                                {}
func (*dyingSlot) Close() error                                         { return nil }
func (*dyingSlot) SetCalls(context.Context, proxyapi.ServerCalls) error { return nil }

func (*dyingSlot) Drain(context.Context, proxyapi.Cause) (proxyapi.Receipt, error) {
	return proxyapi.Receipt{}, nil
}

// TestRoomForOne: a server that needs a slot stops exactly one idle server, even if that takes long.
func TestRoomForOne(t *testing.T) {
	w := newWorld(t, 3, hostile(t, "a", nil), hostile(t, "b", nil), hostile(t, "c", nil), hostile(t, "d", nil))
	w.pid("s1-r1", "a") // is idle longest
	before := []string{w.pid("s1-r1", "b"), w.pid("s1-r1", "c")}
	stuck := make(chan struct{})
	w.launcher.mu.Lock()
	for s := range w.launcher.open {
		if s.api.Name == "a" {
			s.stuck = stuck
		}
	}
	w.launcher.mu.Unlock()
	time.AfterFunc(time.Second, func() { close(stuck) }) // until then the new server looks for room ten times
	if got := w.call("/d/echo", `{"text":"hi"}`); got.text() != "hi" {
		t.Errorf("%s", got.body)
	}
	if after := []string{w.pid("s1-r1", "b"), w.pid("s1-r1", "c")}; !slices.Equal(after, before) {
		t.Errorf("the processes of the other servers were %s and are %s", before, after)
	}
}
