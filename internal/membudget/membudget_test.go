package membudget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestShares: however many holders take all that they can, at once or one after the other, one more finds a share.
// Promise: one-memory-budget
func TestShares(t *testing.T) {
	for _, turns := range []int{1, 2400} { // one holder takes all that it may before the next, or each a byte in turn
		b := New(2400)
		for range turns {
			for run := range 8 {
				for a := b.OpenAccount(run); a.TryTake(1) && turns == 1; {
				}
			}
		}
		full := b.UsedBytes()
		for run := range 8 {
			if !b.OpenAccount(fmt.Sprint(run)).TryTake(75) {
				t.Errorf("%d turns: %d of 2400 bytes are taken, and newcomer %d gets none", turns, full, run)
			}
		}
		if !b.OpenAccount(0).TryTake(0) {
			t.Error("a holder with its share cannot take nothing")
		}
	}
	b := New(900)
	one, same := b.OpenAccount("one"), b.OpenAccount("one")
	if !one.TryTake(175) || same.TryTake(51) || !same.TryTake(50) || one.TryTake(1) {
		t.Error("a holder has more than a quarter, or less")
	}
	one.GiveBack(100)
	same.Close()
	same.Close()
	if b.UsedBytes() != 75 {
		t.Errorf("%d bytes are taken", b.UsedBytes())
	}
	one.Close()
	if b.UsedBytes() != 0 || len(b.holds) != 0 {
		t.Errorf("%d bytes and %d holders are left", b.UsedBytes(), len(b.holds))
	}
}

// TestWait: one who waits gets the memory of another who ends, and stops with its context.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(200)
		first, second := b.OpenAccount("run"), b.OpenAccount("run")
		first.TryTake(40)
		time.AfterFunc(patience-time.Second, first.Close)
		if err := second.WaitAndTake(t.Context(), 20); err != nil || b.UsedBytes() != 20 {
			t.Error(err, b.UsedBytes())
		}
		if err := second.WaitAndTake(t.Context(), 51); !errors.Is(err, ErrFull) {
			t.Error(err)
		}
		ended := errors.New("ended")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(ended) })
		if err := second.WaitAndTake(ctx, 50); !errors.Is(err, ended) {
			t.Error(err)
		}
	})
}

// TestPatience: a wait ends after ten seconds, although the caller would wait longer. Requests whose unread bodies fill
// the window of a connection would otherwise wait for those on the same connection that hold the memory, and the reverse.
// Promise: one-memory-budget
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, began := New(200), time.Now()
		b.OpenAccount("run").TryTake(50)
		if err := b.OpenAccount("run").WaitLeaving(t.Context(), 20, 5); !errors.Is(err, ErrFull) || time.Since(began) != patience {
			t.Error(err, time.Since(began))
		}
	})
}

// TestNoDeadlock: requests that each have a part and wait for more all end.
// Promise: one-memory-budget
func TestNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(100)
		var all sync.WaitGroup
		full := 0
		var mu sync.Mutex
		for run := range 8 {
			all.Go(func() {
				a := b.OpenAccount(run % 2)
				defer a.Close()
				for range 8 {
					if a.WaitAndTake(t.Context(), 8) != nil {
						mu.Lock()
						defer mu.Unlock()
						full++
						return
					}
					time.Sleep(time.Second)
				}
			})
		}
		all.Wait()
		if full == 0 || b.UsedBytes() != 0 {
			t.Errorf("%d gave up, %d bytes are left", full, b.UsedBytes())
		}
	})
}

// TestReadAll: a short body takes no memory of the budget, and a long one its limit before it is read.
// Promise: one-memory-budget
func TestReadAll(t *testing.T) {
	b := New(8 << 20)
	for _, size := range []int{0, 1, Free - 1, Free, Free + 1, 1 << 20, 1<<20 + 1} {
		a := b.OpenAccount("run")
		text, err := a.ReadAll(t.Context(), strings.NewReader(strings.Repeat("x", size)), 1<<20, 2<<20)
		if err != nil || len(text) != min(size, 1<<20) {
			t.Errorf("%d bytes: %d, %v", size, len(text), err)
		}
		if got, long := b.UsedBytes(), size >= Free; long && got != 2<<20 || !long && got != 0 {
			t.Errorf("%d bytes: %d are taken", size, got)
		}
		a.Close()
	}
	broken := errors.New("broken")
	src := io.MultiReader(strings.NewReader(strings.Repeat("x", Free+1)), failing{broken})
	if _, err := b.OpenAccount("run").ReadAll(t.Context(), src, 1<<20, 1<<20); !errors.Is(err, broken) {
		t.Error(err)
	}
	synctest.Test(t, func(t *testing.T) {
		full := New(1 << 21)
		full.OpenAccount("run").TryTake(1)
		src := strings.NewReader(strings.Repeat("x", 1<<20))
		if _, err := full.OpenAccount("run").ReadAll(t.Context(), src, 1<<19, 1<<19); !errors.Is(err, ErrFull) || src.Len() < 1<<19 {
			t.Error(err, src.Len())
		}
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestReader: what is read is taken.
func TestReader(t *testing.T) {
	b := New(200)
	a := b.OpenAccount("run")
	if text, err := io.ReadAll(a.NewReader(strings.NewReader("0123456789"))); err != nil || len(text) != 10 || b.UsedBytes() != 10 {
		t.Error(err, b.UsedBytes())
	}
	if _, err := io.ReadAll(a.NewReader(strings.NewReader(strings.Repeat("x", 50)))); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}
