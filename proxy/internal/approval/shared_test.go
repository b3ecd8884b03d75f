package approval

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

// newProxies makes a database, and the stores of some proxies that share it.
func newProxies(t *testing.T, n int) (p *testkit.Postgres, stores []*Store) {
	t.Helper()
	p = testkit.NewPostgres(t)
	testkit.Must(t, shareddb.MigrateTables(t.Context(), func(name string) string {
		return map[string]string{"PROXY_DATABASE_URL": p.URL()}[name]
	}))
	for range n {
		stores = append(stores, newProxy(t, p))
	}
	return p, stores
}

func newProxy(t *testing.T, p *testkit.Postgres) *Store {
	t.Helper()
	db, err := shareddb.OpenDatabase(t.Context(), settings.Settings{ProxyDatabase: secret.New(p.URL())})
	testkit.Must(t, err)
	s := New(Config{DB: db})
	s.Wait = testkit.Patience
	ctx, stop := context.WithCancel(context.Background())
	var follow sync.WaitGroup
	follow.Go(func() { s.FollowDecisions(ctx, func(error) {}) })
	t.Cleanup(func() { s.Close(); stop(); follow.Wait(); _ = db.Close() })
	return s
}

// listAll lists the held requests that a person sees at a proxy.
func listAll(t *testing.T, s *Store) []approvalapi.HeldRequest {
	t.Helper()
	list, err := s.ListHeldOfAll(t.Context())
	testkit.Must(t, err)
	return list
}

// holdAt passes a request at one proxy in the background, and returns its result and the entry that another proxy shows.
func holdAt(ctx context.Context, t *testing.T, at, seen *Store, q Request) (<-chan error, approvalapi.HeldRequest) {
	t.Helper()
	before := len(listAll(t, seen))
	done := make(chan error, 1)
	go func() { _, _, err := at.WaitForApproval(ctx, q); done <- err }()
	testkit.WaitFor(t, func() bool { return len(listAll(t, seen)) > before })
	list := listAll(t, seen)
	return done, list[len(list)-1]
}

// TestStores: the memory of one proxy and the database of two hold requests alike. A decision at the other proxy frees
// the request, once. A late approval lets exactly the same request pass, once, at any proxy. It is for one tenant.
// Promise: exact-approvals, several-proxies
func TestStores(t *testing.T) {
	memory := newStore(testkit.Patience)
	_, shared := newProxies(t, 2)
	for name, of := range map[string][2]*Store{"memory": {memory, memory}, "database": {shared[0], shared[1]}} {
		t.Run(name, func(t *testing.T) {
			a, b := of[0], of[1]
			for _, approve := range []bool{true, false} {
				done, h := holdAt(t.Context(), t, a, b, refund("r1"))
				if !h.Waiting || h.Body != `{"amount":5}` || h.Rule != "approve POST" || !h.Operator {
					t.Errorf("held: %+v", h)
				}
				if _, err := b.DecideHeld(h.ID, approvalapi.Answer{Approve: approve}, false); err == nil {
					t.Error("mcp-server decides for the operator")
				}
				began := time.Now()
				if _, err := b.DecideHeld(h.ID, approvalapi.Answer{Approve: approve}, true); err != nil {
					t.Fatal(err)
				}
				if err := <-done; (err == nil) != approve || !approve && !errors.Is(err, ErrDenied) {
					t.Errorf("approve %v: %v", approve, err)
				}
				if took := time.Since(began); took > 1500*time.Millisecond { // a poll alone may take two seconds
					t.Errorf("it passed after %s", took)
				}
				if _, err := b.DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true); err == nil || len(listAll(t, b)) != 0 {
					t.Errorf("decided twice: %+v", listAll(t, b))
				}
			}

			// Late: the run ends, a person approves, and the run comes again at the other proxy.
			ctx, end := context.WithCancel(t.Context())
			done, h := holdAt(ctx, t, a, b, refund("r1"))
			end()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			testkit.WaitFor(t, func() bool { list := listAll(t, b); return len(list) == 1 && !list[0].Waiting })
			if _, err := a.DecideHeld(h.ID, approvalapi.Answer{Approve: true, Scope: approvalapi.ScopeRule}, true); err == nil {
				t.Error("an ended run has an approval for its rest")
			}
			if _, err := a.DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true); err != nil {
				t.Fatal(err)
			}
			for what, change := range map[string]func(*Request){
				"body": func(q *Request) { q.Body = "x" }, "url": func(q *Request) { q.URL += "0" }, "tenant": func(q *Request) { q.Tenant = "mallory" },
				"catalog": func(q *Request) { q.Catalog = "2" }, "rule": func(q *Request) { q.Rule = "other" },
			} {
				q := refund("r2")
				change(&q)
				ctx, end := context.WithTimeout(t.Context(), 300*time.Millisecond)
				if _, _, err := b.WaitForApproval(ctx, q); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("another %s: %v", what, err)
				}
				end()
			}
			var passed atomic.Int64
			var giveBack atomic.Value
			var wg sync.WaitGroup
			short, end := context.WithTimeout(t.Context(), 2*time.Second)
			defer end()
			for i := range 12 { // below the bound of a run, as they are of twelve
				wg.Go(func() {
					if _, back, err := of[i%2].WaitForApproval(short, refund("again"+strconv.Itoa(i))); err == nil {
						passed.Add(1)
						giveBack.Store(back)
					}
				})
			}
			wg.Wait()
			if passed.Load() != 1 {
				t.Fatalf("%d passed by one approval", passed.Load())
			}
			giveBack.Load().(func())() // it did not leave
			if _, _, err := b.WaitForApproval(t.Context(), refund("r9")); err != nil {
				t.Errorf("the approval that was given back: %v", err)
			}
		})
	}
}

// TestSharedScope: an approval for the rest of the run, made at the other proxy, frees all requests of the run in its
// scope, and ends with the run. It is not for another run, or for another tenant's run with this name.
// Promise: exact-approvals, several-proxies
func TestSharedScope(t *testing.T) {
	_, s := newProxies(t, 2)
	ended := make(chan struct{})
	of := func(run, body string) Request {
		q := refund(run)
		q.Body, q.Ended = body, ended
		return q
	}
	first, h := holdAt(t.Context(), t, s[0], s[1], of("r1", "1"))
	second, _ := holdAt(t.Context(), t, s[0], s[1], of("r1", "2"))
	if _, err := s[1].DecideHeld(h.ID, approvalapi.Answer{Approve: true, Scope: approvalapi.ScopePath}, true); err != nil {
		t.Fatal(err)
	}
	for _, done := range []<-chan error{first, second} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	testkit.WaitFor(t, func() bool { return len(listAll(t, s[1])) == 0 })
	if _, _, err := s[0].WaitForApproval(t.Context(), of("r1", "3")); err != nil {
		t.Errorf("the rest of the run: %v", err)
	}
	stranger, other := of("r1", "4"), of("r2", "4")
	stranger.Tenant = "mallory"
	close(ended)
	for what, q := range map[string]Request{"another run": other, "another tenant": stranger, "after the run": of("r1", "5")} {
		ctx, end := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if _, _, err := s[0].WaitForApproval(ctx, q); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
		end()
	}
}

// TestScopeEndsAtOnce: an approval for the rest of a run is for no later run, even if its run ends in the moment of the
// approval, before the decision has arrived, or with its proxy. With the other scope it would be: see TestStores.
// Promise: exact-approvals, several-proxies
func TestScopeEndsAtOnce(t *testing.T) {
	memory := newStore(testkit.Patience)
	p, s := newProxies(t, 2)
	silent := New(Config{DB: s[0].conf.DB}) // no decision arrives
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		at, by        *Store
		arrives, died bool
	}{
		"in memory": {memory, memory, true, false}, "in the database": {s[0], s[1], true, false},
		"before it arrives": {silent, s[1], false, false}, "with the proxy": {silent, s[1], false, true},
	} {
		of := func(run string) Request { q := refund(run); q.Body = name; return q }
		add := c.at.addRequest
		if c.at.shared != nil {
			add = c.at.addShared
		}
		e, err := add(of("r1"))
		testkit.Must(t, err)
		_, err = c.by.DecideHeld(e.id, approvalapi.Answer{Approve: true, Scope: approvalapi.ScopePath}, true)
		testkit.Must(t, err)
		if c.arrives {
			testkit.WaitFor(t, func() bool { return len(e.held.answer) == 1 })
		}
		if c.died {
			p.Query(`UPDATE codeforge_proxy.held SET seen = seen - interval '11 seconds'`)
		} else {
			err = c.at.waitForAnswer(ended, e)
			if c.at.shared != nil {
				err = c.at.shared.settleRow(e, err)
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, h := range listAll(t, c.by) {
			if h.Body == name {
				t.Errorf("%s: %+v", name, h)
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if _, _, err := c.by.WaitForApproval(ctx, of("r2")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the later run: %v", name, err)
		}
		stop()
	}
}

// TestSharedBounds: eight requests of a run wait at most, and a tenant's flood displaces only its own.
// Promise: exact-approvals, several-proxies
func TestSharedBounds(t *testing.T) {
	_, s := newProxies(t, 2)
	s[0].Wait, s[1].Wait = time.Millisecond, time.Millisecond
	of := func(tenant, run string, i int) Request {
		q := refund(run)
		q.Tenant, q.Body = tenant, strings.Repeat(strconv.Itoa(i), 1<<20)
		return q
	}
	small := refund("victims")
	small.Tenant = "victim"
	if _, _, err := s[1].WaitForApproval(t.Context(), small); !errors.Is(err, ErrUnanswered) {
		t.Fatal(err)
	}
	for i := range maxOfRun + 1 {
		_, _, err := s[0].WaitForApproval(t.Context(), of("flood", "r", i))
		if full := i == maxOfRun; errors.Is(err, ErrFull) != full {
			t.Errorf("request %d of a run: %v", i, err)
		}
	}
	for i := range 20 {
		_, _, _ = s[i%2].WaitForApproval(t.Context(), of("flood", "run"+strconv.Itoa(i), i))
	}
	list, bytes := listAll(t, s[0]), 0
	for _, h := range list {
		bytes += len(h.Body)
	}
	if bytes > MaxHeldBytes || bytes < MaxHeldBytes/2 || list[0].Tenant != "victim" {
		t.Errorf("%d bytes of %d requests, first of %q", bytes, len(list), list[0].Tenant)
	}
}

// TestSharedFlood: requests that crowd before the table leave connections for the rest, such as the list and decisions.
// Promise: tenant-shares, several-proxies
func TestSharedFlood(t *testing.T) {
	_, s := newProxies(t, 2)
	locked := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		err := s[1].shared.transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `LOCK TABLE held IN SHARE ROW EXCLUSIVE MODE`)
			close(locked)
			if err == nil {
				_, err = tx.ExecContext(ctx, `SELECT pg_sleep(2)`)
			}
			return err
		})
		testkit.Must(t, err)
	})
	<-locked
	s[0].Wait = time.Millisecond
	for i := range 20 {
		// Whether they enter in time depends on the machine.
		all.Go(func() { _, _, _ = s[0].WaitForApproval(t.Context(), refund("run"+strconv.Itoa(i))) })
	}
	testkit.WaitFor(t, func() bool { return s[0].shared.adding.CountTaken() == maxAdding })
	began := time.Now()
	if listAll(t, s[0]); time.Since(began) > time.Second {
		t.Errorf("the list came after %s", time.Since(began))
	}
	all.Wait()
}

// TestSharedLost: the request of a proxy that died stops waiting, and a person can approve it for a later run at
// another proxy. A row leaves the database when its time is over.
// Promise: several-proxies
func TestSharedLost(t *testing.T) {
	p, s := newProxies(t, 2)
	// No FollowDecisions renews it.
	dead := New(Config{DB: s[0].conf.DB})
	dead.Wait = testkit.Patience
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	_, h := holdAt(ctx, t, dead, s[1], refund("r1"))
	p.Query(`UPDATE codeforge_proxy.held SET seen = seen - interval '11 seconds'`)
	if list := listAll(t, s[1]); list[0].Waiting {
		t.Errorf("it waits: %+v", list[0])
	}
	if _, err := s[1].DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s[1].WaitForApproval(t.Context(), refund("r2")); err != nil {
		t.Errorf("the later run: %v", err)
	}
	s[1].Wait = time.Millisecond
	_, _, _ = s[1].WaitForApproval(t.Context(), refund("r3"))
	p.Query(`UPDATE codeforge_proxy.held SET until = now() - interval '1 second'`)
	if list := listAll(t, s[1]); len(list) != 0 {
		t.Errorf("listed: %+v", list)
	}
	testkit.WaitFor(t, func() bool { return p.Query(`SELECT count(*) FROM codeforge_proxy.held`) == "0" })
}

// TestSharedUnknown: the ledger has a decision whose commit failed for the proxy, because it may count.
// Promise: ledger, several-proxies
func TestSharedUnknown(t *testing.T) {
	p, s := newProxies(t, 2)
	var recorded atomic.Int32
	by := New(Config{DB: s[1].conf.DB, Decided: func(ledger.Decision) { recorded.Add(1) }})
	ctx, end := context.WithCancel(t.Context())
	done, h := holdAt(ctx, t, s[0], s[1], refund("r1"))
	end()
	<-done
	// Postgres refuses the commit and no statement before it.
	p.Query(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END'`)
	p.Query(`CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON codeforge_proxy.held DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
	if _, err := by.DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true); err == nil || recorded.Load() != 1 {
		t.Errorf("%v, %d records", err, recorded.Load())
	}
	if _, err := by.DecideHeld("unknown", approvalapi.Answer{Approve: true}, true); err == nil || recorded.Load() != 1 {
		t.Errorf("of no request: %v, %d records", err, recorded.Load())
	}
}

// TestSharedAway: without the database no request passes that needs an approval, and no decision counts. A request that
// waits meanwhile gets the decision afterwards.
// Promise: several-proxies
func TestSharedAway(t *testing.T) {
	p, s := newProxies(t, 2)
	done, h := holdAt(t.Context(), t, s[0], s[1], refund("r1"))
	for _, c := range []struct{ leave, comeBack func() }{
		{func() { p.SendSignal(syscall.SIGSTOP) }, func() { p.SendSignal(syscall.SIGCONT) }}, {p.Stop, p.Start},
	} {
		c.leave()
		began := time.Now()
		if _, _, err := s[1].WaitForApproval(t.Context(), refund("r2")); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		if _, err := s[1].DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true); err == nil || !strings.Contains(err.Error(), "database") {
			t.Error(err)
		}
		if _, err := s[1].ListHeldOfAll(t.Context()); err == nil {
			t.Error("it lists requests")
		}
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("three refusals took %s", took)
		}
		c.comeBack()
		testkit.WaitFor(t, func() bool { _, err := s[1].ListHeldOfAll(t.Context()); return err == nil })
	}
	select {
	case err := <-done:
		t.Fatalf("it passed without a decision, or was refused: %v", err)
	default:
	}
	if _, err := s[1].DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
