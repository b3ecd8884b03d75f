//go:build unix

package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// ledger is a ledger in a folder of the test's, with a clock.
type ledger struct {
	*Log
	dir string
	now time.Time
}

func open(t *testing.T, dir string, change ...func(*Config)) *ledger {
	t.Helper()
	l := &ledger{dir: dir, now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	c := Config{Dir: dir, Version: "test", Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return l.now }}
	for _, f := range change {
		f(&c)
	}
	var err error
	l.Log, err = Open(c)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// send records requests of a run, and its end.
func (l *ledger) send(t *testing.T, run string, urls ...string) Head {
	t.Helper()
	for _, u := range urls {
		testkit.Must(t, l.AppendRecord(Entry{Exchange: &proxyapi.Exchange{Run: run, Method: "GET", URL: u}}))
	}
	testkit.Must(t, l.AppendRecord(Entry{Run: &Run{Run: run}}))
	head, err := l.WriteCheckpoint(run)
	testkit.Must(t, err)
	return head
}

func verify(t *testing.T, dir string, known ...KnownCheckpoint) Report {
	t.Helper()
	r, err := Verify(Dir(dir), "", known)
	testkit.Must(t, err)
	return r
}

// TestTree: the root is that of the reference implementation at every size, and a tree that goes on from its edge too.
// Promise: ledger
func TestTree(t *testing.T) {
	var ours tree
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(at []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(at))
		for i, n := range at {
			out[i] = stored[n]
		}
		return out, nil
	})
	for n := range int64(300) {
		h := tlog.RecordHash(fmt.Appendf(nil, "record %d", n))
		more, err := tlog.StoredHashesForRecordHash(n, h, reader)
		testkit.Must(t, err)
		stored = append(stored, more...)
		ours.addLeaf(h)
		want, err := tlog.TreeHash(n+1, reader)
		testkit.Must(t, err)
		if got := ours.currentHead(); got.Root != want || got.Size != n+1 {
			t.Fatalf("%d records: %s, want %s", n+1, got, want)
		}
		if ours, err = newTree(ours.size, ours.completeRoots()); err != nil || ours.currentHead().Root != want {
			t.Fatalf("%d records: grown from the edge: %v", n+1, err)
		}
	}
	if _, err := newTree(5, ours.completeRoots()[:1]); err == nil {
		t.Error("an edge that is too short is taken")
	}
	if _, err := newTree(4, ours.completeRoots()); err == nil {
		t.Error("an edge that is too long is taken")
	}
}

// TestParsePlace reads the place of a record that formatRecord has written, and of no other text.
func TestParsePlace(t *testing.T) {
	hash := tlog.RecordHash([]byte("x"))
	line := string(formatRecord(7, time.Unix(0, 0), hash, []byte("salt"), []byte(`{"run":"r"}`)))
	if n, prev, ok := parsePlace([]byte(line)); !ok || n != 7 || !isNext(prev, hash) {
		t.Errorf("%s: %d, %s, %v", line, n, prev, ok)
	}
	for _, bad := range []string{`"n":7`, `{"n":x`, `{"n":-7`, `{"n":1234567890123456789`, `{"n":`} {
		if _, _, ok := parsePlace([]byte(strings.Replace(line, `{"n":7`, bad, 1))); ok {
			t.Errorf("%s has a place", bad)
		}
	}
	for _, cut := range []string{`,"at":`, `","prev":"`} {
		if _, _, ok := parsePlace([]byte(strings.Replace(line, cut, "", 1))); ok {
			t.Errorf("without %s there is a place", cut)
		}
	}
}

func TestParseHead(t *testing.T) {
	h := Head{18231, tlog.RecordHash([]byte("x"))}
	for _, text := range []string{
		h.String(), "audit " + h.String(), `"audit":"` + h.String() + `",`, "2026-11-23T09:00:00Z r3f " + h.String() + "\n",
	} {
		if got, err := ParseHead(text); err != nil || got != h {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "18231", "18231 abc", "0 " + h.Root.String(), "-5 " + h.Root.String(), h.Root.String()} {
		if got, err := ParseHead(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestVerify: what was written verifies, over days and restarts, and fits the checkpoints that were given away.
// Promise: ledger
func TestVerify(t *testing.T) {
	dir := t.TempDir()
	var known []KnownCheckpoint
	for day := range 3 {
		l := open(t, dir)
		l.now = l.now.Add(time.Duration(day) * 24 * time.Hour)
		for run := range 3 {
			name := fmt.Sprintf("r%d-%d", day, run)
			head := l.send(t, name, "https://a.test/1", "https://a.test/2")
			known = append(known, KnownCheckpoint{head, "the checkpoint of run " + name})
		}
		l.now = l.now.Add(24 * time.Hour) // the day ends while it runs
		testkit.Must(t, l.AppendRecord(Entry{Login: &Login{Name: "A_TOKEN"}}))
		testkit.Must(t, l.Close())
	}
	r := verify(t, dir, known...)
	if len(r.Findings) > 0 || r.Compared != len(known) || r.Days != 4 || r.Unsigned != 0 {
		t.Errorf("%+v", r)
	}
	if want := int64(3 * (1 + 3*3 + 1)); r.Records != want {
		t.Errorf("%d records, want %d", r.Records, want)
	}
	runs := 0
	testkit.Must(t, EachRecord(Dir(dir), Query{Run: "r1-"}, func(r Record) error {
		runs++
		if r.RunID()[:3] != "r1-" || r.At.IsZero() || len(r.Salt) != 2*saltBytes {
			t.Errorf("%+v", r)
		}
		return nil
	}))
	if runs != 9 {
		t.Errorf("%d records of three runs, want 9", runs)
	}
	days, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(days[0], []byte("no record\n"), 0o600))
	testkit.Must(t, EachRecord(Dir(dir), Query{}, func(r Record) error {
		if r.At.IsZero() {
			t.Errorf("a line that is no record is given as %+v", r)
		}
		return nil
	}))
}

// TestDamage: each change of a ledger is found, and told with where it is.
// Promise: ledger
func TestDamage(t *testing.T) {
	const file = "2026-11-20.ndjson"
	master := t.TempDir()
	l := open(t, master)
	var last Head
	for _, run := range []string{"ra", "rb", "rc"} {
		last = l.send(t, run, "https://a.test/1", "https://a.test/2", "https://a.test/3")
	}
	testkit.Must(t, l.Close())
	text, err := os.ReadFile(filepath.Join(master, file))
	testkit.Must(t, err)
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	at := func(n int) int { // the line of a record
		return slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, fmt.Sprintf(`{"n":%d,`, n)) })
	}
	end := KnownCheckpoint{last, "the checkpoint of run rc"}

	for name, c := range map[string]struct {
		change func(l []string) []string
		want   string
	}{
		"unchanged": {func(l []string) []string { return l }, ""},
		"changed": {func(l []string) []string {
			l[at(6)] = strings.Replace(l[at(6)], "GET", "PUT", 1)
			return l
		}, "record 6 was changed"},
		"changed with the next": {func(l []string) []string {
			old := strings.TrimSuffix(l[at(6)], "\n")
			l[at(6)] = strings.Replace(l[at(6)], "GET", "PUT", 1)
			was, is := tlog.RecordHash([]byte(old)), tlog.RecordHash([]byte(strings.TrimSuffix(l[at(6)], "\n")))
			l[at(7)] = strings.Replace(l[at(7)], fmt.Sprintf("%x", was[:prevBytes]), fmt.Sprintf("%x", is[:prevBytes]), 1)
			return l
		}, "record 7 was changed"},
		"the last of a run": {func(l []string) []string {
			l[at(8)] = strings.Replace(l[at(8)], `"run":"rb"`, `"run":"rx"`, 1)
			return l
		}, "one of the records 5 to 8 was changed; record 8 was changed"},
		"deleted":                {func(l []string) []string { return slices.Delete(l, at(6), at(6)+1) }, "record 6 is missing"},
		"deleted several":        {func(l []string) []string { return slices.Delete(l, at(6), at(6)+2) }, "the records 6 to 7 are missing"},
		"deleted at a run's end": {func(l []string) []string { return slices.Delete(l, at(8), at(8)+1) }, "record 8 is missing"},
		"swapped": {func(l []string) []string {
			l[at(6)], l[at(7)] = l[at(7)], l[at(6)]
			return l
		}, "record 6 is missing; record 6 stands where record 8 belongs"},
		"twice": {func(l []string) []string { return slices.Insert(l, at(6), l[at(6)]) }, "record 6 stands where record 7 belongs"},
		"no record": {func(l []string) []string {
			l[at(6)] = "hello\n"
			return l
		}, "record 6 was changed: it is no longer a record"},
		"truncated": {func(l []string) []string { return l[:at(9)] }, "the ledger has 9 records, the checkpoint of run rc says 13: its end is missing"},
		"another signature": {func(l []string) []string {
			i := len(l) - 1
			sig := strings.LastIndex(l[i], `\n","edge"`) - 20
			l[i] = l[i][:sig] + "AAAA" + l[i][sig+4:]
			return l
		}, "the checkpoint of run rc does not verify: its signature is not that of the ledger's key"},
		"forged signature": {func(l []string) []string {
			l[at(9)-1] = strings.Replace(l[at(9)-1], `\n9\n`, `\n8\n`, 1)
			return l
		}, "the checkpoint of run rb after record 8 does not verify: the checkpoint's edge does not fit its size"},
		"a checkpoint moved": {func(l []string) []string {
			c := l[at(9)-1]
			l = slices.Delete(l, at(9)-1, at(9))
			return slices.Insert(l, at(11), c)
		}, "the checkpoint of run rb stands after record 11, and was made after record 8"},
		"emptied": {func([]string) []string { return nil }, "the ledger has 0 records, the checkpoint of run rc says 13: its end is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range []string{keyName, pubName} {
				data, err := os.ReadFile(filepath.Join(master, f))
				testkit.Must(t, err)
				testkit.Must(t, os.WriteFile(filepath.Join(dir, f), data, 0o600))
			}
			data := strings.Join(c.change(slices.Clone(lines)), "")
			testkit.Must(t, os.WriteFile(filepath.Join(dir, file), []byte(data), 0o600))
			r := verify(t, dir, end)
			if got := strings.Join(r.Findings, "; "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestLastCheckpoint: the last whole checkpoint is found wherever the searched pieces begin, and after many records
// without one. The search takes the memory of one piece.
// Promise: ledger
func TestLastCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "day")
	line := checkpointPrefix + `{"run":"ra","note":"n"}}` + "\n"
	if c := parseCheckpoint([]byte(line)); c == nil || c.Note != "n" {
		t.Fatalf("%q is not a checkpoint: %+v", line, c)
	}
	for after := range len(line) + 2 {
		rest := strings.Repeat("x", 2*searchChunk-after-2) + "\n" + strings.TrimSuffix(line, "\n") // incomplete
		text := "record\n" + line + rest
		if after == 0 {
			text = line + strings.Repeat(strings.Repeat("x", 999)+"\n", 16<<10)
		}
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
		f, err := os.Open(path)
		testkit.Must(t, err)
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		at, c, err := findLastCheckpoint(f, int64(len(text)))
		runtime.ReadMemStats(&now)
		if want := strings.Index(text, line) + len(line); err != nil || c == nil || c.Note != "n" || at != int64(want) {
			t.Errorf("%d bytes after it: %d, want %d: %+v, %v", len(rest), at, want, c, err)
		}
		if took := now.TotalAlloc - before.TotalAlloc; took > 8*searchChunk {
			t.Errorf("%d bytes were allocated for a file of %d", took, len(text))
		}
		testkit.Must(t, f.Close())
	}
}

// TestForgedRoots: verify reports kept roots with impossible heights, or with more records than can be counted.
// Promise: ledger
func TestForgedRoots(t *testing.T) {
	for height, n := range map[byte]int{48: 1 << 16, 49: 2, 63: 2, 64: 2, 255: 2} {
		dir := t.TempDir()
		testkit.Must(t, open(t, dir).Close())
		root := append([]byte{height}, make([]byte, tlog.HashSize)...)
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "2026-11-19"+rootsName), bytes.Repeat(root, n), 0o600))
		if r := verify(t, dir); len(r.Findings) == 0 || r.Records < 0 || r.Forgotten < 0 {
			t.Errorf("height %d: %+v", height, r)
		}
	}
}

// unreadable is a ledger in which one file, or the list of them, cannot be read.
type unreadable struct {
	Dir
	what string
}

var errUnreadable = errors.New("unreadable")

func (u unreadable) ListDays() ([]string, error) {
	if u.what == "days" {
		return nil, errUnreadable
	}
	return u.Dir.ListDays()
}

func (u unreadable) Open(name string) (io.ReadCloser, error) {
	if u.what == name {
		return nil, errUnreadable
	}
	if u.what == "in "+name {
		return io.NopCloser(iotest.ErrReader(errUnreadable)), nil
	}
	return u.Dir.Open(name)
}

// TestUnreadable: a ledger that cannot be read is an error, and not a whole one.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	l.send(t, "ra", "https://a.test/1")
	testkit.Must(t, l.Close())
	const day = "2026-11-20.ndjson"
	for _, what := range []string{"days", pubName, "in " + pubName, day, "in " + day} {
		if r, err := Verify(unreadable{Dir(dir), what}, "", nil); !errors.Is(err, errUnreadable) {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	for _, what := range []string{"days", day, "in " + day} {
		if err := EachRecord(unreadable{Dir(dir), what}, Query{}, func(Record) error { return nil }); !errors.Is(err, errUnreadable) {
			t.Errorf("reading %s: %v", what, err)
		}
		if err := ExportOTLP(unreadable{Dir(dir), what}, Query{}, io.Discard); !errors.Is(err, errUnreadable) {
			t.Errorf("exporting %s: %v", what, err)
		}
	}
	for _, name := range []string{hashesName, rootsName} {
		cut := filepath.Join(dir, "2026-11-19"+name)
		testkit.Must(t, os.WriteFile(cut, []byte("cut off"), 0o600))
		if r, err := Verify(Dir(dir), "", nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s that are cut off: %+v, %v", name, r, err)
		}
		testkit.Must(t, os.Remove(cut))
	}
	testkit.Must(t, os.Remove(filepath.Join(dir, pubName)))
	if _, err := Verify(Dir(dir), "", nil); err == nil || !strings.Contains(err.Error(), "there is no ledger") {
		t.Errorf("without a key: %v", err)
	}
}

// The parts of OTLP JSON that ExportOTLP writes.
type (
	otlpTrace struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   attributes   `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	attributes struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []span `json:"spans"`
	}
	span struct {
		TraceID      string      `json:"traceId"`
		SpanID       string      `json:"spanId"`
		ParentSpanID string      `json:"parentSpanId,omitempty"`
		Name         string      `json:"name"`
		Kind         int         `json:"kind"`
		Start        string      `json:"startTimeUnixNano"`
		End          string      `json:"endTimeUnixNano"`
		Attributes   []attribute `json:"attributes"`
		Status       struct {
			Code int `json:"code,omitempty"`
		} `json:"status"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value struct {
			String string `json:"stringValue,omitempty"`
			Int    string `json:"intValue,omitempty"`
		} `json:"value"`
	}
)

// TestExportOTLP writes a span for a run and one for each request, and marks those that failed.
func TestExportOTLP(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	for _, x := range []proxyapi.Exchange{
		{Outcome: proxyapi.OutcomeServed, Host: "served.test", Swapped: []proxyapi.Swap{{Name: "A_TOKEN"}, {Name: "B_TOKEN"}}},
		{Outcome: proxyapi.OutcomePlanned, Host: "planned.test"},
		{Outcome: proxyapi.OutcomeDenied, Host: "denied.test", Code: "host_unknown"},
		{Outcome: proxyapi.OutcomeFailed, Host: "failed.test"},
		{Outcome: proxyapi.OutcomeAborted, Host: "aborted.test"},
	} {
		x.Run, x.Method, x.At, x.Milliseconds = "ra", "GET", l.now, 1.5
		testkit.Must(t, l.AppendRecord(Entry{Exchange: &x}))
	}
	testkit.Must(t, l.AppendRecord(Entry{Run: &Run{Run: "ra", Summary: proxyapi.Summary{ExitCode: 3}}}))
	testkit.Must(t, l.Close())
	var out bytes.Buffer
	testkit.Must(t, ExportOTLP(Dir(dir), Query{}, &out))
	var got otlpTrace
	testkit.Must(t, json.Unmarshal(out.Bytes(), &got))
	spans := got.ResourceSpans[0].ScopeSpans[0].Spans
	var list []string
	for _, s := range spans {
		list = append(list, fmt.Sprint(s.Name, " ", s.Kind, " ", s.Status.Code))
		if s.TraceID != spans[0].TraceID || s.Name != "execute_code" && s.ParentSpanID != spans[0].SpanID {
			t.Errorf("%s is not of the run: %+v", s.Name, s)
		}
	}
	want := "execute_code 1 2, GET served.test 3 0, GET planned.test 3 0, GET denied.test 3 2, GET failed.test 3 2, GET aborted.test 3 2"
	if text := strings.Join(list, ", "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	for part, n := range map[string]int{`"error.type"`: 1, `"host_unknown"`: 1, `"codeforge.names"`: 1, `"A_TOKEN,B_TOKEN"`: 1} {
		if strings.Count(out.String(), part) != n {
			t.Errorf("%s is there %d times", part, strings.Count(out.String(), part))
		}
	}
}

// TestForked: a ledger that goes on from an older copy of itself is not the one that was seen; nor is another one.
// Promise: ledger
func TestForked(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	l := open(t, dir)
	l.send(t, "ra", "https://a.test/1")
	testkit.Must(t, l.Close())
	testkit.Must(t, os.CopyFS(copied+"/x", os.DirFS(dir)))
	l = open(t, dir)
	seen := l.send(t, "rb", "https://a.test/2")
	testkit.Must(t, l.Close())
	for _, from := range []string{copied + "/x", t.TempDir()} {
		other := open(t, from)
		other.send(t, "rc", "https://a.test/other", "https://a.test/other", "https://a.test/other")
		testkit.Must(t, other.Close())
		if r := verify(t, from); len(r.Findings) > 0 {
			t.Errorf("alone it is whole: %v", r.Findings)
		}
		r := verify(t, from, KnownCheckpoint{seen, "the checkpoint of run rb"})
		if len(r.Findings) == 0 || r.Compared != 0 {
			t.Errorf("%+v", r)
		}
	}
	if r, err := Verify(Dir(dir), readKey(t, copied+"/x"), nil); err != nil || len(r.Findings) > 0 {
		t.Errorf("by the key that was kept: %v, %v", r.Findings, err)
	}
	if r, err := Verify(Dir(dir), otherKey(t), nil); err != nil || len(r.Findings) == 0 {
		t.Errorf("another key: %v, %v", r.Findings, err)
	}
}

func readKey(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, pubName))
	testkit.Must(t, err)
	return string(text)
}

func otherKey(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testkit.Must(t, open(t, dir).Close())
	return readKey(t, dir)
}

// TestKilled: wherever a write was cut off, the next start goes on, what was acknowledged is there, and nothing is
// reported that did not happen.
// Promise: ledger
func TestKilled(t *testing.T) {
	master := t.TempDir()
	l := open(t, master)
	l.send(t, "ra", "https://a.test/1")
	l.now = l.now.Add(24 * time.Hour)
	l.send(t, "rb", "https://a.test/2")
	type state struct {
		head Head
		size int64 // of the file, when it was acknowledged
	}
	const file = "2026-11-21.ndjson"
	path := filepath.Join(master, file)
	var acknowledged []state
	note := func(h Head) {
		info, err := os.Stat(path)
		testkit.Must(t, err)
		acknowledged = append(acknowledged, state{h, info.Size()})
	}
	note(l.signed)
	note(l.send(t, "rc", "https://a.test/3"))
	testkit.Must(t, l.AppendRecord(Entry{Login: &Login{Name: "A_TOKEN"}}))
	whole, err := os.ReadFile(path)
	testkit.Must(t, err)

	step := 13
	if testkit.Race {
		step = 41
	}
	dir := t.TempDir()
	for cut := 0; cut <= len(whole); cut += step {
		for _, garbage := range []string{"", "\x00\x00\x00\n\x00"} {
			testkit.Must(t, os.RemoveAll(dir))
			testkit.Must(t, os.CopyFS(dir, os.DirFS(master)))
			testkit.Must(t, os.WriteFile(filepath.Join(dir, file), append(whole[:cut:cut], garbage...), 0o600))
			again, err := Open(Config{Dir: dir, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return l.now }})
			testkit.Must(t, err)
			testkit.Must(t, again.AppendRecord(Entry{Login: &Login{Name: "B_TOKEN"}}))
			testkit.Must(t, again.Close())
			var known []KnownCheckpoint
			for _, s := range acknowledged {
				if s.size <= int64(cut) {
					known = append(known, KnownCheckpoint{s.head, "a run"})
				}
			}
			if r := verify(t, dir, known...); len(r.Findings) > 0 || r.Compared != len(known) {
				t.Fatalf("cut after %d of %d bytes: %+v", cut, len(whole), r)
			}
		}
	}
}

// TestSetAside: a ledger that was changed where the next start looks is kept, and told; a new one begins.
// Promise: ledger
func TestSetAside(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	l.send(t, "ra", "https://a.test/1")
	testkit.Must(t, l.Close())
	path := filepath.Join(dir, "2026-11-20.ndjson")
	text, err := os.ReadFile(path)
	testkit.Must(t, err)
	changed := bytes.ReplaceAll(text, []byte(`\n3\n`), []byte(`\n2\n`))
	testkit.Must(t, os.WriteFile(path, changed, 0o600))
	again := open(t, dir)
	testkit.Must(t, again.Close())
	var start *Start
	testkit.Must(t, EachRecord(Dir(dir), Query{}, func(r Record) error { start = r.Start; return nil }))
	if start == nil || start.SetAside == "" {
		t.Fatalf("the first record is %+v", start)
	}
	kept, err := os.ReadFile(filepath.Join(dir, start.SetAside, "2026-11-20.ndjson"))
	if err != nil || !bytes.Equal(kept, changed) {
		t.Errorf("what was set aside: %v", err)
	}
	if r := verify(t, dir); len(r.Findings) > 0 {
		t.Errorf("the new one: %v", r.Findings)
	}
}

// TestSetAsideKinds: a ledger whose end cannot be continued is set aside. A crash alone sets none aside.
// Promise: ledger
func TestSetAsideKinds(t *testing.T) {
	const first, last = "2026-11-20.ndjson", "2026-11-21.ndjson"
	isCheckpoint := func(line string) bool { return strings.HasPrefix(line, checkpointPrefix) }
	edit := func(name string, change func([]string) []string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			text, err := os.ReadFile(filepath.Join(dir, name))
			testkit.Must(t, err)
			lines := change(strings.SplitAfter(string(text), "\n"))
			testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "")), 0o600))
		}
	}
	noCheckpoints := func(l []string) []string { return slices.DeleteFunc(l, isCheckpoint) }
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		kept   bool
	}{
		"untouched":                         {func(*testing.T, string) {}, true},
		"the last file without checkpoints": {edit(last, noCheckpoints), false},
		"only one file, without checkpoints": {func(t *testing.T, dir string) {
			testkit.Must(t, os.Remove(filepath.Join(dir, last)))
			edit(first, noCheckpoints)(t, dir)
		}, true},
		"only one file, without its beginning": {func(t *testing.T, dir string) {
			testkit.Must(t, os.Remove(filepath.Join(dir, last)))
			edit(first, func(l []string) []string { return noCheckpoints(l)[1:] })(t, dir)
		}, false},
		"a last file that is just begun": {edit(last, func([]string) []string { return nil }), true},
		"records only as hashes": {func(t *testing.T, dir string) {
			testkit.Must(t, os.Rename(filepath.Join(dir, last), filepath.Join(dir, "2026-11-21"+hashesName)))
		}, false},
		"another public key": {func(t *testing.T, dir string) {
			testkit.Must(t, os.WriteFile(filepath.Join(dir, pubName), []byte(otherKey(t)+"\n"), 0o600))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, dir)
			l.send(t, "ra", "https://a.test/1")
			l.now = l.now.Add(24 * time.Hour)
			l.send(t, "rb", "https://a.test/2")
			testkit.Must(t, l.Close())
			c.damage(t, dir)
			again := open(t, dir, func(c *Config) { c.Now = func() time.Time { return l.now } })
			testkit.Must(t, again.Close())
			aside, err := filepath.Glob(filepath.Join(dir, "set-aside-*"))
			if testkit.Must(t, err); (len(aside) == 0) != c.kept {
				t.Errorf("set aside: %v", aside)
			}
		})
	}
}

// TestKeep: of days that are over, the hashes stay, and with them what was signed; their records are gone.
// Promise: ledger
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, func(c *Config) { c.Keep = 48 * time.Hour })
	var known []KnownCheckpoint
	for range 6 {
		known = append(known, KnownCheckpoint{l.send(t, "ra", "https://secret.test/path"), "a run"})
		l.now = l.now.Add(24 * time.Hour)
	}
	l.send(t, "rz")
	testkit.Must(t, l.Close())
	names, err := Dir(dir).ListDays()
	testkit.Must(t, err)
	want := "2026-11-20.hashes 2026-11-21.hashes 2026-11-22.hashes 2026-11-23.hashes 2026-11-24.ndjson 2026-11-25.ndjson 2026-11-26.ndjson"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r := verify(t, dir, known...)
	if len(r.Findings) > 0 || r.Compared != len(known) || r.Forgotten != 9 {
		t.Errorf("%+v", r)
	}
	again := open(t, dir)
	again.now = l.now
	again.send(t, "rb")
	testkit.Must(t, again.Close())
	if r := verify(t, dir, known...); len(r.Findings) > 0 {
		t.Errorf("after another start: %+v", r)
	}
}

// TestClockAhead: a clock that is a year ahead for a moment drops no records, and what comes after it is in files of its
// own days, also if the process ends in that moment. One that is behind changes nothing.
// Promise: ledger
func TestClockAhead(t *testing.T) {
	for _, restart := range []bool{false, true} {
		dir := t.TempDir()
		right := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		clock := right
		configure := func(c *Config) { c.Keep, c.Now = 48*time.Hour, func() time.Time { return clock } }
		l := open(t, dir, configure)
		var known []KnownCheckpoint
		send := func(at time.Time) {
			t.Helper()
			clock = at
			known = append(known, KnownCheckpoint{l.send(t, "ra", "https://a.test/"), "a run"})
		}
		files := func(want string) {
			t.Helper()
			l.forgetting.Wait()
			names, err := Dir(dir).ListDays()
			if got := strings.Join(names, " "); err != nil || got != want {
				t.Errorf("got  %s, %v\nwant %s", got, err, want)
			}
		}
		send(right)
		right = right.Add(24 * time.Hour)
		send(right)
		send(right.Add(365 * 24 * time.Hour))
		files("2026-11-20.ndjson 2026-11-21.ndjson 2027-11-21.ndjson")
		if restart {
			testkit.Must(t, l.Close())
			l = open(t, dir, configure)
		}
		send(right)
		files("2026-11-20.ndjson 2026-11-21.ndjson 2026-11-22.ndjson")
		send(time.Unix(0, 0))
		files("2026-11-20.ndjson 2026-11-21.ndjson 2026-11-22.ndjson")
		for range 2 {
			right = right.Add(24 * time.Hour)
			send(right)
		}
		files("2026-11-20.hashes 2026-11-21.ndjson 2026-11-22.ndjson 2026-11-23.ndjson")
		testkit.Must(t, l.Close())
		if r := verify(t, dir, known...); len(r.Findings) > 0 || r.Compared != len(known) {
			t.Errorf("%+v", r)
		}
	}
}

// TestMost: what code and servers send without end takes no more room than is meant for it. The oldest days go first, what
// is lost of today is counted, and what was given away still fits.
// Promise: bounded-records, ledger
func TestMost(t *testing.T) {
	dir := t.TempDir()
	const most = 100 << 10
	l := open(t, dir, func(c *Config) { c.Most = most })
	url := "https://a.test/" + strings.Repeat("x", 1000)
	var known []KnownCheckpoint
	for range 4 {
		for range 15 {
			known = append(known, KnownCheckpoint{l.send(t, "ra", url), "a run"})
		}
		l.now = l.now.Add(24 * time.Hour)
	}
	lost := int64(0)
	for range 200 {
		if l.AppendRecord(Entry{Exchange: &proxyapi.Exchange{Run: "rb", URL: url}}) != nil {
			lost++
		}
	}
	if lost == 0 || l.LostCount() != lost {
		t.Errorf("%d records were refused, and %d counted", lost, l.LostCount())
	}
	l.forgetting.Wait()
	size := int64(0)
	names, err := Dir(dir).ListDays()
	testkit.Must(t, err)
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		testkit.Must(t, err)
		size += info.Size()
	}
	if size > most {
		t.Errorf("%d bytes in %v, want at most %d", size, names, most)
	}
	l.now = l.now.Add(24 * time.Hour)
	known = append(known, KnownCheckpoint{l.send(t, "rc", "https://a.test/"), "the last run"})
	testkit.Must(t, l.Close())
	if r := verify(t, dir, known...); len(r.Findings) > 0 || r.Compared != len(known) || r.Forgotten == 0 {
		t.Errorf("%+v", r)
	}
	gaps := int64(0)
	testkit.Must(t, EachRecord(Dir(dir), Query{}, func(r Record) error {
		if r.Gap != nil {
			gaps += int64(r.Gap.Lost)
		}
		return nil
	}))
	if gaps != lost {
		t.Errorf("%d records are said to be lost, want %d", gaps, lost)
	}
}

// TestNewDayOrder: the checkpoint that a day begins with is not on the disk before the records that it covers are.
// Promise: ledger
func TestNewDayOrder(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	testkit.Must(t, l.AppendRecord(Entry{Login: &Login{Name: "A_TOKEN"}}))
	l.now = l.now.Add(24 * time.Hour)
	l.day.mu.Lock() // its records cannot be brought to the disk
	day, done := l.day, make(chan error)
	go func() { done <- l.AppendRecord(Entry{Login: &Login{Name: "B_TOKEN"}}) }()
	time.Sleep(200 * time.Millisecond)
	if names, err := Dir(dir).ListDays(); err != nil || len(names) != 1 {
		t.Errorf("the next day has begun: %v, %v", names, err)
	}
	day.mu.Unlock()
	testkit.Must(t, <-done)
}

// TestFull: while the disk is full nothing is written in part, callers are told, and afterwards it goes on with how many
// records were lost.
// Promise: ledger
func TestFull(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "only root can mount a small disk")
	}
	dir := t.TempDir()
	testkit.Must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	l := open(t, dir)
	head := l.send(t, "ra", "https://a.test/1")
	filler := filepath.Join(dir, "filler")
	testkit.Must(t, fill(filler))
	entry := Entry{Exchange: &proxyapi.Exchange{URL: strings.Repeat("x", 5000)}}
	if err := l.AppendRecord(entry); err == nil {
		t.Fatal("a record is written to a full disk")
	}
	if _, err := l.WriteCheckpoint("rb"); err == nil {
		t.Error("a checkpoint is given away that covers a lost record")
	}
	testkit.Must(t, os.Remove(filler))
	l.now = l.now.Add(2 * time.Second)
	known := KnownCheckpoint{l.send(t, "rc", "https://a.test/2"), "rc"}
	testkit.Must(t, l.Close())
	if r := verify(t, dir, KnownCheckpoint{head, "ra"}, known); len(r.Findings) > 0 || r.Compared != 2 {
		t.Errorf("%+v", r)
	}
	lost := 0
	testkit.Must(t, EachRecord(Dir(dir), Query{}, func(r Record) error {
		if r.Gap != nil {
			lost += r.Gap.Lost
		}
		return nil
	}))
	if lost != 1 || l.LostCount() != 1 {
		t.Errorf("%d records are said to be lost, and counted %d", lost, l.LostCount())
	}
}

// fill takes all the space of a disk.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 12; size > 0; size /= 2 {
		for {
			if _, err := f.Write(make([]byte, size)); err != nil {
				break
			}
		}
	}
	return nil
}

// TestAtOnce: many writers, many checkpoints.
// Promise: ledger
func TestAtOnce(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	var wg sync.WaitGroup
	heads := make(chan Head, 400)
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				heads <- l.send(t, fmt.Sprintf("r%d-%d", w, i), "https://a.test/")
			}
		})
	}
	wg.Wait()
	close(heads)
	var known []KnownCheckpoint
	for h := range heads {
		known = append(known, KnownCheckpoint{h, "a run"})
	}
	testkit.Must(t, l.Close())
	if r := verify(t, dir, known...); len(r.Findings) > 0 || r.Compared != 400 || r.Records != 801 {
		t.Errorf("%+v", r)
	}
}

// TestAnchor: every checkpoint is in the anchor, and a pipe that nobody reads holds nothing up.
func TestAnchor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "anchor")
	dir := t.TempDir()
	l := open(t, dir, func(c *Config) { c.Anchor = path })
	head := l.send(t, "ra", "https://a.test/")
	testkit.Must(t, l.Close())
	text, err := os.ReadFile(path)
	testkit.Must(t, err)
	if !strings.HasSuffix(string(text), " ra "+head.String()+"\n") || strings.Count(string(text), "\n") != 2 {
		t.Errorf("the anchor has %q", text)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	testkit.Must(t, unix.Mkfifo(pipe, 0o600))
	open(t, t.TempDir(), func(c *Config) { c.Anchor = pipe }).send(t, "ra", "https://a.test/")
}

// TestSlowAnchor: an anchor that takes nothing holds up neither runs nor the end.
func TestSlowAnchor(t *testing.T) {
	l := open(t, t.TempDir())
	l.anchor = &anchor{log: slog.New(slog.DiscardHandler), lines: make(chan string, 2), done: make(chan struct{})}
	began := time.Now()
	for range 5 {
		l.send(t, "ra", "https://a.test/")
	}
	testkit.Must(t, l.Close())
	if took := time.Since(began); took > testkit.Patience {
		t.Errorf("it took %s", took)
	}
}

// TestKeyFails: without its public key, the ledger makes no private key.
func TestKeyFails(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, pubName, "x"), 0o700))
	if _, err := Open(Config{Dir: dir}); err == nil {
		t.Error("a ledger is open without its public key")
	}
	if _, err := os.Stat(filepath.Join(dir, keyName)); err == nil {
		t.Error("the private key is there")
	}
}

// TestOneWriter: a second process is told.
func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if _, err := Open(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("%v", err)
	}
}

// TestModes: nobody else reads it.
// Promise: ledger
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	testkit.Must(t, open(t, dir).Close())
	testkit.Must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
}

// busy is the processor time of this process until now.
func busy(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// costs reports the processor time of one record since a start, and fails above most microseconds.
func costs(b *testing.B, since time.Duration, records int, most float64) {
	us := float64((busy(b) - since).Nanoseconds()) / 1e3 / float64(records)
	b.ReportMetric(us, "cpu-us/record")
	if us > most && records > 1000 {
		b.Errorf("%.1f us of processor time for a record, want at most %v", us, most)
	}
}

// BenchmarkAppend is what the ledger adds to a request: at most 15 us of processor time.
func BenchmarkAppend(b *testing.B) {
	l, err := Open(Config{Dir: b.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	e := Entry{Exchange: &proxyapi.Exchange{
		At: time.Now(), Run: "rabcdefghijkl", Method: "POST", URL: "https://api.stripe.com/v1/refunds?expand", Host: "api.stripe.com",
		APIs: []string{"stripe"}, Outcome: proxyapi.OutcomeServed, Status: 200, Type: "application/json",
		Swapped: []proxyapi.Swap{{Name: "STRIPE_AUTH_TOKEN", In: "header:authorization"}}, BytesUp: 312, BytesDown: 4211, Milliseconds: 81.25,
	}}
	b.ReportAllocs()
	since := busy(b)
	for b.Loop() {
		if err := l.AppendRecord(e); err != nil {
			b.Fatal(err)
		}
	}
	costs(b, since, b.N, 15)
}

// BenchmarkVerify is the verification of a ledger with a run to ten records: a million of them in 5 s of processor time.
func BenchmarkVerify(b *testing.B) {
	dir := b.TempDir()
	l, err := Open(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100_000 {
		if err := l.AppendRecord(Entry{Exchange: &proxyapi.Exchange{Run: "rabcdefghijkl", Method: "GET", URL: "https://api.stripe.com/v1/refunds", BytesUp: int64(i)}}); err != nil {
			b.Fatal(err)
		}
		if i%10 == 0 {
			l.mu.Lock()
			_, _, _, err = l.checkpointLocked("r") // without the disk
			l.mu.Unlock()
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	_ = l.Close()
	since := busy(b)
	for b.Loop() {
		if r, err := Verify(Dir(dir), "", nil); err != nil || len(r.Findings) > 0 {
			b.Fatal(err, r.Findings)
		}
	}
	costs(b, since, b.N*100_000, 5)
}
