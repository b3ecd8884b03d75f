// Package approval keeps the requests that wait for a person: single requests that a rule holds, and the plans of dry
// runs. Package egress gives the code of a dry run the pretended answers (egress/plan.go). Several proxies can share
// the held requests (shared.go). Held requests and plans are entries of one Store. They have one lifecycle, and the
// bounds of their kind:
//
//	waiting -> open -> approved         a held request. If it is approved while it waits, it leaves at once.
//	draft   -> open -> running -> done  a plan. It can also end as stopped, refused or stale.
//
// Threat: code gets another request approved than the one that a person saw. It uses an approval twice, or that of
// another run or tenant. It floods the person. A person approves who has no right to. Contract: an approval is for
// exact bytes, for one tenant, and for the configuration that decides about them. It counts once, for 15 minutes. A
// tenant with more entries never displaces those of a tenant with less.
package approval

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// lifeTime is how long a person can decide, how long an unused approval is valid, and how long the answers of a plan
	// can be read.
	lifeTime = 15 * time.Minute
	// MaxHeldBytes and maxPlanBytes bound the sizes of all held requests and of all plans with their drafts. entrySize is
	// the size of an entry without its text.
	MaxHeldBytes = 16 << 20
	maxPlanBytes = 32 << 20
	entrySize    = 16 << 10
)

// The states of entries that approvalapi does not have.
const (
	stateDraft    approvalapi.State = "draft"    // a dry run is recording it
	stateWaiting  approvalapi.State = "waiting"  // an exchange waits for the decision
	stateApproved approvalapi.State = "approved" // the same request may leave once
)

// Config holds the parts that a Store needs.
type Config struct {
	// Held is called for each request that waits. It may be nil.
	Held func(approvalapi.HeldRequest)
	// Decided is called for each decision of a person. It may be nil.
	Decided func(ledger.Decision)
	// Open begins to send the steps of a run's plan, under this version of the catalog.
	Open func(plan, run, tenant, version string, apis []string) Sender
	// Memory is the account from which plans and drafts take memory, besides the fixed bound maxPlanBytes. Nil means that
	// only maxPlanBytes applies.
	Memory *membudget.Account
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// DB has the held requests of several proxies: see package shareddb. Nil means that this proxy is the only one.
	DB *database.DB
}

// Store keeps held requests and plans. It is safe for concurrent use. Make one with New.
type Store struct {
	// Wait is how long a held request waits. 0 means waitTime.
	Wait time.Duration
	conf Config

	mu           sync.Mutex
	held         entryList
	plans        entryList     // and drafts
	runApprovals []runApproval // the oldest first
	changed      chan struct{} // closed at the next change of held requests; nil while ListWaiting is unused
	shared       *heldTable    // nil without Config.DB
	ending       bool
	ctx          context.Context // ends with Close
	cancel       context.CancelFunc
	wg           sync.WaitGroup // plans that are being sent; Add only under mu and before ending
}

// entryList is the entries of one kind, and the bound on their sizes. Store.mu guards the lists of a Store.
type entryList struct {
	all        []*entry // the oldest first
	most, used int      // bytes
	account    *membudget.Account
}

// entry is a held request or a plan.
type entry struct {
	id, tenant string
	state      approvalapi.State
	until      time.Time // of the wall clock, which continues while a machine sleeps
	size       int
	held       *heldRequest // nil for a plan
	plan       *plan        // nil for a held request and for a draft
}

// New makes an empty store.
func New(c Config) *Store {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Decided == nil {
		c.Decided = func(ledger.Decision) {}
	}
	s := &Store{conf: c, held: entryList{most: MaxHeldBytes}, plans: entryList{most: maxPlanBytes, account: c.Memory}}
	if c.DB != nil {
		s.shared = &heldTable{db: c.DB, wake: make(database.WakeSignal, 1), adding: shareddb.NewTurns(maxAdding)}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close stops the plans that are being sent, and waits for them.
func (s *Store) Close() {
	s.mu.Lock()
	// The flag comes before Wait: DecidePlan adds no plan to wg after it.
	s.ending = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

// newID returns an id that is short enough to type: 40 random bits.
func newID() string { return strings.ToLower(rand.Text()[:8]) }

// isBusy reports whether an entry is in use, so that it cannot expire.
func (e *entry) isBusy() bool {
	return e.state == stateDraft || e.state == stateWaiting || e.state == approvalapi.StateRunning
}

// isPinned reports whether an entry must not make room for others.
func (e *entry) isPinned() bool { return e.isBusy() || e.state == stateApproved }

// takeBytes adds n bytes to the size of an entry, and returns false if they are not free. Decided plans make room
// first. Then the open entries of the tenant with the most make room, the oldest first: a flood evicts only the entries
// of its sender. Pinned entries never make room, so a tenant may have at most half of the bound in them. The caller
// adds a new entry afterwards.
func (l *entryList) takeBytes(e *entry, n int) bool {
	if e.size == 0 {
		n += entrySize
	}
	pinned := n
	for _, other := range l.all {
		if other.tenant == e.tenant && other.isPinned() {
			pinned += other.size
		}
	}
	// So one tenant cannot keep the others, or the operator, from asking.
	if e.tenant != "" && pinned > l.most/2 {
		return false
	}
	for l.used+n > l.most {
		victim := l.chooseVictim(e, pinned)
		if victim == nil {
			return false
		}
		l.dropEntry(victim)
	}
	if !l.account.TryTake(int64(n)) {
		return false
	}
	l.used, e.size = l.used+n, e.size+n
	return true
}

// chooseVictim chooses the entry that makes room for another, whose tenant has so many pinned bytes, or returns nil. A
// plan that a person can still approve does not make room for its own tenant.
func (l *entryList) chooseVictim(by *entry, pinned int) *entry {
	sizes := map[string]int{by.tenant: pinned}
	for _, e := range l.all {
		switch {
		case e.isPinned():
		case e.state != approvalapi.StateOpen:
			return e
		default:
			sizes[e.tenant] += e.size
		}
	}
	who := by.tenant
	for name, n := range sizes {
		if n > sizes[who] {
			who = name
		}
	}
	return l.findFirst(func(e *entry) bool {
		return e.state == approvalapi.StateOpen && e.tenant == who && (who != by.tenant || e.held != nil)
	})
}

// findFirst returns the oldest entry that a condition permits, or nil.
func (l *entryList) findFirst(is func(*entry) bool) *entry {
	if i := slices.IndexFunc(l.all, is); i >= 0 {
		return l.all[i]
	}
	return nil
}

// giveBytes takes n bytes from the size of an entry.
func (l *entryList) giveBytes(e *entry, n int) {
	l.used, e.size = l.used-n, e.size-n
	l.account.GiveBack(int64(n))
}

// dropEntries drops the entries for which drop returns true.
func (l *entryList) dropEntries(drop func(*entry) bool) {
	l.all = slices.DeleteFunc(l.all, func(e *entry) bool {
		if !drop(e) {
			return false
		}
		l.giveBytes(e, e.size)
		return true
	})
}

func (l *entryList) dropEntry(e *entry) { l.dropEntries(func(other *entry) bool { return other == e }) }

// dropExpired drops the entries whose time is over. The caller holds mu.
func (s *Store) dropExpired() {
	now := s.conf.Now()
	for _, l := range []*entryList{&s.held, &s.plans} {
		l.dropEntries(func(e *entry) bool { return !e.isBusy() && now.After(e.until) })
	}
}

// findEntry returns the held request or the plan with an id, or nil if it has expired. The caller holds mu.
func (s *Store) findEntry(of *entryList, id string) *entry {
	s.dropExpired()
	return of.findFirst(func(e *entry) bool { return e.id == id && e.state != stateDraft })
}

// newRefusal returns the reason why a decision is not valid.
func newRefusal(code, text string) error {
	return &rpc.Error{Status: proxyapi.StatusNotDecided, Code: code, Text: text}
}
