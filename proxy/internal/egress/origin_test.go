package egress_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// asking are the APIs of a server whose requests wait for a person.
func asking(rules string) map[string]string {
	apis := mcpServers()
	apis["notes"] = serverAPI("notes.demo.test", "NOTES_AUTH_TOKEN", rules)
	return apis
}

const holdAll = `, "rules": [{"then": "approve", "by": "any"}]`

// beginNotes registers the server in the slot for servers, for a tenant.
func (r *rig) beginNotes(tenant string) (end func() proxyapi.Receipt) {
	r.t.Helper()
	return r.beginServer(proxyapi.Registration{APIs: []string{"notes"}, Tenant: tenant})
}

// beginNamed registers a run of this id.
func (r *rig) beginNamed(run, tenant string, id slot.ID) (end func()) {
	r.t.Helper()
	generation := uint64(time.Now().UnixNano())
	_, err := r.book.BeginLease(id, proxyapi.Registration{
		Generation: generation, Run: run, Tenant: tenant, APIs: []string{"notes"}, Deadline: time.Now().Add(10 * testkit.Patience),
	})
	check(r.t, err)
	return func() {
		if _, err := r.book.EndLease(id, generation); err != nil {
			r.t.Error(err)
		}
	}
}

// setCalls says which calls the server works on, each of them as its number, its run, and perhaps "given up".
func (r *rig) setCalls(version uint64, calls ...string) {
	r.t.Helper()
	s := proxyapi.ServerCalls{Version: version}
	for _, text := range calls {
		var c proxyapi.ServerCall
		_, _ = fmt.Sscan(text, &c.ID, &c.Run)
		c.Call, c.GivenUp = "notes.read", strings.HasSuffix(text, "given up")
		s.Calls = append(s.Calls, c)
	}
	check(r.t, r.book.ReplaceCalls(serverSlot, 1, s))
}

// sendNotes sends a request of the server in the background. It returns a status, or the code of a refusal.
func (r *rig) sendNotes(path string) <-chan string {
	c, done := r.clientIn(serverSlot, true), make(chan string, 1)
	go func() {
		resp, err := c.Post("https://notes.demo.test"+path, "text/plain", nil)
		if err != nil {
			done <- err.Error()
			return
		}
		defer resp.Body.Close()
		var refused proxyapi.Refusal
		if resp.StatusCode == http.StatusOK {
			refused.Code = "200"
		} else if err := json.NewDecoder(resp.Body).Decode(&refused); err != nil {
			refused.Code = err.Error() // the slot has ended
		}
		done <- refused.Code
	}()
	return done
}

// await waits until so many requests are held, and returns the last one.
func (r *rig) await(n int) approvalapi.HeldRequest {
	r.t.Helper()
	testkit.WaitFor(r.t, func() bool { return len(r.approvals.ListHeld()) == n })
	return r.approvals.ListHeld()[n-1]
}

// decide approves or refuses a request.
func (r *rig) decide(h approvalapi.HeldRequest, approve bool, scope approvalapi.Scope) {
	r.t.Helper()
	_, err := r.approvals.DecideHeld(h.ID, approvalapi.Answer{Approve: approve, Scope: scope}, true)
	check(r.t, err)
}

// TestServerApproval: an approval "in this run" of a server's request is for requests that this run alone has caused,
// and ends with the run. All other requests of the server wait.
// Promise: server-requests-belong-to-one-run
func TestServerApproval(t *testing.T) {
	for name, c := range map[string]struct {
		calls  []string // that the server works on when it sends another request
		end    bool     // the run ends before
		passes bool
	}{
		"another call of the run":   {calls: []string{"2 r1"}, passes: true},
		"two calls of the run":      {calls: []string{"2 r1", "3 r1"}, passes: true},
		"no call":                   {},
		"another run":               {calls: []string{"2 r2"}},
		"another run beside it":     {calls: []string{"1 r1", "2 r2"}},
		"a call that was given up":  {calls: []string{"5 r2 given up", "2 r1"}},
		"a listing beside it":       {calls: []string{"1 r1", `2 `}},
		"a run of another tenant":   {calls: []string{"2 r3"}},
		"a run that is not known":   {calls: []string{"2 r4"}},
		"an ended run's name":       {calls: []string{"2 r1"}, end: true},
		"no call after the run":     {end: true},
		"another run after the run": {calls: []string{"2 r2"}, end: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: asking(holdAll)})
			r.upstreams.https(new(seen).echo())
			defer r.beginNotes("")()
			end := r.beginNamed("r1", "", 0)
			defer r.beginNamed("r2", "", 1)()
			defer r.beginNamed("r3", "mallory", 2)()
			r.setCalls(1, "1 r1")
			done := r.sendNotes("/a")
			h := r.await(1)
			if h.Run != "r1" || h.Server != "notes" || h.Tenant != "" {
				t.Errorf("%+v", h)
			}
			r.decide(h, true, approvalapi.ScopeRule)
			if got := <-done; got != "200" {
				t.Fatal(got)
			}
			if c.end {
				end()
			}
			r.approvals.Wait = 1
			r.setCalls(2, c.calls...)
			want := "approval_timeout"
			switch got := <-r.sendNotes("/a"); {
			case c.passes:
				want = "200"
				fallthrough
			default:
				if got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
			if !c.end {
				end()
			}
		})
	}
}

// TestServerOfNoRun: a request that belongs to no run is approved once only, and names its tenant.
// Promise: server-requests-belong-to-one-run
func TestServerOfNoRun(t *testing.T) {
	r := newRig(t, setup{apis: asking(holdAll)})
	r.upstreams.https(new(seen).echo())
	defer r.beginNotes("alice")()
	done := r.sendNotes("/a")
	h := r.await(1)
	if h.Run != "server" || h.Server != "notes" || h.Tenant != "alice" {
		t.Errorf("%+v", h)
	}
	for _, scope := range []approvalapi.Scope{approvalapi.ScopePath, approvalapi.ScopeRule} {
		if _, err := r.approvals.DecideHeld(h.ID, approvalapi.Answer{Approve: true, Scope: scope}, true); err == nil {
			t.Errorf("approved as %s", scope)
		}
	}
	r.decide(h, true, "")
	if got := <-done; got != "200" {
		t.Error(got)
	}
}

// TestServerLimits: who lets a server go beyond a limit in one run has not let it do that in another.
// Promise: server-requests-belong-to-one-run
func TestServerLimits(t *testing.T) {
	r := newRig(t, setup{apis: asking(`, "limits": {"calls": "1/h", "over": "approve"}`)})
	r.upstreams.https(new(seen).echo())
	defer r.beginNotes("")()
	defer r.beginNamed("r1", "", 0)()
	defer r.beginNamed("r2", "", 1)()
	r.setCalls(1, "1 r1")
	if got := <-r.sendNotes("/"); got != "200" {
		t.Fatal(got)
	}
	done := r.sendNotes("/")
	r.decide(r.await(1), true, approvalapi.ScopeRule)
	if got, again := <-done, <-r.sendNotes("/"); got != "200" || again != "200" {
		t.Errorf("%s, %s", got, again)
	}
	r.approvals.Wait = 1
	r.setCalls(2, "2 r2")
	if got := <-r.sendNotes("/"); got != "approval_timeout" {
		t.Errorf("another run: %s", got)
	}
}

// TestServerQueue: held requests of a server that belong to no run leave room for those of a run.
// Promise: server-requests-belong-to-one-run
func TestServerQueue(t *testing.T) {
	r := newRig(t, setup{apis: asking(holdAll)})
	end := r.beginNotes("mallory")
	for i := range 8 {
		r.sendNotes(fmt.Sprint("/", i))
		r.await(i + 1)
	}
	if got := <-r.sendNotes("/9"); got != "approval_full" {
		t.Errorf("the ninth: %s", got)
	}
	defer end()
	defer r.beginNamed("r1", "mallory", 0)()
	r.setCalls(1, "1 r1")
	r.sendNotes("/of a run")
	if h := r.await(9); h.Run != "r1" {
		t.Errorf("%+v", h)
	}
}

// TestServerEnds: a held request of a server ends with the run that caused it, also beside others' calls, and not with
// another run.
// Promise: calls-end-with-their-run
func TestServerEnds(t *testing.T) {
	for name, c := range map[string]struct {
		calls, later []string
		goesOn       bool
	}{
		"its run ends":                       {calls: []string{"1 r1"}},
		"its run ends after the call":        {calls: []string{"1 r1"}, later: []string{"9 r2"}},
		"beside another run":                 {calls: []string{"1 r1", "2 r2"}},
		"beside another run, after the call": {calls: []string{"1 r1", "2 r2"}, later: []string{"2 r2"}, goesOn: true},
		"beside a call given up before":      {calls: []string{"3 r2 given up", "2 r2"}, goesOn: true},
		"beside another's given up before":   {calls: []string{"3 r3 given up", "2 r2"}, goesOn: true},
		"of another run":                     {calls: []string{"2 r2"}, goesOn: true},
		"of no run":                          {goesOn: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: asking(holdAll)})
			var up seen
			r.upstreams.https(up.echo())
			defer r.beginNotes("")()
			end := r.beginNamed("r1", "", 0)
			defer r.beginNamed("r2", "", 1)()
			defer r.beginNamed("r3", "", 2)()
			r.setCalls(1, c.calls...)
			done := r.sendNotes("/a")
			h := r.await(1)
			if c.later != nil {
				r.setCalls(2, c.later...)
			}
			end()
			if !c.goesOn {
				if got := <-done; got != "run_ended" || up.count() != 0 {
					t.Errorf("%s, sent %d times", got, up.count())
				}
				return
			}
			r.decide(h, true, "")
			if got := <-done; got != "200" {
				t.Error(got)
			}
		})
	}
	t.Run("the call is given up", func(t *testing.T) {
		r := newRig(t, setup{apis: asking(holdAll)})
		defer r.beginNotes("")()
		defer r.beginNamed("r1", "", 0)()
		r.setCalls(1, "1 r1")
		done := r.sendNotes("/a")
		r.await(1)
		r.setCalls(2, "1 r1 given up")
		if got := <-done; got != "run_ended" {
			t.Error(got)
		}
	})
}

// TestServerRecords: the ledger, the log and the receipt name the tenant, and the run if it is certain.
// Promise: server-requests-belong-to-one-run
func TestServerRecords(t *testing.T) {
	var mu sync.Mutex
	var kept []proxyapi.Exchange
	r := newRig(t, setup{apis: asking(""), ledger: func(e ledger.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, *e.Exchange)
		return nil
	}})
	r.upstreams.https(new(seen).echo())
	defer r.beginNotes("alice")()
	defer r.beginNamed("r1", "alice", 0)()
	defer r.beginNamed("r2", "alice", 1)()
	for i, calls := range [][]string{{"1 r1"}, {"2 r1", "3 r1"}, {"4 r1", "5 r2"}, {"6 r2"}, nil} {
		r.setCalls(uint64(i+1), calls...)
		<-r.sendNotes(fmt.Sprint("/", i))
	}
	want := []*proxyapi.Cause{{Run: "r1", Call: "notes.read", Among: 1}, {Run: "r1", Among: 2}, nil, {Run: "r2", Call: "notes.read", Among: 1}, nil}
	mu.Lock()
	defer mu.Unlock()
	for i, x := range kept {
		if got := x.CausedBy; x.Tenant != "alice" || x.Run != "server" || (got == nil) != (want[i] == nil) || got != nil && *got != *want[i] {
			t.Errorf("%d: %+v by %+v", i, x, got)
		}
	}
	if log := r.logs.String(); strings.Count(log, "tenant=alice") != 5 || strings.Count(log, "caused_by=r1") != 2 || strings.Count(log, "caused_by=r2") != 1 {
		t.Errorf("the log:\n%s", log)
	}
	first, err := r.book.DrainReceipt(serverSlot, 1, "r1")
	check(t, err)
	rest, err := r.book.DrainReceipt(serverSlot, 1, "")
	check(t, err)
	if len(first.Exchanges) != 4 || len(rest.Exchanges) != 1 || rest.Exchanges[0].CausedBy.Run != "r2" || rest.Tenant != "alice" {
		t.Errorf("%d and %+v", len(first.Exchanges), rest)
	}
}

// sharing are the APIs of a server at whose host another API, of which its tenant must not learn, restricts methods.
func sharing() map[string]string {
	apis := asking("")
	apis["strict"] = strings.NewReplacer(demoHost, "notes.demo.test", tokenName, "STRICT_AUTH_TOKEN", secretValue, "a-value-of-strict").
		Replace(demoAPI(`, "restricted_methods": ["POST"]`))
	return apis
}

// TestServerOfTenant: a server of a tenant learns nothing of other APIs, be it the name of one whose rules hold at its
// host or whether a host is in one.
// Promise: tenant-sessions
func TestServerOfTenant(t *testing.T) {
	r := newRig(t, setup{apis: sharing()})
	defer r.beginNotes("alice")()
	ask := func(host string) string {
		resp := post(t, r.clientIn(serverSlot, true), "https://"+host+"/", "{}", "Authorization", "Bearer FILES_AUTH_TOKEN")
		return strings.ReplaceAll(body(t, resp), host, "HOST")
	}
	nowhere := ask("elsewhere.test")
	for _, host := range []string{"files.demo.test", demoHost, "off.demo.test"} {
		if got := ask(host); got != nowhere {
			t.Errorf("%s: %s, want %s", host, got, nowhere)
		}
	}
	if got := ask("notes.demo.test"); strings.Contains(got, "API strict") || !strings.Contains(got, "method_restricted") {
		t.Error(got)
	}
}
