package budget

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
)

// TestReserve: no window of a limit's length has more than the limit, whenever requests come; and who waits as long as
// is said gets through.
// Promise: limits
func TestReserve(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := &Counter{Now: func() time.Time { return now }}
	need := func(n int64) []Need { return []Need{{"a", n, 100, time.Hour}} }
	type sent struct {
		at time.Time
		n  int64
	}
	var all []sent
	refused := 0
	for range 3000 {
		now = now.Add(time.Duration(rand.IntN(120)) * time.Second)
		n := int64(rand.IntN(9) + 1)
		_, wait, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, need(n), false)
		if !ok {
			if refused++; wait <= 0 || wait > time.Hour+time.Minute {
				t.Fatalf("wait %s", wait)
			}
			if rand.IntN(2) == 0 {
				continue
			}
			now = now.Add(wait)
			if _, _, ok, _ = l.Reserve(t.Context(), shareddb.Run{}, need(n), false); !ok {
				t.Fatalf("refused after the wait of %s", wait)
			}
		}
		all = append(all, sent{now, n})
		sum := int64(0)
		for _, s := range all {
			if now.Sub(s.at) < time.Hour {
				sum += s.n
			}
		}
		if sum > 100 {
			t.Fatalf("%d within an hour", sum)
		}
	}
	if refused < 100 {
		t.Errorf("%d refused", refused)
	}
	if _, wait, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, need(101), false); ok || wait != 0 {
		t.Errorf("more than the limit: %v, %s", ok, wait)
	}
	if _, _, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, need(101), true); !ok {
		t.Error("not forced")
	}
}

// TestHugeAmounts: approved requests of the largest amounts leave no room, in one part of a window and in several.
// Promise: limits
func TestHugeAmounts(t *testing.T) {
	for _, apart := range []time.Duration{0, 2 * time.Minute} {
		now := time.Unix(1_700_000_000, 0)
		l := &Counter{Now: func() time.Time { return now }}
		check := func(when string) {
			if _, _, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, []Need{{"a", 1, 100, time.Hour}}, false); ok {
				t.Errorf("%s apart: there is room after %s", apart, when)
			}
		}
		var back func()
		for range 3 {
			now = now.Add(apart)
			back, _, _, _ = l.Reserve(t.Context(), shareddb.Run{}, []Need{{"a", math.MaxInt64, 100, time.Hour}}, true)
			check("an approved request")
		}
		back()
		check("one of three did not leave")
		now = now.Add(-30 * time.Minute)
		check("the clock was set back")
	}
}

// TestParallel: parallel requests do not spend a limit twice, nothing of several limits is spent if one is reached, and
// what is given back can be spent again.
// Promise: limits
func TestParallel(t *testing.T) {
	l := &Counter{}
	var wg sync.WaitGroup
	var ok atomic.Int64
	for range 500 {
		wg.Go(func() {
			if _, _, left, _ := l.Reserve(t.Context(), shareddb.Run{}, []Need{{"calls", 1, 1000, time.Hour}, {"writes", 1, 40, time.Hour}}, false); left {
				ok.Add(1)
			}
		})
	}
	wg.Wait()
	if ok.Load() != 40 {
		t.Errorf("%d of 40", ok.Load())
	}
	back, _, left, _ := l.Reserve(t.Context(), shareddb.Run{}, []Need{{"calls", 960, 1000, time.Hour}}, false)
	if !left {
		t.Fatal("refused requests were counted")
	}
	if _, _, left, _ := l.Reserve(t.Context(), shareddb.Run{}, []Need{{"calls", 1, 1000, time.Hour}}, false); left {
		t.Error("more than there is")
	}
	back()
	if _, _, left, _ := l.Reserve(t.Context(), shareddb.Run{}, []Need{{"calls", 960, 1000, time.Hour}}, false); !left {
		t.Error("not given back")
	}
}

// TestRestart: counts survive.
// Promise: limits
func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits")
	l := &Counter{Path: path}
	if err := l.Load(); err != nil {
		t.Fatal(err)
	}
	need := []Need{{"a", 60, 100, time.Hour}}
	if _, _, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, need, false); !ok {
		t.Fatal("refused")
	}
	if err := l.storeCounts(); err != nil {
		t.Fatal(err)
	}
	again := &Counter{Path: path}
	if err := again.Load(); err != nil {
		t.Fatal(err)
	}
	if _, _, ok, _ := again.Reserve(t.Context(), shareddb.Run{}, need, false); ok {
		t.Error("a restart gives more")
	}
}

// TestClockSetBack: what was spent before the clock was set back counts from now on, for one window and not until the
// time that the clock had shown.
func TestClockSetBack(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	l := &Counter{Now: func() time.Time { return now }}
	need := []Need{{"calls", 10, 10, time.Minute}}
	if _, _, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, need, false); !ok {
		t.Fatal("the first")
	}
	now = now.Add(-365 * 24 * time.Hour)
	if _, wait, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, need, false); ok || wait <= 0 || wait > 2*time.Minute {
		t.Errorf("at once after the clock was set back: %v, wait %s", ok, wait)
	}
	now = now.Add(2 * time.Minute)
	if _, _, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, need, false); !ok {
		t.Error("a window later")
	}
}

// TestClockAhead: a clock that is ahead for a moment gives no more when it is right again, and what is kept stays small.
// Promise: limits
func TestClockAhead(t *testing.T) {
	right := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	now := right
	l := &Counter{Now: func() time.Time { return now }, Path: filepath.Join(t.TempDir(), "limits")}
	need := func(n int64) []Need { return []Need{{"calls", n, 10, 24 * time.Hour}} }
	if _, _, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, need(10), false); !ok {
		t.Fatal("the first")
	}
	now = right.Add(365 * 24 * time.Hour)
	l.Reserve(t.Context(), shareddb.Run{}, need(1), false)
	testkit.Must(t, l.storeCounts())
	now = right.Add(time.Minute)
	l = &Counter{Now: l.Now, Path: l.Path}
	testkit.Must(t, l.Load())
	if _, wait, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, need(1), false); ok || wait <= 0 || wait > 25*time.Hour {
		t.Errorf("with the right time again: %v, wait %s", ok, wait)
	}
	now = right.Add(25 * time.Hour)
	if _, _, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, need(9), false); !ok {
		t.Error("a window later")
	}
	for range 1000 {
		now = now.Add(24 * time.Hour / windowParts)
		l.Reserve(t.Context(), shareddb.Run{}, need(1), true)
	}
	if n := len(l.spent["calls"].Parts); n > 2*(windowParts+1) {
		t.Errorf("%d parts are kept", n)
	}
}

// TestDamagedCounts: entries that no Counter has written are not counted, and harm nothing.
func TestDamagedCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits")
	text := `{"a":null,"b":{"per":0,"parts":{"1":1}},"c":{"per":60000000000},"d":{"per":3600000000000,"parts":{"1":1}}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l := &Counter{Path: path}
	if err := l.Load(); err != nil {
		t.Fatal(err)
	}
	if _, _, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, []Need{{"d", 1, 1, time.Hour}}, false); !ok {
		t.Error("nothing is left")
	}
	if err := l.storeCounts(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	testkit.Must(t, os.WriteFile(path, []byte(`{"a":`), 0o600))
	if err := l.Load(); err == nil {
		t.Error("half a file is loaded")
	}
	if err := (&Counter{Path: filepath.Dir(path)}).Load(); err == nil {
		t.Error("a folder is loaded")
	}
}

// TestNotStored: that counts cannot be stored is told when that begins, and not each second.
func TestNotStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone", "limits")
	synctest.Test(t, func(t *testing.T) {
		l := &Counter{Path: path}
		ctx, cancel := context.WithCancel(t.Context())
		var told atomic.Int32
		done := make(chan bool)
		go func() { defer close(done); l.StoreEverySecond(ctx, func(error) { told.Add(1) }) }()
		for i := int32(1); i <= 2; i++ {
			if _, _, ok, _ := l.Reserve(t.Context(), shareddb.Run{}, []Need{{Key: "a", Amount: 1, Most: 10, Per: time.Hour}}, false); !ok {
				t.Error("nothing is left")
			}
			time.Sleep(time.Hour)
			if told.Load() != i {
				t.Errorf("told %d times, want %d", told.Load(), i)
			}
			testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			time.Sleep(2 * time.Second)
			if _, err := os.Stat(path); err != nil {
				t.Errorf("with room again: %v", err)
			}
			testkit.Must(t, os.RemoveAll(filepath.Dir(path)))
		}
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		cancel()
		<-done
	})
}
