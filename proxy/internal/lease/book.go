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
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/plan"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

// Config holds what a Book needs.
type Config struct {
	// Drain ensures that no connection made to the slot before the call is accepted after it. It is called while
	// the slot has no lease. Nil means that there is no accept queue to drain.
	Drain func(slot.ID)
	// Plans keeps what dry runs record. Nil means that there are no dry runs.
	Plans *plan.Book
	// Lost is called with the receipt of a run that was replaced, or not ended before Close: nobody took it. Nil means
	// that nobody wants it.
	Lost func(slot.ID, controlapi.Receipt)
	// Memory bounds the buffers of all runs together. Nil means 512 MiB.
	Memory *membudget.Budget
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Book holds the lease of every slot. It is safe for concurrent use.
type Book struct {
	conf  Config
	seats [slot.Total]seat
}

// seat is the state of one slot. change is held for the whole of Begin or End, so that they cannot interleave; mu only
// guards the fields, which many goroutines read.
type seat struct {
	change sync.Mutex
	mu     sync.Mutex
	lease  *Lease // the last one begun, until its receipt has been returned
	last   uint64 // greatest generation ever begun
}

// NewBook makes a book in which no slot has a run.
func NewBook(c Config) *Book {
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
		c.Lost = func(slot.ID, controlapi.Receipt) {}
	}
	return &Book{conf: c}
}

// Begin gives the slot to a run. The generation must be greater than any the slot has had, else controlapi.ErrFenced.
// Whatever the earlier lease still has open is aborted first.
func (b *Book) Begin(id slot.ID, r controlapi.Registration) (*Lease, error) {
	now, kind := b.conf.Now(), kindOf(id, r)
	switch {
	case !id.Valid():
		return nil, fmt.Errorf("%w: no such slot", controlapi.ErrBadRegistration)
	case r.Generation == 0:
		return nil, fmt.Errorf("%w: generation is missing", controlapi.ErrBadRegistration)
	case r.Run == "" || len(r.Run) > 128:
		return nil, fmt.Errorf("%w: run: want 1 to 128 bytes", controlapi.ErrBadRegistration)
	case !r.Deadline.After(now):
		return nil, fmt.Errorf("%w: deadline has passed", controlapi.ErrBadRegistration)
	case r.DryRun && (b.conf.Plans == nil || kind != policy.KindRun):
		return nil, fmt.Errorf("%w: dry_run: only runs have plans", controlapi.ErrBadRegistration)
	case !validCanaries(r.Canaries):
		return nil, fmt.Errorf("%w: canaries: want at most %d, each of %d to %d letters and digits",
			controlapi.ErrBadRegistration,
			controlapi.MaxCanaries, controlapi.MinCanary, controlapi.MaxCanary)
	case kind == policy.KindNone:
		return nil, fmt.Errorf("%w: a server slot is for one server, or for an installation; other slots are for runs",
			controlapi.ErrBadRegistration)
	}
	s := &b.seats[id]
	s.change.Lock()
	defer s.change.Unlock()
	s.mu.Lock()
	old, last := s.lease, s.last
	//defence:fence
	if r.Generation <= last {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: generation %d, the slot has had %d", controlapi.ErrFenced, r.Generation, last)
	}
	s.lease, s.last = nil, r.Generation
	s.mu.Unlock()
	if old != nil {
		b.lose(old)
	}
	b.conf.Drain(id)
	l := newLease(id, r, now, b.conf.Memory)
	if r.DryRun {
		l.Plan = b.conf.Plans.Draft(r.Run, r.Tenant, l.apis)
	}
	s.mu.Lock()
	s.lease = l
	s.mu.Unlock()
	return l, nil
}

// validCanaries reports whether canaries are within their bounds. A short one would be found where nobody put it.
func validCanaries(list []string) bool {
	return len(list) <= controlapi.MaxCanaries && !slices.ContainsFunc(list, func(c string) bool {
		odd := strings.ContainsFunc(c, func(r rune) bool { return r > 'z' || !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		return odd || len(c) < controlapi.MinCanary || len(c) > controlapi.MaxCanary
	})
}

// kindOf is what a registration is for. A server slot is for exactly one server, or for an installation without any
// API; a run's slot is for runs.
func kindOf(id slot.ID, r controlapi.Registration) policy.Kind {
	switch {
	case !id.Server() && !r.Install:
		return policy.KindRun
	case id.Server() && !r.Install && len(r.APIs) == 1:
		return policy.KindServer
	case id.Server() && r.Install && len(r.APIs) == 0:
		return policy.KindInstall
	}
	return policy.KindNone
}

// newLease makes a lease that ends by itself, Grace after its deadline.
func newLease(id slot.ID, r controlapi.Registration, now time.Time, memory *membudget.Budget) *Lease {
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &Lease{
		Slot: id, Generation: r.Generation, Run: r.Run, Tenant: r.Tenant, Deadline: r.Deadline,
		Recorder: receipt.NewRecorder(r.Run, r.Tenant, r.Generation),
		kind:     kindOf(id, r),
		closed:   r.Closed || kindOf(id, r) == policy.KindServer && r.Tenant != "",
		ctx:      ctx, cancel: cancel,
		inFlight: make(chan struct{}, MaxExchanges),
		memory:   memory,
		conns:    map[io.Closer]struct{}{},
	}
	l.connected = memory.Open(l)
	if len(r.APIs) > 0 {
		l.apis = append([]string(nil), r.APIs...)
	}
	if len(r.Canaries) > 0 {
		l.Canaries = sync.OnceValue(func() *swap.Canaries { return swap.NewCanaries(r.Canaries) })
	}
	l.mu.Lock()
	l.expiry = countdown.New(r.Deadline.Add(Grace).Sub(now), countdown.MostPaused, l.end)
	l.mu.Unlock()
	return l
}

// End takes the slot from a run and returns its receipt, after everything in flight has been aborted. The generation
// must be the one that holds the slot, else controlapi.ErrFenced. A lease that ended by its deadline still has its
// receipt, once.
func (b *Book) End(id slot.ID, generation uint64) (controlapi.Receipt, error) {
	if !id.Valid() {
		return controlapi.Receipt{}, fmt.Errorf("%w: no such slot", controlapi.ErrBadRegistration)
	}
	s := &b.seats[id]
	s.change.Lock()
	defer s.change.Unlock()
	s.mu.Lock()
	l := s.lease
	if l == nil || l.Generation != generation {
		s.mu.Unlock()
		return controlapi.Receipt{}, fmt.Errorf("%w: generation %d does not", controlapi.ErrFenced, generation)
	}
	s.lease = nil
	s.mu.Unlock()
	l.end()
	rec := l.Recorder.Receipt()
	if l.Plan != nil {
		rec.Plan = l.Plan.Seal()
	}
	return rec, nil
}

// Forget resets a slot for another pod: its lease ends, and any generation may follow.
func (b *Book) Forget(id slot.ID) {
	s := &b.seats[id]
	s.change.Lock()
	defer s.change.Unlock()
	s.mu.Lock()
	old := s.lease
	s.lease, s.last = nil, 0
	s.mu.Unlock()
	if old != nil {
		b.lose(old)
	}
}

// lose ends a lease whose receipt nobody has taken, because mcp-server has ended.
func (b *Book) lose(l *Lease) {
	l.end()
	if l.Plan != nil {
		l.Plan.Discard()
	}
	b.conf.Lost(l.Slot, l.Recorder.Receipt())
}

// Busy reports whether a slot has a lease that has not ended.
func (b *Book) Busy(id slot.ID) bool {
	l := b.Holder(id)
	return l != nil && l.ctx.Err() == nil
}

// Of is the lease of a slot. The generation must be the one that holds the slot, else controlapi.ErrFenced.
func (b *Book) Of(id slot.ID, generation uint64) (*Lease, error) {
	if !id.Valid() {
		return nil, fmt.Errorf("%w: no such slot", controlapi.ErrBadRegistration)
	}
	s := &b.seats[id]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil || s.lease.Generation != generation {
		return nil, fmt.Errorf("%w: generation %d does not", controlapi.ErrFenced, generation)
	}
	return s.lease, nil
}

// Holder is the lease of a slot, or nil.
func (b *Book) Holder(id slot.ID) *Lease {
	if !id.Valid() {
		return nil
	}
	s := &b.seats[id]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// Drain returns the exchanges of a slot since its lease began or since the last Drain, without those that another run
// has caused: see receipt.Recorder.Drain. The generation must be the one that holds the slot, else
// controlapi.ErrFenced.
func (b *Book) Drain(id slot.ID, generation uint64, run string) (controlapi.Receipt, error) {
	l, err := b.Of(id, generation)
	if err != nil {
		return controlapi.Receipt{}, err
	}
	return l.Recorder.Drain(run), nil
}

// Attach binds a newly accepted connection to the current lease of its slot. ErrNone if there is none, ErrFull if it
// has MaxConnections. The caller must call Lease.Detach after closing the connection.
func (b *Book) Attach(id slot.ID, c io.Closer) (*Lease, error) {
	if !id.Valid() {
		return nil, ErrNone
	}
	s := &b.seats[id]
	s.mu.Lock()
	l := s.lease
	s.mu.Unlock()
	if l == nil {
		return nil, ErrNone
	}
	return l, l.attach(c)
}

// Leases lists the leases that have not ended.
func (b *Book) Leases() []*Lease {
	var out []*Lease
	for i := range b.seats {
		s := &b.seats[i]
		s.mu.Lock()
		l := s.lease
		s.mu.Unlock()
		if l != nil && l.ctx.Err() == nil {
			out = append(out, l)
		}
	}
	return out
}

// Close ends every lease.
func (b *Book) Close() {
	for i := range b.seats {
		s := &b.seats[i]
		s.change.Lock()
		s.mu.Lock()
		l := s.lease
		s.lease = nil
		s.mu.Unlock()
		if l != nil {
			b.lose(l)
		}
		s.change.Unlock()
	}
}
