package history

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// TestAttackNested: a small object does not become large in memory: mcp-server has 512 MB, and reads sixteen at a time.
// Promise: shared-runs
func TestAttackNested(t *testing.T) {
	const id, most = "rnested", 48 << 20
	at := time.Now().UTC().Format(time.RFC3339)
	var rows []string
	for i := range 60 {
		rows = append(rows, fmt.Sprintf(`{"id":"x%d","run":%q,"at":%q,"method":"GET","url":"u","outcome":"served","caused":[{}%s]}`, i, id, at, strings.Repeat(",{}", 20_000)))
	}
	var mistyped []string
	for i := range 12 {
		mistyped = append(mistyped, strings.Replace(rows[i][:strings.Index(rows[i], "[")], `"caused":`, `"caused":[1`+strings.Repeat(",1", 30_000)+"]}", 1))
	}
	run := fmt.Sprintf(`{"run":%q,"began":%q,"ended":%q,"state":"ok","apis":[]}`, id, at, at)
	for name, text := range map[string]string{
		"exchanges": fmt.Sprintf(`{"schema":1,"run":%s,"hints":[],"exchanges":[%s]}`, run, strings.Join(rows, ",")),
		"hints":     fmt.Sprintf(`{"schema":1,"run":%s,"hints":[{}%s]}`, run, strings.Repeat(",{}", 340_000)),
		"mistyped":  fmt.Sprintf(`{"schema":1,"run":%s,"hints":[],"exchanges":[%s]}`, run, strings.Join(mistyped, ",")),
		"nulls":     fmt.Sprintf(`{"schema":1,"run":%s,"hints":[null%s]}`, run, strings.Repeat(",null", 390_000)),
		"numbers":   fmt.Sprintf(`{"schema":1,"run":%s,"exchanges":[1%s]}`, run, strings.Repeat(",1", 390_000)),
		"plain":     fmt.Sprintf(`{"schema":1,"run":%s,"hints":[]%s}`, run, strings.Repeat(" ", 15<<20)),
	} {
		data := packed(t, []byte(text))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := openObject(data, newKey(id), time.Now().Add(-time.Hour))
		runtime.ReadMemStats(&after)
		t.Logf("%s: %d bytes of an object took %d MB, %v", name, len(data), (after.TotalAlloc-before.TotalAlloc)>>20, err)
		if got := after.TotalAlloc - before.TotalAlloc; got > most {
			t.Errorf("%s: %d bytes of an object took %d MB", name, len(data), got>>20)
		}
		runtime.KeepAlive(r)
	}
	prints := packed(t, []byte(`{"output":{"head":[{}`+strings.Repeat(",{}", 1_300_000)+`]}}`))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var c content
	err := unpackBounded(prints, &c, maxContent)
	runtime.ReadMemStats(&after)
	t.Logf("content: %d bytes took %d MB, %v", len(prints), (after.TotalAlloc-before.TotalAlloc)>>20, err)
	if got := after.TotalAlloc - before.TotalAlloc; got > most {
		t.Errorf("content: %d bytes of an object took %d MB", len(prints), got>>20)
	}
	runtime.KeepAlive(c)
}

// TestAttackNumbers: what others count neither breaks the ledger nor hides in it what this store has sent, and what they
// call an outcome is one.
// Promise: shared-runs
func TestAttackNumbers(t *testing.T) {
	oldest := time.Now().Add(-time.Hour)
	for name, change := range map[string]func(*controlapi.Exchange){
		"huge": func(x *controlapi.Exchange) { x.BytesUp = math.MaxInt64 }, "negative": func(x *controlapi.Exchange) { x.BytesUp = -1 << 40 },
		"head": func(x *controlapi.Exchange) { x.HeadUp = -1 }, "down": func(x *controlapi.Exchange) { x.BytesDown = math.MaxInt64 },
		"swapped": func(x *controlapi.Exchange) { x.Swapped = []controlapi.Swap{{Name: "A", Count: math.MaxInt64}} },
		"time":    func(x *controlapi.Exchange) { x.Milliseconds = -5 }, "long": func(x *controlapi.Exchange) { x.Milliseconds = 1e18 },
		"outcome": func(x *controlapi.Exchange) {
			x.Outcome = "served\n  served  200 POST   https://api.stripe.com/v1/charges"
		},
		"caused": func(x *controlapi.Exchange) { x.Caused = []controlapi.Exchange{{Outcome: "x\ny"}} },
	} {
		if _, err := openObject(goodRun(t, "rnumber", nil, change), newKey("rnumber"), oldest); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for name, change := range map[string]func(*historyapi.Run){
		"shown": func(r *historyapi.Run) { r.Shown = math.MaxInt64 }, "sanitized": func(r *historyapi.Run) { r.Count.Sanitized = -5 },
		"redacted": func(r *historyapi.Run) { r.Count.Redacted = math.MaxInt64 },
		"wall":     func(r *historyapi.Run) { r.WallMS = -1 }, "long": func(r *historyapi.Run) { r.WallMS = math.MaxInt64 },
	} {
		if _, err := openObject(goodRun(t, "rnumber", change, nil), newKey("rnumber"), oldest); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestAttackLedger: the ledger can be read whatever others have put in the bucket.
func TestAttackLedger(t *testing.T) {
	b, _ := objects(t)
	one := sharing(t, b, nil)
	store(one, "raaaa", "x", "y")
	uploaded(t, one)
	for i, at := range []time.Time{time.Now(), time.Now().Add(-time.Minute)} {
		id := fmt.Sprintf("rover%d", i)
		plant(t, b, runsFolder, newKey(id), goodRun(t, id, func(r *historyapi.Run) { r.Shown, r.Began, r.Ended = math.MaxInt64, at, at }, func(x *controlapi.Exchange) { x.BytesUp, x.At = math.MaxInt64, at }))
	}
	testkit.WaitFor(t, func() bool { return shared(t, one).Skipped == 2 || has(t, one, "rover0") && has(t, one, "rover1") })
	l, err := one.Ledger(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil || l.BytesUp != 220 {
		t.Errorf("%d bytes up, %v", l.BytesUp, err)
	}
}

// TestAttackPairs: one object adds only so many rows to the sums.
// Promise: shared-runs
func TestAttackPairs(t *testing.T) {
	b, _ := objects(t)
	one := sharing(t, b, nil)
	const half = 300
	list := make([]historyapi.Exchange, 2*half)
	for i := range list {
		method := "GET"
		if i >= half {
			method = "POST"
		}
		x := exchange("rpairs", i, method, fmt.Sprint("api", i), "api.stripe.com")
		x.At, x.BytesDown, x.Milliseconds = time.Now().Add(time.Duration(i)*time.Millisecond), 1, 0
		list[i].Exchange = x
	}
	plant(t, b, runsFolder, newKey("rpairs"), goodRun(t, "rpairs", nil, nil, "exchanges", list))
	testkit.WaitFor(t, func() bool { return shared(t, one).Skipped == 1 || has(t, one, "rpairs") })
	l, err := one.Ledger(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil || len(l.Carried) > 10_000 {
		t.Errorf("%d pairs of one run, %v", len(l.Carried), err)
	}
}

// TestAttackRemovals: removals of runs that never were do not fill the disk.
// Promise: shared-runs
func TestAttackRemovals(t *testing.T) {
	b, _ := objects(t)
	one := sharing(t, b, nil)
	store(one, "raaaa", "x", "y")
	uploaded(t, one)
	count := func() (n int) {
		testkit.Must(t, one.ask(t.Context(), func(ctx context.Context, tx *transaction) error {
			return tx.QueryRowContext(ctx, `SELECT count(*) FROM gone`).Scan(&n)
		}))
		return n
	}
	testkit.Must(t, one.ask(t.Context(), func(ctx context.Context, tx *transaction) error {
		_, err := tx.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
			INSERT INTO gone SELECT 'rz' || i, i, '', 1 FROM n`)
		return err
	}))
	var ids []string
	for i := range maxGone {
		ids = append(ids, fmt.Sprint("ry", i))
	}
	testkit.Must(t, one.ask(t.Context(), func(ctx context.Context, tx *transaction) error {
		return one.share.removeAll(ctx, tx, ids)
	}))
	if n := count(); n > 200_000 {
		t.Errorf("%d removed runs are remembered", n)
	}
	var is bool
	testkit.Must(t, one.ask(t.Context(), func(ctx context.Context, tx *transaction) error {
		return tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM gone WHERE id = 'ry999')`).Scan(&is)
	}))
	if !is {
		t.Error("the latest one is forgotten")
	}
}

// TestAttackTold: an exchange that the proxy has told keeps what it said, whatever the bucket says of it later.
// Promise: shared-runs
func TestAttackTold(t *testing.T) {
	b, _ := objects(t)
	one := sharing(t, b, nil)
	x := exchange("rtold", 1, "POST", "stripe", "api.stripe.com")
	one.Exchange(x)
	settle(t, one)
	plant(t, b, runsFolder, newKey("rtold"), goodRun(t, "rtold", nil, func(f *controlapi.Exchange) {
		f.ID, f.Among, f.URL, f.Host, f.Method, f.Outcome = x.ID, 1, "https://harmless.example/", "harmless.example", "GET", controlapi.OutcomeDenied
	}))
	testkit.WaitFor(t, func() bool { return shared(t, one).Skipped == 1 || has(t, one, "rtold") })
	d, err := one.Run(t.Context(), "rtold")
	testkit.Must(t, err)
	if len(d.Exchanges) != 1 || d.Exchanges[0].URL != x.URL || d.Exchanges[0].Outcome != x.Outcome {
		t.Errorf("it says %+v", d.Exchanges)
	}
}

// TestAttackRedacted: what a store does not keep, it does not keep of others either: in addresses, and in hints.
func TestAttackRedacted(t *testing.T) {
	b, _ := objects(t)
	one := sharing(t, b, func(c *Config) { c.Clean = strings.NewReplacer("zebra", "REDACTED").Replace })
	plant(t, b, runsFolder, newKey("rzebra"), goodRun(t, "rzebra", nil, func(x *controlapi.Exchange) {
		x.URL, x.Host = "https://zebra.example/zebra", "zebra.example"
		x.Caused = []controlapi.Exchange{{At: x.At, URL: "https://zebra.example/2", Outcome: controlapi.OutcomeServed}}
	}, "hints", []controlapi.Hint{{Code: "x", Text: "a zebra", Person: "the zebra"}}))
	testkit.WaitFor(t, func() bool { return has(t, one, "rzebra") })
	d, err := one.Run(t.Context(), "rzebra")
	testkit.Must(t, err)
	if text := asJSON(t, d); strings.Contains(strings.ReplaceAll(text, "rzebra", ""), "zebra") || len(d.Hints) != 1 {
		t.Error(text)
	}
}

// TestAttackPrints: what was printed was printed at a time that a console can draw.
func TestAttackPrints(t *testing.T) {
	for _, ms := range []int64{-1, 1e15} {
		c := content{Output: historyapi.Output{Head: []historyapi.Print{{MS: 3}}, Tail: []historyapi.Print{{MS: ms}}}}
		if c.timed() {
			t.Errorf("%d ms is taken", ms)
		}
	}
}

// TestAttackSums: objects of others add only so many rows to the sums. Nothing removes these before they are 90 days old,
// so that a gigabyte of them would make tidyRuns remove every run for as long.
// Promise: shared-runs
func TestAttackSums(t *testing.T) {
	b, _ := objects(t)
	one := sharing(t, b, nil)
	const most = 500
	testkit.Must(t, one.ask(t.Context(), func(context.Context, *transaction) error {
		one.share.mostSums = most
		return nil
	}))
	list := make([]historyapi.Exchange, 1000)
	for i := range list {
		list[i].Exchange = exchange("rsums", i, "GET", fmt.Sprint("api", i), fmt.Sprintf("host-%d.example", i))
		for n := range 8 {
			list[i].Swapped = append(list[i].Swapped, controlapi.Swap{Name: fmt.Sprintf("NAME_%d_%d", i, n), In: "x"})
		}
	}
	data := goodRun(t, "rsums", nil, nil, "exchanges", list)
	plant(t, b, runsFolder, newKey("rsums"), data)
	testkit.WaitFor(t, func() bool { return shared(t, one).Skipped == 1 || has(t, one, "rsums") })
	var n int
	testkit.Must(t, one.ask(t.Context(), func(ctx context.Context, tx *transaction) error {
		return tx.QueryRowContext(ctx, `SELECT count(*) FROM hour`).Scan(&n)
	}))
	if n > most+3 { // and one of each kind
		t.Errorf("an object of %d bytes makes %d rows of sums", len(data), n)
	}
	l, err := one.Ledger(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil || l.Requests != 1000 || l.Swapped < 8000 {
		t.Errorf("%d requests, %d swapped, %v", l.Requests, l.Swapped, err)
	}
}
