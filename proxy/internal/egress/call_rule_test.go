package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// ruledServer is an MCP server with rules about its tools.
var ruledServer = map[string]string{"notes": serverAPI("notes.demo.test", "NOTES_AUTH_TOKEN", `, "rules": [
	{"tools": ["wipe_*"], "then": "refuse"},
	{"tools": ["pay"], "body": {"amount": {"max": 50}, "to.kind": {"is": "friend"}}, "then": "allow"},
	{"tools": ["get_one"], "body": {"live": {"is": 1}}, "then": "refuse"},
	{"tools": ["pay", "send"], "then": "approve"},
	{"tools": ["get_*"], "then": "allow"}]`)}

// made are the calls that reach a broker.
type made struct {
	mu    sync.Mutex
	calls []string
}

func (m *made) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m.mu.Lock()
	defer m.mu.Unlock()
	plan := r.Header.Get(proxyapi.HeaderPlan)
	if plan == proxyapi.PlanCheck || plan == proxyapi.PlanRecord && !strings.Contains(r.URL.Path, "/get") {
		w.Header().Set(proxyapi.HeaderCode, proxyapi.CodePlanned)
		_, _ = io.WriteString(w, "{}")
		return
	}
	m.calls = append(m.calls, strings.TrimSpace(r.URL.EscapedPath()+" "+string(body)))
	_, _ = io.WriteString(w, `{"content":[]}`)
}

func (m *made) all() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.calls, "\n")
}

// TestCallRules: rules decide on calls by the tool and its arguments, as every server reads them; no other request of
// code depends on them.
// Promise: rules
func TestCallRules(t *testing.T) {
	r := newRig(t, setup{apis: ruledServer})
	var m made
	r.connectBroker(m.ServeHTTP)
	r.begin()
	const friend = `"to":{"kind":"friend"}`
	for i, row := range []struct{ path, body, code string }{
		{"/notes/get_all", `{}`, ""}, {"/notes/get-all", ``, ""}, {"/notes/%67et_all", `x`, ""},
		{"/notes/$read", `{"uri":"x"}`, ""}, {"/notes/$prompt", `{"name":"x"}`, ""}, {"/$stash/get", `{"key":"x"}`, ""},
		{"/notes/wipe_all", `{}`, "rule_refused"}, {"/notes/wipe-all", `{}`, "rule_refused"}, {"/notes/wipe%2Eall", `{}`, "rule_refused"},
		{"/notes/%77ipe_all", `{}`, "rule_refused"}, {"/notes/other", `{}`, "rule_refused"}, {"/notes/Get_all", `{}`, "rule_refused"},
		{"/notes/$wipe", `{}`, "rule_refused"}, {"/notes/$reads", `{}`, "rule_refused"}, {"/notes/get", `{}`, "rule_refused"},
		{"/notes/pay", `{"amount":50,` + friend + `}`, ""}, {"/notes/pay", `{"amount":5e1,` + friend + `}`, "rule_unreadable"},
		{"/notes/pay", `{"amount":1,"amount":9999,` + friend + `}`, "rule_unreadable"},
		{"/notes/pay", `{"amount":1,"Amount":9999,` + friend + `}`, "rule_unreadable"},
		{"/notes/pay", `{"amount":1,"__proto__":{"amount":9999},` + friend + `}`, "rule_unreadable"},
		{"/notes/get_one", `{"live":2}`, ""}, {"/notes/get_one", `{"live":1.0}`, "rule_refused"}, {"/notes/get_one", `{"live":1e0}`, "rule_unreadable"},
		{"/notes/pay", `[{"amount":1}]`, "rule_unreadable"}, {"/notes/pay", `amount=1&to[kind]=friend`, "rule_unreadable"},
		{"/notes/pay", `{"amount":1,` + friend + `,"x":"` + strings.Repeat("x", 300<<10) + `"}`, "rule_unreadable"},
		{"/notes/send", `{"text":"` + strings.Repeat("x", 300<<10) + `"}`, "approval_unreadable"}, {"/notes/send", "\xff", "approval_unreadable"},
		{"/notes/send", `{"key":"` + secretValue + `NOTES_AUTH_TOKEN"}`, "credential_in_request"},
	} {
		before := m.all()
		resp := post(t, r.client(i%2 == 0), "https://"+callHost+row.path, row.body)
		if row.code == "" {
			if text := body(t, resp); resp.StatusCode != 200 || m.all() == before || !strings.HasSuffix(m.all(), row.body) {
				t.Errorf("%s %.60s: %d %s, made %s", row.path, row.body, resp.StatusCode, text, m.all())
			}
			continue
		}
		if got := refusal(t, resp); got.Code != row.code || m.all() != before || len(r.approvals.ListHeld()) > 0 {
			t.Errorf("%s %.60s: %+v, held %d", row.path, row.body, got, len(r.approvals.ListHeld()))
		}
		if row.code == "credential_in_request" { // it ends the run
			return
		}
	}
	t.Error("the last row ends the run")
}

// TestCallForm: arguments that a header calls a form are judged as what the server gets.
// Promise: rules
func TestCallForm(t *testing.T) {
	r := newRig(t, setup{apis: ruledServer})
	r.approvals.Wait = 1
	var m made
	r.connectBroker(m.ServeHTTP)
	r.begin()
	for _, kind := range []string{"application/x-www-form-urlencoded", "text/plain", "application/json; charset=utf-16", "multipart/form-data; boundary=x"} {
		req, err := http.NewRequest(http.MethodPost, "https://"+callHost+"/notes/pay", strings.NewReader(`{"amount":51,"to":{"kind":"friend"},"x":"&amount=1&to[kind]=friend"}`))
		check(t, err)
		req.Header.Set("Content-Type", kind)
		resp, err := r.client(true).Do(req)
		check(t, err)
		if got := refusal(t, resp); got.Code != "approval_timeout" || m.all() != "" {
			t.Errorf("%s: %+v %s", kind, got, m.all())
		}
	}
	for _, coding := range []string{"gzip", "identity, br", "x"} {
		if got := refusal(t, post(t, r.client(true), "https://"+callHost+"/notes/pay", `{}`, "Content-Encoding", coding)); got.Code != "arguments_encoded" {
			t.Errorf("%s: %+v", coding, got)
		}
	}
}

// TestCallApproval: a call that a rule holds is made once after a person's yes, with the arguments that were shown.
// Promise: exact-approvals
func TestCallApproval(t *testing.T) {
	r := newRig(t, setup{apis: ruledServer})
	var m made
	r.connectBroker(m.ServeHTTP)
	r.begin()
	const arguments = "{\"text\": \"hi \u202e NOTES_AUTH_TOKEN\"}"
	for _, approve := range []bool{false, true} {
		answers := make(chan *http.Response, 1)
		go func() {
			answers <- post(t, r.client(false), "https://"+callHost+"/notes/send", arguments, "X-Shown", "no", "Codeforge-Timeout-Ms", "1500")
		}()
		testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
		h := r.approvals.ListHeld()[0]
		if h.Method != "CALL" || h.URL != "notes/send" || len(h.Headers) != 0 || h.Body != arguments || h.API != "notes" || h.Rule != "approve calls of pay|send" || !h.Operator || m.all() != "" {
			t.Errorf("shown %+v, made %s", h, m.all())
		}
		_, err := r.approvals.DecideHeld(h.ID, approvalapi.Answer{Approve: approve}, true)
		check(t, err)
		resp := <-answers
		if !approve {
			if got := refusal(t, resp); got.Code != "approval_denied" || m.all() != "" {
				t.Errorf("%+v, made %s", got, m.all())
			}
			continue
		}
		if body(t, resp); resp.StatusCode != 200 || m.all() != "/notes/send "+arguments {
			t.Errorf("%d, made %s", resp.StatusCode, m.all())
		}
	}
	r.approvals.Wait = 1
	if got := refusal(t, post(t, r.client(false), "https://"+callHost+"/notes/send", arguments)); got.Code != "approval_timeout" || !strings.Contains(got.Hint, "codeforge approve ") {
		t.Errorf("again: %+v", got)
	}
	_, err := r.approvals.DecideHeld(r.approvals.ListHeld()[0].ID, approvalapi.Answer{Approve: true}, true)
	check(t, err)
	for i, want := range []string{`{"text": "another"}`, arguments, arguments} {
		before := m.all()
		resp := post(t, r.client(false), "https://"+callHost+"/notes/send", want)
		if text := body(t, resp); (resp.StatusCode == 200) != (i == 1) || (m.all() == before) == (i == 1) {
			t.Errorf("late yes, %d: %d %s", i, resp.StatusCode, text)
		}
	}
}

// TestCallRulesPlan: in a dry run a call that a rule holds is a step, whatever the tool says of itself; who may approve
// the plan is who the rule names; what no rule permits is none.
// Promise: rules
func TestCallRulesPlan(t *testing.T) {
	r := newRig(t, setup{apis: ruledServer})
	var m made
	r.connectBroker(m.ServeHTTP)
	end := r.beginDry(1)
	for i, row := range []struct{ path, body, want string }{
		{"/notes/get_all", `{}`, `"content":[]`}, {"/notes/send", `{"get":1}`, `"planned":1`}, {"/notes/pay", `{"amount":3,"to":{"kind":"friend"}}`, `"planned":2`},
		{"/notes/wipe_all", `{}`, "rule_refused"}, {"/notes/send", "{\"x\":\"\xff\"}", "plan_unreadable"}, {"/notes/$wipe", `{}`, "rule_refused"},
	} {
		if got := answerText(t, post(t, r.client(true), "https://"+callHost+row.path, row.body)); !strings.Contains(got, row.want) {
			t.Errorf("%d %s: %s", i, row.path, got)
		}
	}
	p := end().Plan
	if p == nil || p.Writes != 2 || !p.Operator || m.all() != "/notes/get_all {}" || len(r.approvals.ListHeld()) != 0 {
		t.Fatalf("%+v, made %s", p, m.all())
	}
	if done := r.approve(p.ID); done.State != approvalapi.StateDone || done.Steps[0].Rule != "approve calls of pay|send" ||
		m.all() != fmt.Sprint("/notes/get_all {}\n/notes/send {\"get\":1}\n/notes/pay ", `{"amount":3,"to":{"kind":"friend"}}`) {
		t.Errorf("%+v\nmade %s", done, m.all())
	}
}

// TestDollarTool: a tool whose name begins like one of CodeForge's own words is a tool in a dry run too.
// Promise: rules
func TestDollarTool(t *testing.T) {
	r := newRig(t, setup{apis: mcpServers()})
	var m made
	r.connectBroker(m.ServeHTTP)
	end := r.beginDry(1)
	if got := answerText(t, post(t, r.client(true), "https://"+callHost+"/notes/$wipe", `{}`)); !strings.Contains(got, `"planned":1`) || m.all() != "" {
		t.Errorf("%s, made %s", got, m.all())
	}
	end()
}
