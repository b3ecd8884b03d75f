package hold

import (
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// maxGrants bounds the grants of all runs. The oldest go first.
const maxGrants = 1000

// runApproval is an approval of further requests of one run. It ends with the run and with a change of the APIs whose
// rules held the request.
type runApproval struct {
	of    approvalScope
	ended <-chan struct{}
}

// hasEnded reports whether the run has ended.
func (g runApproval) hasEnded() bool {
	select {
	case <-g.ended:
		return true
	default:
		return false
	}
}

// approvalScope holds the properties that requests share if a person approves them together. For all requests of a
// rule, method and url are empty.
type approvalScope struct {
	run, tenant, server, api, rule, catalog string
	generation                              uint64
	byAny                                   bool
	method, url                             string
}

// scopeOf returns the scope of a request for a kind of approval. It cuts the query off the URL, which is as code wrote
// it.
func (r Request) scopeOf(kind approvalapi.Scope) approvalScope {
	s := approvalScope{
		run: r.Run, tenant: r.Tenant, server: r.Server, generation: r.Generation,
		api: r.API, rule: r.Rule, catalog: r.RuleCatalog, byAny: r.ByAny,
	}
	if kind == approvalapi.ScopePath {
		s.method = r.Method
		s.url, _, _ = strings.Cut(r.URL, "?")
	}
	return s
}

// isCovered reports whether an approval of an earlier request covers this one. The caller holds mu.
func (r *Queue) isCovered(q Request) bool {
	r.grants = slices.DeleteFunc(r.grants, runApproval.hasEnded)
	path, rule := q.scopeOf(approvalapi.ScopePath), q.scopeOf(approvalapi.ScopeRule)
	return slices.ContainsFunc(r.grants, func(g runApproval) bool { return g.of == path || g.of == rule })
}

// approveScope approves all requests with the scope of a waiting request, now and later. The caller holds mu.
func (r *Queue) approveScope(e *queueEntry, kind approvalapi.Scope) {
	of := e.request.scopeOf(kind)
	if len(r.grants) >= maxGrants {
		r.grants = r.grants[1:]
	}
	r.grants = append(r.grants, runApproval{of, e.request.Ended})
	e.isWide = true
	// Requests that already wait in the same scope need no second answer.
	r.held = slices.DeleteFunc(r.held, func(other *queueEntry) bool {
		same := other.Waiting && other.request.scopeOf(kind) == of
		if same {
			other.isWide = true
			other.answer <- nil
		}
		return same
	})
}

// checkScope refuses an answer with a scope that the request cannot have.
func checkScope(e *queueEntry, a approvalapi.Answer) error {
	switch {
	case a.Scope != "" && a.Scope != approvalapi.ScopeOnce && !a.Scope.IsWide():
		return &rpc.Error{Code: "bad_scope", Text: "The scope is once, path or rule."}
	//defence:approval-run
	case a.Approve && a.Scope.IsWide() && e.request.Ended == nil:
		return &rpc.Error{Code: "no_run",
			Text: "The request belongs to no run, so you can approve only this one request."}
	case a.Approve && a.Scope.IsWide() && !e.Waiting:
		return &rpc.Error{Code: "run_ended",
			Text: "The run no longer waits, so you can approve only this one request."}
	}
	return nil
}
