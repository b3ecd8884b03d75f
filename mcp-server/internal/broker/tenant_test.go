package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
)

// TestTenants: a shared server has a process for each tenant and one for the operator, nothing is learned of what
// tenants are answered, and a stash is its session's, within the bounds of its tenant.
// Promise: tenant-state
func TestTenants(t *testing.T) {
	state := func(name string) func(*mcpserver.Settings) { return func(s *mcpserver.Settings) { s.State = name } }
	w := newWorld(t, 7, hostile(t, "a", nil), hostile(t, "session", state("session")), hostile(t, "run", state("run")))
	session := func(name string) string {
		return (&tenant.Tenant{Tenant: tokenfile.Tenant{Name: name}}).SessionName("same")
	}
	pid := func(run string) string {
		return w.send(t.Context(), run, http.MethodPost, "/a/pid", `{"text":"x"}`, 0).text()
	}
	alice, bob, operator := session("alice"), session("bob"), "same"
	first := pid(alice + "-r1")
	if pid(alice+"-r2") != first || tenant.TenantOf(alice) != "alice" || tenant.TenantOf(operator) != "" {
		t.Error("a tenant has several processes of a shared server")
	}
	if first == pid(bob+"-r3") || first == pid(operator+"-r4") || pid(bob+"-r3") == pid(operator+"-r4") {
		t.Errorf("tenants share a process: %s, %s, %s", first, pid(bob+"-r3"), pid(operator+"-r4"))
	}
	w.mu.Lock()
	w.over[alice+"-r5"] = true
	w.mu.Unlock()
	if got := pid(alice + "-r5"); got != cancelled {
		t.Errorf("a call of a run that nobody knows, or no longer: %s", got)
	}
	for _, api := range []string{"session", "run"} {
		w.send(t.Context(), alice+"-r1", http.MethodPost, "/"+api+"/pid", `{"text":"x"}`, 0)
	}
	w.launcher.mu.Lock()
	if got := slices.DeleteFunc(w.launcher.tenants, func(s string) bool { return s == "" }); !slices.Equal(got, []string{"alice", "bob", "alice", "alice"}) {
		t.Errorf("servers work for %q", got)
	}
	w.launcher.mu.Unlock()
	if got := w.broker.tenantOf(alice + "-r5"); got == "" || got == "alice" {
		t.Errorf("the server of a run that is over works for %q", got)
	}
	w.send(t.Context(), alice+"-r1", http.MethodPost, "/$stash/set", `{"key":"k","value":"of alice"}`, 0)
	for _, run := range []string{bob + "-r3", operator + "-r4"} {
		if a := w.send(t.Context(), run, http.MethodPost, "/$stash/get", `{"key":"k"}`, 0); string(a.body) != "{}\n" && string(a.body) != "{}" {
			t.Errorf("%s: %s", run, a.body)
		}
	}
	if a := w.send(t.Context(), alice+"-r2", http.MethodPost, "/$stash/get", `{"key":"k"}`, 0); string(a.body) != `{"value":"of alice"}` && string(a.body) != "{\"value\":\"of alice\"}\n" {
		t.Errorf("her own: %s", a.body)
	}
}

// TestToolsOfAll: whoever calls next after a server has changed, the process that all share says which tools there are:
// not one of a tenant, who may control it.
// Promise: tenant-apis, accepted-tools
func TestToolsOfAll(t *testing.T) {
	for _, pins := range []string{"off", ""} {
		w := newWorld(t, 6, hostile(t, "a", func(s *mcpserver.Settings) { s.Pins = pins }))
		mallory := (&tenant.Tenant{Tenant: tokenfile.Tenant{Name: "mallory"}}).SessionName("s")
		call := func(run, tool string) {
			w.send(t.Context(), run, http.MethodPost, "/a/"+tool, `{"text":"x"}`, 0)
		}
		call("s1-r1", "echo")
		call(mallory+"-r2", "grow") // her own process has one tool more now
		w.broker.mu.Lock()
		w.broker.servers["a"].fresh = false // the shared one has said that its tools changed
		w.broker.mu.Unlock()
		call(mallory+"-r3", "echo")
		tools, _ := w.broker.KnownTools("a")
		for _, one := range tools {
			if strings.HasPrefix(one.Name, "grown") {
				t.Errorf("pins %q: all see %s", pins, one.Name)
			}
		}
		if n := w.broker.CountHeld("a"); n != 0 {
			t.Errorf("pins %q: %d tools are held", pins, n)
		}
	}
}

// TestRoomOfTenant: the calls of all runs of a tenant hold as much memory as those of one run may, and leave the rest to
// others.
// Promise: tenant-shares
func TestRoomOfTenant(t *testing.T) {
	w := newWorld(t, 1)
	mallory := (&tenant.Tenant{Tenant: tokenfile.Tenant{Name: "mallory"}}).SessionName("s")
	of := func(run string) *membudget.Account { return w.broker.memory.OpenAccount(w.broker.holderOf(run)) }
	first, second, other := of(mallory+"-r1"), of(mallory+"-r2"), of("s1-r3")
	if !first.TryTake(maxHolds/4) || second.TryTake(1) || !other.TryTake(maxHolds/8) {
		t.Error("one tenant's runs take the memory of all")
	}
	first.Close()
	if !second.TryTake(1) {
		t.Error("nothing is given back")
	}
}

// TestListWithOneSlot: where each session or run has its own process, the one that lists the tools gives it the only slot.
func TestListWithOneSlot(t *testing.T) {
	for _, state := range []string{"shared", "session", "run"} {
		w := newWorld(t, 1, hostile(t, "a", func(s *mcpserver.Settings) { s.State = state }))
		if got := w.send(t.Context(), "s1-r1", http.MethodPost, "/a/echo", `{"text":"hi"}`, 0); got.text() != "hi" {
			t.Errorf("%s: %s", state, got.body)
		}
	}
}

// TestStashEntries: many small values count with the memory that their places take.
func TestStashEntries(t *testing.T) {
	var s stashStore
	for n := range maxStash / entryWeight("k", []byte("0")) / maxKeys {
		session := (&tenant.Tenant{Tenant: tokenfile.Tenant{Name: "mallory"}}).SessionName(fmt.Sprint(n))
		for k := range maxKeys {
			s.doOperation(session, "set", stashRequest{Key: string(rune(k + 1)), Value: json.RawMessage("0")})
		}
	}
	big := json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)
	mallory := (&tenant.Tenant{Tenant: tokenfile.Tenant{Name: "mallory"}}).SessionName("new")
	if _, f := s.doOperation(mallory, "set", stashRequest{Key: "k", Value: big}); f == nil || f.code != stashFull {
		t.Errorf("a tenant's stash is without bound: %v", f)
	}
	if _, f := s.doOperation("another", "set", stashRequest{Key: "k", Value: big}); f != nil {
		t.Errorf("another's: %v", f)
	}
}

// TestSlotsOfTenant: the servers of one tenant have half of the slots at most. Its idle ones give way to its others, and
// not those of anybody else.
// Promise: tenant-shares
func TestSlotsOfTenant(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", func(s *mcpserver.Settings) { s.State, s.ConnectTimeoutMS = "session", 3000 }))
	session := func(name, id string) string {
		return (&tenant.Tenant{Tenant: tokenfile.Tenant{Name: name}}).SessionName(id) + "-r1"
	}
	pid := func(run string) answer { return w.send(t.Context(), run, http.MethodPost, "/a/pid", `{"text":"x"}`, 0) }
	alice := pid(session("alice", "s")).text()
	m := newMeeting(t)
	var busy sync.WaitGroup
	for _, id := range []string{"one", "two"} {
		busy.Go(func() { w.send(t.Context(), session("mallory", id), http.MethodPost, "/a/meet", m.call, 0) })
	}
	m.await(2)
	if got := pid(session("mallory", "three")); got.Code != slotsFull || !got.Retryable {
		t.Errorf("a third one of mallory's: %s", got.body)
	}
	if got := pid(session("alice", "s")).text(); got != alice {
		t.Errorf("alice's gave way to mallory's: %s, then %s", alice, got)
	}
	if got := pid(session("bob", "s")); got.Code != "" {
		t.Errorf("bob's: %s", got.body)
	}
	m.end()
	busy.Wait()
	for _, id := range []string{"three", "four", "five"} {
		if got := pid(session("mallory", id)); got.Code != "" {
			t.Errorf("when mallory's are idle, %s: %s", id, got.body)
		}
	}
	w.broker.mu.Lock()
	defer w.broker.mu.Unlock()
	if n := w.broker.slotsByTenant["mallory"]; n > 2 {
		t.Errorf("mallory has %d slots", n)
	}
}
