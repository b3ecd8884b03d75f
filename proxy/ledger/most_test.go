//go:build unix

package ledger

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// folderSize is what the ledger's files take.
func folderSize(t *testing.T, dir string) (size int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	testkit.Must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		testkit.Must(t, err)
		size += info.Size()
	}
	return size
}

// crowd appends until today's part is full, and returns how many records were lost.
func crowd(l *ledger, n int, url string) (lost int) {
	for range n {
		if l.AppendRecord(Entry{Exchange: &proxyapi.Exchange{Run: "ra", URL: url}}) != nil {
			lost++
		}
	}
	return lost
}

// TestFullDayRestart: a proxy that starts again while today's part is full starts, and what was lost is counted.
// Promise: ledger
func TestFullDayRestart(t *testing.T) {
	dir := t.TempDir()
	most := func(c *Config) { c.Most = 100 << 10 }
	l := open(t, dir, most)
	lost := crowd(l, 200, "https://a.test/"+strings.Repeat("x", 1000))
	now := l.now
	testkit.Must(t, l.Close())
	c := Config{Dir: dir, Version: "test", Most: 100 << 10, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }}
	again, err := Open(c)
	if err != nil {
		t.Errorf("the same day: %v", err)
	} else {
		testkit.Must(t, again.Close())
	}
	now = now.Add(24 * time.Hour)
	again, err = Open(c)
	testkit.Must(t, err)
	testkit.Must(t, again.AppendRecord(Entry{Login: &Login{Name: "A"}}))
	testkit.Must(t, again.Close())
	gaps := 0
	testkit.Must(t, EachRecord(Dir(dir), Query{}, func(r Record) error {
		if r.Gap != nil {
			gaps += r.Gap.Lost
		}
		return nil
	}))
	if gaps < lost {
		t.Errorf("%d records were lost, the ledger says %d", lost, gaps)
	}
	if r := verify(t, dir); len(r.Findings) > 0 {
		t.Error(r.Findings)
	}
}

// TestMostHashes: what is kept of days that were dropped counts too.
// Promise: ledger
func TestMostHashes(t *testing.T) {
	dir := t.TempDir()
	const most = 1 << 20
	l := open(t, dir, func(c *Config) { c.Most = most })
	var known []KnownCheckpoint
	for range 24 {
		crowd(l, 2200, "https://a.test/")
		l.now = l.now.Add(24 * time.Hour)
		known = append(known, KnownCheckpoint{l.send(t, "rb", "https://a.test/"), "a run"})
		l.forgetting.Wait()
		if r := verify(t, dir, known...); len(r.Findings) > 0 {
			t.Fatal(r.Findings)
		}
	}
	again := open(t, t.TempDir())
	testkit.Must(t, again.Close())
	if r := verify(t, dir, known...); len(r.Findings) > 0 || r.Compared < 3 {
		t.Errorf("%+v", r)
	}
	if got := folderSize(t, dir); got > most {
		t.Errorf("%d bytes, want %d at most", got, most)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"+rootsName))
	testkit.Must(t, err)
	if len(names) < 2 {
		t.Fatalf("only %v are kept as roots", names)
	}
	text, err := os.ReadFile(names[1])
	testkit.Must(t, err)
	damaged := map[string][]byte{"cut off": text[:len(text)-1], "without its last root": text[:len(text)-rootSize], "empty": nil}
	for at := 0; at < len(text); at += 5 { // hashes and, sometimes, heights
		damaged[fmt.Sprint("changed at ", at)] = slices.Replace(slices.Clone(text), at, at+1, text[at]^1)
	}
	for what, text := range damaged {
		testkit.Must(t, os.WriteFile(names[1], text, 0o600))
		if r, err := Verify(Dir(dir), "", known); err == nil && len(r.Findings) == 0 {
			t.Errorf("roots that are %s: not found", what)
		}
	}
	testkit.Must(t, os.Remove(names[1]))
	if r := verify(t, dir); len(r.Findings) == 0 {
		t.Error("roots that are missing: not found")
	}
}

// TestMostAfterKill: a process that was killed before it dropped older days drops them when it starts again.
// Promise: ledger
func TestMostAfterKill(t *testing.T) {
	dir := t.TempDir()
	const most = 100 << 10
	unbound := open(t, dir) // as if forget had never come to its end
	url := "https://a.test/" + strings.Repeat("x", 1000)
	for range 3 {
		crowd(unbound, 40, url)
		unbound.now = unbound.now.Add(24 * time.Hour)
	}
	crowd(unbound, 1, url) // the new day has begun
	now := unbound.now
	testkit.Must(t, unbound.Close())
	l := open(t, dir, func(c *Config) { c.Most = most; c.Now = func() time.Time { return now } })
	crowd(l, 100, url)
	l.forgetting.Wait()
	if got := folderSize(t, dir); got > most+4<<10 {
		t.Errorf("%d bytes, want %d at most", got, most)
	}
}

// TestForgetMemory: dropping a day takes no memory by its records.
// Promise: ledger
func TestForgetMemory(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	testkit.Must(t, l.AppendRecord(Entry{Exchange: &proxyapi.Exchange{Run: "ra", URL: "https://a.test/"}}))
	testkit.Must(t, l.Close())
	path := filepath.Join(dir, l.now.Format(dayLayout)+recordsName)
	text, err := os.ReadFile(path)
	testkit.Must(t, err)
	var record []byte
	for _, one := range bytes.SplitAfter(text, []byte("\n")) {
		if bytes.Contains(one, []byte("exchange")) {
			record = one
		}
	}
	t.Logf("a record has %d bytes: %s", len(record), record)
	const records = 1 << 19
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	testkit.Must(t, err)
	block := bytes.Repeat(record, 1<<10)
	for range records >> 10 {
		_, err = f.Write(block)
		testkit.Must(t, err)
	}
	testkit.Must(t, f.Close())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	testkit.Must(t, l.forgetDay(l.now.Format(dayLayout)))
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > records*40 {
		t.Errorf("%d bytes of memory for %d records (%d MiB)", used, records, int64(len(record))*records>>20)
	}
}
