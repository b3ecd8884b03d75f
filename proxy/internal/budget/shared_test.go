package budget

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
)

// newShared makes the tables, and opens them for two proxies.
func newShared(t *testing.T) (p *testkit.Postgres, a, b SharedCounter) {
	t.Helper()
	p = testkit.NewPostgres(t)
	testkit.Must(t, shareddb.MigrateTables(t.Context(), func(name string) string {
		return map[string]string{"PROXY_DATABASE_URL": p.URL()}[name]
	}))
	for _, s := range []*SharedCounter{&a, &b} {
		db, err := shareddb.OpenDatabase(t.Context(), settings.Settings{ProxyDatabase: secret.New(p.URL())})
		testkit.Must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		*s = NewShared(db)
	}
	return p, a, b
}

// TestStores: a file of one proxy and a database of two count alike. Parallel requests never spend more than a limit, a
// refused request spends no amount of another limit, and only a request that did not leave gives back.
// Promise: limits, several-proxies
func TestStores(t *testing.T) {
	_, a, b := newShared(t)
	file := &Counter{}
	for name, stores := range map[string][]LimitCounter{"file": {file, file}, "database": {a, b}} {
		t.Run(name, func(t *testing.T) {
			reserve := func(i int, force bool, needs ...Need) (back func(), wait time.Duration, ok bool) {
				back, wait, ok, err := stores[i%2].Reserve(t.Context(), shareddb.Run{Generation: uint64(i)}, needs, force)
				if err != nil {
					t.Error(err)
				}
				return back, wait, ok
			}
			var passed atomic.Int64
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					for range 25 {
						if _, _, ok := reserve(i, false, Need{"pay/calls", 1, 1000, time.Hour}, Need{"pay/writes", 1, 100, time.Hour}); ok {
							passed.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if n := passed.Load(); n != 100 {
				t.Errorf("%d passed a limit of 100", n)
			}
			if _, _, ok := reserve(0, false, Need{"pay/calls", 901, 1000, time.Hour}); ok {
				t.Error("the refused requests spent too much of the other limit, or too little")
			}
			if _, _, ok := reserve(1, false, Need{"pay/calls", 900, 1000, time.Hour}); !ok {
				t.Error("a refused request used up the other limit")
			}
			gone, leave := context.WithCancel(t.Context())
			leave()
			if back, _, ok, err := stores[0].Reserve(gone, shareddb.Run{}, []Need{{"gone/calls", 1, 1, time.Hour}}, false); !ok || err != nil {
				t.Errorf("of a client that is gone: %t, %v", ok, err)
			} else {
				back()
			}
			one := Need{"other/sum", 5, 5, time.Hour}
			back, _, ok := reserve(0, false, one)
			if _, wait, again := reserve(1, false, one); !ok || again || wait <= 0 || wait > time.Hour+time.Minute {
				t.Errorf("%t, then %t, wait %s", ok, again, wait)
			}
			back()
			if _, _, ok := reserve(1, false, one); !ok {
				t.Error("not given back")
			}
			if _, wait, ok := reserve(0, false, Need{"other/sum", 6, 5, time.Hour}); ok || wait != 0 {
				t.Errorf("more than the limit alone: %t, wait %s", ok, wait)
			}
			if _, _, ok := reserve(0, true, Need{"other/sum", 6, 5, time.Hour}); !ok {
				t.Error("approved beyond the limit, and refused")
			}
		})
	}
}

// TestSharedWindow: an amount counts for the period, and not for the next.
// Promise: limits, several-proxies
func TestSharedWindow(t *testing.T) {
	p, a, b := newShared(t)
	need := []Need{{"pay/calls", 1, 1, time.Minute}}
	reserve := func(s SharedCounter) (ok bool) {
		_, _, ok, err := s.Reserve(t.Context(), shareddb.Run{}, need, false)
		testkit.Must(t, err)
		return ok
	}
	if !reserve(a) || reserve(b) {
		t.Error("the limit of the other proxy")
	}
	// The same amount, as if it were spent two minutes ago.
	p.Query(`UPDATE codeforge_proxy.limit_use SET used = regexp_replace(used, '"[0-9]{8,}"',
		'"' || (extract(epoch FROM now())::bigint - 120) || '"')`)
	if !reserve(b) || reserve(a) {
		t.Errorf("an amount outside the window: %s", p.Query(`SELECT used FROM codeforge_proxy.limit_use`))
	}
}

// TestSharedAway: a database that hangs or ends makes Reserve fail in time, also while requests come in parallel, and
// it works again by itself.
// Promise: several-proxies
func TestSharedAway(t *testing.T) {
	p, a, _ := newShared(t)
	need := []Need{{"pay/calls", 1, 1000, time.Hour}}
	check := func(state string, works bool) {
		t.Helper()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				began := time.Now()
				_, _, ok, err := a.Reserve(t.Context(), shareddb.Run{}, need, false)
				if took := time.Since(began); ok != works || (err == nil) != works || took > 5*time.Second {
					t.Errorf("%s: %t, %v after %s", state, ok, err, took)
				}
			})
		}
		wg.Wait()
	}
	check("at first", true)
	p.SendSignal(syscall.SIGSTOP)
	check("it hangs", false)
	p.SendSignal(syscall.SIGCONT)
	testkit.WaitFor(t, func() bool { _, _, ok, _ := a.Reserve(t.Context(), shareddb.Run{}, need, false); return ok })
	check("it goes on", true)
	p.Stop()
	check("it is stopped", false)
	p.Start()
	testkit.WaitFor(t, func() bool { _, _, ok, _ := a.Reserve(t.Context(), shareddb.Run{}, need, false); return ok })
	check("it is back", true)
}
