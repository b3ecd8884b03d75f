//go:build unix

package audit

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
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
		if l.Append(Entry{Exchange: &controlapi.Exchange{Run: "ra", URL: url}}) != nil {
			lost++
		}
	}
	return lost
}

// TestFullDayRestart: a proxy that starts again while today's part is full starts, and what was lost is counted.
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
	testkit.Must(t, again.Append(Entry{Login: &Login{Name: "A"}}))
	testkit.Must(t, again.Close())
	gaps := 0
	testkit.Must(t, Each(Dir(dir), Query{}, func(r Record) error {
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

