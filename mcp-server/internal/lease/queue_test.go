package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/lease"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/peertest"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// newQueue makes a queue on a sandbox with so many slots.
func newQueue(t *testing.T, slots int, cfg lease.Config) (*lease.Queue, *peertest.Sandbox) {
	t.Helper()
	s := peertest.NewSandbox(t, slots)
	cfg.Sandbox = runapi.NewClient(runapi.ClientConfig{Dial: s.Dial})
	q := lease.New(cfg)
	t.Cleanup(func() {
		q.Close()
		_ = cfg.Sandbox.Close()
	})
	return q, s
}

func acquire(t *testing.T, q *lease.Queue, session string) runapi.Lease {
	t.Helper()
	l, _, err := q.Acquire(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// waiting waits until so many runs wait.
func waiting(t *testing.T, q *lease.Queue, n int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); q.Waiting() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, want %d", q.Waiting(), n)
		}
	}
}

func TestAcquireAtOnce(t *testing.T) {
	q, s := newQueue(t, 2, lease.Config{})
	a, b := acquire(t, q, "x"), acquire(t, q, "x")
	if a.Slot == b.Slot || b.Generation <= a.Generation {
		t.Errorf("leases %+v and %+v", a, b)
	}
	q.Release(a.Generation)
	q.Release(b.Generation)
	if n := s.Left(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// TestCloseReleases: what was released before Close is free after it.
func TestCloseReleases(t *testing.T) {
	q, s := newQueue(t, 4, lease.Config{})
	var leases []runapi.Lease
	for range 4 {
		leases = append(leases, acquire(t, q, "x"))
	}
	for _, l := range leases[:3] {
		q.Release(l.Generation)
	}
	q.Close()
	if n := s.Leased(); n != 1 {
		t.Errorf("%d leases after Close, want the one that was not released", n)
	}
	q.Release(leases[3].Generation)
	if n := s.Leased(); n != 0 {
		t.Errorf("%d leases after a release behind Close", n)
	}
}

// TestFairness: a session with many waiting runs does not delay another session's run by more than one.
func TestFairness(t *testing.T) {
	q, _ := newQueue(t, 1, lease.Config{Poll: time.Hour})
	first := acquire(t, q, "holder")
	var mu sync.Mutex
	var order []string
	var done sync.WaitGroup
	enter := func(session string) {
		n := q.Waiting()
		done.Go(func() {
			l, _, err := q.Acquire(t.Context(), session)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, session)
			mu.Unlock()
			q.Release(l.Generation)
		})
		waiting(t, q, n+1)
	}
	for range 10 {
		enter("greedy")
	}
	enter("modest")
	enter("late")
	q.Release(first.Generation)
	done.Wait()
	if at := slices.Index(order, "modest"); at > 2 {
		t.Errorf("the modest session was served as number %d of %v", at+1, order)
	}
	if at := slices.Index(order, "late"); at > 3 {
		t.Errorf("the late session was served as number %d of %v", at+1, order)
	}
}

func TestBounds(t *testing.T) {
	q, _ := newQueue(t, 1, lease.Config{MaxWaiting: 3, MaxPerSession: 2, MaxWait: 300 * time.Millisecond})
	held := acquire(t, q, "holder")
	defer q.Release(held.Generation)
	results := make(chan error, 3)
	for i := range 3 {
		session := fmt.Sprint("s", i/2)
		go func() {
			_, _, err := q.Acquire(t.Context(), session)
			results <- err
		}()
		waiting(t, q, i+1)
	}
	var busy *lease.BusyError
	if _, _, err := q.Acquire(t.Context(), "s0"); !errors.As(err, &busy) || busy.Waited != 0 {
		t.Errorf("a third run of a session: %v, want busy without waiting", err)
	}
	if _, _, err := q.Acquire(t.Context(), "s9"); !errors.As(err, &busy) || busy.Waiting != 3 {
		t.Errorf("a fourth run: %v, want busy with 3 waiting", err)
	}
	for range 3 {
		if err := <-results; !errors.As(err, &busy) || busy.Waited < 250*time.Millisecond {
			t.Errorf("after the wait: %v, want busy with how long was waited", err)
		}
	}
	if n := q.Waiting(); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// TestGivingUp: who gives up leaves neither a place in the queue nor a lease behind.
func TestGivingUp(t *testing.T) {
	q, s := newQueue(t, 1, lease.Config{Poll: time.Millisecond})
	for range 50 {
		held := acquire(t, q, "holder")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			l, _, err := q.Acquire(ctx, "other")
			if err == nil {
				q.Release(l.Generation)
			}
			ended <- err
		}()
		waiting(t, q, 1)
		go cancel()
		go q.Release(held.Generation)
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		cancel()
		for deadline := time.Now().Add(5 * time.Second); s.Leased() != 0 || q.Waiting() != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d leases and %d waiting are left", s.Leased(), q.Waiting())
			}
		}
	}
}

func TestCloseRefusesWaiting(t *testing.T) {
	q, _ := newQueue(t, 1, lease.Config{})
	acquire(t, q, "holder")
	ended := make(chan error, 1)
	go func() {
		_, _, err := q.Acquire(t.Context(), "other")
		ended <- err
	}()
	waiting(t, q, 1)
	q.Close()
	if err := <-ended; err == nil {
		t.Error("a waiting run got a lease of a closed queue")
	}
	if _, _, err := q.Acquire(t.Context(), "other"); err == nil {
		t.Error("a closed queue gave a lease")
	}
}

// TestRestart: a sandboxd that restarts is waited for.
func TestRestart(t *testing.T) {
	q, s := newQueue(t, 1, lease.Config{})
	acquire(t, q, "x")
	s.Stop()
	time.AfterFunc(300*time.Millisecond, s.Start)
	acquire(t, q, "x")
}
