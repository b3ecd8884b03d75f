package control

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
)

// planIn is a book with a plan of one step.
func planIn(t *testing.T, anyone bool) (*approval.Store, *approvalapi.Plan) {
	t.Helper()
	book := approval.New(approval.Config{})
	t.Cleanup(book.Close)
	host, err := catalog.ParseHost("demo.test")
	if err != nil {
		t.Fatal(err)
	}
	d := book.NewDraft("r", "", nil)
	if _, err := d.AddStep(approval.Step{
		Host: host, TLS: true, Method: "POST", URL: &url.URL{Scheme: "https", Host: "demo.test", Path: "/"}, ByAny: anyone,
		Shown: approvalapi.Step{Body: "x", Rule: "approve POST"},
	}, "v1"); err != nil {
		t.Fatal(err)
	}
	return book, d.Seal()
}

// decidedPlan posts a decision, as mcp-server does.
func decidedPlan(plans *approval.Store, id, answer string) (int, string) {
	s := New(Config{Approvals: plans, Journal: receipt.NewJournal(receipt.Config{})})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/plans/"+id, strings.NewReader(answer)))
	return w.Code, w.Body.String()
}

// TestPlans: mcp-server sees plans. It decides about those that the rules leave to anyone, once, as they were shown.
// Promise: a-plan-is-what-was-shown
func TestPlans(t *testing.T) {
	book, p := planIn(t, true)
	s := New(Config{Approvals: book, Journal: receipt.NewJournal(receipt.Config{})})
	for path, want := range map[string]int{"/v1/plans": http.StatusOK, "/v1/plans/" + p.ID: http.StatusOK, "/v1/plans/none": http.StatusNotFound} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want || want == http.StatusOK && !strings.Contains(w.Body.String(), p.Digest) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for _, c := range []struct {
		answer string
		status int
	}{
		{`no JSON`, 400}, {`{}`, 403}, {`{"digest": "x"}`, 403}, {`{"digest": "` + p.Digest + `"}`, 200}, {`{"digest": "` + p.Digest + `"}`, 403},
	} {
		if status, text := decidedPlan(book, p.ID, c.answer); status != c.status {
			t.Errorf("%s: %d %s", c.answer, status, text)
		}
	}
	book, p = planIn(t, false)
	for _, answer := range []string{`{"approve": true, "digest": "` + p.Digest + `"}`, `{"digest": "` + p.Digest + `"}`} {
		if status, text := decidedPlan(book, p.ID, answer); status != http.StatusForbidden || !strings.Contains(text, "Only the operator") {
			t.Errorf("the operator's: %d %s", status, text)
		}
	}
	if now, err := book.GetPlan(p.ID); err != nil || now.State != approvalapi.StateOpen {
		t.Errorf("%+v %v", now, err)
	}
}
