package approval

import (
	"errors"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// TestScopes: an approval for a path or a rule lets pass what is alike of the same run, under the same catalog, and
// nothing else; also what waits at the time.
// Promise: exact-approvals, server-requests-belong-to-one-run
func TestScopes(t *testing.T) {
	change := func(f func(*Request)) Request { q := refund("r1"); f(&q); return q }
	rows := map[string]struct {
		q          Request
		path, rule bool // it passes after an approval of this scope
	}{
		"the same":           {refund("r1"), true, true},
		"another body":       {change(func(q *Request) { q.Body = "{}" }), true, true},
		"another query":      {change(func(q *Request) { q.URL = "https://pay.test/refunds?a=2" }), true, true},
		"another header":     {change(func(q *Request) { q.Headers = nil }), true, true},
		"another path":       {change(func(q *Request) { q.URL = "https://pay.test/refunds/1" }), false, true},
		"a path that begins": {change(func(q *Request) { q.URL = "https://pay.test/refunds%3Fa=1" }), false, true},
		"another host":       {change(func(q *Request) { q.URL = "https://other.test/refunds?a=1" }), false, true},
		"another method":     {change(func(q *Request) { q.Method = "POST, DELETE" }), false, true},
		"another run":        {refund("r2"), false, false},
		"another rule":       {change(func(q *Request) { q.Rule = "approve" }), false, false},
		"another API":        {change(func(q *Request) { q.API = "pay2" }), false, false},
		"another catalog":    {change(func(q *Request) { q.Catalog, q.RuleCatalog = "2", "2" }), false, false},
		"another tenant":     {change(func(q *Request) { q.Tenant = "mallory" }), false, false},
		"a server's":         {change(func(q *Request) { q.Server = "acme" }), false, false},
		"another lease":      {change(func(q *Request) { q.Generation++ }), false, false},
		"the operator's":     {change(func(q *Request) { q.ByAny = true }), false, false},
	}
	for _, scope := range []approvalapi.Scope{approvalapi.ScopeOnce, approvalapi.ScopePath, approvalapi.ScopeRule} {
		for name, row := range rows {
			want := scope == approvalapi.ScopePath && row.path || scope == approvalapi.ScopeRule && row.rule
			r := newStore(testkit.Patience)
			first, h := waiting(t.Context(), t, r, refund("r1"))
			second, beside := waiting(t.Context(), t, r, row.q)
			decided, err := r.DecideHeld(h.ID, approvalapi.Answer{Approve: true, Scope: scope}, true)
			if err != nil || decided.Scope != scope || <-first != nil {
				t.Fatalf("%+v %v", decided, err)
			}
			if left := len(r.ListHeld()); (left == 0) != want {
				t.Errorf("%s: beside one approved as %s, %d wait", name, scope, left)
			}
			if !want {
				if _, err := r.DecideHeld(beside.ID, approvalapi.Answer{}, true); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-second; (err == nil) != want {
				t.Errorf("%s beside one approved as %s: %v", name, scope, err)
			}
			r.Wait = 1
			if _, _, err := r.WaitForApproval(t.Context(), row.q); (err == nil) != want {
				t.Errorf("%s after one approved as %s: %v", name, scope, err)
			}
		}
	}
}

// TestScopesEnd: a scope is of a run that waits, and ends with the catalog.
// Promise: exact-approvals, server-requests-belong-to-one-run
func TestScopesEnd(t *testing.T) {
	r := newStore(1)
	_, _, _ = r.WaitForApproval(t.Context(), refund("r1"))
	id := r.ListHeld()[0].ID
	for _, scope := range []approvalapi.Scope{approvalapi.ScopePath, approvalapi.ScopeRule, "always"} {
		if _, err := r.DecideHeld(id, approvalapi.Answer{Approve: true, Scope: scope}, true); err == nil {
			t.Errorf("%s of a run that has ended", scope)
		}
	}
	if len(r.ListHeld()) != 1 {
		t.Error("what was asked wrongly is gone")
	}
	if err := decideOfNoRun(t); err == nil {
		t.Error("a scope of no run")
	}
	r = newStore(testkit.Patience)
	done, h := waiting(t.Context(), t, r, refund("r1"))
	if _, err := r.DecideHeld(h.ID, approvalapi.Answer{Approve: true, Scope: approvalapi.ScopeRule}, true); err != nil || <-done != nil {
		t.Fatal(err)
	}
	r.DropStale(nil)
	r.Wait = 1
	if _, _, err := r.WaitForApproval(t.Context(), refund("r1")); !errors.Is(err, ErrUnanswered) {
		t.Errorf("after a reload: %v", err)
	}
	r = newStore(testkit.Patience)
	ended, q := make(chan struct{}), refund("r1")
	q.Ended = ended
	done, h = waiting(t.Context(), t, r, q)
	if _, err := r.DecideHeld(h.ID, approvalapi.Answer{Approve: true, Scope: approvalapi.ScopeRule}, true); err != nil || <-done != nil {
		t.Fatal(err)
	}
	if _, _, err := r.WaitForApproval(t.Context(), q); err != nil {
		t.Errorf("in the run: %v", err)
	}
	close(ended)
	r.Wait = 1
	if _, _, err := r.WaitForApproval(t.Context(), q); !errors.Is(err, ErrUnanswered) {
		t.Errorf("after the run: %v", err)
	}
}

// decideOfNoRun approves all that a rule holds of what belongs to no run.
func decideOfNoRun(t *testing.T) error {
	r := newStore(testkit.Patience)
	q := refund("server-acme")
	q.Ended = nil
	_, h := waiting(t.Context(), t, r, q)
	_, err := r.DecideHeld(h.ID, approvalapi.Answer{Approve: true, Scope: approvalapi.ScopeRule}, true)
	return err
}

// passesOtherPath reports whether an approval for a path covers a request with another path in a header.
func passesOtherPath(t *testing.T) bool {
	t.Helper()
	s := newStore(testkit.Patience)
	first, h := waiting(t.Context(), t, s, refund("r1"))
	_, err := s.DecideHeld(h.ID, approvalapi.Answer{Approve: true, Scope: approvalapi.ScopePath}, true)
	testkit.Must(t, err)
	testkit.Must(t, <-first)
	q := refund("r1")
	q.OtherPath, q.Headers = true, []string{"X-Original-Url: /keys"}
	s.Wait = 1
	_, _, err = s.WaitForApproval(t.Context(), q)
	return err == nil
}

// TestScopeOfOtherPath: an approval for a path covers no request with another path in a header.
// Promise: exact-approvals
func TestScopeOfOtherPath(t *testing.T) {
	if passesOtherPath(t) {
		t.Error("it passes")
	}
}
