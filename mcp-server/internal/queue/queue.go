// Package queue hands out leases on slots: at once if a slot is free, otherwise in turn.
//
// sandboxd only grants or refuses a lease; this package decides the order of the waiting runs. Waiting is bounded in
// number and time, and fair among sessions. A session with a hundred waiting runs delays another session's single run
// by one run, not by a hundred.
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandbox"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Config configures a Queue. Zero fields get the defaults that their comments name.
type Config struct {
	// Source grants the leases.
	Source sandbox.Source
	// MaxWaiting is the largest number of waiting runs. Zero means 256.
	MaxWaiting int
	// MaxPerSession is the largest number of waiting runs of one session. Zero means 64.
	MaxPerSession int
	// MaxWait is how long one run waits at most. Zero means 30 s.
	MaxWait time.Duration
	// Poll is the interval of requests for a slot while runs wait, because sandboxd may free a slot without Release. Zero
	// means 100 ms.
	Poll time.Duration
	// Hold is how long a lease is held ahead for the next run. Zero means 15 min.
	Hold time.Duration
}

// BusyError means that no slot became free in time.
type BusyError struct {
	// Waited is how long this run waited. Zero means that the queue was full.
	Waited time.Duration
	// Waiting is the number of waiting runs.
	Waiting int
}

func (e *BusyError) Error() string {
	if e.Waited == 0 {
		return fmt.Sprintf("all slots are taken and %d runs are already waiting", e.Waiting)
	}
	return fmt.Sprintf("all slots are taken: waited %.1f s with %d runs waiting", e.Waited.Seconds(), e.Waiting)
}

// answerTime bounds a request to sandboxd about a lease, which normally takes far less than a millisecond.
const answerTime = 10 * time.Second

// retryPause is the pause between two attempts to reach sandboxd.
const retryPause = 200 * time.Millisecond

// errClosed is the error of waiting runs when the queue closes.
var errClosed = errors.New("the server is stopping")

// Queue hands out leases. Create it with New and end it with Close.
type Queue struct {
	cfg Config

	mu       sync.Mutex
	turns    []*sessionQueue          // sessions with waiting runs, the next one first
	sessions map[string]*sessionQueue // the same by session
	waiting  int                      // tickets in the session queues, and the one being served
	serves   *sessionQueue            // the session whose ticket is being served
	serving  bool                     // a dispatcher is running
	closed   bool
	ahead    *aheadLease   // a lease for the next run
	asking   bool          // a lease ahead is being requested
	released chan struct{} // holds one signal: a slot may be free
	done     sync.WaitGroup
	stop     chan struct{}
}

// sessionQueue holds the waiting runs of one session, oldest first.
type sessionQueue struct {
	session string
	tickets []*runTicket
}

type runTicket struct {
	ctx     context.Context
	request sandboxapi.LeaseRequest
	shared  bool // belongs to a Share, which bounds the number of such tickets
	queue   *sessionQueue
	result  chan ticketResult // buffered: one result
	picked  bool              // the dispatcher has it, or had it last; guarded by Queue.mu
}

type ticketResult struct {
	lease sandbox.SlotLease
	err   error
}

// New returns a queue.
func New(cfg Config) *Queue {
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, 256)
	cfg.MaxPerSession = cmp.Or(cfg.MaxPerSession, 64)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, 30*time.Second)
	cfg.Poll = cmp.Or(cfg.Poll, 100*time.Millisecond)
	cfg.Hold = cmp.Or(cfg.Hold, 15*time.Minute)
	return &Queue{
		cfg: cfg, sessions: map[string]*sessionQueue{}, released: make(chan struct{}, 1), stop: make(chan struct{}),
	}
}

// Close refuses the waiting runs, waits for the dispatcher and for releases, and releases the lease held ahead. Leases
// already handed out stay valid.
func (q *Queue) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.stop)
	}
	q.mu.Unlock()
	q.done.Wait()
	if h := q.takeHeld(); h != nil {
		q.releaseOne(h.lease)
	}
}

// CountWaiting returns the number of waiting runs.
func (q *Queue) CountWaiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Turn describes the run that wants a lease, and the kind of lease.
type Turn struct {
	Session string
	// Language is the same as in sandboxapi.LeaseRequest.
	Language sandboxapi.Language
	// Private is the same as in sandboxapi.LeaseRequest.
	Private bool
	// Folders is the same as in sandboxapi.LeaseRequest.
	Folders []string
	// Share is the share of the tenant that owns the run, or nil. Tenants' runs are private.
	Share *Share
}

// Acquire waits for a slot for a run of this kind. It returns how long it waited.
func (q *Queue) Acquire(ctx context.Context, t Turn) (sandbox.SlotLease, time.Duration, error) {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, q.cfg.MaxWait)
	defer cancel()
	if err := t.Share.beginRun(limited); err != nil {
		return sandbox.SlotLease{}, time.Since(start), err
	}
	l, err := q.acquireInShare(ctx, limited, t, start)
	if err != nil {
		t.Share.endRun()
		return l, time.Since(start), err
	}
	if t.Share != nil {
		// The share is given back with the lease and not with the run, because the slot stays taken until then.
		released := l.Released
		l.Released = func() {
			if released != nil {
				released()
			}
			t.Share.endRun()
		}
	}
	return l, time.Since(start), nil
}

// acquireInShare is Acquire within the tenant's share. limited is ctx with a deadline MaxWait after the start.
func (q *Queue) acquireInShare(ctx, limited context.Context, turn Turn, start time.Time) (sandbox.SlotLease, error) {
	request := sandboxapi.LeaseRequest{
		Language: turn.Language, Private: turn.Private || turn.Share != nil, Folders: turn.Folders,
	}
	// A run may skip the queue only if no other run waits.
	if q.CountWaiting() == 0 {
		l, err := q.takeLease(ctx, request)
		if !errors.Is(err, sandboxapi.ErrBusy) {
			return l, err
		}
	}
	//defence:tenant-share
	shared := turn.Share != nil
	t := &runTicket{ctx: limited, request: request, shared: shared, result: make(chan ticketResult, 1)}
	session := turn.Session
	if shared {
		// All sessions of a tenant take one turn: a tenant could otherwise open more sessions to get more turns.
		session = "tenant " + turn.Share.name
	}
	if err := q.enqueue(session, t); err != nil {
		return sandbox.SlotLease{}, err
	}
	select {
	case r := <-t.result:
		if !errors.Is(r.err, sandboxapi.ErrBusy) { // ErrBusy: MaxWait has passed
			return r.lease, r.err
		}
	case <-limited.Done():
		// The dispatcher may have got a lease at the same moment, and the lease must not be lost.
		if r := q.withdrawTicket(t); r.err == nil {
			q.ReleaseLease(r.lease)
		}
	}
	if ctx.Err() != nil {
		return sandbox.SlotLease{}, ctx.Err()
	}
	return sandbox.SlotLease{}, &BusyError{Waited: time.Since(start), Waiting: q.CountWaiting()}
}

// takeLease requests a lease. The end of ctx does not cancel the request, because a lease whose answer is lost would
// keep its slot until it expires. A lease that arrives too late is released.
//
// In the slot of the lease held ahead a TypeScript interpreter waits, private or not. For another language this lease
// is taken only if no other slot is free.
func (q *Queue) takeLease(ctx context.Context, r sandboxapi.LeaseRequest) (sandbox.SlotLease, error) {
	if !r.Language.IsPython() {
		if l, ok := q.useHeld(ctx, r); ok {
			return l, nil
		}
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	var cause error // why the previous attempt failed
	for {
		l, err := q.cfg.Source.Acquire(asking, r)
		if r.Language.IsPython() && errors.Is(err, sandboxapi.ErrBusy) {
			if held, ok := q.useHeld(ctx, r); ok {
				return held, nil
			}
		}
		if err == nil && ctx.Err() != nil {
			q.ReleaseLease(l)
			return sandbox.SlotLease{}, ctx.Err()
		}
		if err == nil || errors.Is(err, sandboxapi.ErrBusy) {
			return l, err
		}
		// A timeout would hide the reason for the failures before it.
		if asking.Err() == nil {
			cause = err
		}
		if ctx.Err() != nil || asking.Err() != nil {
			return l, errors.Join(err, cause)
		}
		select { // sandboxd may be restarting
		case <-time.After(retryPause):
		case <-asking.Done():
		case <-ctx.Done():
		}
	}
}

// ReleaseLease ends a lease, which lets the next run start. It returns at once; Close waits for the release.
func (q *Queue) ReleaseLease(l sandbox.SlotLease) {
	q.mu.Lock()
	closed := q.closed
	// After Close, done.Wait may already have returned, so the release then happens here.
	if !closed {
		q.done.Go(func() { q.releaseOne(l) })
	}
	q.mu.Unlock()
	if closed {
		q.releaseOne(l)
	}
}

func (q *Queue) releaseOne(l sandbox.SlotLease) {
	q.giveBack(l)
	q.acquireAhead(l)
}

func (q *Queue) giveBack(l sandbox.SlotLease) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	// An error means that the lease or sandboxd is gone. In both cases the slot is already free.
	_ = l.Release(ctx)
	q.signalFree()
}

func (q *Queue) signalFree() {
	select {
	case q.released <- struct{}{}:
	default:
	}
}

// enqueue appends a ticket to its session's queue, and starts the dispatcher if none is running.
func (q *Queue) enqueue(session string, t *runTicket) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosed
	}
	l := q.sessions[session]
	full := q.waiting >= q.cfg.MaxWaiting || l != nil && q.countTickets(l) >= q.cfg.MaxPerSession
	// Share.beginRun has already bounded a tenant's tickets. The operator's waiting runs must not shut them out.
	if full && !t.shared {
		return &BusyError{Waiting: q.waiting}
	}
	if l == nil {
		l = &sessionQueue{session: session}
		q.sessions[session] = l
		q.turns = append(q.turns, l)
	}
	t.queue = l
	l.tickets = append(l.tickets, t)
	q.waiting++
	if !q.serving {
		q.serving = true
		q.done.Go(q.dispatchRuns)
	}
	return nil
}

// countTickets returns the number of waiting runs of a session. The caller holds q.mu.
// The ticket that is being served is in no list, but its run still waits.
func (q *Queue) countTickets(l *sessionQueue) int {
	if q.serves == l {
		return len(l.tickets) + 1
	}
	return len(l.tickets)
}

// withdrawTicket withdraws a ticket. A ticket that is being served cannot be withdrawn, so withdrawTicket waits for its
// result.
// This wait is short, because the dispatcher stops requesting a lease when the ticket's context ends.
func (q *Queue) withdrawTicket(t *runTicket) ticketResult {
	q.mu.Lock()
	if !t.picked {
		t.queue.tickets = slices.DeleteFunc(t.queue.tickets, func(o *runTicket) bool { return o == t })
		q.waiting--
		q.mu.Unlock()
		return ticketResult{err: t.ctx.Err()}
	}
	q.mu.Unlock()
	return <-t.result
}

// dispatchRuns serves waiting runs in turn until none is left.
func (q *Queue) dispatchRuns() {
	for {
		t := q.nextTicket()
		if t == nil {
			return
		}
		l, err := q.takeLease(t.ctx, t.request)
		if errors.Is(err, sandboxapi.ErrBusy) && t.ctx.Err() == nil {
			// Put back while it waits, so that its caller can still withdraw it.
			q.putBack(t)
			q.waitForSlot()
			continue
		}
		q.mu.Lock()
		q.waiting--
		q.serves = nil
		q.mu.Unlock()
		t.result <- ticketResult{l, err}
		q.rotateSessions()
	}
}

// waitForSlot waits until a slot may be free.
func (q *Queue) waitForSlot() {
	timer := time.NewTimer(q.cfg.Poll)
	defer timer.Stop()
	select {
	case <-q.released:
	case <-timer.C:
	case <-q.stop:
	}
}

// nextTicket takes the first ticket of the session whose turn it is. It returns nil if no run waits, which ends the
// dispatcher.
func (q *Queue) nextTicket() *runTicket {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.turns) > 0 {
		l := q.turns[0]
		if len(l.tickets) == 0 {
			q.turns = q.turns[1:]
			delete(q.sessions, l.session)
			continue
		}
		t := l.tickets[0]
		l.tickets = l.tickets[1:]
		if q.closed {
			q.waiting--
			t.result <- ticketResult{err: errClosed}
			continue
		}
		t.picked, q.serves = true, l
		return t
	}
	q.serving = false
	return nil
}

// putBack returns a ticket that got no lease to the head of its session's queue. The session keeps its turn.
func (q *Queue) putBack(t *runTicket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.picked, q.serves = false, nil
	t.queue.tickets = slices.Insert(t.queue.tickets, 0, t)
}

// rotateSessions gives the next session its turn.
func (q *Queue) rotateSessions() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) > 1 {
		q.turns = append(q.turns[1:], q.turns[0])
	}
}
