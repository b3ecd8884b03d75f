package egress

import (
	"github.com/codeforge-mcp/codeforge/proxy/internal/budget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
)

// reservation holds the units that a request takes from the limits of its APIs.
type reservation struct {
	needs    []budget.Need
	giveBack func()         // returns the units; nil if no units were reserved
	over     policy.Verdict // the verdict on a request beyond a limit. Its Hold is nil if no person decides
}

// reserveLimits takes the units that a request needs.
func (x *exchange) reserveLimits() error {
	needs, known := policy.ListNeeds(x.request, x.holders())
	if !known.Allow {
		return x.deny(known)
	}
	if len(needs) == 0 {
		return nil
	}
	back, wait, ok, err := x.conf.Budget.Reserve(x.ctx, x.identifyRun(), needs, false)
	if err != nil {
		return x.deny(policy.Refuse(policy.CodeStateUnavailable, x.host, x.verdict.APIs))
	}
	x.limits = reservation{needs: needs, giveBack: back}
	if ok {
		return nil
	}
	x.limits.over = policy.DecideBeyondLimit(x.verdict, x.request, x.holders(), wait)
	if x.limits.over.Hold == nil || x.replay != nil { // a plan's approver did not see the limit
		return x.deny(x.limits.over)
	}
	return nil
}

// identifyRun returns the run, or the MCP server, that sends the request.
func (x *exchange) identifyRun() shareddb.Run {
	return shareddb.Run{ID: x.lease.Run, Generation: x.lease.Generation}
}

// askForRules asks a person about a request that a rule holds.
func (x *exchange) askForRules() error {
	if x.verdict.Hold == nil {
		return nil
	}
	if err := x.ask(x.verdict); err != nil {
		return err
	}
	if giveBack := x.limits.giveBack; giveBack != nil {
		// The person may take longer than the limit's period. The units count from now, when the request leaves, and must
		// still be free: otherwise requests that waited together would leave in one burst.
		x.limits = reservation{} // returnUnused must not return the units a second time, if they cannot be reserved again
		giveBack()
		return x.reserveLimits()
	}
	return nil
}

// askForLimits asks a person about a request beyond a limit. The approval covers the excess.
func (x *exchange) askForLimits() error {
	if x.limits.over.Hold == nil {
		return nil
	}
	// A person must see the body, also if no rule read it.
	if err := x.readContent(); err != nil {
		return err
	}
	if err := x.ask(x.limits.over); err != nil {
		return err
	}
	var err error
	x.limits.giveBack, _, _, err = x.conf.Budget.Reserve(x.ctx, x.identifyRun(), x.limits.needs, true)
	if err != nil {
		return x.deny(policy.Refuse(policy.CodeStateUnavailable, x.host, x.verdict.APIs))
	}
	return nil
}

// ask waits until a person decides about the request.
func (x *exchange) ask(v policy.Verdict) error {
	v = x.waitForApproval(v, x.request, x.out.URL.String(), x.listShownWithKeys(v, x.request, x.out))
	if !v.Allow {
		return x.deny(v)
	}
	x.setVerdict(v)
	return nil
}
