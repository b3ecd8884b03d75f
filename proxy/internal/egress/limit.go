package egress

import (
	"net/http"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// reserveLimits takes the units that a request needs from the limits of its APIs. Then it asks a person, if a rule or a
// limit requires it. So a person never approves a request that a limit then refuses. finish returns the units of a
// request that did not leave.
func (x *exchange) reserveLimits(
	v policy.Verdict, q policy.Request, out *http.Request, holders []*catalog.API,
) policy.Verdict {
	needs, known := policy.ListNeeds(q, holders)
	if !known.Allow {
		return known
	}
	var over policy.Verdict
	if len(needs) > 0 {
		back, wait, ok := x.conf.Budget.Reserve(needs, false)
		if x.giveBack = back; !ok {
			over = policy.DecideBeyondLimit(v, q, holders, wait)
			if over.Hold == nil || x.replay != nil { // a plan's approver did not see the limit
				return over
			}
		}
	}
	if v.Hold != nil {
		v = x.waitForApproval(v, q, out.URL.String(), x.listShownWithKeys(v, q, out))
		if v.Allow && x.giveBack != nil {
			// The person may take longer than the limit's period. The units count from now, when the request leaves:
			// otherwise requests that waited together would leave in one burst.
			x.giveBack()
			x.giveBack, _, _ = x.conf.Budget.Reserve(needs, true)
		}
	}
	if !v.Allow || over.Hold == nil {
		return v
	}
	// A person must see the body, also if no rule read it.
	if q.Content == nil {
		content, err := policy.ReadContent(out)
		if err != nil {
			return bodyRefusal(err, q.Host, holders)
		}
		defer content.ReleaseMemory()
		q.Content = content
	}
	// The approval covers the excess: reserve again, beyond the limit.
	if v = x.waitForApproval(over, q, out.URL.String(), x.listShownWithKeys(over, q, out)); v.Allow {
		x.giveBack, _, _ = x.conf.Budget.Reserve(needs, true)
	}
	return v
}
