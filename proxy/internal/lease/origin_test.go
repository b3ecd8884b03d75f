package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestOriginPauses: while a request of a server waits, the time of each run stops that may have caused it, and of no
// other.
// Promise: server-requests-belong-to-one-run
func TestOriginPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewTable(Config{})
		defer b.Close()
		var runs []*Lease
		for id, run := range []string{"r1", "r2", "r3"} {
			l, err := b.BeginLease(slot.ID(id), proxyapi.Registration{Generation: 1, Run: run, Deadline: time.Now().Add(10 * time.Second)})
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, l)
		}
		server, err := b.BeginLease(slot.Max, proxyapi.Registration{
			Generation: 1, Run: "server", APIs: []string{"x"}, Deadline: time.Now().AddDate(1, 0, 0),
		})
		if err != nil {
			t.Fatal(err)
		}
		calls := []proxyapi.ServerCall{{ID: 1, Run: "r1"}, {ID: 2, Run: "r2"}, {ID: 3, Run: "r2"}}
		if err := b.ReplaceCalls(slot.Max, 1, proxyapi.ServerCalls{Version: 1, Calls: calls}); err != nil {
			t.Fatal(err)
		}
		resume := server.CurrentOrigin().PauseRuns()
		time.Sleep(time.Minute)
		synctest.Wait()
		if runs[0].Context().Err() != nil || runs[1].Context().Err() != nil || runs[2].Context().Err() == nil {
			t.Error("the wrong runs ended while the request waited")
		}
		resume()
		time.Sleep(time.Minute)
		synctest.Wait()
		if runs[0].Context().Err() == nil || runs[1].Context().Err() == nil {
			t.Error("a run goes on after the wait")
		}
	})
}

// TestSetCalls: only a server has calls, only for its generation, and an older list changes nothing.
// Promise: server-requests-belong-to-one-run
func TestSetCalls(t *testing.T) {
	b := NewTable(Config{})
	defer b.Close()
	for id, r := range map[slot.ID]proxyapi.Registration{
		0: {Generation: 1, Run: "r1"}, slot.Max: {Generation: 1, Run: "server", APIs: []string{"x"}}, slot.Max + 1: {Generation: 1, Run: "install", Install: true},
	} {
		r.Deadline = time.Now().Add(time.Hour)
		if _, err := b.BeginLease(id, r); err != nil {
			t.Fatal(err)
		}
	}
	one := proxyapi.ServerCalls{Version: 2, Calls: []proxyapi.ServerCall{{ID: 1, Run: "r1"}}}
	if err := b.ReplaceCalls(slot.Max, 1, one); err != nil {
		t.Error(err)
	}
	for id, generation := range map[slot.ID]uint64{0: 1, slot.Max: 2, slot.Max + 1: 1, slot.Max + 2: 1} {
		if err := b.ReplaceCalls(id, generation, one); err == nil {
			t.Errorf("slot %d has calls", id)
		}
	}
	if err := b.ReplaceCalls(slot.Max, 1, proxyapi.ServerCalls{Version: 1}); err != nil || b.Holder(slot.Max).CurrentOrigin().Run != "r1" {
		t.Errorf("after an older list: %v", err)
	}
}
