package history

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bucket"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// objects starts a real server with a bucket, and returns a prefix of it.
func objects(t *testing.T) (*bucket.Bucket, *testkit.ObjectStore) {
	t.Helper()
	s := testkit.NewObjectStore(t, "AKIDOFTHETEST", "the-secret-of-the-test", "us-east-1")
	s.Bucket("runs")
	env := s.Environment()
	env["HISTORY_BUCKET"] = "s3://runs/team"
	set := testkit.Settings(t, env)
	b, err := bucket.Open(set.HistoryBucket, set)
	testkit.Must(t, err)
	return b, s
}

// sharing opens a store with a new file that shares a bucket.
func sharing(t *testing.T, b *bucket.Bucket, change func(*Config)) *Store {
	t.Helper()
	return open(t, t.TempDir(), func(c *Config) {
		c.Bucket = b
		if change != nil {
			change(c)
		}
	})
}

// has reports whether a store has a run.
func has(t *testing.T, s *Store, id string) bool {
	t.Helper()
	d, err := s.Run(t.Context(), id)
	return err == nil && d.ID == id && d.State == historyapi.OK
}

// runIDs are the ids of the runs of a store, sorted.
func runIDs(t *testing.T, s *Store) []string {
	t.Helper()
	p, err := s.Runs(t.Context(), historyapi.Filter{Limit: maxLimit}, "")
	testkit.Must(t, err)
	var out []string
	for _, r := range p.Runs {
		out = append(out, r.ID)
	}
	slices.Sort(out)
	return out
}

// shared is how far a store and its bucket are in step.
func shared(t *testing.T, s *Store) historyapi.Bucket {
	t.Helper()
	st, err := s.Status(t.Context())
	testkit.Must(t, err)
	return *st.Bucket
}

// uploaded waits until all runs of a store are in the bucket.
func uploaded(t *testing.T, s *Store) {
	t.Helper()
	settle(t, s)
	testkit.WaitFor(t, func() bool { return shared(t, s).Waiting == 0 })
}

// files are the objects under the prefix, by their paths in it.
func files(t *testing.T, s *testkit.ObjectStore) []string {
	t.Helper()
	var out []string
	root := filepath.Join(s.Dir, "runs", "team", "history")
	_ = filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			out = append(out, strings.TrimPrefix(path, root+"/"))
		}
		return nil
	})
	return out
}

// TestShared: a run that ends in one store is in the other within seconds, with its content, its sums and its words; a
// store that starts with an empty file imports all; a run removed in one is removed in the other and in the bucket.
// Promise: shared-runs
func TestShared(t *testing.T) {
	b, server := objects(t)
	one, two := sharing(t, b, nil), sharing(t, b, nil)
	cursor := two.Now()
	store(one, "raaaa", "// Open invoices by owner\nimport { f } from \"/skills/open-invoices.ts\";\nawait f();", "61 of 214 invoices are late\n")
	began := time.Now()
	testkit.WaitFor(t, func() bool { return has(t, two, "raaaa") })
	t.Logf("listed by the other one after %s", time.Since(began).Round(100*time.Millisecond))
	if took := time.Since(began); took > 2*pollInterval+testkit.Patience/2 {
		t.Errorf("it took %s", took)
	}
	store(two, "rbbbb", "console.log('nothing');", "nothing\n")
	testkit.WaitFor(t, func() bool { return has(t, one, "rbbbb") })
	three := sharing(t, b, nil)
	testkit.WaitFor(t, func() bool { return !shared(t, three).Loading })

	want, err := one.Run(t.Context(), "raaaa")
	testkit.Must(t, err)
	for name, s := range map[string]*Store{"the other": two, "a later one": three} {
		got, err := s.Run(t.Context(), "raaaa")
		testkit.Must(t, err)
		if !got.Kept || len(got.Exchanges) != 2 || len(got.Hints) != 1 || got.Number%2 != 1 || want.Number%2 != 0 {
			t.Errorf("%s: %+v", name, got)
		}
		for i := range got.Exchanges {
			got.Exchanges[i].Number = want.Exchanges[i].Number
		}
		got.Number = want.Number
		if a, b := asJSON(t, want), asJSON(t, got); a != b {
			t.Errorf("%s has\n%s, want\n%s", name, b, a)
		}
		for list, f := range map[string]historyapi.Filter{
			"[raaaa rbbbb]": {}, "[raaaa]": {Grep: "INVOICES lat"}, "[rbbbb]": {Grep: "nothing"},
			"[raaaa] ": {Skill: "open-invoices"}, "[raaaa rbbbb] ": {API: "slack", Host: "slack.com", Client: "tester"},
		} {
			p, err := s.Runs(t.Context(), f, "")
			var got []string
			for _, r := range p.Runs {
				got = append(got, r.ID)
			}
			if slices.Sort(got); err != nil || fmt.Sprint(got) != strings.TrimSpace(list) {
				t.Errorf("%s: %+v lists %v, %v", name, f, got, err)
			}
		}
		l, err := s.Ledger(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		if err != nil || l.Runs != 2 || l.Requests != 4 || l.BytesUp != 440 || l.Swapped != 4 || l.Carried[0].Runs != 2 {
			t.Errorf("%s: %+v %v", name, l, err)
		}
		if alerts, err := s.Alerts(t.Context(), false); err != nil || name == "a later one" && len(alerts) > 0 {
			t.Errorf("%s: %+v %v", name, alerts, err)
		}
	}
	events, err := two.Follow(t.Context(), cursor)
	if err != nil || !slices.ContainsFunc(events, func(e historyapi.Event) bool { return e.Kind == historyapi.EventRun && e.RunID == "raaaa" }) {
		t.Errorf("followers: %+v %v", events, err)
	}

	if n, err := two.Remove(t.Context(), historyapi.Filter{Run: "raaaa"}); n != 1 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if list := files(t, server); slices.ContainsFunc(list, func(f string) bool { return strings.HasSuffix(f, "-raaaa") }) || len(list) != 3 {
		t.Errorf("in the bucket are %v", list)
	}
	for _, s := range []*Store{one, three} {
		testkit.WaitFor(t, func() bool { return fmt.Sprint(runIDs(t, s)) == "[rbbbb]" })
	}
	four := sharing(t, b, nil)
	testkit.WaitFor(t, func() bool { return !shared(t, four).Loading })
	if got := runIDs(t, four); fmt.Sprint(got) != "[rbbbb]" {
		t.Errorf("after the removal: %v", got)
	}
	for _, path := range files(t, server) {
		data, err := os.ReadFile(filepath.Join(server.Dir, "runs", "team", "history", path))
		testkit.Must(t, err)
		if bytes.Contains(data, []byte("the-secret-of-the-test")) {
			t.Errorf("%s has the key", path)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	testkit.Must(t, err)
	return string(data)
}

// TestSharedModes: a store applies its own HISTORY and REDACTING_STRINGS to the runs of others.
// Promise: shared-runs
func TestSharedModes(t *testing.T) {
	b, server := objects(t)
	full := sharing(t, b, nil)
	receipts := sharing(t, b, func(c *Config) { c.Mode = Receipts })
	clean := sharing(t, b, func(c *Config) { c.Clean = strings.NewReplacer("zebra", "REDACTED").Replace })
	store(full, "raaaa", "// about zebra", "zebra")
	store(receipts, "rbbbb", "// about zebra", "zebra")
	for _, s := range []*Store{full, receipts, clean} {
		testkit.WaitFor(t, func() bool { return fmt.Sprint(runIDs(t, s)) == "[raaaa rbbbb]" })
	}
	d, err := receipts.Run(t.Context(), "raaaa")
	if err != nil || d.Kept || d.Title != "" || len(d.Exchanges) != 2 {
		t.Errorf("receipts: %+v %v", d, err)
	}
	d, err = clean.Run(t.Context(), "raaaa")
	if err != nil || !d.Kept || strings.Contains(asJSON(t, d), "zebra") || d.Title != "about REDACTED" {
		t.Errorf("redacted: %+v %v", d, err)
	}
	if d, err = full.Run(t.Context(), "rbbbb"); err != nil || d.Kept || d.Title != "" {
		t.Errorf("of one that keeps receipts: %+v %v", d, err)
	}
	if list := files(t, server); len(list) != 3 {
		t.Errorf("in the bucket are %v", list)
	}
}

// TestSharedAway: while the bucket is unreachable or hangs, runs are stored as usual and queued in the file; once it
// answers they are uploaded, if need be by a later process. The log says so once.
func TestSharedAway(t *testing.T) {
	b, server := objects(t)
	var log testkit.Buffer
	said := func(c *Config) { c.Log = logline.New(&log, "text", nil) }
	one, two := sharing(t, b, said), sharing(t, b, nil)
	testkit.WaitFor(t, func() bool { return !shared(t, one).Loading && !shared(t, two).Loading })
	server.Stop()
	began := time.Now()
	store(one, "raaaa", "a", "b")
	if !has(t, one, "raaaa") || time.Since(began) > testkit.Patience/2 {
		t.Errorf("a run waits for the bucket: %s", time.Since(began))
	}
	testkit.WaitFor(t, func() bool {
		st := shared(t, one)
		return strings.Contains(st.Problem, "does not answer") && st.Waiting == 1
	})
	if n, err := one.Remove(t.Context(), historyapi.Filter{Run: "raaaa"}); n != 1 || err == nil || !strings.Contains(err.Error(), "the bucket has not confirmed it") {
		t.Errorf("%d %v", n, err)
	}
	store(one, "rbbbb", "a", "b")
	settle(t, one)
	dir := one.cfg.Dir
	shut(t, one)
	if !strings.Contains(log.String(), "the latest runs are not in the bucket") {
		t.Error(log.String())
	}
	server.Start()
	one = open(t, dir, func(c *Config) { c.Bucket = b; said(c) })
	testkit.WaitFor(t, func() bool { return has(t, two, "rbbbb") && shared(t, two).Problem == "" })
	if has(t, two, "raaaa") {
		t.Error("a removed run was uploaded")
	}

	resume := server.Hang()
	began = time.Now()
	store(one, "rcccc", "a", "b")
	if !has(t, one, "rcccc") || time.Since(began) > testkit.Patience/2 {
		t.Errorf("a run waits for the bucket: %s", time.Since(began))
	}
	testkit.WaitFor(t, func() bool { return shared(t, one).Problem != "" })
	resume()
	testkit.WaitFor(t, func() bool { return has(t, two, "rcccc") && shared(t, one).Problem == "" })
	for _, text := range []string{"runs cannot be uploaded to the bucket, and are queued", "runs are uploaded to the bucket again"} {
		if n := strings.Count(log.String(), text); n < 1 || n > 2 {
			t.Errorf("logged %d times: %s", n, text)
		}
	}
	if list := files(t, server); len(list) != 5 { // two runs with their contents, and the removal
		t.Errorf("in the bucket are %v", list)
	}
}

// TestSharedAtOnce: stores that write at the same time lose nothing.
func TestSharedAtOnce(t *testing.T) {
	b, _ := objects(t)
	const each = 60
	var stores [3]*Store
	var parts sync.WaitGroup
	for i := range stores {
		stores[i] = sharing(t, b, nil)
		parts.Go(func() {
			for n := range each {
				id := fmt.Sprintf("r%d%03d", i, n)
				store(stores[i], id, "// code of "+id, "printed")
			}
		})
	}
	parts.Wait()
	for i, s := range stores {
		testkit.WaitFor(t, func() bool { return len(runIDs(t, s)) == each*len(stores) })
		for _, id := range runIDs(t, s) {
			d, err := s.Run(t.Context(), id)
			if err != nil || len(d.Exchanges) != 2 || d.Code.Head != "// code of "+id || d.State != historyapi.OK {
				t.Errorf("%d: %s is %+v %v", i, id, d.Run, err)
			}
		}
		l, err := s.Ledger(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		if err != nil || l.Runs != each*int64(len(stores)) || l.Requests != 2*l.Runs {
			t.Errorf("%d: %+v %v", i, l, err)
		}
	}
}

// TestSharedSlowFile: a run that is written to the file late is uploaded like any other.
func TestSharedSlowFile(t *testing.T) {
	b, server := objects(t)
	s := sharing(t, b, nil)
	var parts sync.WaitGroup
	defer parts.Wait()
	busy := make(chan struct{})
	parts.Go(func() {
		_ = s.ask(t.Context(), func(context.Context, *transaction) error {
			close(busy)
			time.Sleep(gatherDelay + 4*freshTime) // longer than the upload waits for the file
			return nil
		})
	})
	<-busy
	store(s, "raaaa", "x", "y")
	testkit.WaitFor(t, func() bool { return len(files(t, server)) == 2 })
}

// TestSharedLast: a run that ends just before the store closes is uploaded, also if the file is slow.
func TestSharedLast(t *testing.T) {
	b, server := objects(t)
	s := sharing(t, b, nil)
	busy := make(chan struct{})
	s.put(job{do: func(context.Context, *transaction) error {
		close(busy)
		time.Sleep(5 * freshTime)
		return nil
	}})
	<-busy
	store(s, "raaaa", "x", "y")
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	s.Close(ctx)
	if n := len(files(t, server)); n != 2 {
		t.Errorf("%d objects in the bucket", n)
	}
}

// TestSharedTold: exchanges that the proxy reported to every store are not counted twice.
func TestSharedTold(t *testing.T) {
	b, _ := objects(t)
	one, two := sharing(t, b, nil), sharing(t, b, nil)
	two.Exchange(exchange("raaaa", 1, "GET", "stripe", "api.stripe.com"))
	store(one, "raaaa", "x", "y")
	testkit.WaitFor(t, func() bool { return has(t, two, "raaaa") })
	d, err := two.Run(t.Context(), "raaaa")
	l, lerr := two.Ledger(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	if err := errors.Join(err, lerr); err != nil || len(d.Exchanges) != 2 || l.Requests != 2 || l.Swapped != 2 {
		t.Errorf("%+v %+v %v", d, l, err)
	}
}

// TestSharedRetention: content and runs are removed from the bucket by age, and a later store does not find them.
func TestSharedRetention(t *testing.T) {
	b, server := objects(t)
	one := sharing(t, b, nil)
	store(one, "raaaa", "x", "y")
	uploaded(t, one)
	age := func(by time.Duration) { // as if they had been uploaded earlier
		for _, path := range files(t, server) {
			dir, key := filepath.Split(path)
			at, id, _ := parseKey(key)
			if id == "raaaa" {
				root := filepath.Join(server.Dir, "runs", "team", "history")
				testkit.Must(t, os.Rename(filepath.Join(root, path), filepath.Join(root, dir, at.Add(-by).Format(keyTime)+"-"+id)))
			}
		}
	}
	left := func(want string) {
		t.Helper()
		testkit.Must(t, one.share.tidy(t.Context()))
		var got []string
		for _, path := range files(t, server) {
			got = append(got, filepath.Dir(path))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("left are %v, want %v", got, want)
		}
	}
	left("[content runs]")
	age(contentDays*24*time.Hour + tidyTime) // what is too old is found out that often
	left("[runs]")
	two := sharing(t, b, nil)
	testkit.WaitFor(t, func() bool { return has(t, two, "raaaa") })
	if d, err := two.Run(t.Context(), "raaaa"); err != nil || d.Kept || len(d.Exchanges) != 2 {
		t.Errorf("without its content: %+v %v", d, err)
	}
	age((receiptDays - contentDays) * 24 * time.Hour)
	three := sharing(t, b, nil)
	testkit.WaitFor(t, func() bool { return !shared(t, three).Loading })
	if got := runIDs(t, three); len(got) > 0 || shared(t, three).Skipped > 0 {
		t.Errorf("too old, and found: %v", got)
	}
	left("[]")
}

// TestSharedRoom: a later store imports the newest runs when there is no room for all, and does not fetch removed ones
// again.
func TestSharedRoom(t *testing.T) {
	b, server := objects(t)
	one := sharing(t, b, nil)
	for i := range 5 {
		store(one, fmt.Sprintf("r%d", i), "x", strings.Repeat("y", 1000))
	}
	uploaded(t, one)
	small := sharing(t, b, func(c *Config) {
		c.limits = limits{contentAge: time.Hour, receiptAge: time.Hour, content: 1 << 20, file: 1}
	})
	testkit.WaitFor(t, func() bool { return !shared(t, small).Loading })
	last := files(t, server)
	at, _, _ := parseKey(filepath.Base(last[len(last)-1]))
	small.floor.Store(at.UnixMicro())
	if keys := small.share.wanted([]string{at.Add(-time.Second).Format(keyTime) + "-r0", at.Format(keyTime) + "-r4"}); len(keys) != 1 {
		t.Errorf("wanted are %v", keys)
	}
	db, err := openFile(one.cfg.Dir, migrations)
	testkit.Must(t, err)
	defer db.Close()
	testkit.Must(t, one.ask(t.Context(), func(ctx context.Context, tx *transaction) error {
		one.cfg.limits.file = 1 // here nobody reads it
		_, err := tx.ExecContext(ctx, `UPDATE shared SET sent = 0`)
		return err
	}))
	one.tidy(db)
	if got := runIDs(t, one); len(got) > 0 || one.floor.Load() == 0 || shared(t, one).Lost == 0 {
		t.Errorf("%v are left, the floor is %d, %+v", got, one.floor.Load(), shared(t, one))
	}
}

// plant puts an object into the bucket as an attacker would.
func plant(t *testing.T, b *bucket.Bucket, folder, key string, data []byte) {
	t.Helper()
	_, err := b.Under("history").Under(folder).Put(t.Context(), key, data, bucket.Any)
	testkit.Must(t, err)
}

// packed compresses data that need not be JSON.
func packed(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	testkit.Must(t, errors.Join(err, w.Close()))
	return out.Bytes()
}

// goodRun is the object that another store uploads, with changes to its run, its exchange and its fields.
func goodRun(t *testing.T, id string, run func(*historyapi.Run), x func(*controlapi.Exchange), fields ...any) []byte {
	t.Helper()
	now := time.Now().UTC()
	r := historyapi.Run{ID: id, Number: 7, Began: now, Ended: now, State: historyapi.OK, APIs: []string{}}
	one := exchange(id, 1, "GET", "stripe", "api.stripe.com")
	one.ID = "x-" + id
	if run != nil {
		run(&r)
	}
	if x != nil {
		x(&one)
	}
	o := map[string]any{"schema": 1, "run": r, "hints": []any{}, "exchanges": []historyapi.Exchange{{Exchange: one}}}
	for i := 0; i < len(fields); i += 2 {
		o[fields[i].(string)] = fields[i+1]
	}
	return packed(t, []byte(asJSON(t, o)))
}

// hostileObjects are objects that no store uploads, by what follows the time in their keys.
func hostileObjects(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{
		"rhgarbage": []byte("garbage"), "rhnojson": packed(t, []byte("{")), "rhempty": {},
		"rhhuge":   bytes.Repeat([]byte("x"), maxObject+1),
		"rhx.gone": packed(t, []byte(`{"schema": 1, "gone": ["../raaaa"]}`)), "rhy.gone": packed(t, []byte(`{"schema": 1}`)),
		"rhz.gone": packed(t, []byte(`{"schema": 1, "gone": [`+strings.Repeat(`"r",`, maxGone)+`"r"]}`)),
	}
	bomb := goodRun(t, "rhbomb", nil, nil)
	plain, err := gzip.NewReader(bytes.NewReader(bomb))
	testkit.Must(t, err)
	text, err := io.ReadAll(plain)
	testkit.Must(t, err)
	out["rhbomb"] = packed(t, append(text, bytes.Repeat([]byte(" "), maxUnpacked)...))
	many := make([]historyapi.Exchange, maxOfRun+1)
	for i := range many {
		many[i].Exchange = exchange("rhmany", i, "GET", "stripe", "api.stripe.com")
	}
	for id, fields := range map[string][]any{
		"rhnewer": {"schema", 2}, "rhmany": {"exchanges", many}, "rhgone": {"gone", []string{"raaaa"}},
		"rhhints": {"hints", strings.Repeat("x", maxHints)}, "rhnorun": {"run", nil}, "rhlist": {"run", []int{1}},
	} {
		out[id] = goodRun(t, id, nil, nil, fields...)
	}
	const day = 24 * time.Hour
	for id, change := range map[string]func(*historyapi.Run){
		"rhother":    func(r *historyapi.Run) { r.ID = "rhelse" },
		"rhrunning":  func(r *historyapi.Run) { r.State = historyapi.Running },
		"rhstate":    func(r *historyapi.Run) { r.State = "fine" },
		"rhfuture":   func(r *historyapi.Run) { r.Began, r.Ended = r.Began.Add(2*day), r.Ended.Add(2*day) },
		"rhends":     func(r *historyapi.Run) { r.Ended = r.Ended.Add(2 * day) },
		"rhpast":     func(r *historyapi.Run) { r.Began = r.Began.Add(-100 * day) },
		"rhbackward": func(r *historyapi.Run) { r.Ended = r.Ended.Add(-2 * day) },
		"rhwide":     func(r *historyapi.Run) { r.Tenant = strings.Repeat("x", maxRow) },
	} {
		out[id] = goodRun(t, id, change, nil)
	}
	for id, change := range map[string]func(*controlapi.Exchange){
		"rhtheirs": func(x *controlapi.Exchange) { x.Run = "raaaa" },
		"rhearly":  func(x *controlapi.Exchange) { x.At = x.At.Add(-2 * day) },
		"rhlate":   func(x *controlapi.Exchange) { x.At = x.At.Add(2 * day) },
		"rhnoid":   func(x *controlapi.Exchange) { x.ID = "" },
		"rhlong":   func(x *controlapi.Exchange) { x.URL = strings.Repeat("x", maxRow) },
	} {
		out[id] = goodRun(t, id, nil, change)
	}
	return out
}

// TestObject: an object that no store uploads is refused.
func TestObject(t *testing.T) {
	oldest := time.Now().Add(-90 * 24 * time.Hour)
	why := map[string]string{
		"rhgarbage": "unexpected EOF", "rhnojson": "unexpected end of JSON input", "rhempty": "EOF", "rhhuge": "gzip: invalid header",
		"rhx.gone": "it removes what is not a run", "rhy.gone": "it removes no run, or too many", "rhz.gone": "it removes no run, or too many",
		"rhbomb": "it is too large", "rhnewer": "a newer CodeForge wrote it: its schema is 2, and this one knows 1",
		"rhmany": "it has more than a run has", "rhgone": "it has more than a run has", "rhhints": "it has more than a run has", "rhwide": "it has more than a run has",
		"rhnorun": "it is another run than its name says", "rhlist": "json: cannot unmarshal array into Go value of type historyapi.Run",
		"rhother": "it is another run than its name says", "rhrunning": "it is not over", "rhstate": "it is not over",
		"rhfuture": "its time is wrong", "rhends": "its time is wrong", "rhpast": "its time is wrong", "rhbackward": "its time is wrong",
		"rhtheirs": "it has exchanges of others", "rhnoid": "it has exchanges of others", "rhlong": "an exchange is too large",
		"rhearly": "the time of an exchange is wrong", "rhlate": "the time of an exchange is wrong",
	}
	for id, data := range hostileObjects(t) {
		if r, err := openObject(data, newKey(id), oldest); err == nil || err.Error() != why[id] {
			t.Errorf("%s: %.300s, %v, want %q", id, fmt.Sprintf("%+v", r), err, why[id])
		}
	}
	if r, err := openObject(goodRun(t, "rgood", nil, nil), newKey("rgood"), oldest); err != nil || r.run.ID != "rgood" || len(r.exchanges) != 1 {
		t.Errorf("%+v %v", r, err)
	}
	for key, want := range map[string]string{
		newKey("rab2"): "rab2", newKey("rab2.gone"): "", newKey("R"): "-", newKey(""): "-", newKey("a/b"): "-", newKey("../x"): "-", "": "-",
		"20261125T214444.1234567-r": "-", "20261125T214444-r": "-", "x": "-", newKey(strings.Repeat("r", 65)): "-",
	} {
		if _, id, ok := parseKey(key); ok != (want != "-") || ok && id != want {
			t.Errorf("%s: %q %v", key, id, ok)
		}
	}
}

// TestSharedHostile: objects that no store uploads are skipped and counted, each once, and change no known run; good
// ones are imported.
// Promise: shared-runs
func TestSharedHostile(t *testing.T) {
	b, _ := objects(t)
	one := sharing(t, b, nil)
	store(one, "raaaa", "x", "y")
	uploaded(t, one)
	before, err := one.Run(t.Context(), "raaaa")
	testkit.Must(t, err)
	hostile := hostileObjects(t)
	hostile["rhcontent"] = goodRun(t, "rhcontent", nil, nil, "content", true)
	for _, id := range slices.Sorted(maps.Keys(hostile)) {
		key := newKey(id)
		if id == "rhcontent" {
			plant(t, b, contentFolder, key, packed(t, append([]byte("{}"), bytes.Repeat([]byte(" "), maxContent)...)))
		}
		plant(t, b, runsFolder, key, hostile[id])
	}
	ahead := time.Now().UTC().Add(3*maxSkew).Format(keyTime) + "-rahead"
	for _, name := range []string{"index.html", "!", ahead, newKey("R_A"), time.Now().UTC().Format(keyTime)} {
		plant(t, b, runsFolder, name, []byte("x"))
	}
	counted := len(hostile) + 2 // "!" is before the keys that are listed, "index.html" after them, and the third is not due yet

	// A good run, except for an exchange that is another run's; and a second object of a known run.
	thief := func(x *controlapi.Exchange) { x.ID, x.Among, x.URL = "raaaa-1", 1, "https://stolen.example" }
	plant(t, b, runsFolder, newKey("rgood"), goodRun(t, "rgood", nil, thief))
	plant(t, b, runsFolder, newKey("raaaa"), goodRun(t, "raaaa", func(r *historyapi.Run) { r.Title = "forged" }, nil))
	testkit.WaitFor(t, func() bool { return has(t, one, "rgood") && shared(t, one).Skipped >= int64(counted) })
	time.Sleep(2 * pollInterval) // it polls again
	if st := shared(t, one); st.Skipped != int64(counted) || st.Problem != "" {
		t.Errorf("%+v, want %d skipped", st, counted)
	}
	after, err := one.Run(t.Context(), "raaaa")
	if err != nil || asJSON(t, before) != asJSON(t, after) {
		t.Errorf("it was changed: %v\n%s\n%s", err, asJSON(t, before), asJSON(t, after))
	}
	if got := fmt.Sprint(runIDs(t, one)); got != "[raaaa rgood]" {
		t.Error(got)
	}
}

// TestSharedResurrected: an object that was being uploaded while its run was removed is removed by whichever store sees
// it.
// Promise: shared-runs
func TestSharedResurrected(t *testing.T) {
	b, server := objects(t)
	one, two := sharing(t, b, nil), sharing(t, b, nil)
	store(one, "raaaa", "x", "y")
	uploaded(t, one)
	var object []byte
	for _, path := range files(t, server) {
		if strings.HasPrefix(path, runsFolder) {
			object, _ = os.ReadFile(filepath.Join(server.Dir, "runs", "team", "history", path))
		}
	}
	testkit.WaitFor(t, func() bool { return has(t, two, "raaaa") })
	_, err := one.Remove(t.Context(), historyapi.Filter{})
	testkit.Must(t, err)
	testkit.WaitFor(t, func() bool { return len(runIDs(t, two)) == 0 })
	plant(t, b, runsFolder, newKey("raaaa"), object)
	testkit.WaitFor(t, func() bool { return len(files(t, server)) == 1 })
	if got := append(runIDs(t, one), runIDs(t, two)...); len(got) > 0 {
		t.Errorf("it is back: %v", got)
	}
}

// TestSharedLater: runs from before there was a bucket are uploaded, even those that were under way when the process
// was killed.
func TestSharedLater(t *testing.T) {
	b, _ := objects(t)
	dir := t.TempDir()
	cmd, out := writer(t, dir)
	testkit.WaitFor(t, func() bool { return strings.Contains(out.String(), "\n") })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	one := open(t, dir, func(c *Config) { c.Bucket = nil })
	one.Begin(historyapi.Run{ID: "runderway"}, "x")
	settle(t, one)
	shut(t, one)
	one = open(t, dir, func(c *Config) { c.Bucket = b })
	uploaded(t, one)
	two := sharing(t, b, nil)
	testkit.WaitFor(t, func() bool { return !shared(t, two).Loading })
	want := runIDs(t, one)
	got, err := two.Runs(t.Context(), historyapi.Filter{State: historyapi.Lost, Run: "runderway"}, "")
	if err != nil || len(got.Runs) != 1 || len(want) < 2 {
		t.Errorf("%v %+v %v", want, got, err)
	}
}

// TestSharedLarge: a run that is too large for an object is uploaded without some of its exchanges.
func TestSharedLarge(t *testing.T) {
	var list []json.RawMessage
	for i := range maxOfRun {
		x := exchange("r", i, "GET", "stripe", "api.stripe.com")
		x.URL += strings.Repeat(fmt.Sprint(i, "/"), 2000)
		if i == 0 {
			x.URL = strings.Repeat("x", maxRow)
		}
		list = append(list, json.RawMessage(asJSON(t, historyapi.Exchange{Exchange: x})))
	}
	data, err := packRun(asJSON(t, historyapi.Run{ID: "r", Began: time.Now(), Ended: time.Now(), State: historyapi.OK, Omitted: 3}), "[]", list, false)
	testkit.Must(t, err)
	r, err := openObject(data, newKey("r"), time.Now().Add(-time.Hour))
	if err != nil || len(data) > maxObject || len(r.exchanges) == 0 || r.run.Omitted != 3+maxOfRun-len(r.exchanges) {
		t.Errorf("%d bytes, %d exchanges, %d omitted, %v", len(data), len(r.exchanges), r.run.Omitted, err)
	}
}
