package egress

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/proxy/internal/plan"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// headerPlanned carries the step number in the answer to a recorded request.
const headerPlanned = "Codeforge-Planned"

// planUse is the part of a plan in an exchange.
type planUse struct {
	replay   *replay       // set if a plan, not a run, sends the request
	recorded int           // the number of the plan step that replaced the sending, or 0
	callStep *plan.Step    // a call that the plan may record
	read     *plan.Step    // a dry run's read, for the plan
	seen     *bytes.Buffer // the beginning of the answer to read
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
	body, ok := q.Content.BodyText()
	s := plan.Step{
		Host: q.Host, TLS: q.TLS, Method: out.Method, URL: out.URL, Header: out.Header.Clone(), Body: []byte(body),
		ShownMethod: strings.Join(q.Methods, ", "), Shown: x.listShownWithKeys(v, q, out),
	}
	// The approver must see body and headers exactly as they will leave.
	if !ok || q.Upgrade != "" || !utf8.ValidString(strings.Join(s.Shown, "\n")) {
		return x.deny(policy.Refuse(policy.CodePlanUnreadable, q.Host, v.APIs))
	}
	if v.Hold != nil {
		s.Rule, s.ByAny = v.Hold.Rule, v.Hold.ByAny
	}
	v, ok = x.addStep(s, v)
	if !ok {
		return x.deny(v)
	}
	x.setVerdict(v)
	_ = x.describeRequest()
	body = formatPlanned(x.recorded) + "\n"
	resp := jsonResponse(http.StatusAccepted, []byte(body)) //nolint:bodyclose // send closes it
	resp.Header.Set(headerPlanned, strconv.Itoa(x.recorded))
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

// addStep adds a step to the plan. On success it sets recorded and returns a verdict that sends no request.
func (x *exchange) addStep(s plan.Step, v policy.Verdict) (_ policy.Verdict, ok bool) {
	// The request may change its URL later; the step must not.
	address := *s.URL
	s.URL = &address
	text := s.URL.String() + "\n" + strings.Join(s.Shown, "\n") + "\n" + string(s.Body)
	// Basic hides user and password in base64, in which the search for token names below would miss them.
	if user, password, ok := (&http.Request{Header: s.Header}).BasicAuth(); ok {
		text += "\n" + user + "\n" + password
	}
	// A step is stored and shown to a person, so it must not contain a credential.
	if x.alarmOnSecret(text) {
		return policy.Refuse(policy.CodeCredentialSent, x.host, v.APIs), false
	}
	for _, a := range v.APIs {
		s.APIs = append(s.APIs, a.Name)
		for _, c := range a.Credentials {
			if strings.Contains(text, c.Name) && !slices.Contains(s.Tokens, c.Name) {
				s.Tokens = append(s.Tokens, c.Name)
			}
		}
	}
	n, err := x.lease.Plan.AddStep(s, x.snap.Public.Version)
	var ended *plan.EndedError
	switch {
	case errors.As(err, &ended):
		return policy.RefusePlanned(ended.Sentence, x.host, v.APIs), false
	case errors.Is(err, plan.ErrUnreadable):
		return policy.Refuse(policy.CodePlanUnreadable, x.host, v.APIs), false
	case err != nil:
		return policy.Refuse(policy.CodePlanFull, x.host, v.APIs), false
	}
	x.recorded = n
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
	x.read = &plan.Step{
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
		x.read = &plan.Step{Method: "CALL"}
	}
	// A truncated body could not be compared with a later one.
	var body []byte
	if x.seen != nil && x.seen.Len() < plan.MaxRead {
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
	s := &plan.Step{
		Host: x.host, TLS: true, Method: out.Method, URL: &address, Header: http.Header{}, Server: server, Tool: plain,
	}
	if out.Body != nil && out.Body != http.NoBody {
		// One byte more than AddStep accepts, so that it refuses a longer body. The broker still gets the whole body.
		if s.Body, err = io.ReadAll(io.LimitReader(out.Body, plan.MaxBody+1)); err != nil {
			return err
		}
		out.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(s.Body), out.Body), out.Body}
	}
	if h := x.verdict.Hold; h != nil {
		s.Rule, s.ByAny = h.Rule, h.ByAny
	}
	x.callStep = s
	return nil
}

// setPlanHeaders asks the broker to record a call, or to send it for a plan.
func (x *exchange) setPlanHeaders(h http.Header) {
	switch {
	// Rules held this call, so it is recorded even if the tool claims to only read. The broker only checks it.
	case x.callStep != nil && x.callStep.Rule != "":
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
	text := formatPlanned(x.recorded)
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
