package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The go-sdk allocates a buffer of 32 KiB for each JSON text it reads, several per call, so on a heap of a few
// megabytes garbage collection would take a third of a small call's time. Instead garbage may take gcRoom bytes between
// two collections, or as much as the live data. Above memoryLimit the collector works harder.
const (
	memoryLimit = 256 << 20
	gcRoom      = 48 << 20
	gcLeast     = 100 // percent of the live data
	firstLive   = 6 << 20
	paceEvery   = 15 * time.Second
	idleBytes   = 4 << 20 // what mcp-server allocates at most in paceEvery without a call
	goLiveHeap  = "/gc/heap/live:bytes"
	goAllocs    = "/gc/heap/allocs:bytes"
)

// gcPercent returns the pace of the collector for so many bytes of live data.
func gcPercent(live uint64) int {
	return max(gcLeast, int(100*gcRoom/max(live, firstLive)))
}

// paceCollector sets the collector's pace by the live data, and again after each period. After a period of load, the
// first idle one returns unused memory to the system. It ends with ctx.
func paceCollector(ctx context.Context, period time.Duration) {
	debug.SetMemoryLimit(memoryLimit)
	debug.SetGCPercent(gcPercent(0))
	samples := []metrics.Sample{{Name: goLiveHeap}, {Name: goAllocs}}
	tick := time.NewTicker(period)
	defer tick.Stop()
	before, busy := uint64(0), true
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
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
