// Package plan records what a dry run would have sent, and sends it when a person approves.
//
// Threat: a plan that is approved and another that is sent: steps that are added or changed afterwards, that run twice,
// under another configuration, or for another run; and a plan that somebody approves who may not. A plan is complete
// when its run has ended, and does not change any more. An approval names the digest of all of it, counts once and for
// 15 minutes, and ends with the catalog under which the plan was recorded. Policy decides anew about each step, and
// credentials are put in only then. What a step would change is compared again with what the run had read.
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
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/planapi"
)

const (
	// lifeTime is how long a plan can be approved, and then how long its answers can be read.
	lifeTime = 15 * time.Minute
	// maxPlans and maxAll bound the plans that are kept and the bytes of all plans and drafts.
	maxPlans = 100
	maxAll   = 32 << 20
	// MaxReply is how much of an answer is kept, in bytes.
	MaxReply = 2 << 10
)

// The codes of steps that are not sent.
const (
	CodeDrift   = "drift"
	CodeEnding  = "proxy_ending"
	CodeChanged = "plan_changed"
)

// Sender sends the steps of one plan, as the run that it is of.
type Sender interface {
	// Send sends a step that a person approved, under the catalog of this version alone. It returns at most most bytes of
	// the answer's body.
	Send(ctx context.Context, s Step, version string, most int) (planapi.Reply, []byte)
	// Read sends a request of the run again.
	Read(ctx context.Context, s Step, version string) (planapi.Reply, []byte)
	// Close returns the checkpoint of the ledger that covers what was sent, or nothing.
	Close() string
}

// Config holds what a Book needs.
type Config struct {
	// Open begins to send the steps of a run's plan.
	Open func(ctx context.Context, plan, run, tenant string, apis []string) Sender
	// Decided is called for each decision of a person, with the numbers of the steps. It may be nil.
	Decided func(p planapi.Plan, approved bool, steps []int)
	// Memory is the account from which plans and drafts take memory. They have a fixed bound too. Nil means no further
	// bound.
	Memory *membudget.Account
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Book holds plans. Make one with New.
type Book struct {
	conf Config

	mu     sync.Mutex
	plans  []*entry       // the oldest first
	used   int            // bytes of plans and drafts
	drafts map[string]int // bytes of drafts by tenant
	ending bool
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // plans that are being sent; Add only under mu and before ending
}

// entry is a plan.
type entry struct {
	id, run, version, digest string
	tenant                   string
	apis                     []string
	steps                    []step // nil when they can be sent no more
	size                     int
	operator                 bool
	state                    planapi.State
	reads                    int
	since, until             time.Time // of the wall clock, which goes on while a machine sleeps
	ended, audit             string
	picture                  []string
	replies                  []*planapi.Reply
}

// New makes an empty book.
func New(c Config) *Book {
	if c.Now == nil {
		c.Now = time.Now
	}
	b := &Book{conf: c, drafts: map[string]int{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Close stops what is being sent, and waits for that.
func (b *Book) Close() {
	b.mu.Lock()
	b.ending = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
}

// Draft begins the plan of a tenant's run that may use these APIs; nil: all.
func (b *Book) Draft(run, tenant string, apis []string) *Draft {
	return &Draft{book: b, id: newID(), run: run, tenant: tenant, apis: apis}
}

// newID is short enough to type: 40 random bits.
func newID() string { return strings.ToLower(rand.Text()[:8]) }

// take reserves bytes for a draft of a tenant, if there are any: the plans that are over give way, and open ones of
// another tenant who has more. Drafts do not give way, so those of a tenant have half of the room at most.
func (b *Book) take(tenant string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if tenant != "" && b.drafts[tenant]+n > maxAll/2 {
		return false
	}
	b.sweep(n)
	for b.used+n > maxAll {
		size := func(e *entry) int { return e.size }
		if who := b.most(tenant, b.drafts[tenant], size); who == tenant || !b.drop(who) {
			return false
		}
	}
	if !b.conf.Memory.Take(int64(n)) {
		return false
	}
	b.used += n
	b.drafts[tenant] += n
	return true
}

// give gives back bytes of a draft.
func (b *Book) give(tenant string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drafts[tenant] -= n
	b.giveLocked(n)
}

// giveLocked gives back bytes of a plan. The caller holds the lock.
func (b *Book) giveLocked(n int) {
	b.used -= n
	b.conf.Memory.Give(int64(n))
}

// sweep forgets what is too old, and of what is over the oldest, until there is room for so many bytes more. The caller
// holds the lock.
func (b *Book) sweep(n int) {
	now := b.conf.Now()
	forget := func(e *entry) bool { b.giveLocked(e.size); return true }
	b.plans = slices.DeleteFunc(b.plans, func(e *entry) bool {
		return e.state != planapi.Running && now.After(e.until) && forget(e)
	})
	left := len(b.plans)
	b.plans = slices.DeleteFunc(b.plans, func(e *entry) bool {
		if e.state == planapi.Open || e.state == planapi.Running || b.used+n <= maxAll && left < maxPlans {
			return false
		}
		left--
		return forget(e)
	})
}

// most is the tenant whose open plans weigh most. It is the given one, whose drafts weigh so much and who is about to
// have one more plan, if no other's do. The caller holds the lock.
func (b *Book) most(tenant string, drafts int, weight func(*entry) int) string {
	of := map[string]int{tenant: drafts + 1}
	for _, e := range b.plans {
		if e.state == planapi.Open {
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

// drop forgets a tenant's oldest open plan, if there is one. The caller holds the lock.
func (b *Book) drop(tenant string) bool {
	i := slices.IndexFunc(b.plans, func(e *entry) bool { return e.state == planapi.Open && e.tenant == tenant })
	if i < 0 {
		return false
	}
	b.giveLocked(b.plans[i].size)
	b.plans = slices.Delete(b.plans, i, i+1)
	return true
}

// add adds a plan, and gives it as a receipt shows it. One too many takes the place of the oldest that nobody has
// decided about, of the tenant who has most of them.
func (b *Book) add(e *entry) *planapi.Plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(0)
	if len(b.plans) >= maxPlans {
		b.drop(b.most(e.tenant, 0, func(*entry) int { return 1 }))
	}
	b.drafts[e.tenant] -= e.size
	b.plans = append(b.plans, e)
	out := e.brief()
	return &out
}

// brief is a plan without its steps.
func (e *entry) brief() planapi.Plan {
	return planapi.Plan{
		ID: e.id, Run: e.run, Digest: e.digest, Operator: e.operator, State: e.state, Writes: len(e.replies),
		Reads: e.reads, Since: e.since.UTC(), Until: e.until.UTC(), Ended: e.ended, Picture: e.picture, Audit: e.audit,
	}
}

// List lists the plans, the oldest first, without their steps.
func (b *Book) List() []planapi.Plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(0)
	out := []planapi.Plan{}
	for _, e := range b.plans {
		out = append(out, e.brief())
	}
	return out
}

// Get is a plan with its steps.
func (b *Book) Get(id string) (planapi.Plan, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(0)
	e := b.find(id)
	if e == nil {
		return planapi.Plan{}, refused("no_plan", "There is no plan with this id, or no longer.")
	}
	return e.whole(), nil
}

func (b *Book) find(id string) *entry {
	if i := slices.IndexFunc(b.plans, func(e *entry) bool { return e.id == id }); i >= 0 {
		return b.plans[i]
	}
	return nil
}

func (e *entry) whole() planapi.Plan {
	out := e.brief()
	for i, s := range e.steps {
		one := s.shown(i+1, s.changes)
		if r := e.replies[i]; r != nil {
			kept := *r
			one.Answer = &kept
		}
		out.Steps = append(out.Steps, one)
	}
	return out
}

func refused(code, text string) error { return &credentialapi.Refused{Code: code, Text: text} }

// Decide approves a plan, or refuses it, once.
func (b *Book) Decide(id string, a planapi.Answer) (planapi.Plan, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(0)
	e := b.find(id)
	if e == nil {
		return planapi.Plan{}, refused("no_plan", "There is no plan with this id, or no longer.")
	}
	//defence:plan-once
	if e.state != planapi.Open {
		return planapi.Plan{}, refused("plan_decided", "Nothing can be decided about this plan any more: "+words[e.state]+".")
	}
	//defence:plan-digest
	if a.Digest != e.digest || digest(e.id, e.run, e.version, e.steps) != e.digest {
		return planapi.Plan{}, refused(CodeChanged, "This is not the plan that was shown. Look at it again.")
	}
	steps, err := chosen(a.Steps, len(e.steps))
	if err != nil {
		return planapi.Plan{}, err
	}
	switch {
	case b.ending:
		return planapi.Plan{}, refused(CodeEnding, "The proxy is ending.")
	case a.Approve:
		e.state = planapi.Running
		b.wg.Add(1)
		go func() { defer b.wg.Done(); b.send(e, steps) }()
	default:
		e.state = planapi.Refused
	}
	out := e.brief()
	if b.conf.Decided != nil {
		b.conf.Decided(out, a.Approve, steps)
	}
	return out, nil
}

// words say of each state why there is nothing to decide.
var words = map[planapi.State]string{
	planapi.Running: "it is being sent", planapi.Done: "it was sent", planapi.Stopped: "it was sent in part",
	planapi.Refused: "it was refused", planapi.Stale: "the configuration has changed since",
}

// chosen checks the numbers of steps, and puts them in order. Without any, all are.
func chosen(list []int, n int) ([]int, error) {
	out := slices.Compact(slices.Sorted(slices.Values(list)))
	for _, s := range out {
		if s < 1 || s > n {
			return nil, refused("no_step", fmt.Sprintf("There is no step %d: the plan has %d.", s, n))
		}
	}
	if len(list) == 0 {
		for i := range n {
			out = append(out, i+1)
		}
	}
	return out, nil
}

// Forget ends the plans that nobody has decided about: the catalog has changed. What is being sent stops at its next
// step.
func (b *Book) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.plans {
		if e.state == planapi.Open {
			e.state = planapi.Stale
		}
	}
}
