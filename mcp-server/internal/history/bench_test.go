package history

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// The size of BenchmarkReaders: what a busy week leaves.
const (
	benchRuns      = 10_000
	benchExchanges = 65_000
)

var benchAPIs = []string{"stripe", "github", "slack", "linear", "maps"}

// benchRun stores one run with exchanges, each of which takes a while.
func benchRun(s *Store, i, exchanges int, pause time.Duration) {
	id := fmt.Sprintf("r%012d", i)
	code := fmt.Sprintf("// Report %d of the customers\n%s", i, strings.Repeat("const answer = await fetch(url, {headers});\n", 20))
	r := s.BeginRecording(operatorapi.Run{ID: id, Client: "bench", Language: "typescript"}, code)
	r.RecordSlot(1, uint64(i)) //nolint:gosec // positive
	r.RecordOutput(strings.Repeat(fmt.Sprintf("line %d of the output\n", i), 20), "")
	rec := proxyapi.Receipt{Run: id}
	for n := range exchanges {
		time.Sleep(pause)
		api := benchAPIs[(i+n)%len(benchAPIs)]
		x := exchange(id, n, []string{"GET", "POST"}[n%2], api, "api."+api+".com")
		s.RecordExchange(x)
		rec.Exchanges = append(rec.Exchanges, x)
		rec.Count.AddExchange(x)
	}
	r.RecordEnd(RunEnd{Exit: sandboxapi.Exit{Reason: sandboxapi.Exited, Code: i % 7 / 6}, Receipt: rec, Answer: "an answer"})
}

// spread is how many exchanges a run of BenchmarkReaders has: 6 or 7.
func spread(i int) int { return (i+1)*benchExchanges/benchRuns - i*benchExchanges/benchRuns }

// BenchmarkRun is what storing a run costs the run itself: with code, output and 6.5 exchanges.
func BenchmarkRun(b *testing.B) {
	for _, mode := range []string{Full, Receipts, Off} {
		b.Run(mode, func(b *testing.B) {
			s := open(b, b.TempDir(), func(c *Config) { c.Mode = mode })
			i := 0
			for b.Loop() {
				benchRun(s, i, spread(i), 0)
				if i++; i%500 == 0 && mode != Off { // the writer's own time is BenchmarkWriter's
					b.StopTimer()
					drain(b, s)
					b.StartTimer()
				}
			}
			b.StopTimer()
			if s.dropped > 0 {
				b.Errorf("%d were dropped", s.dropped)
			}
		})
	}
}

// drain waits until everything is written.
func drain(b *testing.B, s *Store) {
	b.Helper()
	for s.SeeAlerts(b.Context(), 0) != nil {
		time.Sleep(time.Millisecond)
	}
}

// cpuTime is the CPU time this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWriter is the CPU time that storing a run takes in all, the writer's included: of runs that come one by one,
// and whose exchanges take a while.
func BenchmarkWriter(b *testing.B) {
	for _, exchanges := range []int{-6, 0, 1, 6} { // -6: six, and nothing is stored
		b.Run(fmt.Sprint(exchanges), func(b *testing.B) {
			s := open(b, b.TempDir(), func(c *Config) {
				if exchanges < 0 {
					exchanges, c.Mode = -exchanges, Off
				}
			})
			i := 0
			for ; i < 50; i++ {
				benchRun(s, i, exchanges, 0)
			}
			if s.Mode() != Off {
				drain(b, s)
			}
			began := cpuTime(b)
			for b.Loop() {
				benchRun(s, i, exchanges, 3*time.Millisecond)
				i++
				time.Sleep(5 * time.Millisecond)
			}
			if s.Mode() != Off {
				drain(b, s)
			}
			b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// BenchmarkReaders reads a store of 10,000 runs with 65,000 exchanges.
func BenchmarkReaders(b *testing.B) {
	s := open(b, b.TempDir(), nil)
	for i := range benchRuns {
		if benchRun(s, i, spread(i), 0); i%200 == 0 {
			drain(b, s)
		}
	}
	drain(b, s)
	st, err := s.Status(b.Context())
	if err != nil || st.Runs != benchRuns || st.Exchanges != benchExchanges || st.Dropped != 0 {
		b.Fatalf("%+v %v", st, err)
	}
	ctx, hour := b.Context(), time.Now().Add(-24*time.Hour)
	for name, read := range map[string]func() error{
		"list": func() error { _, err := s.ListRuns(ctx, operatorapi.RunFilter{Spans: true}, ""); return err },
		"api": func() error {
			_, err := s.ListRuns(ctx, operatorapi.RunFilter{API: "maps", State: "failed"}, "")
			return err
		},
		"grep": func() error {
			_, err := s.ListRuns(ctx, operatorapi.RunFilter{Grep: "report 77 cust"}, "")
			return err
		},
		"grep all": func() error { _, err := s.ListRuns(ctx, operatorapi.RunFilter{Grep: "customers"}, ""); return err },
		"run":      func() error { _, err := s.FindRun(ctx, "r000000005"); return err },
		"ledger":   func() error { _, err := s.SumTraffic(ctx, hour, time.Now().Add(time.Hour)); return err },
		"hours":    func() error { _, err := s.TrafficByHour(ctx, hour, time.Now().Add(time.Hour), quarter); return err },
		"status":   func() error { _, err := s.Status(ctx); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("memory", func(b *testing.B) {
		for b.Loop() {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MB")
		b.ReportMetric(float64(m.Sys)/(1<<20), "sys-MB")
		b.ReportMetric(float64(st.Bytes)/(1<<20), "file-MB")
	})
}
