package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// conn is a connection that records that it was closed.
type conn struct{ closed atomic.Bool }

func (c *conn) Close() error { c.closed.Store(true); return nil }

func begin(t *testing.T, b *Table, id slot.ID, generation uint64, life time.Duration) *Lease {
	t.Helper()
	l, err := b.BeginLease(id, proxyapi.Registration{Generation: generation, Run: "run", Deadline: time.Now().Add(life)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestDeadline: a registration ends by itself Grace after its deadline; its receipt can still be had, once.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewTable(Config{})
		l := begin(t, b, 0, 1, time.Minute)
		c := &conn{}
		if _, err := b.AttachConn(0, c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + Grace - time.Second)
		if c.closed.Load() || l.Context().Err() != nil {
			t.Error("it ended before its grace was over")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !c.closed.Load() || !errors.Is(context.Cause(l.Context()), ErrEnded) {
			t.Error("it did not end")
		}
		if _, err := b.AttachConn(0, &conn{}); !errors.Is(err, ErrNone) {
			t.Errorf("a connection after the end: %v", err)
		}
		if _, _, err := l.BeginExchange(context.Background(), 0); !errors.Is(err, ErrEnded) {
			t.Errorf("an exchange after the end: %v", err)
		}
		if len(b.ListLeases()) != 0 {
			t.Error("it is still listed")
		}
		if r, err := b.EndLease(0, 1); err != nil || r.Run != "run" {
			t.Errorf("the receipt: %+v, %v", r, err)
		}
		if _, err := b.EndLease(0, 1); !errors.Is(err, proxyapi.ErrFenced) {
			t.Errorf("the receipt again: %v", err)
		}
	})
}

// TestClockJumps: once a run is registered, setting the clock forward or back neither frees its slot nor holds it, and
// the next registration uses the clock as it is then.
// Promise: one-run-one-identity
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{-30 * 24 * time.Hour, -time.Minute, time.Hour, 30 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var set time.Duration
			now := func() time.Time { return time.Now().Round(0).Add(set) } // without the monotonic clock, as from JSON
			b := NewTable(Config{Now: now})
			l, err := b.BeginLease(0, proxyapi.Registration{Generation: 1, Run: "run", Deadline: now().Add(time.Minute)})
			if err != nil {
				t.Fatal(err)
			}
			set = jump
			time.Sleep(time.Minute + Grace - time.Second)
			synctest.Wait()
			if _, err := b.AttachConn(0, &conn{}); err != nil || l.Context().Err() != nil {
				t.Errorf("after a jump of %v the run ended early: %v", jump, err)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if l.Context().Err() == nil {
				t.Errorf("after a jump of %v the run does not end", jump)
			}
			l, err = b.BeginLease(0, proxyapi.Registration{Generation: 2, Run: "run", Deadline: now().Add(time.Minute)})
			if err != nil {
				t.Fatalf("the next run, after a jump of %v: %v", jump, err)
			}
			time.Sleep(time.Minute + Grace + time.Second)
			synctest.Wait()
			if l.Context().Err() == nil {
				t.Errorf("the next run, after a jump of %v, does not end", jump)
			}
		})
	}
}

// TestEndWaits: End aborts what is in flight and returns once it is recorded; it waits only for a bounded time for what
// never stops.
func TestEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewTable(Config{})
		l := begin(t, b, 0, 1, time.Minute)
		_, leave, err := l.BeginExchange(context.Background(), 0)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-l.Context().Done()
			time.Sleep(time.Second)
			l.Recorder.AddExchange(proxyapi.Exchange{Outcome: proxyapi.OutcomeAborted}, nil)
			leave()
		}()
		if r, err := b.EndLease(0, 1); err != nil || r.Count.Exchanges != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		l = begin(t, b, 0, 2, time.Minute)
		if _, leave, err = l.BeginExchange(context.Background(), 0); err != nil { // leaves too late
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := b.EndLease(0, 2); err != nil || time.Since(began) != settleTime {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		leave()
	})
}

// TestBounds on connections, exchanges in flight and those that wait.
// Promise: bounded-connections
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewTable(Config{})
		l := begin(t, b, 0, 1, time.Minute)
		conns := make([]*conn, MaxConnections)
		for i := range conns {
			conns[i] = &conn{}
			if _, err := b.AttachConn(0, conns[i]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.AttachConn(0, &conn{}); !errors.Is(err, ErrFull) {
			t.Errorf("one connection more: %v", err)
		}
		l.DetachConn(conns[0])
		if _, err := b.AttachConn(0, &conn{}); err != nil {
			t.Errorf("after one was closed: %v", err)
		}
		var leaves []func()
		for range MaxExchanges {
			_, leave, err := l.BeginExchange(context.Background(), 0)
			if err != nil {
				t.Fatal(err)
			}
			leaves = append(leaves, leave)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var cancelled, entered atomic.Int32
		for range maxWaiting {
			go func() {
				_, leave, err := l.BeginExchange(ctx, 0)
				if err != nil {
					cancelled.Add(1)
					return
				}
				entered.Add(1)
				leave()
			}()
		}
		synctest.Wait()
		if _, _, err := l.BeginExchange(context.Background(), 0); !errors.Is(err, ErrFull) {
			t.Errorf("one waiting more: %v", err)
		}
		if entered.Load() != 0 {
			t.Error("more are in flight than may be")
		}
		leaves[0]()
		synctest.Wait()
		if entered.Load() != maxWaiting {
			t.Errorf("%d of %d that waited came in", entered.Load(), maxWaiting)
		}
		cancel()
	})
}

// TestFences: late and early calls of BeginLease and End in every order, from many goroutines.
func TestFences(t *testing.T) {
	b := NewTable(Config{})
	var wg sync.WaitGroup
	var begun, ended [101]atomic.Int32
	for range 4 {
		wg.Go(func() {
			for g := uint64(1); g <= 100; g++ {
				if _, err := b.BeginLease(5, proxyapi.Registration{Generation: g, Run: "run", Deadline: time.Now().Add(time.Minute)}); err == nil {
					begun[g].Add(1)
				}
				if r, err := b.EndLease(5, g); err == nil {
					ended[g].Add(1)
					if r.Generation != g {
						t.Errorf("the end of %d gave the receipt of %d", g, r.Generation)
					}
				}
			}
		})
	}
	wg.Wait()
	for g := range begun {
		if n := begun[g].Load(); n > 1 || ended[g].Load() > n {
			t.Errorf("generation %d began %d times and ended %d times", g, n, ended[g].Load())
		}
	}
	b.Close()
}

// TestDrainHasNoLease: while the accept queue is drained the slot has no lease.
func TestDrainHasNoLease(t *testing.T) {
	var b *Table
	drained := 0
	b = NewTable(Config{Drain: func(id slot.ID) {
		drained++
		if _, err := b.AttachConn(id, &conn{}); !errors.Is(err, ErrNone) {
			t.Errorf("a queued connection got: %v", err)
		}
	}})
	for g := uint64(1); g <= 3; g++ {
		begin(t, b, 1, g, time.Minute)
		if _, err := b.AttachConn(1, &conn{}); err != nil {
			t.Error(err)
		}
	}
	if drained != 3 {
		t.Errorf("drained %d times", drained)
	}
	b.Close()
}

// TestFarDeadline: the registration of an MCP server lasts until it is ended, however far its deadline is, and whatever
// the clock does meanwhile.
// Promise: servers-reach-less
func TestFarDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewTable(Config{})
		for generation, deadline := range []time.Time{
			time.Now().AddDate(100, 0, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		} {
			r := proxyapi.Registration{Generation: uint64(generation) + 1, Run: "server", APIs: []string{"x"}, Deadline: deadline}
			l, err := b.BeginLease(slot.Max, r)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * 365 * 24 * time.Hour)
			synctest.Wait()
			if _, err := b.AttachConn(slot.Max, &conn{}); err != nil || l.Context().Err() != nil {
				t.Errorf("with a deadline of %v it ended: %v", deadline, err)
			}
			if _, err := b.DrainReceipt(slot.Max, r.Generation+1, ""); !errors.Is(err, proxyapi.ErrFenced) {
				t.Errorf("drained for another generation: %v", err)
			}
			if got, err := b.DrainReceipt(slot.Max, r.Generation, ""); err != nil || got.Run != "server" || got.Generation != r.Generation || got.Exchanges == nil {
				t.Errorf("drained: %+v, %v", got, err)
			}
			if _, err := b.EndLease(slot.Max, r.Generation); err != nil {
				t.Error(err)
			}
			if _, err := b.DrainReceipt(slot.Max, r.Generation, ""); !errors.Is(err, proxyapi.ErrFenced) {
				t.Errorf("drained after its end: %v", err)
			}
		}
	})
}

// TestWaitingRoom: a run whose exchanges in flight have its share of the memory has room for hundreds that wait.
// Promise: one-memory-budget
func TestWaitingRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewTable(Config{Memory: membudget.New(128 << 20)}) // a share is 32 MiB
		l := begin(t, b, 0, 1, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		var full, entered atomic.Int32
		for range 400 {
			go func() {
				_, leave, err := l.BeginExchange(ctx, 4<<10)
				switch {
				case errors.Is(err, ErrFull):
					full.Add(1)
				case err == nil:
					entered.Add(1)
					<-ctx.Done()
					leave()
				}
			}()
		}
		synctest.Wait()
		if full.Load() > 0 || entered.Load() < 10 || entered.Load() == MaxExchanges {
			t.Errorf("of 400 requests %d were refused, and %d entered", full.Load(), entered.Load())
		}
		cancel()
	})
}

// TestLateMemory: while the exchanges in flight have all of the run's share, a few more wait for theirs, and the rest are
// refused. After 10 s without memory, an exchange is refused too.
// Promise: one-memory-budget
func TestLateMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewTable(Config{Memory: membudget.New(128 << 20)}) // a share is 32 MiB
		l := begin(t, b, 0, 1, time.Minute)
		body := l.memory.OpenAccount(l)
		if !body.TryTake(32 << 20) {
			t.Fatal("the run does not get its share")
		}
		var full, entered atomic.Int32
		enter := func() {
			_, leave, err := l.BeginExchange(t.Context(), 64<<10)
			switch {
			case errors.Is(err, ErrFull):
				full.Add(1)
			case err == nil:
				entered.Add(1)
				leave()
			}
		}
		for range maxUnheld + 5 {
			go enter()
		}
		synctest.Wait()
		if full.Load() != 5 || entered.Load() != 0 {
			t.Errorf("%d were refused at once, and %d entered", full.Load(), entered.Load())
		}
		body.Close()
		synctest.Wait()
		if full.Load() != 5 || entered.Load() != maxUnheld {
			t.Errorf("%d were refused, and %d entered", full.Load(), entered.Load())
		}
		body.TryTake(32 << 20)
		enter()
		if full.Load() != 6 {
			t.Error("an exchange without memory was not refused")
		}
		body.Close()
	})
}
