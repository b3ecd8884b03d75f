package approval

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

const (
	// waitTime is how long a request waits for an answer. It is shorter than the two minutes after which many MCP clients
	// give a call up. The run's time limit is paused during the wait.
	waitTime = 100 * time.Second
	// maxOfRun bounds the held requests of one run.
	maxOfRun = 8
	// maxRunApprovals bounds the approvals of further requests, of all runs. The store drops the oldest first.
	maxRunApprovals = 1000
)

var (
	// ErrDenied is for a request that a person refused.
	ErrDenied = errors.New("a person refused the request")
	// ErrUnanswered is for a request without a decision after Store.Wait.
	ErrUnanswered = errors.New("the request still waits for a decision")
	// ErrStale is for a request that waited while an API that decides about it was changed.
	ErrStale = errors.New("an API of the request has changed")
	// ErrUnavailable is for a request that the shared database did not store, or whose decision it did not return.
	ErrUnavailable = errors.New("the database of the proxies does not answer")
	// ErrFull is for a request beyond maxOfRun, or for an entry or a step beyond another bound.
	ErrFull = errors.New("too many requests wait for a person")
)

// heldRequest is the part of an entry for a held request.
type heldRequest struct {
	Request
	sum    [sha256.Size]byte // of ScopeOnce
	answer chan error        // the result of WaitForApproval, with a buffer for the only answer
	isWide bool              // an approval of further requests covers it
}

// runApproval is an approval of further requests of one run. It ends with the run and with a change of the APIs whose
// rules held the request.
type runApproval struct {
	sum          [sha256.Size]byte
	api, catalog string
	ended        <-chan struct{}
}

func (g runApproval) hasEnded() bool {
	select {
	case <-g.ended:
		return true
	default:
		return false
	}
}

// WaitForApproval waits until a person approves a request, and returns nil once for each approval. The id is that of a
// request that waited, else "". If no byte of an approved request leaves, the caller must call giveBack, unless it is
// nil.
func (s *Store) WaitForApproval(ctx context.Context, q Request) (id string, giveBack func(), err error) {
	add := s.addRequest
	if s.shared != nil {
		add = s.addShared
	}
	e, err := add(q)
	switch {
	case e == nil:
		return "", nil, err
	case e.state == stateWaiting:
		if err = s.waitForAnswer(ctx, e); s.shared != nil {
			err = s.shared.settleRow(e, err)
		}
		if err != nil {
			return e.id, nil, err
		}
		id = e.id
	}
	// An approval of further requests stays valid after its use, so it is not given back.
	if !e.held.isWide {
		giveBack = func() {
			if s.shared != nil {
				s.shared.restoreApproval(e)
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.keepApproved(e)
		}
	}
	return id, giveBack, nil
}

// keepApproved keeps the approval of a request that did not leave. Until its time is over, it lets a later request with
// the same content pass once. The caller holds mu.
func (s *Store) keepApproved(e *entry) {
	s.dropExpired()
	if e.until.After(s.conf.Now()) && s.held.takeBytes(e, e.held.memorySize()) {
		e.state = stateApproved
		s.held.all = append(s.held.all, e)
	}
	s.notifyChange()
}

func (s *Store) waitForAnswer(ctx context.Context, e *entry) (err error) {
	timer := time.NewTimer(cmp.Or(s.Wait, waitTime))
	defer timer.Stop()
	select {
	case err = <-e.held.answer:
		if err != nil || ctx.Err() == nil {
			return err
		}
		e.held.answer <- nil // for the select below
		err = context.Cause(ctx)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = ErrUnanswered
	}
	if s.shared != nil { // collectDecisions may hold a decision that has already left the database
		s.shared.collecting.Lock()
		defer s.shared.collecting.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case answer := <-e.held.answer: // DecideHeld was faster than the lock
		switch {
		case answer != nil || errors.Is(err, ErrUnanswered):
			return answer
		case e.held.isWide: // it ends with the run, and is for no later one
		default: // the run has ended, so a later run may use the approval
			e.state = stateApproved // settleRow stores the approval in the database
			if s.shared == nil {
				s.keepApproved(e)
			}
		}
		return err
	default:
	}
	// From here on DecideHeld sees that the run no longer waits.
	e.state = approvalapi.StateOpen
	if s.shared != nil { // the database keeps the request
		s.held.dropEntry(e)
	}
	s.notifyChange()
	return err
}

// addRequest adds a request. It returns an approved entry, which it has removed, if a late approval covers the request.
// It returns a nil entry if an approval of further requests covers it, or if it exceeds a bound.
func (s *Store) addRequest(q Request) (*entry, error) {
	sum := q.hashScope(approvalapi.ScopeOnce)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpired()
	if s.isCovered(q) {
		return nil, nil //nolint:nilnil // it passes
	}
	ofRun := 0
	for _, e := range s.held.all {
		h := e.held
		// An approval counts once: delete it with its use.
		if h.sum == sum && e.state == stateApproved {
			s.held.dropEntry(e)
			return e, nil
		}
		if h.Run == q.Run && h.Tenant == q.Tenant && h.Generation == q.Generation {
			ofRun++
		}
	}
	// Code that was run again repeats the request of the ended run, so the new one replaces the old.
	s.held.dropEntries(func(e *entry) bool { return e.held.sum == sum && e.state == approvalapi.StateOpen })
	if e := s.newHeld(q, sum); ofRun < maxOfRun && s.appendHeld(e) {
		return e, nil
	}
	return nil, ErrFull
}

// newHeld makes the entry of a request, with lifeTime to live. It does not add the entry to the store.
func (s *Store) newHeld(q Request, sum [sha256.Size]byte) *entry {
	now := s.conf.Now().UTC()
	e := &entry{id: newID(), tenant: q.Tenant, state: stateWaiting, until: now.Add(lifeTime)}
	q.ID, q.Operator, q.Since = e.id, !q.ByAny, now
	e.held = &heldRequest{Request: q, sum: sum, answer: make(chan error, 1)}
	return e
}

// appendHeld adds an entry. It returns false, and adds no entry, if a bound is reached. The caller holds mu.
func (s *Store) appendHeld(e *entry) bool {
	if !s.held.takeBytes(e, e.held.memorySize()) {
		return false
	}
	s.held.all = append(s.held.all, e)
	s.notifyChange()
	if s.conf.Held != nil {
		s.conf.Held(e.toHeld())
	}
	return true
}

// isCovered reports whether an approval of an earlier request covers this one. The caller holds mu.
func (s *Store) isCovered(q Request) bool {
	s.runApprovals = slices.DeleteFunc(s.runApprovals, runApproval.hasEnded)
	path, rule := q.hashScope(approvalapi.ScopePath), q.hashScope(approvalapi.ScopeRule)
	return slices.ContainsFunc(s.runApprovals, func(g runApproval) bool { return g.sum == path || g.sum == rule })
}

func (e *entry) toHeld() approvalapi.HeldRequest {
	h := e.held.HeldRequest
	h.Until, h.Waiting, h.Approved = e.until, e.state == stateWaiting, e.state == stateApproved
	return h
}

// ListHeld lists the held requests of this proxy, the oldest first.
func (s *Store) ListHeld() []approvalapi.HeldRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpired()
	return s.listHeld(func(*entry) bool { return true })
}

// listHeld lists the held requests that a condition permits. The caller holds mu.
func (s *Store) listHeld(is func(*entry) bool) []approvalapi.HeldRequest {
	out := []approvalapi.HeldRequest{}
	for _, e := range s.held.all {
		if is(e) {
			out = append(out, e.toHeld())
		}
	}
	return out
}

// ListWaiting lists the requests that a run waits for, and returns a channel that is closed when the list changes. The
// list includes requests of MCP servers that the run may have caused. If another run may have caused such a request
// too, its HeldRequest.Run is not this run.
func (s *Store) ListWaiting(run string) (list []approvalapi.HeldRequest, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.listHeld(func(e *entry) bool {
		return e.state == stateWaiting && (e.held.Run == run || slices.Contains(e.held.Pauses, run))
	}), s.changed
}

// notifyChange wakes the callers that wait for a change. The caller holds mu.
func (s *Store) notifyChange() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// DecideHeld approves or refuses a request, once. A wider scope also covers the similar requests of the run. Others
// than the operator may decide only if the rule of the request permits that.
func (s *Store) DecideHeld(id string, a approvalapi.Answer, isOperator bool) (approvalapi.HeldRequest, error) {
	if s.shared != nil {
		return s.decideShared(id, a, isOperator)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findEntry(&s.held, id)
	if e == nil {
		return approvalapi.HeldRequest{}, errNotHeld
	}
	out, err := e.checkDecision(a, isOperator)
	if err != nil {
		return out, err
	}
	if a.Approve && !out.Waiting {
		// The approval stays until the code is run again.
		e.state, e.until = stateApproved, s.conf.Now().Add(lifeTime).UTC()
		out.Until = e.until
		s.notifyChange()
	} else {
		s.answerHeld(e, out)
	}
	s.recordDecision(out)
	return out, nil
}

// errNotHeld is for an id that belongs to no held request.
var errNotHeld = newRefusal("not_held", "No request waits under this id.")

// checkDecision checks whether a decision is permitted, and returns the request with the decision. It changes no entry.
func (e *entry) checkDecision(a approvalapi.Answer, isOperator bool) (out approvalapi.HeldRequest, err error) {
	//defence:held-by
	if e.held.Operator && !isOperator {
		return out, newRefusal("operator_only",
			"Only the operator may decide about this request: codeforge approve, in a terminal.")
	}
	if err := e.checkScope(a); err != nil {
		return out, err
	}
	out = e.toHeld()
	if out.Approved = a.Approve; a.Approve {
		out.Scope = cmp.Or(a.Scope, approvalapi.ScopeOnce)
	}
	return out, nil
}

// answerHeld passes a decision on to the exchanges that it covers. The caller holds mu.
func (s *Store) answerHeld(e *entry, out approvalapi.HeldRequest) {
	var answer error
	switch {
	case out.Scope.IsWide():
		s.approveScope(e.held.Request, out.Scope)
	case !out.Approved:
		answer = ErrDenied
	}
	s.answerWaiting(answer, func(other *entry) bool { return other == e })
	s.notifyChange()
}

// recordDecision writes a decision to the ledger.
func (s *Store) recordDecision(out approvalapi.HeldRequest) {
	s.conf.Decided(ledger.Decision{
		Run: out.Run, Tenant: out.Tenant, Server: out.Server, API: out.API, Method: out.Method, URL: out.URL,
		Approved: out.Approved, Scope: string(out.Scope),
	})
}

// answerWaiting drops held requests, and answers the exchanges that wait for them. The caller holds mu.
func (s *Store) answerWaiting(answer error, is func(*entry) bool) {
	s.held.dropEntries(func(e *entry) bool {
		if !is(e) {
			return false
		}
		// The channel has room for the only answer, so a send under mu never blocks.
		if e.state == stateWaiting {
			e.held.answer <- answer
		}
		return true
	})
}

// approveScope approves all requests with the scope of a waiting request, now and later. The caller holds mu.
func (s *Store) approveScope(q Request, scope approvalapi.Scope) {
	sum := q.hashScope(scope)
	if len(s.runApprovals) >= maxRunApprovals {
		s.runApprovals = s.runApprovals[1:]
	}
	s.runApprovals = append(s.runApprovals, runApproval{sum, q.API, q.RuleCatalog, q.Ended})
	// Requests that already wait in the same scope need no second answer.
	s.answerWaiting(nil, func(e *entry) bool {
		same := e.state == stateWaiting && e.held.hashScope(scope) == sum
		e.held.isWide = e.held.isWide || same
		return same
	})
}

// checkScope refuses an answer with a scope that the request cannot have.
func (e *entry) checkScope(a approvalapi.Answer) error {
	switch {
	case a.Scope != "" && a.Scope != approvalapi.ScopeOnce && !a.Scope.IsWide():
		return newRefusal("bad_scope", "The scope is once, path or rule.")
	//defence:approval-run
	case a.Approve && a.Scope.IsWide() && e.held.Ended == nil:
		return newRefusal("no_run", "The request belongs to no run, so you can approve only this one request.")
	case a.Approve && a.Scope.IsWide() && e.state != stateWaiting:
		return newRefusal("run_ended", "The run no longer waits, so you can approve only this one request.")
	}
	return nil
}

// dropStaleHeld drops the approvals and refuses the waiting requests that a new catalog makes stale: one of the APIs
// that decide about them has changed. The caller holds mu.
func (s *Store) dropStaleHeld(c *catalog.Catalog) {
	s.answerWaiting(ErrStale, func(e *entry) bool { return e.held.versionIn(c) != e.held.Catalog })
	s.runApprovals = slices.DeleteFunc(s.runApprovals, func(a runApproval) bool {
		return ruleVersionIn(c, a.api) != a.catalog
	})
	s.notifyChange()
}
