package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/queue"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandbox"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// newQueue makes a queue on a sandbox with so many slots.
func newQueue(t *testing.T, slots int, cfg queue.Config) (*queue.Queue, *fakepeers.FakeSandbox) {
	t.Helper()
	s := fakepeers.NewSandbox(t, slots)
	client := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: s.Dial})
	cfg.Source = &sandbox.Sandbox{Runs: client}
	q := queue.New(cfg)
	t.Cleanup(func() {
		q.Close()
		_ = client.Close()
	})
	return q, s
}

func acquire(t *testing.T, q *queue.Queue, session string) sandbox.SlotLease {
	t.Helper()
	l, _, err := q.Acquire(t.Context(), queue.Turn{Session: session})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// waiting waits until so many runs wait.
func waiting(t *testing.T, q *queue.Queue, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); q.CountWaiting() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, want %d", q.CountWaiting(), n)
		}
	}
}

func TestAcquireAtOnce(t *testing.T) {
	q, s := newQueue(t, 2, queue.Config{})
	a, b := acquire(t, q, "x"), acquire(t, q, "x")
	if a.Slot == b.Slot || b.Generation <= a.Generation {
		t.Errorf("leases %+v and %+v", a, b)
	}
	q.ReleaseLease(a)
	q.ReleaseLease(b)
	if n := s.WaitForReleases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// TestCloseReleases: what was released before Close is free after it.
func TestCloseReleases(t *testing.T) {
	q, s := newQueue(t, 4, queue.Config{})
	var leases []sandbox.SlotLease
	for range 4 {
		leases = append(leases, acquire(t, q, "x"))
	}
	for _, l := range leases[:3] {
		q.ReleaseLease(l)
	}
	q.Close()
	if n := s.CountLeased(); n != 1 {
		t.Errorf("%d leases after Close, want the one that was not released", n)
	}
	q.ReleaseLease(leases[3])
	if n := s.CountLeased(); n != 0 {
		t.Errorf("%d leases after a release behind Close", n)
	}
}

// TestFairness: a session with many waiting runs does not delay another session's run by more than one.
func TestFairness(t *testing.T) {
	q, _ := newQueue(t, 1, queue.Config{Poll: time.Hour})
	first := acquire(t, q, "holder")
	var mu sync.Mutex
	var order []string
	var done sync.WaitGroup
	enter := func(session string) {
		n := q.CountWaiting()
		done.Go(func() {
			l, _, err := q.Acquire(t.Context(), queue.Turn{Session: session})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, session)
			mu.Unlock()
			q.ReleaseLease(l)
		})
		waiting(t, q, n+1)
	}
	for range 10 {
		enter("greedy")
	}
	enter("modest")
	enter("late")
	q.ReleaseLease(first)
	done.Wait()
	if at := slices.Index(order, "modest"); at > 2 {
		t.Errorf("the modest session was served as number %d of %v", at+1, order)
	}
	if at := slices.Index(order, "late"); at > 3 {
		t.Errorf("the late session was served as number %d of %v", at+1, order)
	}
}

func TestBounds(t *testing.T) {
	q, _ := newQueue(t, 1, queue.Config{MaxWaiting: 3, MaxPerSession: 2, MaxWait: 5 * time.Second})
	held := acquire(t, q, "holder")
	defer q.ReleaseLease(held)
	results := make(chan error, 3)
	var busy *queue.BusyError
	for i := range 3 {
		session := fmt.Sprint("s", i/2)
		go func() {
			_, _, err := q.Acquire(t.Context(), queue.Turn{Session: session})
			results <- err
		}()
		waiting(t, q, i+1)
		if i == 1 { // the session has its most, and the queue has room
			if _, _, err := q.Acquire(t.Context(), queue.Turn{Session: session}); !errors.As(err, &busy) || busy.Waited != 0 || busy.Waiting != 2 {
				t.Errorf("a third run of a session: %v, want busy without waiting", err)
			}
		}
	}
	if _, _, err := q.Acquire(t.Context(), queue.Turn{Session: "s9"}); !errors.As(err, &busy) || busy.Waiting != 3 {
		t.Errorf("a fourth run: %v, want busy with 3 waiting", err)
	}
	for range 3 {
		if err := <-results; !errors.As(err, &busy) || busy.Waited < 4900*time.Millisecond {
			t.Errorf("after the wait: %v, want busy with how long was waited", err)
		}
	}
	if n := q.CountWaiting(); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// TestGivingUp: who gives up leaves neither a place in the queue nor a lease behind.
func TestGivingUp(t *testing.T) {
	q, s := newQueue(t, 1, queue.Config{Poll: time.Millisecond})
	for range 50 {
		held := acquire(t, q, "holder")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			l, _, err := q.Acquire(ctx, queue.Turn{Session: "other"})
			if err == nil {
				q.ReleaseLease(l)
			}
			ended <- err
		}()
		waiting(t, q, 1)
		go cancel()
		go q.ReleaseLease(held)
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		cancel()
		for deadline := time.Now().Add(time.Minute); s.CountLeased() != 0 || q.CountWaiting() != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d leases and %d waiting are left", s.CountLeased(), q.CountWaiting())
			}
		}
	}
}

func TestCloseRefusesWaiting(t *testing.T) {
	q, _ := newQueue(t, 1, queue.Config{})
	acquire(t, q, "holder")
	ended := make(chan error, 4)
	for n := range cap(ended) {
		go func() {
			_, _, err := q.Acquire(t.Context(), queue.Turn{Session: []string{"other", "third"}[n%2]})
			ended <- err
		}()
	}
	waiting(t, q, cap(ended))
	q.Close()
	var busy *queue.BusyError
	for range cap(ended) {
		if err := <-ended; err == nil || errors.As(err, &busy) {
			t.Errorf("a waiting run got a lease of a closed queue, or waited to the end: %v", err)
		}
	}
	if _, _, err := q.Acquire(t.Context(), queue.Turn{Session: "other"}); err == nil || errors.As(err, &busy) || q.CountWaiting() != 0 {
		t.Errorf("a closed queue gave a lease, or kept the run waiting: %v, %d wait", err, q.CountWaiting())
	}
}

// TestRestart: a sandboxd that restarts is waited for.
func TestRestart(t *testing.T) {
	q, s := newQueue(t, 1, queue.Config{})
	acquire(t, q, "x")
	s.Stop()
	time.AfterFunc(300*time.Millisecond, s.Start)
	acquire(t, q, "x")
}

// newAhead makes a queue on a sandbox that gives leases ahead.
func newAhead(t *testing.T, slots int) (*queue.Queue, *fakepeers.FakeSandbox) {
	t.Helper()
	q, s := newQueue(t, slots, queue.Config{})
	s.Ahead = true
	return q, s
}

// leased waits until so many leases are held.
func leased(t *testing.T, s *fakepeers.FakeSandbox, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); s.CountLeased() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d leases, want %d: %v", s.CountLeased(), n, s.Journal())
		}
	}
}

// TestAhead: after a run there is a lease for the next one, which then asks for none. The last slot is not held.
func TestAhead(t *testing.T) {
	q, s := newAhead(t, 2)
	l := acquire(t, q, "x")
	for range 20 {
		for deadline := time.Now().Add(time.Minute); ; {
			q.ReleaseLease(l)
			time.Sleep(time.Millisecond)
			before := s.Journal()
			l = acquire(t, q, "y")
			if now := s.Journal(); len(now) == len(before) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("no lease was held: %v", s.Journal())
			}
		}
		other := acquire(t, q, "z")
		if other.Slot == l.Slot {
			t.Fatalf("slot %d twice", l.Slot)
		}
		q.ReleaseLease(other)
		leased(t, s, 1)
	}
	q.ReleaseLease(l)
	leased(t, s, 1)
	q.Close()
	if n := s.CountLeased(); n != 0 {
		t.Errorf("%d leases after Close", n)
	}
}

// TestAheadRestart: a lease that is held is of no use on another connection, and is not used.
func TestAheadRestart(t *testing.T) {
	s := fakepeers.NewSandbox(t, 2)
	s.Ahead = true
	client := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: s.Dial})
	defer client.Close()
	q := queue.New(queue.Config{Source: &sandbox.Sandbox{Runs: client}})
	defer q.Close()
	q.ReleaseLease(acquire(t, q, "x"))
	for deadline := time.Now().Add(time.Minute); !slices.Contains(s.Journal(), "lease 2"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no lease is held")
		}
	}
	s.Stop()
	for client.StreamNumber() != 0 { // it notices
		time.Sleep(time.Millisecond)
	}
	s.ForgetAll()
	s.Start()
	if l := acquire(t, q, "x"); !slices.Contains(s.Journal(), fmt.Sprint("lease ", l.Generation)) {
		t.Errorf("lease %d is not of this sandbox: %v", l.Generation, s.Journal())
	}
}

// TestAheadGivenBack: a lease for a run that does not come is given back, and none is taken in its place.
func TestAheadGivenBack(t *testing.T) {
	q, s := newQueue(t, 2, queue.Config{Hold: 50 * time.Millisecond})
	s.Ahead = true
	q.ReleaseLease(acquire(t, q, "x"))
	for deadline := time.Now().Add(time.Minute); !slices.Contains(s.Journal(), "release 2"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it is still held: %v", s.Journal())
		}
	}
	leased(t, s, 0)
	if l := acquire(t, q, "x"); l.Generation != 3 {
		t.Errorf("lease %+v, want a new one", l)
	}
}

// TestAheadForOthers: the lease held ahead is for TypeScript, and another language gets it only as the last one. It is
// for private runs or for others, as the last run was.
func TestAheadForOthers(t *testing.T) {
	q, s := newAhead(t, 2)
	q.ReleaseLease(acquire(t, q, "x"))
	testkit.WaitFor(t, func() bool { return slices.Contains(s.Journal(), "lease 2") })
	for _, want := range []uint64{3, 2} {
		l, _, err := q.Acquire(t.Context(), queue.Turn{Session: "x", Language: sandboxapi.LanguagePython})
		if testkit.Must(t, err); l.Generation != want || l.Private {
			t.Errorf("lease %+v, want generation %d", l, want)
		}
	}
	q, s = newAhead(t, 3)
	q.ReleaseLease(acquire(t, q, "x"))
	testkit.WaitFor(t, func() bool { return slices.Contains(s.Journal(), "lease 2") })
	l, _, err := q.Acquire(t.Context(), queue.Turn{Session: "x", Private: true})
	if testkit.Must(t, err); !l.Private || l.Generation == 2 {
		t.Errorf("lease %+v for a private run", l)
	}
}

// lateSource grants a lease after its run has given up.
type lateSource struct {
	sandbox.Source
	giveUp func()
}

func (s lateSource) Acquire(ctx context.Context, r sandboxapi.LeaseRequest) (sandbox.SlotLease, error) {
	s.giveUp()
	return s.Source.Acquire(ctx, r)
}

// TestLateLease: a lease that comes after its run has given up is given back.
func TestLateLease(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := fakepeers.NewSandbox(t, 1)
	client := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: s.Dial})
	defer client.Close()
	q := queue.New(queue.Config{Source: lateSource{&sandbox.Sandbox{Runs: client}, cancel}})
	l, _, err := q.Acquire(ctx, queue.Turn{Session: "x"})
	if !errors.Is(err, context.Canceled) || l.Of != nil {
		t.Errorf("%+v, %v", l, err)
	}
	q.Close()
	if n := s.CountLeased(); n != 0 || !slices.Contains(s.Journal(), "lease 1") {
		t.Errorf("%d leases are left: %v", n, s.Journal())
	}
}

// TestAheadCrowd: many runs at once on few slots, each slot always with one run only, and no lease is left over.
func TestAheadCrowd(t *testing.T) {
	q, s := newAhead(t, 3)
	var mu sync.Mutex
	taken := map[any]bool{}
	var done sync.WaitGroup
	for n := range 12 {
		done.Go(func() {
			for range 50 {
				l, _, err := q.Acquire(t.Context(), queue.Turn{Session: fmt.Sprint(n % 4)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if taken[l.Slot] {
					t.Errorf("slot %d has two runs", l.Slot)
				}
				taken[l.Slot] = true
				mu.Unlock()
				time.Sleep(100 * time.Microsecond)
				mu.Lock()
				taken[l.Slot] = false
				mu.Unlock()
				q.ReleaseLease(l)
			}
		})
	}
	done.Wait()
	leased(t, s, 1)
	q.Close()
	if n := s.CountLeased(); n != 0 {
		t.Errorf("%d leases after Close", n)
	}
}

// TestShare: a tenant has no more runs at once than its share, no more wait than may, and however many do, one of another
// tenant has its turn after one of them.
// Promise: tenant-shares
func TestShare(t *testing.T) {
	q, _ := newQueue(t, 2, queue.Config{MaxWait: 20 * time.Second, MaxWaiting: 1, MaxPerSession: 1})
	a, b := queue.NewShare("a", 2, 3), queue.NewShare("b", 2, 3)
	of := func(s *queue.Share) (sandbox.SlotLease, error) {
		l, _, err := q.Acquire(t.Context(), queue.Turn{Session: "s", Share: s})
		return l, err
	}
	var held []sandbox.SlotLease
	for range 2 {
		l, err := of(a)
		testkit.Must(t, err)
		if !l.Private {
			t.Error("the run of a tenant is not private")
		}
		held = append(held, l)
	}
	order := make(chan string, 10)
	var all sync.WaitGroup
	run := func(name string, s *queue.Share) {
		all.Go(func() {
			l, err := of(s)
			if err != nil {
				order <- err.Error()
				return
			}
			order <- name
			q.ReleaseLease(l)
		})
	}
	for n := range 3 {
		run("a", a)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if _, waits := a.CountUse(); waits == n+1 || time.Now().After(deadline) {
				break
			}
		}
	}
	var busy *queue.BusyError
	if _, err := of(a); !errors.As(err, &busy) || busy.Waiting != 3 {
		t.Errorf("a fourth one that waits: %v", err)
	}
	run("b", b) // in the queue, which a's own are not
	waiting(t, q, 1)
	q.ReleaseLease(held[0])
	if first := <-order; first != "b" {
		t.Errorf("%s came before b", first)
	}
	q.ReleaseLease(held[1])
	all.Wait()
	for range 3 {
		if got := <-order; got != "a" {
			t.Error(got)
		}
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if runs, waits := a.CountUse(); runs == 0 && waits == 0 {
			return
		}
	}
	t.Error("something of the share is still taken")
}
