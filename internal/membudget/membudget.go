// Package membudget bounds the total memory for the buffers of many holders.
//
// Threat: one or several holders, such as runs, make a daemon use so much memory that the kernel ends it, or that other
// holders get no memory.
//
// Contract: half of a budget is reserved for small holders, which have at most a thirty-second of the budget. A holder
// may exceed a thirty-second only if it then has at most as much as is still free of the other half. So one holder has
// at most a quarter of a budget, and each of sixteen holders always gets its thirty-second.
package membudget

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// ErrFull means that a holder has used up its share of the budget and did not get more in time.
var ErrFull = errors.New("the memory for requests is in use")

// patience bounds each wait for memory. It also ends deadlocks: of requests that wait for each other's memory, and of
// requests whose unread bodies fill the window of an HTTP/2 connection on which others wait for the rest of theirs.
const patience = 10 * time.Second

// Budget is a number of bytes that holders share. It is safe for concurrent use. Make one with New.
type Budget struct {
	total    int64
	patience time.Duration

	mu    sync.Mutex
	used  int64
	holds map[any]int64 // by holder
	freed chan struct{} // closed when memory becomes free; nil if no caller waits
}

// New makes a budget of total bytes.
func New(total int64) *Budget {
	return &Budget{total: total, patience: patience, holds: map[any]int64{}}
}

// UsedBytes returns the number of bytes that all holders have.
func (b *Budget) UsedBytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// OpenAccount returns an empty account. Its memory counts for holder, a comparable value such as a run.
func (b *Budget) OpenAccount(holder any) *Account { return &Account{budget: b, holder: holder} }

// Account counts the memory of one request or connection, as a part of its holder's share. It is safe for concurrent
// use. A nil *Account takes any amount, for callers without a budget.
type Account struct {
	budget *Budget
	holder any
	size   int64 // guarded by budget.mu
}

// TryTake takes n bytes. It returns false and takes no memory if the share does not allow it now.
func (a *Account) TryTake(n int64) bool {
	if a == nil {
		return true
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.takeLocked(n)
}

// TryHold takes as many bytes as the account lacks to n. It returns false if the share does not allow that now.
func (a *Account) TryHold(n int64) bool {
	if a == nil {
		return true
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return n <= a.size || a.takeLocked(n-a.size)
}

// takeLocked is TryTake for a caller that holds budget.mu.
func (a *Account) takeLocked(n int64) bool {
	b := a.budget
	//defence:memory-budget
	if n > 0 && !b.canHold(b.holds[a.holder]+n, b.total-b.used-n) {
		return false
	}
	b.holds[a.holder] += n
	b.used += n
	a.size += n
	return true
}

// One half of a budget (1/reserved) is only for small holders. A holder is small if it has at most 1/little of the
// budget.
const reserved, little = 2, 32

// canHold reports whether a holder may have has bytes while free bytes remain.
func (b *Budget) canHold(has, free int64) bool {
	// A share of the free memory is not enough: holders keep their memory, so each new one would get half as much as the
	// one before.
	return free >= 0 && has <= b.total/little || has <= free-b.total/reserved
}

// WaitAndTake takes n bytes. It waits for memory, at most for 10 s, and then returns ErrFull. If ctx ends before, it
// returns the cause of ctx. It returns ErrFull at once if n exceeds the largest share.
func (a *Account) WaitAndTake(ctx context.Context, n int64) error { return a.WaitLeaving(ctx, n, 0) }

// WaitLeaving is WaitAndTake, but leaves rest bytes of the holder's share for its other accounts. It does not do so if
// the holder is small.
func (a *Account) WaitLeaving(ctx context.Context, n, rest int64) error {
	if a == nil {
		return nil
	}
	// No holder can ever have that much: waiting would be in vain.
	//defence:memory-budget
	if n > a.budget.total/reserved/2 {
		return ErrFull
	}
	var timeout <-chan time.Time
	for {
		freed := a.takeOrListen(n, rest)
		if freed == nil {
			return nil
		}
		if timeout == nil { // most callers need no timer
			timer := time.NewTimer(a.budget.patience)
			defer timer.Stop()
			//defence:memory-patience
			timeout = timer.C
		}
		select {
		case <-timeout:
			return ErrFull
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
	// A small holder always gets its share, whatever it leaves for its other accounts.
	//defence:memory-budget permits
	leaves := has <= b.total/little || b.canHold(has+rest, b.total-b.used-n-rest)
	if leaves && a.takeLocked(n) {
		return nil
	}
	// One channel serves all waiting callers.
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed
}

// GiveBack returns n bytes to the budget. The account must have them.
func (a *Account) GiveBack(n int64) {
	if a == nil {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.giveLocked(n)
}

// Close returns all bytes of the account to the budget.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.giveLocked(a.size)
}

// giveLocked is GiveBack for a caller that holds budget.mu.
func (a *Account) giveLocked(n int64) {
	// Nothing became free, so there is no reason to wake the others.
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
		// Every waiting caller tries again: the bytes may be enough for several of them.
		close(b.freed)
		b.freed = nil
	}
}

// NewReader returns a reader of src that takes memory for the bytes read. It fails with ErrFull if the share does not
// allow them.
func (a *Account) NewReader(src io.Reader) io.Reader { return &countingReader{src, a} }

type countingReader struct {
	src     io.Reader
	account *Account
}

// Read implements io.Reader.
func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	if n > 0 && !r.account.TryTake(int64(n)) {
		return 0, ErrFull
	}
	return n, err
}

// Free is the number of bytes of a body that ReadAll reads without taking memory. The account should have taken them
// before.
const Free = 256 << 10

// ReadAll reads src to its end, or up to limit bytes. Before it reads more than Free bytes, it acquires cost bytes at
// once. Otherwise several long bodies could each get a part of their memory and wait for each other. cost must be at
// least limit.
func (a *Account) ReadAll(ctx context.Context, src io.Reader, limit, cost int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(src, min(limit, Free)))
	if err != nil || len(text) < Free || limit <= Free {
		return text, err
	}
	if err := a.WaitAndTake(ctx, cost); err != nil {
		return nil, err
	}
	// append would need twice the memory while the slice grows.
	whole := make([]byte, limit)
	n, err := io.ReadFull(src, whole[copy(whole, text):])
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // ReadFull's own values
		err = nil
	}
	return whole[:len(text)+n], err
}

type accountKey struct{}

// NewContext returns a context from which FromContext returns a.
func NewContext(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// FromContext returns the account of a request's context, or nil.
func FromContext(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	return a
}
