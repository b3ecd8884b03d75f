package approval

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// BenchmarkHeld is the memory of 500 requests that wait, each with 16 KiB of body and a goroutine: at most 20 MB.
func BenchmarkHeld(b *testing.B) {
	const many, body, most = 500, 16 << 10, 20
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := newStore(testkit.Patience)
		ctx, cancel := context.WithCancel(b.Context())
		var waiting sync.WaitGroup
		for i := range many {
			q := refund("r" + strconv.Itoa(i))
			q.Body = strings.Repeat("x", body) + strconv.Itoa(i)
			waiting.Go(func() { _, _, _ = r.WaitForApproval(ctx, q) })
		}
		testkit.WaitFor(b, func() bool { return len(r.ListHeld()) == many })
		runtime.GC()
		runtime.ReadMemStats(&after)
		mb := float64(int64(after.HeapAlloc+after.StackInuse)-int64(before.HeapAlloc+before.StackInuse)) / 1e6
		b.ReportMetric(mb, "MB")
		if mb > most {
			b.Errorf("%.1f MB, want at most %d", mb, most)
		}
		cancel()
		waiting.Wait()
	}
}
