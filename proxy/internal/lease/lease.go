// Package lease tracks which run may act for which slot.
//
// A lease is the right to use a slot once: {slot, generation}. Contract: a connection is bound to the lease that its
// slot has at the time of accept, and is closed with this lease. An exchange counts for this lease, and its record goes
// only there. Threat: code of an ended run (through a connection kept open, or a request left in the accept queue) acts
// as the next run.
package lease

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/countdown"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// The bounds of one lease.
const (
	MaxConnections = 128 // open connections
	MaxExchanges   = 64  // exchanges in flight; further ones wait
	maxWaiting     = 1024
	maxUnheld      = 64 // waiting exchanges without memory
	// MaxUnread is the number of bytes of a request's body that an HTTP/2 client may send before they are read.
	MaxUnread = 64 << 10
	// Grace is how long after its deadline a lease ends by itself.
	Grace = 5 * time.Second
	// settleTime is how long an ending lease waits for its aborted exchanges.
	settleTime = 5 * time.Second
	// farewellTime is how long a revoked lease may still answer the request that caused the revocation.
	farewellTime = 100 * time.Millisecond
)

// The memory that a connection and an exchange take from the budget, in bytes. It covers their buffers of fixed size,
// used or unused.
const (
	// connectionSize is for TLS and a head that is read.
	connectionSize = 256 << 10
	// waitingSize is for an exchange that waits, without its head.
	waitingSize = 16 << 10
	// exchangeSize is for membudget.Free bytes of a request's body, the buffers between the two connections, and the
	// unread bytes of an HTTP/2 server (upstream.streamWindow).
	exchangeSize = 768 << 10
	// waitingRoom is the part of a run's share that exchanges in flight leave to those that wait.
	waitingRoom = 8 << 20
)

var (
	// ErrNone means that the slot has no lease.
	ErrNone = errors.New("the slot has no run")
	// ErrEnded is the cause with which an exchange's context ends with its lease.
	ErrEnded = errors.New("the run has ended")
	// ErrFull means that the slot has reached its limit of connections, of waiting exchanges or of memory.
	ErrFull = errors.New("too many connections or requests at once")
)

// Lease is one run in one slot. Make one with Table.BeginLease or NewDetached.
type Lease struct {
	Slot       slot.ID
	Generation uint64
	Run        string
	Tenant     string // empty: the operator
	Recorder   *receipt.Recorder

	// Plan records the writes of a dry run, which are not sent. It is nil for other runs.
	Plan *approval.Draft
	// Canaries returns the run's canaries, compiled at the first call. It is nil without canaries.
	Canaries func() *swap.Canaries

	clientType policy.ClientType
	apis       []string // the APIs that the run may use; nil means every active API
	closed     bool     // the run must not learn of other APIs
	ctx        context.Context
	cancel     context.CancelCauseFunc
	expiry     *countdown.Countdown
	inFlight   chan struct{} // one token per exchange
	unheld     chan struct{} // one token per exchange that waits for the memory of its head
	memory     *membudget.Budget
	connected  *membudget.Account // the memory of conns

	mu        sync.Mutex
	ended     bool
	revoked   bool // no further connection or exchange may begin
	conns     map[io.Closer]struct{}
	compiling bool
	waiting   int
	calls     []*serverCall  // calls in progress at an MCP server
	version   uint64         // the version of calls
	active    sync.WaitGroup // exchanges; Add only under mu and before ended
}

// CanUse reports whether the run may use an API.
func (l *Lease) CanUse(api string) bool {
	return l.apis == nil || slices.Contains(l.apis, api)
}

// Server returns the API of the MCP server that has the lease. It is empty for other leases.
func (l *Lease) Server() string {
	if l.clientType != policy.ClientServer {
		return ""
	}
	return l.apis[0]
}

// IsClosed reports whether the run, or a tenant's server, must not learn of APIs that it does not include.
func (l *Lease) IsClosed() bool {
	//defence:tenant-hosts
	return l.closed
}

// NewDetached makes a lease without a slot, to send the plan of a run that has ended. The lease ends with close.
func NewDetached(run, tenant string, apis []string, memory *membudget.Budget) (l *Lease, close func()) {
	now := time.Now()
	r := proxyapi.Registration{Run: run, Tenant: tenant, APIs: apis, Deadline: now.Add(time.Hour)}
	l = newLease(noSlot, r, now, memory)
	return l, l.endAndWait
}

// noSlot is not a valid slot.
const noSlot = slot.ID(-1)

// ClientType returns the kind of client in the slot: code, an MCP server, or the installation of a server.
func (l *Lease) ClientType() policy.ClientType { return l.clientType }

// Context ends when the lease does.
func (l *Lease) Context() context.Context { return l.ctx }

// addConn binds a connection, which the lease closes at its end.
func (l *Lease) addConn(c io.Closer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended || l.revoked:
		return ErrNone
	case len(l.conns) >= MaxConnections:
		return ErrFull
	// The last case, because it takes memory: the others would have to give it back.
	case !l.connected.TryTake(connectionSize):
		return ErrFull
	}
	if l.conns[c] = struct{}{}; l.Canaries != nil && !l.compiling {
		l.compiling = true
		go l.Canaries() // in parallel with the TLS handshake
	}
	return nil
}

// DetachConn removes a closed connection. It must be called once for each attached connection.
func (l *Lease) DetachConn(c io.Closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.connected.GiveBack(connectionSize)
}

// BeginExchange begins an exchange whose head and unread part of the body have at most size bytes. It waits until fewer
// than MaxExchanges are in flight and the memory suffices, for at most 10 s. The exchange may take more memory from
// held. The caller must call leave after the exchange has been recorded.
func (l *Lease) BeginExchange(ctx context.Context, size int) (held *membudget.Account, leave func(), err error) {
	held = l.memory.OpenAccount(l)
	l.mu.Lock()
	if l.ended || l.revoked {
		l.mu.Unlock()
		return nil, nil, ErrEnded
	}
	// Bound the waiting requests too: each holds its head in memory.
	if l.waiting >= maxWaiting {
		l.mu.Unlock()
		return nil, nil, ErrFull
	}
	l.waiting++
	// Add under mu: end sets ended under mu before it waits, so no Add can follow Wait.
	l.active.Add(1)
	l.mu.Unlock()

	if err = l.holdHead(ctx, held, int64(size)+waitingSize); err == nil {
		err = l.takeTurn(ctx, held)
	}
	if errors.Is(err, membudget.ErrFull) {
		err = ErrFull
	}
	l.mu.Lock()
	l.waiting--
	l.mu.Unlock()
	if err != nil {
		held.Close()
		l.active.Done()
		return nil, nil, err
	}
	return held, func() { held.Close(); <-l.inFlight; l.active.Done() }, nil
}

// holdHead takes the memory of a waiting exchange. At most maxUnheld exchanges wait for it, because exchanges in flight
// may have the whole share of the run for a moment.
func (l *Lease) holdHead(ctx context.Context, held *membudget.Account, size int64) error {
	if held.TryTake(size) {
		return nil
	}
	select {
	case l.unheld <- struct{}{}:
		defer func() { <-l.unheld }()
		return held.WaitAndTake(ctx, size)
	default:
		return ErrFull
	}
}

// takeTurn waits until fewer than MaxExchanges are in flight and the memory suffices. After nil, the exchange has a
// token of inFlight.
func (l *Lease) takeTurn(ctx context.Context, held *membudget.Account) error {
	// The token first: only an exchange that may run takes the memory to run.
	select {
	case l.inFlight <- struct{}{}:
		err := held.WaitLeaving(ctx, exchangeSize, waitingRoom)
		if err != nil {
			<-l.inFlight
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.ctx.Done():
		return ErrEnded
	}
}

// Revoke takes the right to use the slot from a run. No connection or exchange can begin after it, and abort follows
// after farewell. The receipt stays.
func (l *Lease) Revoke() {
	l.mu.Lock()
	first := !l.revoked
	l.revoked = true
	l.mu.Unlock()
	// Abort later: the run must still get the answer that says why.
	if first {
		time.AfterFunc(farewellTime, l.abortAll)
	}
}

// endAndWait aborts everything of the lease and waits until it has stopped, at most settle.
func (l *Lease) endAndWait() {
	l.abortAll()
	done := make(chan struct{})
	go func() { l.active.Wait(); close(done) }()
	t := time.NewTimer(settleTime)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// abortAll ends the lease's context and its connections.
func (l *Lease) abortAll() {
	l.mu.Lock()
	first := !l.ended
	l.ended = true
	conns := l.conns
	l.conns = map[io.Closer]struct{}{}
	l.mu.Unlock()
	if first {
		l.expiry.Stop()
		l.cancel(ErrEnded)
		for c := range conns {
			_ = c.Close()
		}
	}
}
