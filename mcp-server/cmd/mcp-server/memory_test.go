package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestGCPercent verifies that garbage takes gcRoom at most, or as much as the live data.
func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 800, 1 << 20: 800, 6 << 20: 800, 16 << 20: 300, 48 << 20: 100, 1 << 30: 100} {
		got := gcPercent(live)
		if got != want {
			t.Errorf("%d MiB of live data: %d percent, want %d", live>>20, got, want)
		}
		if garbage := live * uint64(got) / 100; garbage > max(gcRoom, live) {
			t.Errorf("%d MiB of live data: %d MiB of garbage", live>>20, garbage>>20)
		}
	}
}

// TestPaceCollector verifies that an idle mcp-server returns the memory of a load to the system.
func TestPaceCollector(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // so that only paceCollector frees the load
	load := make([][]byte, 64)
	for i := range load {
		load[i] = make([]byte, 1<<20)
	}
	held := heldFromSystem()
	clear(load)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		paceCollector(ctx, 10*time.Millisecond)
		close(ended)
	}()
	testkit.WaitFor(t, func() bool { return heldFromSystem() < held-48<<20 })
	cancel()
	<-ended
}

// heldFromSystem returns how many bytes of memory the runtime has that it has not returned.
func heldFromSystem() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}
