package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/budget"
)

// ListNeeds returns the units that a request takes from the limits of every API of the host. Verdict.Allow is false if
// they are unknown. Verdict.Unread is set if they depend on the unread content.
func ListNeeds(q Request, holders []*catalog.API) ([]budget.Need, Verdict) {
	var out []budget.Need
	for _, a := range holders {
		//defence:limits permits
		if a.Limits == nil {
			continue
		}
		need := func(kind string, l *catalog.Limit, amount int64) {
			if l != nil {
				out = append(out, budget.Need{Key: a.Name + "/" + kind, Amount: amount, Most: l.Most, Per: l.Per})
			}
		}
		need("calls", a.Limits.Calls, 1)
		if !q.CanWrite() {
			continue
		}
		need("writes", a.Limits.Writes, 1)
		sum := a.Limits.Sum
		if sum == nil {
			continue
		}
		on, err := sum.MatchesPath(q.Path)
		switch {
		case err != nil:
			return nil, RefuseAmbiguous("Servers could read the path in different ways.", q.Host)
		case !on:
			continue
		}
		// The sum is a field of the body.
		if q.Content == nil {
			return nil, newUnread(q.Host)
		}
		v, found, err := q.Content.Lookup(sum.Field)
		amount, ok := catalog.ParseMillionths(v.Text)
		// A limit must not count an amount that the server might read differently.
		if err != nil || !found || !ok {
			return nil, buildRefusal(CodeRuleUnreadable, q.Host, a.Name)
		}
		need("sum", &sum.Limit, amount)
	}
	return out, Verdict{Allow: true}
}

// CanWrite reports whether the request may change something: a method other than GET, HEAD and OPTIONS, or a WebSocket.
func (q Request) CanWrite() bool {
	reads := func(method string) bool {
		return slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, strings.ToUpper(strings.TrimSpace(method)))
	}
	return q.Upgrade != "" || slices.ContainsFunc(q.Methods, func(m string) bool { return !reads(m) })
}

// DecideBeyondLimit returns the verdict for a request beyond a limit. If every API with limits lets a person decide,
// the request is held. Otherwise it is refused, with Retry-After if waiting helps.
func DecideBeyondLimit(v Verdict, q Request, holders []*catalog.API, wait time.Duration) Verdict {
	var hold *Hold
	for _, a := range holders {
		switch {
		case a.Limits == nil:
		case a.Limits.OverApprove:
			hold = hold.addRule(a.Name, a.Limits.String(), false)
		default:
			return refuseLimit(a, q, wait)
		}
	}
	apis := v.APIs
	v = buildRefusal(CodeApprovalNeeded, q.Host, joinNames(apis))
	v.APIs, v.Hold = apis, hold
	return v
}

func refuseLimit(a *catalog.API, q Request, wait time.Duration) Verdict {
	v := buildRefusal(CodeLimitReached, q.Host, a.Name)
	// Round up: a client that retries a fraction too early would be refused again.
	seconds := int64((wait + time.Second - 1) / time.Second)
	when := " This request alone exceeds it."
	if wait > 0 {
		v.RetryAfter = strconv.FormatInt(seconds, 10)
		when = fmt.Sprintf(" It permits this one in %d s.", seconds)
	}
	return v.extendHint("", " It is: "+a.Limits.String()+"."+when)
}
