// Package membudget bounds the memory that the buffers of many holders take together.
//
// Threat: one holder, such as a run, or several at once make a daemon hold so much that the kernel ends it, or that the
// others get no memory. Contract: half of a budget is reserved for holders that have little, a thirty-second of it at
// most. Of the rest a holder takes more only as long as it then has at most as much as is still free. So one holder has
// at most a quarter of a budget, and each of sixteen finds its thirty-second, whatever the others have taken before.
package membudget

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
)

// ErrFull means that a holder has its share of the budget and did not get more in time.
var ErrFull = errors.New("the memory for requests is in use")

// patience is how long Acquire waits. It also ends two requests that wait for each other's memory.
const patience = 10 * time.Second

// Budget is a number of bytes that holders share. It is safe for concurrent use. Make one with New.
type Budget struct {
	total    int64
	patience time.Duration

	mu    sync.Mutex
	used  int64
	holds map[any]int64 // by holder
	freed chan struct{} // closed when memory becomes free. Nil if no Acquire waits
}

// New makes a budget of so many bytes.
func New(total int64) *Budget {
	return &Budget{total: total, patience: patience, holds: map[any]int64{}}
}

// Used returns how many bytes all holders have.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Open returns an empty account. What it takes counts for the holder, a comparable value such as a run.
func (b *Budget) Open(holder any) *Account { return &Account{budget: b, holder: holder} }

// Account is what one request or connection has of a holder's share. It is safe for concurrent use. The nil Account
// takes any amount: it is for callers outside of a budget.
type Account struct {
	budget *Budget
	holder any
	size   int64 // guarded by budget.mu
}

// Take takes n bytes. It is false, and takes none, if the share does not allow it now.
func (a *Account) Take(n int64) bool {
	if a == nil {
		return true
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.take(n)
}

// take is Take for a caller that holds budget.mu.
func (a *Account) take(n int64) bool {
	b := a.budget
	if n > 0 && !b.allows(b.holds[a.holder]+n, b.total-b.used-n) && !disarm.Off("memory-budget") {
		return false
	}
	b.holds[a.holder] += n
	b.used += n
	a.size += n
	return true
}

// reserved is the part of a budget that only holders with little may take, and little the part that is little.
const reserved, little = 2, 32

// allows reports whether a holder may have so many bytes while so many are free.
func (b *Budget) allows(has, free int64) bool {
	// A share of what is free is not enough: holders keep what they have, so each that comes would find half as much as
	// the one before.
	return free >= 0 && has <= b.total/little || has <= free-b.total/reserved
}

// Wait takes n bytes. It waits for them until ctx ends, and returns its cause then. ErrFull: no share is so large.
func (a *Account) Wait(ctx context.Context, n int64) error { return a.WaitLeaving(ctx, n, 0) }

// WaitLeaving is Wait that leaves so many bytes of the holder's share for its other accounts, unless the holder has
// little.
func (a *Account) WaitLeaving(ctx context.Context, n, rest int64) error {
	if a == nil {
		return nil
	}
	if n > a.budget.total/reserved/2 && !disarm.Off("memory-budget") {
		return ErrFull
	}
	for {
		freed := a.takeOrListen(n, rest)
		if freed == nil {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// takeOrListen takes n bytes and returns nil, or returns a channel that is closed when memory becomes free.
func (a *Account) takeOrListen(n, rest int64) <-chan struct{} {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	has := b.holds[a.holder] + n
	leaves := has <= b.total/little || b.allows(has+rest, b.total-b.used-n-rest) || disarm.Off("memory-budget")
	if leaves && a.take(n) {
		return nil
	}
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed
}

// Acquire is Wait for a caller that already has a part of the budget: it waits 10 s at most, and returns ErrFull then.
func (a *Account) Acquire(ctx context.Context, n int64) error {
	if a == nil || a.Take(n) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.budget.patience, ErrFull)
	defer cancel()
	return a.Wait(ctx, n)
}

// Give gives n bytes back, which the account must have.
func (a *Account) Give(n int64) {
	if a == nil {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.give(n)
}

// Close gives everything back.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.give(a.size)
}

// give is Give for a caller that holds budget.mu.
func (a *Account) give(n int64) {
	if n == 0 {
		return
	}
	b := a.budget
	a.size -= n
	b.used -= n
	if b.holds[a.holder] -= n; b.holds[a.holder] == 0 {
		delete(b.holds, a.holder)
	}
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// Reader takes what is read from src. It fails with ErrFull if the share does not allow that.
func (a *Account) Reader(src io.Reader) io.Reader { return &reader{src, a} }

type reader struct {
	src     io.Reader
	account *Account
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	if n > 0 && !r.account.Take(int64(n)) {
		return 0, ErrFull
	}
	return n, err
}

// Free is how many bytes of a body ReadAll reads without taking them: they belong to what an account has for its
// request.
const Free = 256 << 10

// ReadAll reads src to its end, or up to limit bytes. Before it reads more than Free bytes it acquires cost bytes at
// once, so that of several long bodies one is read to its end before the next. cost is at least limit.
func (a *Account) ReadAll(ctx context.Context, src io.Reader, limit, cost int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(src, min(limit, Free)))
	if err != nil || len(text) < Free || limit <= Free {
		return text, err
	}
	if err := a.Acquire(ctx, cost); err != nil {
		return nil, err
	}
	whole := make([]byte, limit) // append would need twice as much while it grows
	n, err := io.ReadFull(src, whole[copy(whole, text):])
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // ReadFull's own values
		err = nil
	}
	return whole[:len(text)+n], err
}

type accountKey struct{}

// NewContext returns a context with an account for From.
func NewContext(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// From returns the account of the request that a context belongs to, or nil.
func From(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	return a
}
