package egress_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// beginDry registers a dry run in slot 0.
func (r *rig) beginDry(generation uint64) (end func() proxyapi.Receipt) {
	r.t.Helper()
	_, err := r.book.BeginLease(0, proxyapi.Registration{Generation: generation, Run: "run-" + r.t.Name(), Deadline: time.Now().Add(time.Minute), DryRun: true})
	check(r.t, err)
	return func() proxyapi.Receipt {
		r.t.Helper()
		rec, err := r.book.EndLease(0, generation)
		check(r.t, err)
		return rec
	}
}

// ask sends a request as code does, and gives the status and the body of the answer.
func (r *rig) ask(method, path, body string, headers ...string) (int, http.Header, string) {
	r.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, "https://"+demoHost+path, in)
	check(r.t, err)
	req.Header.Set("Authorization", "Bearer "+tokenName)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := r.client(false).Do(req)
	check(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	check(r.t, err)
	return resp.StatusCode, resp.Header, string(text)
}

// approve approves steps of a plan as it is, and waits until it has been sent.
func (r *rig) approve(id string, steps ...int) approvalapi.Plan {
	r.t.Helper()
	p, err := r.approvals.GetPlan(id)
	check(r.t, err)
	_, err = r.approvals.DecidePlan(id, approvalapi.Answer{Approve: true, Digest: p.Digest, Steps: steps}, true)
	check(r.t, err)
	testkit.WaitFor(r.t, func() bool {
		p, err = r.approvals.GetPlan(id)
		return err != nil || p.State != approvalapi.StateRunning
	})
	check(r.t, err)
	return p
}

// tracker is an upstream with objects that can be read and changed.
type tracker struct {
	mu      sync.Mutex
	objects map[string]string
	wrote   []string // method, target, headers that matter and body, as they came
	status  int      // of every answer to a write; 0: 200
}

func (s *tracker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		w.Header().Set("CodeForge-Planned", "7")
		_, _ = io.WriteString(w, s.objects[r.URL.Path])
		return
	}
	s.wrote = append(s.wrote, fmt.Sprintf("%s %s auth=%s type=%s length=%d %s", r.Method, r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), r.ContentLength, body))
	if s.status != 0 {
		w.WriteHeader(s.status)
	}
	_, _ = io.WriteString(w, `{"id": 9, "key": "`+secretValue+`"}`)
}

func (s *tracker) set(path, object string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[path] = object
}

func (s *tracker) writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wrote)
}

// TestPlan: a dry run reads, and sends nothing else. What it would have sent is sent once when a person approves, with
// credentials, in order, as it was shown; the answers are told without credentials.
// Promise: dry-runs-send-no-writes
func TestPlan(t *testing.T) {
	r := newRig(t, setup{})
	up := &tracker{objects: map[string]string{"/issues/1": `{"state": "open", "labels": ["bug"], "seen": 1}`, "/issues/2": `{"state": "open", "labels": ["bug"]}`}}
	r.upstreams.https(up)
	end := r.beginDry(1)
	for i := range 2 {
		at := fmt.Sprintf("/issues/%d", i+1)
		status, head, text := r.ask(http.MethodGet, at, "")
		if status != 200 || !strings.Contains(text, "open") || head.Get("CodeForge-Planned") != "" {
			t.Fatalf("%d %v %s", status, head, text)
		}
		status, head, text = r.ask(http.MethodPatch, at, `{"state":"closed","labels":["bug","stale"]}`)
		if want := fmt.Sprint(i + 1); status != 202 || head.Get("CodeForge-Planned") != want || !strings.HasPrefix(text, `{"planned":`+want+`,"id":"planned:`+want+`"`) {
			t.Fatalf("%d %v %s", status, head, text)
		}
	}
	r.ask(http.MethodPost, "/messages?k="+tokenName, `{"channel":"C024","text":"Closed 2 issues"}`)
	rec := end()
	if n := len(up.writes()); n != 0 {
		t.Fatalf("%d writes were sent", n)
	}
	p := rec.Plan
	if p == nil || p.Writes != 3 || p.Reads != 2 || !p.Operator || p.State != approvalapi.StateOpen || p.Steps != nil {
		t.Fatalf("%+v", p)
	}
	want := []string{
		"Plan " + p.ID + " · 3 writes, 1 API · 2 reads done · until " + p.Until.Format("15:04 UTC"),
		` 1-2   2 x PATCH api.demo.test/issues/{1,2}  ` + tokenName,
		`       labels + "stale"; state "open" -> "closed"`,
		` 3     POST  api.demo.test/messages?k=` + tokenName + `  ` + tokenName + `  channel "C024", text "Closed 2 issues"`,
	}
	if !slices.Equal(p.Picture, want) {
		t.Errorf("picture:\n%s\nwant:\n%s", strings.Join(p.Picture, "\n"), strings.Join(want, "\n"))
	}
	for i, x := range rec.Exchanges {
		if planned := x.Outcome == proxyapi.OutcomePlanned; planned != (x.Method != http.MethodGet) || planned && (x.Plan != p.ID || x.Step == 0 || x.Status != 202 || len(x.Swapped) > 0) {
			t.Errorf("exchange %d: %+v", i, x)
		}
	}
	whole, err := r.approvals.GetPlan(p.ID)
	check(t, err)
	if text, _ := json.Marshal(whole); strings.Contains(string(text), secretValue) || len(whole.Steps) != 3 || whole.Steps[0].Body != `{"state":"closed","labels":["bug","stale"]}` {
		t.Errorf("%s", text)
	}
	up.set("/issues/1", `{"state": "open", "labels": ["bug"], "seen": 2}`) // not what it changes
	done := r.approve(p.ID)
	sent := []string{
		`PATCH /issues/1 auth=Bearer ` + secretValue + ` type=application/json length=43 {"state":"closed","labels":["bug","stale"]}`,
		`PATCH /issues/2 auth=Bearer ` + secretValue + ` type=application/json length=43 {"state":"closed","labels":["bug","stale"]}`,
		`POST /messages?k=` + tokenName + ` auth=Bearer ` + secretValue + ` type=application/json length=43 {"channel":"C024","text":"Closed 2 issues"}`,
	}
	if got := up.writes(); !slices.Equal(got, sent) {
		t.Errorf("sent:\n%s", strings.Join(got, "\n"))
	}
	if text, _ := json.Marshal(done); done.State != approvalapi.StateDone || strings.Contains(string(text), secretValue) || !done.Steps[2].Answer.IsOK() || !strings.Contains(done.Steps[0].Answer.Body, tokenName) {
		t.Errorf("%s", text)
	}
	if logs := r.logs.String(); strings.Contains(logs, secretValue) {
		t.Error("the log has the credential")
	}
	if _, err := r.approvals.DecidePlan(p.ID, approvalapi.Answer{Approve: true, Digest: p.Digest}, true); err == nil || len(up.writes()) != 3 {
		t.Errorf("a second time: %v", err)
	}
}

// TestPlanTokens: a step names each token name that the proxy will swap in it, also one inside Basic's base64.
func TestPlanTokens(t *testing.T) {
	r := newRig(t, setup{})
	r.upstreams.https(&tracker{})
	end := r.beginDry(1)
	for _, pair := range []string{"user:" + tokenName, tokenName + ":", "user:password"} {
		r.ask(http.MethodPost, "/x", "{}", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	}
	p, err := r.approvals.GetPlan(end().Plan.ID)
	check(t, err)
	for i, want := range [][]string{{tokenName}, {tokenName}, nil} {
		if got := p.Steps[i].Tokens; !slices.Equal(got, want) {
			t.Errorf("step %d: %v, want %v", i+1, got, want)
		}
	}
}

// TestPlanOverrides: a plan shows each method that a server may obey, wherever the request names it.
// Promise: a-plan-is-what-was-shown
func TestPlanOverrides(t *testing.T) {
	r := newRig(t, setup{})
	r.upstreams.https(&tracker{})
	end := r.beginDry(1)
	r.ask(http.MethodPost, "/x", "{}", "X-HTTP-Method-Override: DELETE")
	r.ask(http.MethodPost, "/x?_method=put", "{}")
	r.ask(http.MethodPost, "/x", "{}")
	p, err := r.approvals.GetPlan(end().Plan.ID)
	check(t, err)
	for i, want := range []string{"POST, DELETE", "POST, put", "POST"} {
		if got := p.Steps[i].Method; got != want || !strings.Contains(p.Picture[i+1], want+" ") {
			t.Errorf("step %d: %s in %s, want %s", i+1, got, p.Picture[i+1], want)
		}
	}
}

// TestPlanDrift: a step does not leave if what it changes is not as the run saw it, and none after it does.
// Promise: a-plan-is-what-was-shown
func TestPlanDrift(t *testing.T) {
	for name, c := range map[string]struct {
		before, method, body, now string
		sent                      bool
	}{
		"the field":               {`{"state": "open"}`, "PATCH", `{"state": "closed"}`, `{"state": "locked"}`, false},
		"another field":           {`{"state": "open", "n": 1}`, "PATCH", `{"state": "closed"}`, `{"n": 2, "state": "open"}`, true},
		"it has gone":             {`{"state": "open"}`, "PATCH", `{"state": "closed"}`, `[]`, false},
		"a field that is removed": {`{"state": "open", "n": 1}`, "PUT", `{"state": "open"}`, `{"state": "open", "n": 2}`, false},
		"deleted, and changed":    {`{"state": "open", "n": 1}`, "DELETE", ``, `{"state": "open", "n": 2}`, false},
		"deleted":                 {`{"state": "open", "n": 1}`, "DELETE", ``, `{"n": 1, "state": "open"}`, true},
		"a field that is new":     {`{}`, "PATCH", `{"state": "closed"}`, `{"state": "x"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			up := &tracker{objects: map[string]string{"/i": c.before}}
			r.upstreams.https(up)
			end := r.beginDry(1)
			r.ask(http.MethodGet, "/i", "")
			r.ask(c.method, "/i", c.body)
			r.ask(http.MethodPost, "/after", `{}`)
			p := end().Plan
			up.set("/i", c.now)
			done := r.approve(p.ID)
			if n := len(up.writes()); c.sent && n != 2 || !c.sent && n != 0 {
				t.Errorf("%d were sent", n)
			}
			if a := done.Steps[0].Answer; !c.sent && (done.State != approvalapi.StateStopped || a == nil || a.Code != approval.CodeDrift || done.Steps[1].Answer != nil) {
				t.Errorf("%+v %+v", done.State, a)
			}
		})
	}
}

// TestPlanDepends: a plan ends before a write that carries what no answer has given.
// Promise: a-plan-is-what-was-shown
func TestPlanDepends(t *testing.T) {
	for _, c := range []struct {
		path, body, header string
		ends               bool
	}{
		{"/items/undefined", `{}`, "", true},
		{"/items/NaN/x", `{}`, "", true},
		{"/items/null/x", `{}`, "", true},
		{"/items/None", `{}`, "", true},
		{"/items/%75ndefined", `{}`, "", true},
		{"/items/item-undefined", `{}`, "", true},
		{"/items/%5Bobject%20Object%5D", `{}`, "", true},
		{"/items?parent=undefined", `{}`, "", true},
		{"/items?parent=%5Bobject+Object%5D", `{}`, "", true},
		{"/items", `{"parent": "undefined"}`, "", true},
		{"/items", `{"text": "about undefined"}`, "", true},
		{"/items", `{"parent": {"planned": 1}}`, "", true},
		{"/items", `{"parent": "planned:1"}`, "", true},
		{"/items/planned:1/x", `{}`, "", true},
		{"/items?parent=planned%3A1", `{}`, "", true},
		{"/items", `{"parent": "{\"planned\": 1}"}`, "", true},
		{"/items", `{"parent": NaN}`, "", true},
		{"/items", `{"parent": "\u0075ndefined"}`, "", true},
		{"/items", `{"url": "https://x.test/null/y"}`, "", true},
		{"/items", `{"text": "[object Object]"}`, "", true},
		{"/items", `{}`, "If-Match: undefined", true},
		{"/items", `{"text": "undefinedness, NaNs, annul"}`, "", false},
		{"/items", `{"parent": null}`, "", false},
		{"/nullable", `{"text": "planned for 3 days"}`, "", false},
	} {
		r := newRig(t, setup{})
		up := &tracker{}
		r.upstreams.https(up)
		end := r.beginDry(1)
		if status, _, _ := r.ask(http.MethodPost, "/first/undefined", `{}`); status != 202 {
			t.Fatalf("the first depends on nothing: %d", status)
		}
		var headers []string
		if c.header != "" {
			headers = []string{c.header}
		}
		status, _, text := r.ask(http.MethodPost, c.path, c.body, headers...)
		const sentence = "Step 2 depends on what step 1 answers; approve 1, or run without dry_run and be asked."
		if c.ends != (status == 409 && strings.Contains(text, `"plan_ended"`) && strings.Contains(text, sentence)) || !c.ends && status != 202 {
			t.Errorf("%s %s: %d %s", c.path, c.body, status, text)
		}
		later, _, _ := r.ask(http.MethodPost, "/later", `{}`)
		if p := end().Plan; c.ends && (later != 409 || p.Writes != 1 || p.Ended != sentence || !strings.Contains(strings.Join(p.Picture, "\n"), sentence)) || !c.ends && p.Writes != 3 {
			t.Errorf("%s %s: later %d, %+v", c.path, c.body, later, p)
		}
	}
}

// TestPlanQueries: a query of GraphQL is not a write where a rule allows it as such, and a mutation is one.
// Promise: dry-runs-send-no-writes
func TestPlanQueries(t *testing.T) {
	const query, mutation, both = `{"query": "{ me { id } }"}`, `{"query": "mutation { close }"}`, `[{"query": "{ me }"}, {"query": "mutation { close }"}]`
	for rules, sent := range map[string]int{
		`, "rules": [{"graphql": "query", "path": "/graphql", "then": "allow"}, {"then": "allow"}]`: 1,
		`, "rules": [{"then": "allow"}]`: 0,
		``:                               0,
		`, "rules": [{"graphql": "query", "path": "/graphql", "then": "approve"}, {"then": "allow"}]`: 0,
	} {
		r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(rules)}})
		up := &tracker{}
		r.upstreams.https(up)
		end := r.beginDry(1)
		for _, body := range []string{query, mutation, both} {
			r.ask(http.MethodPost, "/graphql", body)
		}
		r.ask(http.MethodPost, "/graphql", query, "X-HTTP-Method-Override: DELETE")
		if p := end().Plan; len(up.writes()) != sent || p == nil || p.Writes != 4-sent {
			t.Errorf("%s: %q were sent, %+v", rules, up.writes(), p)
		}
	}
	// An imported schema says where queries are sent, and no rule is needed. It permits nothing that a rule refuses.
	const head, line = `{"format":1,"server":"https://` + demoHost + `","graphql":true,"operations":1,"types":0}`, `{"m":"POST","p":"/graphql","id":"query me"}`
	for _, c := range []struct {
		document, rules, path string
		sent                  int
	}{
		{head + "\n" + line, "", "/graphql", 1}, {head + "\n" + line, `, "rules": [{"then": "allow"}]`, "/graphql", 1},
		{head + "\n" + line, "", "/other", 0}, {strings.Replace(head, `"graphql":true,`, "", 1) + "\n" + line, "", "/graphql", 0},
		{head + "\n" + line, `, "rules": [{"methods": ["POST"], "then": "approve"}, {"then": "allow"}]`, "/graphql", 0},
	} {
		r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(c.rules)}})
		check(t, os.WriteFile(filepath.Join(r.apis, "demo", "operations.jsonl"), []byte(c.document+"\n"), 0o600))
		r.reloader.Load()
		up := &tracker{}
		r.upstreams.https(up)
		end := r.beginDry(1)
		for _, body := range []string{query, mutation, both} {
			r.ask(http.MethodPost, c.path, body)
		}
		r.ask(http.MethodPost, c.path, query, "X-HTTP-Method-Override: DELETE")
		if p := end().Plan; len(up.writes()) != c.sent || p == nil || p.Writes != 4-c.sent {
			t.Errorf("%+v: %q were sent, %+v", c, up.writes(), p)
		}
	}
}

// TestPlanStale: a plan ends with the catalog under which it was recorded, also while it is sent; each step is judged
// anew; what a rule asks about is approved with the plan, and what is beyond a limit is not.
// Promise: a-plan-is-what-was-shown
func TestPlanStale(t *testing.T) {
	rules := `, "rules": [{"methods": ["POST"], "then": "approve"}, {"then": "allow"}], "limits": {"writes": "2/h", "over": "approve"}`
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(rules)}})
	up := &tracker{}
	r.upstreams.https(up)
	dry := func(generation uint64) *approvalapi.Plan {
		end := r.beginDry(generation)
		for range 3 {
			if status, _, text := r.ask(http.MethodPost, "/x", `{}`); status != 202 {
				t.Fatalf("%d %s", status, text)
			}
		}
		return end().Plan
	}
	p := dry(1)
	done := r.approve(p.ID)
	if a := done.Steps[2].Answer; len(up.writes()) != 2 || done.State != approvalapi.StateStopped || a == nil || a.Code != "approval_needed" {
		t.Errorf("beyond a limit: %q, %+v", up.writes(), a)
	}
	if len(r.approvals.ListHeld()) != 0 {
		t.Error("a step of a plan waits")
	}
	p = dry(2)
	r.writeAPI("demo", strings.Replace(demoAPI(rules), "demo", "other", 1))
	r.reloader.Load()
	if _, err := r.approvals.DecidePlan(p.ID, approvalapi.Answer{Approve: true, Digest: p.Digest}, true); err == nil || !strings.Contains(err.Error(), "configuration") {
		t.Errorf("after a change: %v", err)
	}
	l := r.handler.OpenSender(p.ID, p.Run, "", "another version", nil)
	defer l.Close()
	address, err := url.Parse("https://" + demoHost + "/x")
	check(t, err)
	host, err := catalog.ParseHost(demoHost)
	check(t, err)
	reply, _ := l.Send(t.Context(), approval.Step{Host: host, TLS: true, Method: "POST", URL: address, Header: http.Header{}}, false, 10)
	if reply.Code != "plan_stale" || len(up.writes()) != 2 {
		t.Errorf("while it is sent: %+v", reply)
	}
}
