package lease

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/codeforge-mcp/codeforge/internal/countdown"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Config holds the parts that a Table needs.
type Config struct {
	// Drain returns only after every connection that was made to the slot before the call has been accepted. Book calls it
	// while the slot has no lease. Nil means that there is no accept queue to drain.
	Drain func(slot.ID)
	// Plans keeps the drafts of dry runs. Nil means that there are no dry runs.
	Plans *approval.Store
	// Lost gets the receipt of a run that was replaced, or that had not ended before Close, because mcp-server did not
	// fetch it. It may be nil.
	Lost func(slot.ID, proxyapi.Receipt)
	// Memory bounds the buffers of all runs together. Nil means 512 MiB.
	Memory *membudget.Budget
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Table holds the lease of every slot. It is safe for concurrent use.
type Table struct {
	conf  Config
	slots [slot.Total]slotState
}

// slotState is the state of one slot. Begin and End hold change throughout, so that they cannot interleave. mu only
// guards the fields, which many goroutines read.
type slotState struct {
	change sync.Mutex
	mu     sync.Mutex
	lease  *Lease // the latest lease, until End has returned its receipt
	last   uint64 // the greatest generation so far
}

// NewTable makes a book in which every slot is free.
func NewTable(c Config) *Table {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Memory == nil {
		c.Memory = membudget.New(512 << 20)
	}
	if c.Drain == nil {
		c.Drain = func(slot.ID) {}
	}
	if c.Lost == nil {
		c.Lost = func(slot.ID, proxyapi.Receipt) {}
	}
	return &Table{conf: c}
}

// BeginLease gives the slot to a run. The generation must be greater than any that the slot has had, else BeginLease
// returns proxyapi.ErrFenced. Before it returns, it aborts all exchanges and connections of the earlier lease.
func (b *Table) BeginLease(id slot.ID, r proxyapi.Registration) (*Lease, error) {
	now, client := b.conf.Now(), chooseClientType(id, r)
	switch {
	case !id.IsValid():
		return nil, fmt.Errorf("%w: no such slot", proxyapi.ErrBadRegistration)
	case r.Generation == 0:
		return nil, fmt.Errorf("%w: generation is missing", proxyapi.ErrBadRegistration)
	case r.Run == "" || len(r.Run) > 128:
		return nil, fmt.Errorf("%w: run: want 1 to 128 bytes", proxyapi.ErrBadRegistration)
	case !r.Deadline.After(now):
		return nil, fmt.Errorf("%w: deadline has passed", proxyapi.ErrBadRegistration)
	case r.DryRun && (b.conf.Plans == nil || client != policy.ClientRun):
		return nil, fmt.Errorf("%w: dry_run: only runs have plans", proxyapi.ErrBadRegistration)
	case !hasValidCanaries(r.Canaries):
		return nil, fmt.Errorf("%w: canaries: want at most %d, each of %d to %d letters and digits",
			proxyapi.ErrBadRegistration, proxyapi.MaxCanaries, proxyapi.MinCanary, proxyapi.MaxCanary)
	case client == policy.ClientNone:
		return nil, fmt.Errorf("%w: a server slot is for one server, or for an installation; other slots are for runs",
			proxyapi.ErrBadRegistration)
	}
	s := &b.slots[id]
	s.change.Lock()
	defer s.change.Unlock()
	s.mu.Lock()
	old, last := s.lease, s.last
	// A late registration of an older mcp-server must not take the slot from its successor.
	//defence:fence
	if r.Generation <= last {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: generation %d, the slot has had %d", proxyapi.ErrFenced, r.Generation, last)
	}
	// With no lease, the slot refuses the connections that Drain is about to accept.
	s.lease, s.last = nil, r.Generation
	s.mu.Unlock()
	if old != nil {
		b.loseLease(old)
	}
	// These connections come from the old run's code. Drain must finish before the new lease can adopt them.
	b.conf.Drain(id)
	l := newLease(id, r, now, b.conf.Memory)
	if r.DryRun {
		l.Plan = b.conf.Plans.NewDraft(r.Run, r.Tenant, l.apis)
	}
	s.mu.Lock()
	s.lease = l
	s.mu.Unlock()
	return l, nil
}

// hasValidCanaries reports whether canaries are within their bounds. A short canary could occur by chance in honest
// text.
func hasValidCanaries(list []string) bool {
	return len(list) <= proxyapi.MaxCanaries && !slices.ContainsFunc(list, func(c string) bool {
		odd := strings.ContainsFunc(c, func(r rune) bool { return r > 'z' || !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		return odd || len(c) < proxyapi.MinCanary || len(c) > proxyapi.MaxCanary
	})
}

// chooseClientType returns the type of the client that a registration names. A server slot is for exactly one server,
// or for an installation without APIs; other slots are for runs.
func chooseClientType(id slot.ID, r proxyapi.Registration) policy.ClientType {
	switch {
	case !id.IsServer() && !r.Install:
		return policy.ClientRun
	case id.IsServer() && !r.Install && len(r.APIs) == 1:
		return policy.ClientServer
	case id.IsServer() && r.Install && len(r.APIs) == 0:
		return policy.ClientInstall
	}
	return policy.ClientNone
}

// newLease makes a lease that ends by itself, Grace after its deadline.
func newLease(id slot.ID, r proxyapi.Registration, now time.Time, memory *membudget.Budget) *Lease {
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &Lease{
		Slot: id, Generation: r.Generation, Run: r.Run, Tenant: r.Tenant,
		Recorder:   receipt.NewRecorder(r.Run, r.Tenant, r.Generation),
		clientType: chooseClientType(id, r),
		closed:     r.Closed || chooseClientType(id, r) == policy.ClientServer && r.Tenant != "",
		ctx:        ctx, cancel: cancel,
		inFlight: make(chan struct{}, MaxExchanges),
		unheld:   make(chan struct{}, maxUnheld),
		memory:   memory,
		conns:    map[io.Closer]struct{}{},
	}
	l.connected = memory.OpenAccount(l)
	// An empty list permits every API, so apis stays nil: CanUse would find no API in a list without entries.
	l.apis = append([]string(nil), r.APIs...)
	if len(r.Canaries) > 0 {
		// Compiling takes time, and a run without connections needs no canaries: attach starts it.
		l.Canaries = sync.OnceValue(func() *swap.Canaries { return swap.NewCanaries(r.Canaries) })
	}
	// countdown.New may call end before expiry is set; abort also takes mu first.
	l.mu.Lock()
	l.expiry = countdown.New(r.Deadline.Add(Grace).Sub(now), countdown.MostPaused, l.endAndWait)
	l.mu.Unlock()
	return l
}

// EndLease takes the slot from a run and returns its receipt, after it has aborted everything in flight. The generation
// must be that of the current lease, else End returns proxyapi.ErrFenced. A lease that ended by its deadline still has
// its receipt, once.
func (b *Table) EndLease(id slot.ID, generation uint64) (proxyapi.Receipt, error) {
	if !id.IsValid() {
		return proxyapi.Receipt{}, fmt.Errorf("%w: no such slot", proxyapi.ErrBadRegistration)
	}
	s := &b.slots[id]
	s.change.Lock()
	defer s.change.Unlock()
	l, err := b.FindLease(id, generation)
	if err != nil {
		return proxyapi.Receipt{}, err
	}
	s.mu.Lock()
	s.lease = nil
	s.mu.Unlock()
	// Not under mu: end may wait as long as settle, and Attach must not.
	l.endAndWait()
	// The receipt is complete only now: the aborted exchanges have been recorded.
	rec := l.Recorder.CopyReceipt()
	if l.Plan != nil {
		rec.Plan = l.Plan.Seal()
	}
	return rec, nil
}

// ResetSlot resets a slot for another pod. Its lease ends, and any generation may follow.
func (b *Table) ResetSlot(id slot.ID) {
	s := &b.slots[id]
	s.change.Lock()
	defer s.change.Unlock()
	s.mu.Lock()
	old := s.lease
	s.lease, s.last = nil, 0
	s.mu.Unlock()
	if old != nil {
		b.loseLease(old)
	}
}

// loseLease ends a lease whose receipt mcp-server has not fetched, because mcp-server has ended.
func (b *Table) loseLease(l *Lease) {
	l.endAndWait()
	if l.Plan != nil {
		l.Plan.Discard()
	}
	b.conf.Lost(l.Slot, l.Recorder.CopyReceipt())
}

// IsBusy reports whether a slot has a lease that has not ended.
func (b *Table) IsBusy(id slot.ID) bool {
	l := b.Holder(id)
	return l != nil && l.ctx.Err() == nil
}

// FindLease returns the lease of a slot. The generation must be that of the lease, else Of returns proxyapi.ErrFenced.
func (b *Table) FindLease(id slot.ID, generation uint64) (*Lease, error) {
	if !id.IsValid() {
		return nil, fmt.Errorf("%w: no such slot", proxyapi.ErrBadRegistration)
	}
	s := &b.slots[id]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil || s.lease.Generation != generation {
		return nil, fmt.Errorf("%w: generation %d does not", proxyapi.ErrFenced, generation)
	}
	return s.lease, nil
}

// Holder returns the lease of a slot, or nil.
func (b *Table) Holder(id slot.ID) *Lease {
	if !id.IsValid() {
		return nil
	}
	s := &b.slots[id]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// DrainReceipt returns the exchanges of a slot since its lease began or since the last Drain, without those that
// another run caused: see receipt.Recorder.TakeExchanges. The generation must be that of the lease, else Drain returns
// proxyapi.ErrFenced.
func (b *Table) DrainReceipt(id slot.ID, generation uint64, run string) (proxyapi.Receipt, error) {
	l, err := b.FindLease(id, generation)
	if err != nil {
		return proxyapi.Receipt{}, err
	}
	return l.Recorder.TakeExchanges(run), nil
}

// AttachConn binds a newly accepted connection to the current lease of its slot. It returns ErrNone if the slot has no
// lease, and ErrFull if the lease has MaxConnections. The caller must call Lease.DetachConn after it has closed the
// connection.
func (b *Table) AttachConn(id slot.ID, c io.Closer) (*Lease, error) {
	l := b.Holder(id)
	if l == nil {
		return nil, ErrNone
	}
	return l, l.addConn(c)
}

// ListLeases lists the leases that have not ended.
func (b *Table) ListLeases() []*Lease {
	var out []*Lease
	for i := range b.slots {
		if l := b.Holder(slot.ID(i)); l != nil && l.ctx.Err() == nil {
			out = append(out, l)
		}
	}
	return out
}

// Close ends every lease.
func (b *Table) Close() {
	for i := range b.slots {
		b.ResetSlot(slot.ID(i))
	}
}
