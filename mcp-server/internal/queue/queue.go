// Package queue hands out leases on slots: at once when a slot is free, else in turn.
//
// Sandboxd says only "taken" or "yours"; who is next is decided here. Waiting is bounded in number and in time, and fair among
// sessions: a session with a hundred waiting runs delays another session's single run by one run, not by a hundred.
package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// Config configures a Queue. Zero fields get the defaults named there.
type Config struct {
	// Sandbox gives and takes the leases.
	Sandbox *runapi.Client
	// MaxWaiting is how many runs may wait in all. Zero means 256.
	MaxWaiting int
	// MaxPerSession is how many runs of one session may wait. Zero means 64.
	MaxPerSession int
	// MaxWait is how long one run waits. Zero means 30 s.
	MaxWait time.Duration
	// Poll is how often a slot is asked for while runs wait and nothing was released here, since a slot may also be freed
	// by sandboxd itself. Zero means 100 ms.
	Poll time.Duration
	// Hold is how long a lease is held for a run that does not come. Zero means 15 min.
	Hold time.Duration
}

// BusyError says that no slot could be had.
type BusyError struct {
	// Waited is how long this run waited. Zero when it was not let into the queue at all.
	Waited time.Duration
	// Waiting is how many runs were waiting.
	Waiting int
}

func (e *BusyError) Error() string {
	if e.Waited == 0 {
		return fmt.Sprintf("all slots are taken and %d runs wait already", e.Waiting)
	}
	return fmt.Sprintf("all slots are taken: waited %.1f s with %d runs waiting", e.Waited.Seconds(), e.Waiting)
}

// answerTime is how long sandboxd may take to give or take back a lease, which it does in far under a millisecond.
const answerTime = 10 * time.Second

// retryPause is between two tries to reach sandboxd.
const retryPause = 200 * time.Millisecond

// errClosed is what waiting runs get when the queue closes.
var errClosed = errors.New("the server is stopping")

// Queue hands out leases. Make it with New, end it with Close.
type Queue struct {
	cfg Config

	mu       sync.Mutex
	turns    []*line          // sessions with waiting runs, the next one first
	lines    map[string]*line // the same by session
	waiting  int              // tickets in lines, and the one being served
	serves   *line            // whose ticket is being served
	serving  bool             // a dispatcher runs
	closed   bool
	ahead    *held         // a lease for the next run
	looking  bool          // one is being asked for
	released chan struct{} // one signal: a slot may be free
	done     sync.WaitGroup
	stop     chan struct{}
}

// held is a lease that was taken ahead of its run, so that the run need not wait for that.
type held struct {
	lease  runapi.Lease
	stream uint64 // that it was taken on
	giveUp *time.Timer
}

// line is the waiting runs of one session, oldest first.
type line struct {
	session string
	tickets []*ticket
}

// ticket is one waiting run.
type ticket struct {
	ctx    context.Context
	line   *line
	result chan result // buffered: one result
	picked bool        // the dispatcher has it, or had it last; guarded by Queue.mu
}

type result struct {
	lease runapi.Lease
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
	return &Queue{cfg: cfg, lines: map[string]*line{}, released: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Close refuses who waits, waits for the queue's goroutine and for releases, and gives back what is held. Leases already
// given stay valid.
func (q *Queue) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.stop)
	}
	q.mu.Unlock()
	q.done.Wait()
	if h := q.takeHeld(); h != nil {
		q.release(h.lease.Generation)
	}
}

// Waiting is how many runs wait now.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Acquire takes a lease for a run of the session, and says how long that took. A *BusyError says that none could be had.
func (q *Queue) Acquire(ctx context.Context, session string) (runapi.Lease, time.Duration, error) {
	start := time.Now()
	if q.Waiting() == 0 { // nobody is before us
		l, err := q.take(ctx)
		if !errors.Is(err, runapi.ErrBusy) {
			return l, time.Since(start), err
		}
	}
	limited, cancel := context.WithTimeout(ctx, q.cfg.MaxWait)
	defer cancel()
	t := &ticket{ctx: limited, result: make(chan result, 1)}
	if err := q.enter(session, t); err != nil {
		return runapi.Lease{}, time.Since(start), err
	}
	select {
	case r := <-t.result:
		if !errors.Is(r.err, runapi.ErrBusy) { // else it was not waited for any longer
			return r.lease, time.Since(start), r.err
		}
	case <-limited.Done():
		if r := q.leave(t); r.err == nil {
			q.Release(r.lease.Generation)
		}
	}
	waited := time.Since(start)
	if ctx.Err() != nil {
		return runapi.Lease{}, waited, ctx.Err()
	}
	return runapi.Lease{}, waited, &BusyError{Waited: waited, Waiting: q.Waiting()}
}

// take asks for a lease. The asking is not cancelled with ctx, since a lease whose answer is lost would keep its slot until
// it expires; a lease that comes too late is given back.
func (q *Queue) take(ctx context.Context) (runapi.Lease, error) {
	if h := q.takeHeld(); h != nil {
		if h.stream == q.cfg.Sandbox.Stream() && ctx.Err() == nil {
			return h.lease, nil
		}
		q.Release(h.lease.Generation)
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	var cause error // why the try before failed
	for {
		l, err := q.cfg.Sandbox.Acquire(asking)
		if err == nil && ctx.Err() != nil {
			q.Release(l.Generation)
			return runapi.Lease{}, ctx.Err()
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
		select { // sandboxd restarts, perhaps
		case <-time.After(retryPause):
		case <-asking.Done():
		case <-ctx.Done():
		}
	}
}

// Release ends a lease and lets the next run in. It does not wait for that, since nobody but the next run has to; Close
// does.
func (q *Queue) Release(generation uint64) {
	q.mu.Lock()
	closed := q.closed
	if !closed {
		q.done.Go(func() { q.release(generation) })
	}
	q.mu.Unlock()
	if closed {
		q.release(generation)
	}
}

func (q *Queue) release(generation uint64) {
	q.giveBack(generation)
	q.look()
}

func (q *Queue) giveBack(generation uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	// An error here means that the lease is gone already or that sandboxd is: it frees the slot by itself then.
	_ = q.cfg.Sandbox.Release(ctx, generation)
	q.signal()
}

// signal says that a slot may be free.
func (q *Queue) signal() {
	select {
	case q.released <- struct{}{}:
	default:
	}
}

// look takes a lease for the next run, unless runs wait.
func (q *Queue) look() {
	q.mu.Lock()
	if q.closed || q.waiting > 0 || q.ahead != nil || q.looking {
		q.mu.Unlock()
		return
	}
	q.looking = true
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	stream := q.cfg.Sandbox.Stream()
	l, err := q.cfg.Sandbox.AcquireAhead(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looking = false
	if err != nil { // it was only to be faster
		return
	}
	h := &held{lease: l, stream: stream}
	h.giveUp = time.AfterFunc(q.cfg.Hold, func() { q.drop(h) })
	q.ahead = h
	q.signal() // a run may have begun to wait meanwhile
}

// takeHeld takes the lease that is held, nil when none is.
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

// drop gives back a lease that was held for too long.
func (q *Queue) drop(h *held) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ahead != h || q.closed {
		return
	}
	q.ahead = nil
	q.done.Go(func() { q.giveBack(h.lease.Generation) })
}

// enter puts a ticket at the end of its session's line and starts the dispatcher if none runs.
func (q *Queue) enter(session string, t *ticket) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosed
	}
	l := q.lines[session]
	if q.waiting >= q.cfg.MaxWaiting || l != nil && q.length(l) >= q.cfg.MaxPerSession {
		return &BusyError{Waiting: q.waiting}
	}
	if l == nil {
		l = &line{session: session}
		q.lines[session] = l
		q.turns = append(q.turns, l)
	}
	t.line = l
	l.tickets = append(l.tickets, t)
	q.waiting++
	if !q.serving {
		q.serving = true
		q.done.Go(q.dispatch)
	}
	return nil
}

// length is how many runs of a session wait. q.mu is held.
func (q *Queue) length(l *line) int {
	if q.serves == l {
		return len(l.tickets) + 1
	}
	return len(l.tickets)
}

// leave withdraws a ticket. A ticket that is being served cannot be withdrawn: its result is waited for, which is short
// because the asking stops with the ticket's context.
func (q *Queue) leave(t *ticket) result {
	q.mu.Lock()
	if !t.picked {
		t.line.tickets = slices.DeleteFunc(t.line.tickets, func(o *ticket) bool { return o == t })
		q.waiting--
		q.mu.Unlock()
		return result{err: t.ctx.Err()}
	}
	q.mu.Unlock()
	return <-t.result
}

// dispatch serves waiting runs in turn until none waits.
func (q *Queue) dispatch() {
	for {
		t := q.next()
		if t == nil {
			return
		}
		l, err := q.take(t.ctx)
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

// next picks the first ticket of the session whose turn it is. Nil, and no dispatcher any more, when none waits.
func (q *Queue) next() *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.turns) > 0 {
		l := q.turns[0]
		if len(l.tickets) == 0 {
			q.turns = q.turns[1:]
			delete(q.lines, l.session)
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

// putBack returns a ticket that could not be served to the head of its line, which still has its turn.
func (q *Queue) putBack(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.picked, q.serves = false, nil
	t.line.tickets = slices.Insert(t.line.tickets, 0, t)
}

// rotate lets the next session have its turn.
func (q *Queue) rotate() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) > 1 {
		q.turns = append(q.turns[1:], q.turns[0])
	}
}
