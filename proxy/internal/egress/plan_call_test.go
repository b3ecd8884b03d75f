package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestPlanCalls: a call of a tool that changes something is recorded, and made after approval, in its place among the
// others, for the session of its run; a tool that only reads is called.
// Promise: dry-runs-send-no-writes
func TestPlanCalls(t *testing.T) {
	r := newRig(t, setup{apis: mcpServers()})
	up := &tracker{}
	r.upstreams.https(up)
	var made []string
	failing := false
	r.connectBroker(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		plan := req.Header.Get(proxyapi.HeaderPlan)
		if plan == proxyapi.PlanRecord && !strings.HasSuffix(req.URL.Path, "/read") {
			w.Header().Set(proxyapi.HeaderCode, proxyapi.CodePlanned)
			w.Header().Set(proxyapi.HeaderSession, "session of "+req.Header.Get(proxyapi.HeaderRun))
			_, _ = io.WriteString(w, "{}")
			return
		}
		made = append(made, fmt.Sprintf("%s %s %s %s %d", req.URL.Path, body, plan, req.Header.Get(proxyapi.HeaderSession), len(up.writes())))
		if failing {
			w.Header().Set(proxyapi.HeaderCode, "tool_error")
		}
		_, _ = io.WriteString(w, `{"content":[{"type":"text","text":"`+secretValue+`"}]}`)
	})
	dry := func() *approvalapi.Plan {
		end := r.beginDry(uint64(len(made) + 1))
		call := func(path, body string) string {
			return answerText(t, post(t, r.client(true), "https://"+callHost+path, body))
		}
		if got := call("/notes/read", `{"a":1}`); strings.Contains(got, "planned") {
			t.Errorf("a tool that reads: %s", got)
		}
		if got := call("/notes/write", `{"text":"one"}`); !strings.Contains(got, `"structuredContent":{"planned":1,"id":"planned:1",`) {
			t.Errorf("a tool that writes: %s", got)
		}
		r.ask(http.MethodPost, "/two", `{}`)
		if got := call("/notes/write", `{"text":"three"}`); !strings.Contains(got, `{"planned":3,`) {
			t.Errorf("the third: %s", got)
		}
		if got := call("/notes/write", `{"text":"undefined"}`); !strings.Contains(got, "plan_ended") {
			t.Errorf("what depends on an answer: %s", got)
		}
		rec := end()
		for _, x := range rec.Exchanges {
			if x.Outcome == proxyapi.OutcomePlanned && x.Plan != rec.Plan.ID {
				t.Errorf("%+v", x)
			}
		}
		return rec.Plan
	}
	p := dry()
	if p == nil || p.Writes != 3 || p.Reads != 1 || len(made) != 1 || len(up.writes()) != 0 {
		t.Fatalf("%+v, made %q", p, made)
	}
	if picture := strings.Join(p.Picture, "\n"); !strings.Contains(picture, `CALL  notes.write  text "one"`) {
		t.Error(picture)
	}
	done := r.approve(p.ID)
	run := "run-" + t.Name()
	want := []string{`/notes/read {"a":1} record  0`, `/notes/write {"text":"one"} send session of ` + run + ` 0`, `/notes/write {"text":"three"} send session of ` + run + ` 1`}
	if done.State != approvalapi.StateDone || fmt.Sprint(made) != fmt.Sprint(want) || len(up.writes()) != 1 {
		t.Errorf("%+v\nmade %q\nwant %q", done, made, want)
	}
	if a := done.Steps[0].Answer; !a.IsOK() || strings.Contains(a.Body, secretValue) {
		t.Errorf("%+v", a)
	}
	p = dry()
	failing = true
	if done = r.approve(p.ID); done.State != approvalapi.StateStopped || done.Steps[0].Answer.Code != "tool_error" || done.Steps[1].Answer != nil {
		t.Errorf("a tool that fails: %+v", done)
	}
}

func answerText(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	check(t, err)
	check(t, resp.Body.Close())
	return string(text)
}
