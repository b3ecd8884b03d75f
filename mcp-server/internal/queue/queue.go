// Package queue hands out leases on slots: immediately when a slot is free, otherwise in turn.
//
// sandboxd only grants or refuses a lease; the order of the waiting runs is decided here. Waiting is bounded in number
// and in time, and fair among sessions: a session with a hundred waiting runs delays another session's single run by
// one run, not by a hundred.
package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandbox"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// Config configures a Queue. Zero fields get the defaults named there.
type Config struct {
	// Source grants the leases.
	Source sandbox.Source
	// MaxWaiting is how many runs may wait in all. Zero means 256.
	MaxWaiting int
	// MaxPerSession is how many runs of one session may wait. Zero means 64.
	MaxPerSession int
	// MaxWait is how long one run waits. Zero means 30 s.
	MaxWait time.Duration
	// Poll is how often a slot is requested while runs wait and none was released here: sandboxd may free a slot by
	// itself. Zero means 100 ms.
	Poll time.Duration
	// Hold is how long a lease is held ahead for the next run. Zero means 15 min.
	Hold time.Duration
}

// BusyError means that no slot became free in time.
type BusyError struct {
	// Waited is how long this run waited. Zero when the queue was full.
	Waited time.Duration
	// Waiting is how many runs were waiting.
	Waiting int
}

func (e *BusyError) Error() string {
	if e.Waited == 0 {
		return fmt.Sprintf("all slots are taken and %d runs are already waiting", e.Waiting)
	}
	return fmt.Sprintf("all slots are taken: waited %.1f s with %d runs waiting", e.Waited.Seconds(), e.Waiting)
}

// answerTime bounds a request to sandboxd for or about a lease, which normally takes far less than a millisecond.
const answerTime = 10 * time.Second

// retryPause is the pause between two attempts to reach sandboxd.
const retryPause = 200 * time.Millisecond

// errClosed is what waiting runs get when the queue closes.
var errClosed = errors.New("the server is stopping")

// Queue hands out leases. Make it with New, end it with Close.
type Queue struct {
	cfg Config

	mu       sync.Mutex
	turns    []*sessionQueue          // sessions with waiting runs, the next one first
	sessions map[string]*sessionQueue // the same by session
	waiting  int                      // tickets in the session queues, and the one being served
	serves   *sessionQueue            // the session whose ticket is being served
	serving  bool                     // a dispatcher is running
	closed   bool
	ahead    *held         // a lease for the next run
	asking   bool          // a lease ahead is being requested
	released chan struct{} // one signal: a slot may be free
	done     sync.WaitGroup
	stop     chan struct{}
}

// held is a lease taken ahead of its run, which then does not wait for one.
type held struct {
	lease  sandbox.Lease
	giveUp *time.Timer
}

// sessionQueue holds the waiting runs of one session, oldest first.
type sessionQueue struct {
	session string
	tickets []*ticket
}

// ticket is one waiting run.
type ticket struct {
	ctx     context.Context
	request runapi.LeaseRequest
	shared  bool // of a Share, which bounds how many there are
	queue   *sessionQueue
	result  chan result // buffered: one result
	picked  bool        // the dispatcher has it, or had it last; guarded by Queue.mu
}

type result struct {
	lease sandbox.Lease
	err   error
}

// New makes a queue.
func New(cfg Config) *Queue {
	if cfg.MaxWaiting == 0 {
		cfg.MaxWaiting = 256
	}
	if cfg.MaxPerSession == 0 {
		cfg.MaxPerSession = 64
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = 30 * time.Second
	}
	if cfg.Poll == 0 {
		cfg.Poll = 100 * time.Millisecond
	}
	if cfg.Hold == 0 {
		cfg.Hold = 15 * time.Minute
	}
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
		q.release(h.lease)
	}
}

// Waiting is how many runs wait now.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Acquire takes a lease for a run of the session, and says how long that took. A *BusyError says that none could be
// had.
func (q *Queue) Acquire(ctx context.Context, session string) (sandbox.Lease, time.Duration, error) {
	return q.AcquireFor(ctx, Turn{Session: session})
}

// Turn says whose run wants a lease, and what kind of lease.
type Turn struct {
	Session string
	// Language is as runapi.LeaseRequest has it.
	Language string
	// Private is as runapi.LeaseRequest has it.
	Private bool
	// Share is the share of the tenant whose run it is, or nil. Tenants' runs are private.
	Share *Share
}

// AcquireFor is Acquire for a certain run.
func (q *Queue) AcquireFor(ctx context.Context, t Turn) (sandbox.Lease, time.Duration, error) {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, q.cfg.MaxWait)
	defer cancel()
	if err := t.Share.begin(limited); err != nil {
		return sandbox.Lease{}, time.Since(start), err
	}
	l, err := q.acquire(ctx, limited, t, start)
	if err != nil {
		t.Share.end()
		return l, time.Since(start), err
	}
	if t.Share != nil {
		released := l.Released
		l.Released = func() {
			if released != nil {
				released()
			}
			t.Share.end()
		}
	}
	return l, time.Since(start), nil
}

// acquire is AcquireFor within the tenant's share. limited is ctx until MaxWait after start.
func (q *Queue) acquire(ctx, limited context.Context, turn Turn, start time.Time) (sandbox.Lease, error) {
	request := runapi.LeaseRequest{Language: turn.Language, Private: turn.Private || turn.Share != nil}
	if q.Waiting() == 0 {
		l, err := q.take(ctx, request)
		if !errors.Is(err, runapi.ErrBusy) {
			return l, err
		}
	}
	//defence:tenant-share
	shared := turn.Share != nil
	t := &ticket{ctx: limited, request: request, shared: shared, result: make(chan result, 1)}
	session := turn.Session
	if shared {
		session = "tenant " + turn.Share.name
	}
	if err := q.enter(session, t); err != nil {
		return sandbox.Lease{}, err
	}
	select {
	case r := <-t.result:
		if !errors.Is(r.err, runapi.ErrBusy) { // ErrBusy: MaxWait has passed
			return r.lease, r.err
		}
	case <-limited.Done():
		if r := q.leave(t); r.err == nil {
			q.Release(r.lease)
		}
	}
	if ctx.Err() != nil {
		return sandbox.Lease{}, ctx.Err()
	}
	return sandbox.Lease{}, &BusyError{Waited: time.Since(start), Waiting: q.Waiting()}
}

// take requests a lease. The request is not cancelled with ctx, since a lease whose answer is lost would keep its slot
// until it expires; a lease that arrives too late is released.
//
// In the slot of the lease that is held ahead an interpreter of TypeScript waits, private or not. For another language
// it is taken only when no other slot is free.
func (q *Queue) take(ctx context.Context, r runapi.LeaseRequest) (sandbox.Lease, error) {
	if r.Language == "" {
		if l, ok := q.useHeld(ctx, r.Private); ok {
			return l, nil
		}
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	var cause error // why the previous attempt failed
	for {
		l, err := q.cfg.Source.Acquire(asking, r)
		if r.Language != "" && errors.Is(err, runapi.ErrBusy) {
			if held, ok := q.useHeld(ctx, r.Private); ok {
				return held, nil
			}
		}
		if err == nil && ctx.Err() != nil {
			q.Release(l)
			return sandbox.Lease{}, ctx.Err()
		}
		if err == nil || errors.Is(err, runapi.ErrBusy) {
			return l, err
		}
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

// useHeld takes the lease that is held ahead, if there is one and it is still good.
func (q *Queue) useHeld(ctx context.Context, private bool) (sandbox.Lease, bool) {
	h := q.takeHeld()
	if h == nil {
		return sandbox.Lease{}, false
	}
	if h.lease.Good() && ctx.Err() == nil && h.lease.Private == private {
		return h.lease, true
	}
	q.Release(h.lease)
	return sandbox.Lease{}, false
}

// Release ends a lease, which lets the next run start. It returns immediately; Close waits for the release.
func (q *Queue) Release(l sandbox.Lease) {
	q.mu.Lock()
	closed := q.closed
	if !closed {
		q.done.Go(func() { q.release(l) })
	}
	q.mu.Unlock()
	if closed {
		q.release(l)
	}
}

func (q *Queue) release(l sandbox.Lease) {
	q.giveBack(l)
	q.acquireAhead(l.Private)
}

func (q *Queue) giveBack(l sandbox.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	// An error means that the lease or sandboxd is gone, in which case the slot is already free.
	_ = l.Release(ctx)
	q.signal()
}

// signal signals that a slot may be free.
func (q *Queue) signal() {
	select {
	case q.released <- struct{}{}:
	default:
	}
}

// acquireAhead takes a lease for the next run, which is probably like the last one, unless runs are waiting.
func (q *Queue) acquireAhead(private bool) {
	q.mu.Lock()
	if q.closed || q.waiting > 0 || q.ahead != nil || q.asking {
		q.mu.Unlock()
		return
	}
	q.asking = true
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	l, err := q.cfg.Source.Acquire(ctx, runapi.LeaseRequest{Ahead: true, Private: private})
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asking = false
	if err != nil { // the next run requests its own
		return
	}
	h := &held{lease: l}
	h.giveUp = time.AfterFunc(q.cfg.Hold, func() { q.drop(h) })
	q.ahead = h
	q.signal() // a run may have begun to wait in the meantime
}

// takeHeld takes the lease that is held ahead, or nil.
func (q *Queue) takeHeld() *held {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.ahead
	q.ahead = nil
	if h != nil {
		h.giveUp.Stop()
	}
	return h
}

// drop releases a lease that was held for too long.
func (q *Queue) drop(h *held) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ahead != h || q.closed {
		return
	}
	q.ahead = nil
	q.done.Go(func() { q.giveBack(h.lease) })
}

// enter puts a ticket at the end of its session's queue and starts the dispatcher if none is running.
func (q *Queue) enter(session string, t *ticket) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosed
	}
	l := q.sessions[session]
	full := q.waiting >= q.cfg.MaxWaiting || l != nil && q.length(l) >= q.cfg.MaxPerSession
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
		q.done.Go(q.dispatch)
	}
	return nil
}

// length is how many runs of a session are waiting. q.mu is held.
func (q *Queue) length(l *sessionQueue) int {
	if q.serves == l {
		return len(l.tickets) + 1
	}
	return len(l.tickets)
}

// leave withdraws a ticket. One that is being served cannot be withdrawn: leave waits for its result, briefly, because
// the dispatcher stops requesting a lease when the ticket's context ends.
func (q *Queue) leave(t *ticket) result {
	q.mu.Lock()
	if !t.picked {
		t.queue.tickets = slices.DeleteFunc(t.queue.tickets, func(o *ticket) bool { return o == t })
		q.waiting--
		q.mu.Unlock()
		return result{err: t.ctx.Err()}
	}
	q.mu.Unlock()
	return <-t.result
}

// dispatch serves waiting runs in turn until none is waiting.
func (q *Queue) dispatch() {
	for {
		t := q.next()
		if t == nil {
			return
		}
		l, err := q.take(t.ctx, t.request)
		if errors.Is(err, runapi.ErrBusy) && t.ctx.Err() == nil {
			q.putBack(t)
			q.pause()
			continue
		}
		q.mu.Lock()
		q.waiting--
		q.serves = nil
		q.mu.Unlock()
		t.result <- result{l, err}
		q.rotate()
	}
}

// pause waits until a slot may be free.
func (q *Queue) pause() {
	timer := time.NewTimer(q.cfg.Poll)
	defer timer.Stop()
	select {
	case <-q.released:
	case <-timer.C:
	case <-q.stop:
	}
}

// next picks the first ticket of the session whose turn it is, or nil when none is waiting, which ends the dispatcher.
func (q *Queue) next() *ticket {
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
			t.result <- result{err: errClosed}
			continue
		}
		t.picked, q.serves = true, l
		return t
	}
	q.serving = false
	return nil
}

// putBack returns a ticket that could not be served to the head of its session's queue, which keeps its turn.
func (q *Queue) putBack(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.picked, q.serves = false, nil
	t.queue.tickets = slices.Insert(t.queue.tickets, 0, t)
}

// rotate lets the next session have its turn.
func (q *Queue) rotate() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) > 1 {
		q.turns = append(q.turns[1:], q.turns[0])
	}
}
