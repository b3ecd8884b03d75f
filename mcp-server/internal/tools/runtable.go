package tools

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// keepTime, maxEnded and maxEndedBytes bound the results of ended background runs in memory. The history keeps them
// longer.
const (
	keepTime      = time.Hour
	maxEnded      = 32
	maxEndedBytes = 16 << 20
)

// errRestart ends background runs when mcp-server stops.
var errRestart = fmt.Errorf("the server restarts: %w", context.Canceled)

// runTable has the background runs of one surface, and thus of one tenant: the runs that have left their call, and the
// results of those that have ended.
//
// Threat: a tenant starts many runs to take all slots or memory, or guesses another tenant's run. Contract: the runs in
// progress are bounded for the tenant and for all, so that interactive runs find a slot. Results are bounded in number,
// size and age. Each surface has a separate table, so the runs of another tenant are unknown here.
type runTable struct {
	// most bounds the tenant's background runs in progress. all has one entry for each background run of all tenants.
	most int
	all  chan struct{}

	mu       sync.Mutex
	list     []*longRun // oldest first
	isClosed bool       // no further run begins
	parts    sync.WaitGroup
}

// start starts a goroutine, unless the server stops.
func (t *runTable) start(work func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isClosed {
		t.parts.Go(work)
	}
	return !t.isClosed
}

// add adds a run in progress. It returns false if the tenant, or all together, have too many.
func (t *runTable) add(l *longRun) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropOld()
	running := 0
	for _, other := range t.list {
		if !other.hasEnded() {
			running++
		}
	}
	//defence:background-runs
	if running >= t.most || t.isClosed {
		return false
	}
	select {
	case t.all <- struct{}{}:
	default:
		return false
	}
	t.list = append(t.list, l)
	t.parts.Go(func() {
		<-l.done
		<-t.all
	})
	return true
}

// dropOld drops the results beyond the bounds, the oldest first. The caller holds t.mu.
func (t *runTable) dropOld() {
	ended, bytes := 0, 0
	for i, l := range slices.Backward(t.list) {
		if !l.hasEnded() {
			continue
		}
		ended++
		bytes += l.size
		if ended > maxEnded || bytes > maxEndedBytes || time.Since(l.endedAt) > keepTime {
			t.list = slices.Delete(t.list, i, i+1)
		}
	}
}

// find returns a run, or nil.
func (t *runTable) find(id string) *longRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropOld()
	if i := slices.IndexFunc(t.list, func(l *longRun) bool { return l.id == id }); i >= 0 {
		return t.list[i]
	}
	return nil
}

func (t *runTable) listRunning() (ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.list {
		if !l.hasEnded() {
			ids = append(ids, l.id)
		}
	}
	return ids
}

// DrainRuns waits for the runs, also those in the background, until ctx ends. No further run goes to the background.
func (s *Surface) DrainRuns(ctx context.Context) {
	s.runs.mu.Lock()
	s.runs.isClosed = true
	s.runs.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); s.runs.parts.Wait() }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// CloseRuns ends the background runs because of the server's restart, and waits for them until ctx ends.
func (s *Surface) CloseRuns(ctx context.Context) {
	s.runs.mu.Lock()
	for _, l := range s.runs.list {
		l.stop(errRestart)
	}
	s.runs.mu.Unlock()
	s.DrainRuns(ctx)
}
