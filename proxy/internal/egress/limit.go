package egress

import (
	"net/http"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// reserve spends what an allowed request needs of its APIs' limits. Beyond one a person decides, or it is refused.
func (x *exchange) reserve(
	v policy.Verdict, q policy.Request, out *http.Request, holders []*catalog.API,
) policy.Verdict {
	needs, known := policy.Needs(q, holders)
	if !known.Allow {
		return known
	}
	if len(needs) == 0 {
		return v
	}
	back, wait, ok := x.conf.Budget.Reserve(needs, false)
	if !ok {
		v = policy.Beyond(v, q, holders, wait)
		if v.Hold == nil || x.replay != nil { // the approver of a plan saw no limit
			return v
		}
		if q.Content == nil {
			content, err := policy.ReadContent(out)
			if err != nil {
				return bodyRefusal(err, q.Host, holders)
			}
			defer content.Release()
			q.Content = content
		}
		if v = x.hold(v, q, out.URL.String(), x.shown(v, q, out)); !v.Allow {
			return v
		}
		back, _, _ = x.conf.Budget.Reserve(needs, true)
	}
	x.giveBack = back
	return v
}
