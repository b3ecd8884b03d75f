package egress

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// headerPlanned carries the step number in the answer to a recorded request.
const headerPlanned = "Codeforge-Planned"

// planUse is the part of a plan in an exchange.
type planUse struct {
	replay *replay        // set if a plan, not a run, sends the request
	read   *approval.Step // a dry run's read, for the plan
	seen   *bodyStart     // of the answer to read
}

// mustPlan reports whether a dry run records a request instead of sending it: a request that writes, or that has a
// body. A body may contain another operation than the method suggests.
func mustPlan(l *lease.Lease, q policy.Request, out *http.Request) bool {
	//defence:dry-run
	return l.Plan != nil && (q.CanWrite() || out.Body != nil && out.Body != http.NoBody)
}

// recordWrite adds a dry run's write to the run's plan and answers it. Policy, or a person, could let it leave.
func (x *exchange) recordWrite() error {
	q, v, out := x.request, x.verdict, x.msg.out
	if !mustPlan(x.from.lease, q, out) || v.Allow && policy.HasOnlyQueries(q, x.holders()) {
		return nil
	}
	// A limit that cannot read the request would refuse it when the plan is sent.
	if _, known := policy.ListNeeds(q, x.holders()); !known.Allow {
		return x.deny(known)
	}
	shown := approvalapi.Step{Method: strings.Join(q.Methods, ", "), Headers: listShownWithKeys(v.APIs, q, out)}
	// The approver must see body and headers exactly as they will leave.
	var ok bool
	if shown.Body, ok = readShownBody(q, shown.Headers); !ok {
		return x.deny(policy.Refuse(policy.CodePlanUnreadable, q.Host, v.APIs))
	}
	v, ok = x.addStep(approval.Step{
		Shown: shown, Host: q.Host, TLS: q.TLS, Method: out.Method, URL: out.URL, Header: out.Header.Clone(),
	}, v)
	if !ok {
		return x.deny(v)
	}
	x.setVerdict(v)
	_ = x.describeRequest()
	body := formatPlanned(x.note.Step) + "\n"
	resp := jsonResponse(http.StatusAccepted, []byte(body)) //nolint:bodyclose // send closes it
	resp.Header.Set(headerPlanned, strconv.Itoa(x.note.Step))
	x.w.send(resp)
	return errAnswered
}

// formatPlanned returns the answer to a step. The fields by which APIs usually identify a new object hold the step's
// number, so that CodeForge finds a later step with such a field. JavaScript would leave an undefined field out of
// JSON.
func formatPlanned(step int) string {
	n := strconv.Itoa(step)
	text := `{"planned":` + n
	for _, field := range []string{"id", "key", "number", "sha", "ts", "uuid"} {
		text += `,"` + field + `":"planned:` + n + `"`
	}
	return text + "}"
}

// addStep adds a step to the plan. On success it sets the step in note and returns a verdict that sends no request.
func (x *exchange) addStep(s approval.Step, v policy.Verdict) (_ policy.Verdict, ok bool) {
	// The request may change its URL later; the step must not.
	address := *s.URL
	s.URL = &address
	// Basic hides user and password in base64, in which the searches below would miss them.
	lines := s.Shown.Headers
	if user, password, ok := (&http.Request{Header: s.Header}).BasicAuth(); ok {
		lines = append(slices.Clip(lines), user, password)
	}
	// A step is stored and shown to a person, so it must not contain a credential.
	text := joinShown(s.URL.String(), lines, s.Shown.Body)
	if x.snap.carriesSecret(text, x.conf.Redact, x.raiseAlarm) {
		return policy.Refuse(policy.CodeCredentialSent, x.request.Host, v.APIs), false
	}
	for _, a := range v.APIs {
		s.Shown.APIs = append(s.Shown.APIs, a.Name)
		for _, c := range a.Credentials {
			if strings.Contains(text, c.Name) && !slices.Contains(s.Shown.Tokens, c.Name) {
				s.Shown.Tokens = append(s.Shown.Tokens, c.Name)
			}
		}
	}
	if v.Hold != nil {
		s.Shown.Rule, s.ByAny = v.Hold.Rule, v.Hold.ByAny
	}
	n, err := x.from.lease.Plan.AddStep(s, x.snap.Public.Version)
	var ended *approval.EndedError
	switch {
	case errors.As(err, &ended):
		return policy.RefusePlanned(ended.Sentence, x.request.Host, v.APIs), false
	case errors.Is(err, approval.ErrUnreadable):
		return policy.Refuse(policy.CodePlanUnreadable, x.request.Host, v.APIs), false
	case err != nil:
		return policy.Refuse(policy.CodePlanFull, x.request.Host, v.APIs), false
	}
	x.note.Outcome, x.note.Plan, x.note.Step = proxyapi.OutcomePlanned, x.from.lease.Plan.ID(), n
	v.Allow, v.Hold = false, nil
	return v, true
}

// keepRead keeps a request that a dry run sends. The plan sends it again before a step that writes to the same place.
func (p *planUse) keepRead(draft *approval.Draft, q policy.Request, out *http.Request) error {
	if draft == nil {
		return nil
	}
	address := *out.URL
	p.read = &approval.Step{Host: q.Host, TLS: q.TLS, Method: out.Method, URL: &address, Header: out.Header.Clone()}
	return nil
}

// rememberRead adds a read of the dry run to the plan, unless it was about the stash.
func (p *planUse) rememberRead(draft *approval.Draft, n *receipt.Note, isStash bool) {
	if draft == nil || n.Outcome != proxyapi.OutcomeServed || isStash {
		return
	}
	if p.read == nil {
		p.read = &approval.Step{Method: "CALL"}
	}
	// A truncated body could not be compared with a later one.
	var body []byte
	if p.seen != nil && len(p.seen.data) < approval.MaxRead {
		body = p.seen.data
	}
	draft.NoteRead(*p.read, body)
}

// keepForPlan keeps the arguments of a call that a dry run makes. Only the broker knows whether the tool only reads, so
// the broker decides whether to make the call.
func (c *brokerCall) keepForPlan(draft *approval.Draft, host catalog.Host, out *http.Request) error {
	server, tool, _ := strings.Cut(strings.TrimPrefix(c.path, "/"), "/")
	plain, err := url.PathUnescape(tool)
	if draft == nil || out.Method != http.MethodPost || err != nil || plain == "" || !proxyapi.IsTool(plain) ||
		strings.HasPrefix(server, "$") {
		return nil
	}
	address := *out.URL
	s := &approval.Step{
		Shown: approvalapi.Step{Server: server, Tool: plain},
		Host:  host, TLS: true, Method: out.Method, URL: &address, Header: http.Header{},
	}
	// AddStep refuses a body that is not whole. The broker still gets the whole body.
	body, _, err := coding.PeekBody(out, approval.MaxBody, 0)
	if err != nil {
		return err
	}
	s.Shown.Body = string(body)
	c.step = s
	return nil
}

// addCallToPlan adds a call to the plan that the broker did not make, and answers code as the tool would.
func (x *exchange) addCallToPlan(resp *http.Response) (*http.Response, error) {
	_ = resp.Body.Close()
	if x.call.step == nil {
		return nil, errPlanned
	}
	x.note.Code = ""
	if v, ok := x.addStep(*x.call.step, x.verdict); !ok {
		return nil, &refusedError{v, errors.New(v.Refusal.Error)}
	}
	text := formatPlanned(x.note.Step)
	body, err := json.Marshal(map[string]any{
		"content":           []map[string]string{{"type": "text", "text": text}},
		"structuredContent": json.RawMessage(text), "_schema": true, "_hint": "",
	})
	if err != nil {
		return nil, err
	}
	return jsonResponse(http.StatusOK, body), nil
}

// errPlanned is for a broker that did not make a call which the proxy has not kept for the plan.
var errPlanned = errors.New("the broker did not make the call")
