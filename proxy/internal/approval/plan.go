package approval

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

// MaxReply is how many bytes of an answer a plan keeps.
const MaxReply = 2 << 10

// The codes of unsent steps.
const (
	CodeDrift   = "drift"
	CodeEnding  = "proxy_ending"
	CodeChanged = "plan_changed"
)

// plan is the part of an entry for a plan. It is complete at the end of its run, and its steps never change afterwards.
// An approval names the digest of the whole plan, and ends with the catalog under which the plan was recorded. When a
// step is sent, policy decides again and only then are credentials swapped in. Before that, the proxy compares the
// object that a step changes with the object that the run read.
type plan struct {
	// Plan is the plan as a person sees it, without its state.
	approvalapi.Plan
	version string
	apis    []string
	steps   []Step
}

// toBrief returns a plan without its steps.
func (e *entry) toBrief() approvalapi.Plan {
	out := e.plan.Plan
	out.State, out.Until, out.Steps = e.state, e.until, nil
	return out
}

// ListPlans lists the plans, the oldest first, without their steps.
func (s *Store) ListPlans() []approvalapi.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpired()
	out := []approvalapi.Plan{}
	for _, e := range s.plans.all {
		if e.plan != nil {
			out = append(out, e.toBrief())
		}
	}
	return out
}

const noPlan = "There is no plan with this id, or it has expired."

// GetPlan returns a plan with its steps.
func (s *Store) GetPlan(id string) (approvalapi.Plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findEntry(&s.plans, id)
	if e == nil {
		return approvalapi.Plan{}, &rpc.Error{Status: http.StatusNotFound, Code: "no_plan", Text: noPlan}
	}
	out := e.toBrief()
	out.Steps = slices.Clone(e.plan.Steps)
	return out, nil
}

// DecidePlan approves or refuses a plan, once. A refusal sends no request, but it takes the plan from the operator. So
// others than the operator may decide only if the rule of every step permits that.
func (s *Store) DecidePlan(id string, a approvalapi.Answer, isOperator bool) (approvalapi.Plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findEntry(&s.plans, id)
	if e == nil {
		return approvalapi.Plan{}, newRefusal("no_plan", noPlan)
	}
	//defence:plan-by
	if e.plan.Operator && !isOperator {
		return approvalapi.Plan{}, newRefusal("operator_only",
			"Only the operator may decide about this plan: codeforge plan approve, in a terminal.")
	}
	// The state changes under mu, so of two decisions only the first counts.
	//defence:plan-once
	if e.state != approvalapi.StateOpen {
		return approvalapi.Plan{}, newRefusal("plan_decided", "This plan can no longer be decided: "+stateWords[e.state]+".")
	}
	// The steps are hashed again: they must still be those that the person saw.
	//defence:plan-digest
	if a.Digest != e.plan.Digest || e.plan.hashSteps() != e.plan.Digest {
		return approvalapi.Plan{}, newRefusal(CodeChanged, "This is not the plan that was shown. Look at it again.")
	}
	steps, err := checkSteps(a.Steps, len(e.plan.steps))
	if err != nil {
		return approvalapi.Plan{}, err
	}
	switch {
	case s.ending:
		return approvalapi.Plan{}, newRefusal(CodeEnding, "The proxy is ending.")
	case a.Approve:
		e.state = approvalapi.StateRunning
		// Under mu and before ending, so that Close waits for this goroutine.
		s.wg.Go(func() { s.sendPlan(e, steps) })
	default:
		e.state = approvalapi.StateRefused
	}
	s.conf.Decided(ledger.Decision{Run: e.plan.Run, Tenant: e.tenant, Plan: id, Approved: a.Approve, Steps: steps})
	return e.toBrief(), nil
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

// DropStale ends the approvals that a new catalog makes stale. A plan is stale after any change of the catalog. A plan
// that is being sent stops at its next step.
func (s *Store) DropStale(c *catalog.Catalog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropStaleHeld(c)
	for _, e := range s.plans.all {
		if e.state == approvalapi.StateOpen {
			e.state = approvalapi.StateStale
		}
	}
}
