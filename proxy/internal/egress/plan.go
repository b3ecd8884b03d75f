package egress

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// headerPlanned carries the step number in the answer to a recorded request.
const headerPlanned = "Codeforge-Planned"

// planUse is the part of a plan in an exchange.
type planUse struct {
	replay   *replay        // set if a plan, not a run, sends the request
	callStep *approval.Step // a call that the plan may record
	read     *approval.Step // a dry run's read, for the plan
	seen     *bytes.Buffer  // the beginning of the answer to read
}

// mustPlan reports whether a dry run records a request instead of sending it: a request that writes, or that has a
// body. A body may contain another operation than the method suggests.
func (x *exchange) mustPlan() bool {
	//defence:dry-run
	return x.lease.Plan != nil && (x.request.CanWrite() || x.out.Body != nil && x.out.Body != http.NoBody)
}

// recordWrite adds a dry run's write to the run's plan and answers it. Policy, or a person, could let it leave.
func (x *exchange) recordWrite() error {
	q, v, out := x.request, x.verdict, x.out
	if !x.mustPlan() || v.Allow && policy.HasOnlyQueries(q, x.holders()) {
		return nil
	}
	// A limit that cannot read the request would refuse it when the plan is sent.
	if _, known := policy.ListNeeds(q, x.holders()); !known.Allow {
		return x.deny(known)
	}
	shown := approvalapi.Step{Method: strings.Join(q.Methods, ", "), Headers: x.listShownWithKeys(v, q, out)}
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
	if x.alarmOnSecret(text) {
		return policy.Refuse(policy.CodeCredentialSent, x.host, v.APIs), false
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
	n, err := x.lease.Plan.AddStep(s, x.snap.Public.Version)
	var ended *approval.EndedError
	switch {
	case errors.As(err, &ended):
		return policy.RefusePlanned(ended.Sentence, x.host, v.APIs), false
	case errors.Is(err, approval.ErrUnreadable):
		return policy.Refuse(policy.CodePlanUnreadable, x.host, v.APIs), false
	case err != nil:
		return policy.Refuse(policy.CodePlanFull, x.host, v.APIs), false
	}
	x.note.Outcome, x.note.Plan, x.note.Step = proxyapi.OutcomePlanned, x.lease.Plan.ID(), n
	v.Allow, v.Hold = false, nil
	return v, true
}

// keepRead keeps a request that a dry run sends. The plan sends it again before a step that writes to the same place.
func (x *exchange) keepRead() error {
	if x.lease.Plan == nil {
		return nil
	}
	address := *x.out.URL
	x.read = &approval.Step{
		Host: x.host, TLS: x.request.TLS, Method: x.out.Method, URL: &address, Header: x.out.Header.Clone(),
	}
	return nil
}

// newCapture returns a buffer for the beginning of a JSON answer to a dry run's GET, or nil for other answers.
func (x *exchange) newCapture(resp *http.Response) *bytes.Buffer {
	if x.read == nil || x.read.Method != http.MethodGet || resp.StatusCode != http.StatusOK ||
		!strings.Contains(resp.Header.Get("Content-Type"), "json") {
		return nil
	}
	return new(bytes.Buffer)
}

// rememberRead adds a read of the dry run to the plan.
func (x *exchange) rememberRead() {
	if x.lease.Plan == nil || x.note.Outcome != proxyapi.OutcomeServed || x.toBroker && len(x.verdict.APIs) == 0 {
		return // it was not sent, or is about the stash
	}
	if x.read == nil {
		x.read = &approval.Step{Method: "CALL"}
	}
	// A truncated body could not be compared with a later one.
	var body []byte
	if x.seen != nil && x.seen.Len() < approval.MaxRead {
		body = x.seen.Bytes()
	}
	x.lease.Plan.NoteRead(*x.read, body)
}

// keepCall keeps the arguments of a call that a dry run makes. Only the broker knows whether the tool only reads, so
// the broker decides whether to make the call.
func (x *exchange) keepCall() error {
	out := x.out
	server, tool, _ := strings.Cut(strings.TrimPrefix(x.callPath, "/"), "/")
	plain, err := url.PathUnescape(tool)
	if x.lease.Plan == nil || out.Method != http.MethodPost || err != nil || plain == "" || !proxyapi.IsTool(plain) ||
		strings.HasPrefix(server, "$") {
		return nil
	}
	address := *out.URL
	s := &approval.Step{
		Shown: approvalapi.Step{Server: server, Tool: plain},
		Host:  x.host, TLS: true, Method: out.Method, URL: &address, Header: http.Header{},
	}
	// AddStep refuses a body that is not whole. The broker still gets the whole body.
	body, _, err := coding.PeekBody(out, approval.MaxBody, 0)
	if err != nil {
		return err
	}
	s.Shown.Body = string(body)
	x.callStep = s
	return nil
}

// setPlanHeaders asks the broker to record a call, or to send it for a plan.
func (x *exchange) setPlanHeaders(h http.Header) {
	switch {
	// Rules held this call, so it is recorded even if the tool claims to only read. The broker only checks it.
	case x.callStep != nil && x.verdict.Hold != nil:
		h.Set(proxyapi.HeaderPlan, proxyapi.PlanCheck)
	case x.callStep != nil:
		h.Set(proxyapi.HeaderPlan, proxyapi.PlanRecord)
	case x.replay != nil:
		h.Set(proxyapi.HeaderPlan, proxyapi.PlanSend)
		h.Set(proxyapi.HeaderSession, x.replay.step.Session)
	}
}

// addCallToPlan adds a call to the plan that the broker did not make, and answers code as the tool would.
func (x *exchange) addCallToPlan(resp *http.Response) (*http.Response, error) {
	_ = resp.Body.Close()
	if x.callStep == nil {
		return nil, errPlanned
	}
	x.note.Code = ""
	x.callStep.Session = resp.Header.Get(proxyapi.HeaderSession)
	if v, ok := x.addStep(*x.callStep, x.verdict); !ok {
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
