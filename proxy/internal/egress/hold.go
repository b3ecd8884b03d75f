package egress

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/internal/hold"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// hold waits until a person decides on a request, and returns what it is then. The request leaves as it was shown: its
// body has been read to its end.
func (x *exchange) hold(v policy.Verdict, q policy.Request, out *http.Request) policy.Verdict {
	refuse := func(code string) policy.Verdict { return policy.Refuse(code, q.Host, v.APIs) }
	body, ok := q.Content.Text()
	if !ok || q.Upgrade != "" {
		return refuse(policy.CodeApprovalUnseen)
	}
	if x.conf.Room == nil {
		return v
	}
	began := time.Now()
	err := x.conf.Room.Pass(x.ctx, hold.Request{
		Run: x.lease.Run, API: v.Hold.API, Rule: v.Hold.Rule, ByAny: v.Hold.ByAny, Catalog: x.snap.Public.Version,
		Method: strings.Join(q.Methods, ", "), URL: out.URL.String(), Headers: shownHeaders(out.Header), Body: body,
		Clean: x.loggable,
	})
	x.note.HeldMS = milliseconds(time.Since(began))
	switch {
	case errors.Is(err, hold.ErrDenied):
		return refuse(policy.CodeApprovalDenied)
	case errors.Is(err, hold.ErrUnanswered):
		return refuse(policy.CodeApprovalTimeout)
	case errors.Is(err, hold.ErrFull):
		return refuse(policy.CodeApprovalFull)
	case err != nil:
		return v // the run has ended
	case x.conf.Current() != x.snap:
		return refuse(policy.CodeApprovalStale)
	}
	v.Allow, v.Hold, x.approved = true, nil, true
	return v
}

// unshown are headers that no server acts by, or that every client sends.
var unshown = []string{
	"Accept", "Accept-Encoding", "Accept-Language", "Connection", "Content-Length", "Sec-Fetch-Mode", "User-Agent",
}

// shownHeaders are the headers that a person sees, a line each, sorted.
func shownHeaders(h http.Header) []string {
	var out []string
	for name, values := range h {
		if !slices.Contains(unshown, name) {
			out = append(out, name+": "+strings.Join(values, ", "))
		}
	}
	slices.Sort(out)
	return out
}
