package queue

import (
	"context"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandbox"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// aheadLease is a lease taken ahead, so that the next run does not wait for a lease.
type aheadLease struct {
	lease  sandbox.SlotLease
	giveUp *time.Timer
}

// useHeld takes the lease held ahead, if there is one for such a run and it is still valid.
func (q *Queue) useHeld(ctx context.Context, r sandboxapi.LeaseRequest) (sandbox.SlotLease, bool) {
	h := q.takeHeld()
	if h == nil {
		return sandbox.SlotLease{}, false
	}
	if h.lease.IsValid() && ctx.Err() == nil && h.lease.Private == r.Private &&
		slices.Equal(h.lease.Folders, r.Folders) {
		return h.lease, true
	}
	q.ReleaseLease(h.lease)
	return sandbox.SlotLease{}, false
}

// acquireAhead takes a lease for the next run, which is probably like the last one, unless runs are waiting.
func (q *Queue) acquireAhead(last sandbox.SlotLease) {
	q.mu.Lock()
	if q.closed || q.waiting > 0 || q.ahead != nil || q.asking {
		q.mu.Unlock()
		return
	}
	q.asking = true
	q.mu.Unlock()
	// The lock is free meanwhile, because the answer may take as long as answerTime.
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	l, err := q.cfg.Source.Acquire(ctx, sandboxapi.LeaseRequest{Ahead: true, Private: last.Private, Folders: last.Folders})
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asking = false
	if err != nil { // the next run requests a lease then
		return
	}
	h := &aheadLease{lease: l}
	h.giveUp = time.AfterFunc(q.cfg.Hold, func() { q.dropAhead(h) })
	q.ahead = h
	q.signalFree() // a run may have started to wait meanwhile
}

func (q *Queue) takeHeld() *aheadLease {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.ahead
	q.ahead = nil
	if h != nil {
		h.giveUp.Stop()
	}
	return h
}

// dropAhead releases a lease that was held for too long.
func (q *Queue) dropAhead(h *aheadLease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ahead != h || q.closed {
		return
	}
	q.ahead = nil
	// Not release, which would take the next lease ahead at once.
	q.done.Go(func() { q.giveBack(h.lease) })
}
