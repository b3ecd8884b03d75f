package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// mostPerRun is how many bytes of the heap may stay of a run. What is kept of runs is in a file.
const mostPerRun = 512

// TestLoad opens many sessions and makes many calls, 64 at a time: none fails, no slot is overbooked, and afterwards
// memory and goroutines are back where they were. With CODEFORGE_LOAD=full it is 1,000 sessions and 10,000 calls.
func TestLoad(t *testing.T) {
	sessions, calls := 100, 1000
	if os.Getenv("CODEFORGE_LOAD") == "full" {
		sessions, calls = 1000, 10_000
	}
	p := startForLoad(t)
	// The first calls fill what is made once, and the list of the latest events, which is bounded.
	warm(t, p, 20, 2000)
	before := measure(p)

	took := warm(t, p, sessions, calls)
	if n := p.sandbox.MostRuns(); n > 8 {
		t.Errorf("%d runs at once on 8 slots", n)
	}
	if n, m := p.sandbox.WaitForReleases(), p.proxy.CountRegistered(); n != 0 || m != 0 {
		t.Errorf("%d leases and %d registrations are left", n, m)
	}
	testkit.WaitFor(t, func() bool { return runtime.NumGoroutine() <= before.goroutines+20 })
	after := measure(p)
	// What waits for the disk is not kept: a busy machine needs some seconds to write it.
	for end := time.Now().Add(20 * time.Second); grew(before, after) > int64(calls)*mostPerRun && time.Now().Before(end); {
		after = measure(p)
	}
	t.Logf("%d sessions, %d calls in %v; heap %d -> %d KB, goroutines %d -> %d", sessions, calls, took.Round(time.Millisecond), before.heap>>10, after.heap>>10, before.goroutines, after.goroutines)
	if each := grew(before, after) / int64(calls); each > mostPerRun {
		t.Errorf("%d bytes of each run are kept: the heap grew from %d to %d KB", each, before.heap>>10, after.heap>>10)
	}
}

// startForLoad starts mcp-server with eight slots. A run prints its code, and its receipt has one exchange.
func startForLoad(t *testing.T) *program {
	t.Helper()
	p := start(t, 8, nil, "--history", t.TempDir())
	p.proxy.Receipt = func(proxyapi.Registration) proxyapi.Receipt {
		return proxyapi.Receipt{Count: proxyapi.Count{Exchanges: 1, Swapped: 1}}
	}
	p.sandbox.Script = func(_ context.Context, r sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		emit(sandboxapi.Event{Stdout: r.Code})
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
	return p
}

// TestSessionsAtOnce opens sessions and makes calls, 64 at a time. It is small, because the race detector slows it down:
// make/test.sh runs TestLoad without it.
func TestSessionsAtOnce(t *testing.T) {
	warm(t, startForLoad(t), 24, 96)
}

type usage struct {
	heap       uint64
	goroutines int
}

// grew is by how many bytes the heap grew.
func grew(before, after usage) int64 { return int64(after.heap) - int64(before.heap) }

// measure leaves out what the test itself keeps.
func measure(p *program) usage {
	p.sandbox.ForgetAll()
	p.proxy.ForgetAll()
	p.log.Reset()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	time.Sleep(100 * time.Millisecond)
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{m.HeapAlloc, runtime.NumGoroutine()}
}

// warm opens sessions of both eras, makes calls over them, 64 at a time, and closes them.
func warm(t *testing.T, p *program, sessions, calls int) time.Duration {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	open := make([]*mcp.ClientSession, sessions)
	parallel(64, sessions, func(i int) {
		version := "2025-11-25"
		if i%4 == 0 {
			version = "2026-07-28"
		}
		c := mcp.NewClient(&mcp.Implementation{Name: fmt.Sprint("load", i), Version: "1"}, nil)
		s, err := c.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: p.url(), HTTPClient: client}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Error(err)
			return
		}
		open[i] = s
	})
	start := time.Now()
	var failed atomic.Int64
	parallel(64, calls, func(i int) {
		want := fmt.Sprintf("call %d", i)
		res, err := open[i%sessions].CallTool(context.Background(), &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": want}})
		if err != nil || res.IsError || strings.Join(texts(res), "|") != want {
			if failed.Add(1) < 5 {
				t.Errorf("%v %+v", err, res)
			}
		}
	})
	took := time.Since(start)
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d calls failed", n, calls)
	}
	parallel(64, sessions, func(i int) {
		if open[i] != nil {
			_ = open[i].Close()
		}
	})
	return took
}

// parallel calls do for 0 to n-1, so many at once.
func parallel(width, n int, do func(int)) {
	var next atomic.Int64
	var done sync.WaitGroup
	for range width {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	done.Wait()
}
