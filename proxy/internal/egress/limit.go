package egress

import (
	"errors"

	"github.com/codeforge-mcp/codeforge/proxy/internal/brokerlink"
	"github.com/codeforge-mcp/codeforge/proxy/internal/budget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
)

// settlement is the work that the end of the exchange does: it returns units and approvals, and ends the attempt.
type settlement struct {
	limits    reservation
	approved  bool             // a person approved the request, for one sending
	unused    []func()         // give back the approvals for it
	attempted func(known bool) // ends the attempt of its idempotency key; nil without a key
}

// returnUnused returns what a request that did not leave would have used: units of limits, and approvals.
func (s *settlement) returnUnused(n *receipt.Note) {
	if !n.Left && s.limits.giveBack != nil {
		s.limits.giveBack()
	}
	// After ErrNone no byte of a call left the proxy.
	if !n.Left || errors.Is(n.Cause, brokerlink.ErrNone) {
		for _, giveBack := range s.unused {
			giveBack()
		}
	}
}

// reservation holds the units that a request takes from the limits of its APIs.
type reservation struct {
	needs    []budget.Need
	giveBack func()         // returns the units; nil if no units were reserved
	over     policy.Verdict // the verdict on a request beyond a limit. Its Hold is nil if no person decides
}

// reserveLimits takes the units that a request needs.
func (x *exchange) reserveLimits() error {
	holders := x.holders()
	needs, known := policy.ListNeeds(x.request, holders)
	if !known.Allow {
		return x.deny(known)
	}
	if len(needs) == 0 {
		return nil
	}
	back, wait, ok, err := x.conf.Budget.Reserve(x.ctx, identifyRun(x.from.lease), needs, false)
	if err != nil {
		return x.deny(policy.Refuse(policy.CodeStateUnavailable, x.request.Host, x.verdict.APIs))
	}
	limits := &x.settlement.limits
	*limits = reservation{needs: needs, giveBack: back}
	if ok {
		return nil
	}
	limits.over = policy.DecideBeyondLimit(x.verdict, x.request, holders, wait)
	if limits.over.Hold == nil || x.plan.replay != nil { // a plan's approver did not see the limit
		return x.deny(limits.over)
	}
	return nil
}

// identifyRun returns the run, or the MCP server, that sends the requests of a lease.
func identifyRun(l *lease.Lease) shareddb.Run {
	return shareddb.Run{ID: l.Run, Generation: l.Generation}
}

// askForApproval asks a person about a request that a rule holds, and about a request beyond a limit. The second
// approval covers the excess.
func (x *exchange) askForApproval() error {
	out, limits := x.msg.out, &x.settlement.limits
	ask := func(v policy.Verdict) error {
		return x.askPerson(v, x.request, out.URL.String(), listShownWithKeys(v.APIs, x.request, out))
	}
	if x.verdict.Hold != nil {
		if err := ask(x.verdict); err != nil {
			return err
		}
		if giveBack := limits.giveBack; giveBack != nil {
			// The person may take longer than the limit's period. The units count from now, when the request leaves, and must
			// still be free: otherwise requests that waited together would leave in one burst.
			*limits = reservation{} // returnUnused must not return the units a second time, if they cannot be reserved again
			giveBack()
			if err := x.reserveLimits(); err != nil {
				return err
			}
		}
	}
	if limits.over.Hold == nil {
		return nil
	}
	// A person must see the body, also if no rule read it.
	if err := readContent(&x.request, out); err != nil {
		return x.deny(x.verdictOf(err))
	}
	err := ask(limits.over)
	if err != nil {
		return err
	}
	limits.giveBack, _, _, err = x.conf.Budget.Reserve(x.ctx, identifyRun(x.from.lease), limits.needs, true)
	if err != nil {
		return x.deny(policy.Refuse(policy.CodeStateUnavailable, x.request.Host, x.verdict.APIs))
	}
	return nil
}
