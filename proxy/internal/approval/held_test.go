package approval

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// most is how many requests without a text are held.
const most = MaxHeldBytes / entrySize

// goesOn is of runs that do not end.
var goesOn = make(chan struct{})

// newStore makes a store in which requests wait so long.
func newStore(wait time.Duration) *Store {
	s := New(Config{})
	s.Wait = wait
	return s
}

func refund(run string) Request {
	return Request{Ended: goesOn, Catalog: "1", RuleCatalog: "1", HeldRequest: approvalapi.HeldRequest{
		Run: run, API: "pay", Rule: "approve POST", Method: "POST", URL: "https://pay.test/refunds?a=1",
		Headers: []string{"Authorization: Bearer PAY_TOKEN"}, Body: `{"amount":5}`}}
}

// waiting passes a request in the background, and returns its result and its entry.
func waiting(ctx context.Context, t *testing.T, r *Store, q Request) (<-chan error, approvalapi.HeldRequest) {
	t.Helper()
	before := len(r.ListHeld())
	done := make(chan error, 1)
	go func() { _, _, err := r.WaitForApproval(ctx, q); done <- err }()
	testkit.WaitFor(t, func() bool { return len(r.ListHeld()) > before })
	list := r.ListHeld()
	return done, list[len(list)-1]
}

// TestPass: a request passes if a person approves it, once, and not if the person refuses it.
// Promise: exact-approvals
func TestPass(t *testing.T) {
	for _, approve := range []bool{true, false} {
		r := newStore(testkit.Patience)
		done, h := waiting(t.Context(), t, r, refund("r1"))
		if !h.Waiting || h.Body != `{"amount":5}` || h.Rule != "approve POST" {
			t.Errorf("held: %+v", h)
		}
		if _, err := r.DecideHeld(h.ID, approvalapi.Answer{Approve: approve}, true); err != nil {
			t.Fatal(err)
		}
		if err := <-done; (err == nil) != approve || !approve && !errors.Is(err, ErrDenied) {
			t.Errorf("approve %v: %v", approve, err)
		}
		if _, err := r.DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true); err == nil || len(r.ListHeld()) != 0 {
			t.Errorf("decided twice: %+v", r.ListHeld())
		}
	}
}

// TestLate: an approval after the run's end lets the same request pass, once and no other; one that differs in
// anything that is sent, or that decided, waits.
// Promise: exact-approvals, tenant-state
func TestLate(t *testing.T) {
	r := newStore(time.Millisecond)
	if _, _, err := r.WaitForApproval(t.Context(), refund("r1")); !errors.Is(err, ErrUnanswered) {
		t.Fatal(err)
	}
	h := r.ListHeld()[0]
	if h.Waiting {
		t.Errorf("it waits: %+v", h)
	}
	if _, err := r.DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Request){
		"body": func(q *Request) { q.Body = `{"amount":50}` }, "url": func(q *Request) { q.URL += "0" },
		"method": func(q *Request) { q.Method = "PUT" }, "header": func(q *Request) { q.Headers = append(q.Headers, "Account: x") },
		"rule": func(q *Request) { q.Rule = "approve" }, "api": func(q *Request) { q.API = "x" }, "catalog": func(q *Request) { q.Catalog, q.RuleCatalog = "2", "2" },
		"tenant": func(q *Request) { q.Tenant = "mallory" }, "server": func(q *Request) { q.Server = "acme" },
	} {
		q := refund("r2")
		change(&q)
		if _, _, err := r.WaitForApproval(t.Context(), q); !errors.Is(err, ErrUnanswered) {
			t.Errorf("another %s passed: %v", name, err)
		}
	}
	if _, _, err := r.WaitForApproval(t.Context(), refund("r3")); err != nil {
		t.Errorf("the approved one: %v", err)
	}
	if _, _, err := r.WaitForApproval(t.Context(), refund("r4")); !errors.Is(err, ErrUnanswered) {
		t.Errorf("it passed twice: %v", err)
	}
}

// TestHeldOnce: however many same requests wait or come at the moment of an approval, one of them passes.
// Promise: exact-approvals
func TestHeldOnce(t *testing.T) {
	r := newStore(time.Millisecond)
	_, _, _ = r.WaitForApproval(t.Context(), refund("r"))
	if _, err := r.DecideHeld(r.ListHeld()[0].ID, approvalapi.Answer{Approve: true}, true); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	passed := 0
	for i := range 50 {
		wg.Go(func() {
			if _, _, err := r.WaitForApproval(t.Context(), refund("r"+strconv.Itoa(i))); err == nil {
				mu.Lock()
				passed++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if passed != 1 {
		t.Errorf("%d passed", passed)
	}
}

// TestEnded: a run that ends takes its request with it; an approval at that moment is not lost, and counts once.
// Promise: exact-approvals
func TestEnded(t *testing.T) {
	r := newStore(testkit.Patience)
	ctx, cancel := context.WithCancel(t.Context())
	done, h := waiting(ctx, t, r, refund("r1"))
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if list := r.ListHeld(); len(list) != 1 || list[0].Waiting {
		t.Fatalf("%+v", list)
	}
	if _, err := r.DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true); err != nil {
		t.Fatal(err)
	}
	r.DropStale(nil) // the catalog changed
	r.Wait = time.Millisecond
	if _, _, err := r.WaitForApproval(t.Context(), refund("r2")); !errors.Is(err, ErrUnanswered) {
		t.Errorf("passed by an approval under another catalog: %v", err)
	}
}

// TestEndedApproved: an approval that comes just before the end of its run is for the next one.
// Promise: exact-approvals
func TestEndedApproved(t *testing.T) {
	for range 100 {
		r := newStore(testkit.Patience)
		ctx, cancel := context.WithCancel(t.Context())
		e, err := r.addRequest(refund("r1"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.DecideHeld(e.id, approvalapi.Answer{Approve: true}, true); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := r.waitForAnswer(ctx, e); !errors.Is(err, context.Canceled) {
			t.Fatalf("the run that has ended got %v", err)
		}
		if _, _, err := r.WaitForApproval(t.Context(), refund("r2")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStale: a change of the catalog ends what waits, and what was approved under the one before.
// Promise: exact-approvals
func TestStale(t *testing.T) {
	r := newStore(testkit.Patience)
	done, h := waiting(t.Context(), t, r, refund("r1"))
	r.DropStale(nil)
	if err := <-done; !errors.Is(err, ErrStale) || len(r.ListHeld()) != 0 {
		t.Errorf("%v, %+v", err, r.ListHeld())
	}
	if _, err := r.DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true); err == nil {
		t.Error("it was approved")
	}
}

// TestTwoApprovers: of two people who decide at once, one does, and their answer is that of the request.
// Promise: exact-approvals
func TestTwoApprovers(t *testing.T) {
	for range 200 {
		r := newStore(testkit.Patience)
		done, h := waiting(t.Context(), t, r, refund("r1"))
		var wg sync.WaitGroup
		var decided [2]bool
		for i, approve := range []bool{true, false} {
			wg.Go(func() {
				_, err := r.DecideHeld(h.ID, approvalapi.Answer{Approve: approve}, true)
				decided[i] = err == nil
			})
		}
		wg.Wait()
		if err := <-done; decided[0] == decided[1] || (err == nil) != decided[0] {
			t.Fatalf("decided %v, and the request: %v", decided, err)
		}
	}
}

// TestFlood: neither a run nor all of them fill the list, by number or by size; and what nobody waits for gives way to
// what comes, but not what was approved.
// Promise: exact-approvals
func TestFlood(t *testing.T) {
	for name, body := range map[string]string{"many": "", "large": strings.Repeat("a", 256<<10)} {
		r := newStore(time.Millisecond)
		kept := refund("kept")
		_, _, _ = r.WaitForApproval(t.Context(), kept)
		if _, err := r.DecideHeld(r.ListHeld()[0].ID, approvalapi.Answer{Approve: true}, true); err != nil {
			t.Fatal(err)
		}
		for i := range most + 50 {
			q := refund("r" + strconv.Itoa(i/(maxOfRun+1)))
			q.Body = strconv.Itoa(i) + body
			_, _, err := r.WaitForApproval(t.Context(), q)
			if full := i%(maxOfRun+1) == maxOfRun && body == ""; full && !errors.Is(err, ErrFull) || err == nil {
				t.Fatalf("%s, %d: %v", name, i, err)
			}
			size := 0
			for _, h := range r.ListHeld() {
				size += len(h.Body)
			}
			if len(r.ListHeld()) > most || size > MaxHeldBytes {
				t.Fatalf("%s, %d: %d held, %d bytes", name, i, len(r.ListHeld()), size)
			}
		}
		last := r.ListHeld()[len(r.ListHeld())-1]
		if _, _, err := r.WaitForApproval(t.Context(), kept); err != nil || last.Run != "r"+strconv.Itoa((most+49)/(maxOfRun+1)) {
			t.Errorf("%s: the last one is %s", name, last.Run)
		}
	}
	r := newStore(testkit.Patience)
	for i := 0; ; i++ {
		q := refund("r" + strconv.Itoa(i/maxOfRun))
		q.Body = strconv.Itoa(i)
		if _, err := r.addRequest(q); err != nil {
			break
		}
	}
	if _, _, err := r.WaitForApproval(t.Context(), refund("one more")); !errors.Is(err, ErrFull) || len(r.held.all) < 500 || len(r.held.all) > most {
		t.Errorf("beside %d that wait: %v", len(r.held.all), err)
	}
}

// TestHeldTenants: however many requests of one tenant are held, and however long they are, those of another stay, and there
// is room for more of hers.
// Promise: tenant-shares
func TestHeldTenants(t *testing.T) {
	for name, body := range map[string]string{"many": "", "large": strings.Repeat("a", 256<<10)} {
		of := func(tenant string, n int) Request {
			q := refund(tenant + strconv.Itoa(n/maxOfRun))
			q.Tenant, q.Body = tenant, strconv.Itoa(n)+body
			return q
		}
		r := newStore(time.Millisecond)
		_, _, _ = r.WaitForApproval(t.Context(), of("alice", 0))
		for n := range most + 50 { // nobody waits for them
			_, _, _ = r.WaitForApproval(t.Context(), of("mallory", n))
		}
		if h := r.ListHeld()[0]; h.Run != "alice0" {
			t.Errorf("%s: hers has given way to another tenant's", name)
		}
		r.Wait = testkit.Patience
		var refused error
		for n := 0; refused == nil && n < most; n++ {
			e, err := r.addRequest(of("mallory", n))
			if refused = err; err == nil && e == nil {
				t.Fatal("passed")
			}
		}
		if _, err := r.addRequest(of("bob", 0)); err != nil || !errors.Is(refused, ErrFull) {
			t.Errorf("%s: while one tenant's wait (%v): %v", name, refused, err)
		}
	}
}

// TestServersOfTenants: held requests of one process of a server leave room for those of another tenant's, of another
// process, and of runs.
// Promise: tenant-sessions
func TestServersOfTenants(t *testing.T) {
	r := newStore(testkit.Patience)
	of := func(tenant string, generation uint64, n int) error {
		q := refund("server-acme")
		q.Tenant, q.Server, q.Generation, q.Ended, q.Body = tenant, "acme", generation, nil, strconv.Itoa(n)
		_, err := r.addRequest(q)
		return err
	}
	for n := range maxOfRun {
		if err := of("alice", 1, n); err != nil {
			t.Fatal(err)
		}
	}
	for name, row := range map[string]struct {
		tenant     string
		generation uint64
		full       bool
	}{"the same": {"alice", 1, true}, "another tenant": {"bob", 1, false}, "another process": {"alice", 2, false}} {
		if err := of(row.tenant, row.generation, maxOfRun); (err != nil) != row.full {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWaiting: a run's own requests are listed, with whether only the operator decides, and a change of them is told.
// Promise: exact-approvals
func TestWaiting(t *testing.T) {
	r := newStore(testkit.Patience)
	q := refund("r1")
	q.ByAny = true
	mine, h := waiting(t.Context(), t, r, q)
	theirs, op := waiting(t.Context(), t, r, refund("r1"))
	waiting(t.Context(), t, r, refund("r2"))
	list, changed := r.ListWaiting("r1")
	if len(list) != 2 || list[0].ID != h.ID || list[0].Operator || list[1].ID != op.ID || !list[1].Operator {
		t.Errorf("%+v", list)
	}
	select {
	case <-changed:
		t.Error("it says that something changed")
	default:
	}
	if _, err := r.DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true); err != nil || <-mine != nil {
		t.Error(err)
	}
	<-changed
	if _, err := r.DecideHeld(op.ID, approvalapi.Answer{Approve: true}, true); err != nil || <-theirs != nil {
		t.Error(err)
	}
	if list, _ := r.ListWaiting("r1"); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	q = refund("server-acme")
	q.Pauses = []string{"r1", "r3"}
	waiting(t.Context(), t, r, q)
	if list, _ := r.ListWaiting("r1"); len(list) != 1 || list[0].Run != "server-acme" {
		t.Errorf("a request that it may have caused: %+v", list)
	}
}

// TestGoroutines: a request that waits costs no goroutine but its own.
func TestGoroutines(t *testing.T) {
	const many = 100
	r := newStore(testkit.Patience)
	ctx, cancel := context.WithCancel(t.Context())
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	for i := range many {
		q := refund("r" + strconv.Itoa(i))
		q.Body = strconv.Itoa(i)
		all.Go(func() { _, _, _ = r.WaitForApproval(ctx, q) })
	}
	testkit.WaitFor(t, func() bool { return len(r.ListHeld()) == many })
	// The number drops when goroutines of an earlier test end only now.
	if more := runtime.NumGoroutine() - before; more > many {
		t.Errorf("%d requests wait in %d goroutines", many, more)
	}
	cancel()
	all.Wait()
}

// TestWaitTime: without a setting, a request waits as long as waitTime.
func TestWaitTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if _, _, err := New(Config{}).WaitForApproval(t.Context(), refund("r")); !errors.Is(err, ErrUnanswered) || time.Since(began) != waitTime {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
