package egress

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

// askPerson waits until a person decides on a request, or on a call at this address. It sets the verdict if the person
// approves. The shown body is the body that leaves: it has been read to its end.
func (x *exchange) askPerson(v policy.Verdict, q policy.Request, address string, headers []string) error {
	if replay := x.plan.replay; replay != nil {
		// The approval of the plan covers the steps, but not the reads that the plan repeats.
		if replay.read {
			return x.deny(v)
		}
		v.Allow, v.Hold = true, nil
		x.setVerdict(v)
		return nil
	}
	refuse := func(code string) error { return x.deny(policy.Refuse(code, q.Host, v.APIs)) }
	body, ok := readShownBody(q, headers)
	if !ok {
		return refuse(policy.CodeApprovalUnseen)
	}
	from := &x.from
	held := approval.Request{
		HeldRequest: approvalapi.HeldRequest{
			Run: from.origin.Run, Tenant: from.origin.Tenant, Server: from.lease.Server(), API: v.Hold.API, Rule: v.Hold.Rule,
			Method: strings.Join(q.Methods, ", "), URL: address, Headers: headers, Body: body,
		},
		Generation: from.origin.Generation, OtherPath: q.OtherPath, Host: q.Host, IsCall: q.IsCall(), ByAny: v.Hold.ByAny,
	}
	held.SetVersions(x.snap.Rules.Catalog)
	// An approval could not let the request leave under other rules than those that held it.
	if !x.refresh(&held, true) {
		return refuse(policy.CodeApprovalStale)
	}
	// Only a run's requests end with the run: an MCP server lives on, and so may its request.
	if from.origin.ClientType() == policy.ClientRun {
		held.Ended = from.origin.Context().Done()
	}
	for _, run := range from.origin.ListRuns() {
		held.Pauses = append(held.Pauses, run.Run)
	}
	// A text with a credential must neither be shown nor leave, so this refuses before a person is asked.
	if x.snap.carriesSecret(joinShown(address, headers, body), x.conf.Redact, x.raiseAlarm) {
		x.refresh(&held, false)
		return refuse(policy.CodeCredentialSent)
	}
	// The wait does not count towards the run's time.
	began, resume := time.Now(), from.origin.PauseRuns()
	bound, release := from.origin.BindContext(x.ctx)
	id, giveBack, err := x.conf.Approvals.WaitForApproval(bound, held)
	release()
	resume()
	x.note.HeldMS = toMilliseconds(time.Since(began))
	same := x.refresh(&held, false)
	switch {
	// Without an error, a person approved under rules that are no longer in force.
	case errors.Is(err, approval.ErrStale), err == nil && !same:
		return refuse(policy.CodeApprovalStale)
	case errors.Is(err, approval.ErrUnavailable):
		return refuse(policy.CodeStateUnavailable)
	case errors.Is(err, approval.ErrDenied):
		return refuse(policy.CodeApprovalDenied)
	case errors.Is(err, approval.ErrUnanswered):
		return x.deny(policy.RefuseUnanswered(id, q.Host, v.APIs))
	case errors.Is(err, approval.ErrFull):
		return refuse(policy.CodeApprovalFull)
	case err != nil && x.ctx.Err() == nil:
		return refuse(policy.CodeRunEnded)
	// The client disconnected, so only the outcome of the exchange matters.
	case err != nil:
		return x.deny(v) // it was cut off
	}
	if giveBack != nil {
		x.settlement.unused = append(x.settlement.unused, giveBack)
	}
	v.Allow, v.Hold, x.settlement.approved = true, nil, true
	x.setVerdict(v)
	return nil
}

// refresh puts the exchange under the snapshot in force. It returns false if the APIs that decide about a held request
// have changed. With asking, CutStale leaves the exchange alone until the next call.
func (x *exchange) refresh(held *approval.Request, asking bool) (same bool) {
	// Under mu: CutStale sees either an exchange that asks, or the snapshot with which the exchange goes on.
	x.mu.Lock()
	defer x.mu.Unlock()
	snap := x.conf.Current()
	same = held.SetVersions(snap.Rules.Catalog)
	x.snap = runSnapshot{Snapshot: snap, guard: NewRunSwapper(snap, x.from.lease), asking: asking && same}
	return same
}

// readShownBody returns the body of a request that a person decides about. It returns false for a request that cannot
// be shown: a person can judge only complete text.
func readShownBody(q policy.Request, headers []string) (string, bool) {
	body, ok := q.Content.BodyText()
	return body, ok && q.Upgrade == "" && utf8.ValidString(strings.Join(headers, "\n"))
}

// joinShown returns the text of a request in which a person would see a credential.
func joinShown(address string, headers []string, body string) string {
	return address + "\n" + strings.Join(headers, "\n") + "\n" + body
}

// carriesSecret reports whether a text must neither be shown to a person nor leave. It calls found if the text has a
// canary or a credential's value.
func (s *runSnapshot) carriesSecret(text string, r *redact.Redactor, found func(swap.CarriedValue)) bool {
	c, carries := s.guard.SearchText(text, "body")
	if carries {
		found(c)
	}
	return carries || cleanForLog(r, s.Snapshot, text) != text
}

// usualHeaders lists headers that a person need not see, with the values that every client sends. Nil means any value:
// the proxy replaces it.
var usualHeaders = map[string][]string{
	"Accept": {"*/*"}, "Accept-Language": {"*"}, "Sec-Fetch-Mode": {"cors"},
	"Accept-Encoding": nil, "Content-Length": nil, "User-Agent": nil,
}

// addedKey follows the name of a header that CodeForge adds. A header's name cannot contain it, so code cannot imitate
// the line.
const addedKey = " (CodeForge adds it): a new key"

// listShownWithKeys returns the headers that a person sees: the request's headers, and those that the proxy adds.
func listShownWithKeys(apis []*catalog.API, q policy.Request, out *http.Request) []string {
	list := listShownHeaders(out.Header)
	for _, name := range listKeyHeaders(apis, q, out) {
		list = append(list, name+addedKey)
	}
	return list
}

// listShownHeaders returns the headers that a person sees, one line for each value, sorted by name.
func listShownHeaders(h http.Header) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, v := range h[name] {
			if hidden, ok := usualHeaders[name]; !ok || hidden != nil && !slices.Contains(hidden, v) {
				out = append(out, name+": "+v)
			}
		}
	}
	return out
}
