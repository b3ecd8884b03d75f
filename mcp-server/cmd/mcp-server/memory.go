package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/timing"
)

// The go-sdk allocates a buffer of 32 KiB for each JSON text that it reads, several per call. On a heap of a few
// megabytes, garbage collection would take a third of a small call's time. So garbage may take gcRoom bytes between two
// collections, or as much as the live data. Above memoryLimit the collector works harder.
const (
	memoryLimit = 256 << 20
	gcRoom      = 48 << 20
	gcLeast     = 100 // percent of the live data
	firstLive   = 6 << 20
	paceEvery   = 15 * time.Second
	idleBytes   = 4 << 20 // the most that mcp-server allocates in paceEvery without a call
	goLiveHeap  = "/gc/heap/live:bytes"
	goAllocs    = "/gc/heap/allocs:bytes"
)

// gcPercent returns the collector's pace for the given bytes of live data.
func gcPercent(live uint64) int {
	return max(gcLeast, int(100*gcRoom/max(live, firstLive)))
}

// paceCollector sets the collector's pace by the live data, and repeats this after each period. The first idle period
// after a busy one returns unused memory to the system. It ends with ctx.
func paceCollector(ctx context.Context, period time.Duration) {
	debug.SetMemoryLimit(memoryLimit)
	debug.SetGCPercent(gcPercent(0))
	samples := []metrics.Sample{{Name: goLiveHeap}, {Name: goAllocs}}
	before, busy := uint64(0), true
	for range timing.EachTick(ctx, period) {
		metrics.Read(samples)
		debug.SetGCPercent(gcPercent(samples[0].Value.Uint64()))
		allocated := samples[1].Value.Uint64()
		wasBusy := busy
		busy = allocated-before > idleBytes
		before = allocated
		if wasBusy && !busy {
			debug.FreeOSMemory()
		}
	}
}
