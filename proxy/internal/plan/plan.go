// Package plan records the writes of a dry run, and sends them when a person approves. Package egress gives code the
// pretended answers (egress/plan.go).
//
// Threat: a person approves one plan and another is sent. Steps are added or changed later, are sent twice, under
// another configuration or for another run. A person approves who has no right to. Contract: a plan is complete at the
// end of its run and never changes afterwards. An approval names the digest of the whole plan, counts once and for 15
// minutes, and ends with the catalog under which the plan was recorded. When a step is sent, policy decides again and
// only then are credentials swapped in. Before that, the proxy compares the object that a step changes with the object
// that the run read.
package plan

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

const (
	// lifeTime is how long a plan can be approved, and afterwards how long its answers can be read.
	lifeTime = 15 * time.Minute
	// maxPlans bounds the number of plans. maxAll bounds the bytes of all plans and drafts.
	maxPlans = 100
	maxAll   = 32 << 20
	// MaxReply is how many bytes of an answer a plan keeps.
	MaxReply = 2 << 10
)

// The codes of unsent steps.
const (
	CodeDrift   = "drift"
	CodeEnding  = "proxy_ending"
	CodeChanged = "plan_changed"
)

// Sender sends the steps of one plan for the run that recorded it.
type Sender interface {
	// SendStep sends an approved step, only under this version of the catalog. It returns at most most bytes of the
	// answer's body.
	SendStep(ctx context.Context, s Step, version string, most int) (approvalapi.Reply, []byte)
	// RepeatRead repeats a read of the run.
	RepeatRead(ctx context.Context, s Step, version string) (approvalapi.Reply, []byte)
	// Close returns the ledger's checkpoint that covers the sent steps, or "".
	Close() string
}

// Config holds the parts that a Store needs.
type Config struct {
	// Open begins to send the steps of a run's plan.
	Open func(ctx context.Context, plan, run, tenant string, apis []string) Sender
	// Decided is called for each decision of a person, with the numbers of the steps. It may be nil.
	Decided func(p approvalapi.Plan, approved bool, steps []int)
	// Memory is the account from which plans and drafts take memory, besides the fixed bound maxAll. Nil means that only
	// maxAll applies.
	Memory *membudget.Account
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Store holds plans. Make one with New.
type Store struct {
	conf Config

	mu     sync.Mutex
	plans  []*storedPlan  // the oldest first
	used   int            // bytes of plans and drafts
	drafts map[string]int // bytes of drafts by tenant
	ending bool
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // plans that are being sent; Add only under mu and before ending
}

// storedPlan is a plan.
type storedPlan struct {
	id, run, version, digest string
	tenant                   string
	apis                     []string
	steps                    []draftStep // nil once they can no longer be sent
	size                     int
	operator                 bool
	state                    approvalapi.State
	reads                    int
	since, until             time.Time // of the wall clock, which continues while a machine sleeps
	ended, audit             string
	picture                  []string
	replies                  []*approvalapi.Reply
}

// New makes an empty book.
func New(c Config) *Store {
	if c.Now == nil {
		c.Now = time.Now
	}
	b := &Store{conf: c, drafts: map[string]int{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Close stops the plans that are being sent, and waits for them.
func (b *Store) Close() {
	b.mu.Lock()
	// The flag comes before Wait: Decide adds no plan to wg after it.
	b.ending = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
}

// NewDraft begins the plan of a tenant's run that may use these APIs. A nil list means all APIs.
func (b *Store) NewDraft(run, tenant string, apis []string) *Draft {
	return &Draft{store: b, id: newID(), run: run, tenant: tenant, apis: apis}
}

// newID returns an id that is short enough to type: 40 random bits.
func newID() string { return strings.ToLower(rand.Text()[:8]) }

// takeBytes reserves bytes for a tenant's draft, and returns false if they are not free. It drops plans that are
// decided, and open plans of a tenant who has more. Drafts are never dropped, so the drafts of a tenant may take at
// most half of maxAll.
func (b *Store) takeBytes(tenant string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if tenant != "" && b.drafts[tenant]+n > maxAll/2 {
		return false
	}
	// Decided plans go first: no approver waits for them.
	b.dropOldPlans(n)
	for b.used+n > maxAll {
		size := func(e *storedPlan) int { return e.size }
		// Only a tenant with more than this one loses a plan: a flood evicts the plans of its sender.
		if who := b.heaviestTenant(tenant, b.drafts[tenant], size); who == tenant || !b.dropOldest(who) {
			return false
		}
	}
	if !b.conf.Memory.TryTake(int64(n)) {
		return false
	}
	b.used += n
	b.drafts[tenant] += n
	return true
}

// giveBytes returns bytes of a draft.
func (b *Store) giveBytes(tenant string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drafts[tenant] -= n
	b.giveLocked(n)
}

// giveLocked returns bytes of a plan. The caller holds mu.
func (b *Store) giveLocked(n int) {
	b.used -= n
	b.conf.Memory.GiveBack(int64(n))
}

// dropOldPlans drops expired plans, and then the oldest decided plans until n more bytes fit. The caller holds mu.
func (b *Store) dropOldPlans(n int) {
	now := b.conf.Now()
	forget := func(e *storedPlan) bool { b.giveLocked(e.size); return true }
	b.plans = slices.DeleteFunc(b.plans, func(e *storedPlan) bool {
		// A running plan stays: sendPlan still uses the memory that forget would give back.
		return e.state != approvalapi.StateRunning && now.After(e.until) && forget(e)
	})
	left := len(b.plans)
	b.plans = slices.DeleteFunc(b.plans, func(e *storedPlan) bool {
		if e.state == approvalapi.StateOpen || e.state == approvalapi.StateRunning || b.used+n <= maxAll && left < maxPlans {
			return false
		}
		left--
		return forget(e)
	})
}

// heaviestTenant returns the tenant whose open plans weigh most. The given tenant is about to add a plan, and drafts is
// the weight of its drafts. It wins a tie. The caller holds mu.
func (b *Store) heaviestTenant(tenant string, drafts int, weight func(*storedPlan) int) string {
	of := map[string]int{tenant: drafts + 1}
	for _, e := range b.plans {
		if e.state == approvalapi.StateOpen {
			of[e.tenant] += weight(e)
		}
	}
	for name, n := range of {
		if n > of[tenant] {
			tenant = name
		}
	}
	return tenant
}

// dropOldest drops a tenant's oldest open plan, if any. The caller holds mu.
func (b *Store) dropOldest(tenant string) bool {
	i := slices.IndexFunc(b.plans, func(e *storedPlan) bool {
		return e.state == approvalapi.StateOpen && e.tenant == tenant
	})
	if i < 0 {
		return false
	}
	b.giveLocked(b.plans[i].size)
	b.plans = slices.Delete(b.plans, i, i+1)
	return true
}

// addPlan adds a plan, and returns it in the form for a receipt. If there are maxPlans already, it drops the oldest
// open plan of the tenant with the most.
func (b *Store) addPlan(e *storedPlan) *approvalapi.Plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropOldPlans(0)
	if len(b.plans) >= maxPlans {
		b.dropOldest(b.heaviestTenant(e.tenant, 0, func(*storedPlan) int { return 1 }))
	}
	// The bytes stay reserved; they now belong to a plan, which can be dropped.
	b.drafts[e.tenant] -= e.size
	b.plans = append(b.plans, e)
	out := e.toBrief()
	return &out
}

// toBrief returns a plan without its steps.
func (e *storedPlan) toBrief() approvalapi.Plan {
	return approvalapi.Plan{
		ID: e.id, Run: e.run, Digest: e.digest, Operator: e.operator, State: e.state, Writes: len(e.replies),
		Reads: e.reads, Since: e.since.UTC(), Until: e.until.UTC(), Ended: e.ended, Picture: e.picture, Audit: e.audit,
	}
}

// ListPlans lists the plans, the oldest first, without their steps.
func (b *Store) ListPlans() []approvalapi.Plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropOldPlans(0)
	out := []approvalapi.Plan{}
	for _, e := range b.plans {
		out = append(out, e.toBrief())
	}
	return out
}

// GetPlan returns a plan with its steps.
func (b *Store) GetPlan(id string) (approvalapi.Plan, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropOldPlans(0)
	e := b.findPlan(id)
	if e == nil {
		return approvalapi.Plan{}, newRefusal("no_plan", "There is no plan with this id, or it has expired.")
	}
	return e.toPlan(), nil
}

func (b *Store) findPlan(id string) *storedPlan {
	if i := slices.IndexFunc(b.plans, func(e *storedPlan) bool { return e.id == id }); i >= 0 {
		return b.plans[i]
	}
	return nil
}

func (e *storedPlan) toPlan() approvalapi.Plan {
	out := e.toBrief()
	for i, s := range e.steps {
		one := s.toShown(i+1, s.changes)
		if r := e.replies[i]; r != nil {
			kept := *r
			one.Answer = &kept
		}
		out.Steps = append(out.Steps, one)
	}
	return out
}

func newRefusal(code, text string) error { return &rpc.Error{Code: code, Text: text} }

// DecidePlan approves or refuses a plan, once.
func (b *Store) DecidePlan(id string, a approvalapi.Answer) (approvalapi.Plan, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropOldPlans(0)
	e := b.findPlan(id)
	if e == nil {
		return approvalapi.Plan{}, newRefusal("no_plan", "There is no plan with this id, or it has expired.")
	}
	// The state changes under mu, so of two decisions only the first counts.
	//defence:plan-once
	if e.state != approvalapi.StateOpen {
		return approvalapi.Plan{}, newRefusal("plan_decided", "This plan can no longer be decided: "+stateWords[e.state]+".")
	}
	// The steps are hashed again: they must still be those that the person saw.
	//defence:plan-digest
	if a.Digest != e.digest || digestSteps(e.id, e.run, e.version, e.steps) != e.digest {
		return approvalapi.Plan{}, newRefusal(CodeChanged, "This is not the plan that was shown. Look at it again.")
	}
	steps, err := checkSteps(a.Steps, len(e.steps))
	if err != nil {
		return approvalapi.Plan{}, err
	}
	switch {
	case b.ending:
		return approvalapi.Plan{}, newRefusal(CodeEnding, "The proxy is ending.")
	case a.Approve:
		e.state = approvalapi.StateRunning
		// Under mu and before ending, so that Close waits for this goroutine.
		b.wg.Add(1)
		go func() { defer b.wg.Done(); b.sendPlan(e, steps) }()
	default:
		e.state = approvalapi.StateRefused
	}
	out := e.toBrief()
	if b.conf.Decided != nil {
		b.conf.Decided(out, a.Approve, steps)
	}
	return out, nil
}

// stateWords explains for each state why no decision is possible.
var stateWords = map[approvalapi.State]string{
	approvalapi.StateRunning: "it is being sent", approvalapi.StateDone: "it was sent",
	approvalapi.StateStopped: "it was sent in part",
	approvalapi.StateRefused: "it was refused", approvalapi.StateStale: "the configuration has changed since",
}

// checkSteps checks and sorts the numbers of steps. An empty list means all steps.
func checkSteps(list []int, n int) ([]int, error) {
	// Compact, because a number that occurs twice would send its write twice.
	out := slices.Compact(slices.Sorted(slices.Values(list)))
	for _, s := range out {
		if s < 1 || s > n {
			return nil, newRefusal("no_step", fmt.Sprintf("There is no step %d: the plan has %d.", s, n))
		}
	}
	if len(list) == 0 {
		for i := range n {
			out = append(out, i+1)
		}
	}
	return out, nil
}

// EndOpenPlans ends the open plans, because the catalog has changed. A plan that is being sent stops at its next step.
func (b *Store) EndOpenPlans() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.plans {
		if e.state == approvalapi.StateOpen {
			e.state = approvalapi.StateStale
		}
	}
}
