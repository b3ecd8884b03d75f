package control

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
)

// heldIn holds a request in a room, and gives its id and what its run is told.
func heldIn(t *testing.T, room *approval.Store, anyone bool) (id string, told <-chan error) {
	t.Helper()
	before := len(room.ListHeld())
	out := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		_, _, err := room.WaitForApproval(ctx, approval.Request{ByAny: anyone, HeldRequest: approvalapi.HeldRequest{
			Run: "r", API: "demo", Rule: "approve POST", Method: "POST", URL: "https://demo.test/" + t.Name(),
		}})
		out <- err
	}()
	testkit.WaitFor(t, func() bool { return len(room.ListHeld()) == before+1 })
	return room.ListHeld()[before].ID, out
}

// decided posts a decision, as mcp-server does.
func decided(room *approval.Store, id, answer string) (int, string) {
	s := New(Config{Approvals: room, Journal: receipt.NewJournal(receipt.Config{})})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/held/"+id, strings.NewReader(answer)))
	return w.Code, w.Body.String()
}

// TestHeld: mcp-server sees what waits. It decides where the rule leaves that to anyone, once, and nowhere else.
// Promise: operators-decisions
func TestHeld(t *testing.T) {
	room := approval.New(approval.Config{})
	id, told := heldIn(t, room, true)
	w := httptest.NewRecorder()
	New(Config{Approvals: room, Journal: receipt.NewJournal(receipt.Config{})}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/held", nil))
	if strings.Contains(w.Body.String(), `"operator"`) || !strings.Contains(w.Body.String(), id) {
		t.Errorf("what waits: %s", w.Body)
	}
	if status, text := decided(room, id, `{"approve": true}`); status != http.StatusOK || <-told != nil {
		t.Errorf("anyone: %d %s", status, text)
	}
	if status, text := decided(room, id, `{"approve": true}`); status != http.StatusForbidden {
		t.Errorf("twice: %d %s", status, text)
	}
	id, told = heldIn(t, room, false)
	for _, answer := range []string{`{"approve": true}`, `{"approve": false}`, `{"approve": true, "scope": "rule"}`} {
		if status, text := decided(room, id, answer); status != http.StatusForbidden || !strings.Contains(text, "Only the operator") {
			t.Errorf("the operator's, %s: %d %s", answer, status, text)
		}
	}
	for _, answer := range []string{`no JSON`, `{"approve": true, "by": "any"}`} {
		if status, _ := decided(room, id, answer); status != http.StatusBadRequest {
			t.Errorf("%s: %d", answer, status)
		}
	}
	select {
	case err := <-told:
		t.Errorf("it did not wait: %v", err)
	default:
	}
	if list := room.ListHeld(); len(list) != 1 || !list[0].Operator || !list[0].Waiting {
		t.Errorf("it waits no more: %+v", list)
	}
}
