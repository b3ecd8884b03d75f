// Package hold keeps requests that a rule holds until a person decides.
//
// Threat: code gets another request approved than the one that a person saw, uses an approval twice or that of another
// tenant, or floods the person. An MCP server uses an approval of one run for another. Contract: an approval is for the
// exact bytes of method, host, path, query, headers and body. Only the boundary between a body's parts, which differs
// each time, may change. An approval is also for the tenant, the MCP server and the rule of the request, and for the
// configuration of the APIs that decide about it. It lets at most one request leave. A wider approval is for one run
// and ends with that run. A run holds few requests at a time, and all runs together a bounded number.
package hold

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

const (
	// waitTime is how long a request waits for an answer. It is shorter than the two minutes after which many MCP clients
	// give a call up. The run's time limit is paused during the wait.
	waitTime = 100 * time.Second
	// lifeTime is how long a person can decide on a request, and how long a late approval is valid.
	lifeTime = 15 * time.Minute
	// maxOfRun and maxAll bound the held requests of one run and of all runs.
	maxOfRun = 8
	maxAll   = 500
	// MaxBytes bounds the memory of all held requests.
	MaxBytes = 16 << 20
)

var (
	// ErrDenied is for a request that a person refused.
	ErrDenied = errors.New("a person refused the request")
	// ErrUnanswered is for a request without a decision after Wait.
	ErrUnanswered = errors.New("the request still waits for a decision")
	// ErrStale is for a request that waited while an API that decides about it was changed.
	ErrStale = errors.New("an API of the request has changed")
	// ErrFull is for a request beyond maxOfRun, maxAll or MaxBytes.
	ErrFull = errors.New("too many requests wait for a person")
)

// Request is a request to hold.
type Request struct {
	Run, API, Rule string
	// Tenant is the tenant of the run. An approval is only for this tenant.
	Tenant string
	// Server is the MCP server that sends the request, or "" if code sends it.
	Server string
	// Generation is the generation of the lease for which maxOfRun counts requests: the run's lease, or the MCP server's
	// if the request belongs to no run.
	Generation uint64
	// Ended is closed when the run ends, which ends the approvals for the rest of the run. It is nil if the request
	// belongs to no run.
	Ended <-chan struct{}
	// Pauses are further runs that may have caused the request. Waiting lists the request for them too.
	Pauses []string
	// Host is the host of the request. IsCall means that the request calls a tool of the MCP server API.
	Host   catalog.Host
	IsCall bool
	// Catalog is the version of all APIs that decide about the request: see SetVersions. RuleCatalog is the version of
	// those whose rules hold it.
	Catalog, RuleCatalog string

	Method, URL, Body string
	Headers           []string // a line each
	// ByAny means that others than the operator may decide. The catalog determines it.
	ByAny bool
}

// SetVersions sets Catalog and RuleCatalog to the versions in a catalog. It reports whether Catalog stayed the same.
func (r *Request) SetVersions(c *catalog.Catalog) (same bool) {
	before := r.Catalog
	r.Catalog, r.RuleCatalog = r.versionIn(c), ruleVersionIn(c, r.API)
	return r.Catalog == before
}

// versionIn returns the version of the APIs that decide about the request under a catalog.
func (r Request) versionIn(c *catalog.Catalog) string {
	if r.IsCall {
		return ruleVersionIn(c, r.API)
	}
	return catalog.VersionOf(c.ListHolders(r.Host))
}

// ruleVersionIn returns the version of APIs in a catalog. The names are joined as in policy.Hold.
func ruleVersionIn(c *catalog.Catalog, names string) string {
	var apis []*catalog.API
	for _, name := range strings.Split(names, ", ") {
		if a := c.API(name); a != nil {
			apis = append(apis, a)
		}
	}
	return catalog.VersionOf(apis)
}

// memorySize returns about how many bytes the request takes in memory.
func (r Request) memorySize() int {
	n := len(r.URL) + len(r.Body)
	for _, h := range r.Headers {
		n += len(h)
	}
	return n
}

// hashApproval identifies the parts of a request that an approval covers.
func (r Request) hashApproval() [sha256.Size]byte {
	h := sha256.New()
	// fetch() chooses a new boundary each time: without Unbound no late approval would match.
	headers, body := formdata.StripBoundary(r.Headers, r.Body)
	for _, s := range []string{r.Tenant, r.Server, r.API, r.Rule, strconv.FormatBool(r.ByAny),
		r.Catalog, r.Method, r.URL, strings.Join(headers, "\n"), body} {
		// Lengths separate the parts, so that text cannot move from one part to the next.
		_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Queue holds requests. The zero Queue is empty and ready.
type Queue struct {
	// Wait is how long a request waits. 0 means waitTime.
	Wait time.Duration
	// Added is called for each request that waits. It may be nil.
	Added func(approvalapi.HeldRequest)
	// Decided is called for each decision of a person. It may be nil.
	Decided func(approvalapi.HeldRequest)

	mu      sync.Mutex
	held    []*queueEntry // the oldest first
	grants  []runApproval // the oldest first
	changed chan struct{} // closed at the next change of held; nil while Waiting is unused
}

type queueEntry struct {
	approvalapi.HeldRequest
	request Request
	sum     [sha256.Size]byte
	size    int
	answer  chan error // the result of WaitForApproval, with a buffer for the only answer
	isWide  bool       // an approval of further requests covers it
}

// WaitForApproval waits until a person approves a request, and returns nil once for each approval. The id is that of a
// request that waited, else "". If no byte of an approved request leaves, the caller must call giveBack, unless it is
// nil.
func (r *Queue) WaitForApproval(ctx context.Context, q Request) (id string, giveBack func(), err error) {
	e, err := r.addRequest(q)
	switch {
	case e == nil:
		return "", nil, err
	case !e.Approved:
		if err = r.waitForAnswer(ctx, e); err != nil {
			return e.ID, nil, err
		}
		id = e.ID
	}
	// An approval of further requests stays valid after its use, so it is not given back.
	if !e.isWide {
		giveBack = func() { r.giveBack(e) }
	}
	return id, giveBack, nil
}

// giveBack makes an approval usable again, until its time is over.
func (r *Queue) giveBack(e *queueEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.notifyChange()
	r.removeExpired(time.Now())
	if e.Until.After(time.Now()) && r.evictFor(e.request) {
		r.keepApproved(e)
	}
}

// keepApproved lets a later request with the same content pass once. The caller holds mu.
func (r *Queue) keepApproved(e *queueEntry) {
	e.Waiting, e.Approved = false, true
	r.held = append(r.held, e)
}

func (r *Queue) waitForAnswer(ctx context.Context, e *queueEntry) (err error) {
	wait := r.Wait
	wait = cmp.Or(wait, waitTime)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err = <-e.answer:
		if err != nil || ctx.Err() == nil {
			return err
		}
		e.answer <- nil // for the select below
		err = context.Cause(ctx)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = ErrUnanswered
	}
	// From here on DecideHeld sees that the run no longer waits.
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.notifyChange()
	e.Waiting = false
	select {
	case answer := <-e.answer: // Decide was faster than the lock
		if answer == nil && !errors.Is(err, ErrUnanswered) { // the run has ended, so a later run may use the approval
			r.keepApproved(e)
			return err
		}
		return answer
	default:
	}
	return err
}

// addRequest adds a request. It returns an approved entry, which it has removed, if a late approval covers the request.
// It returns a nil entry if an approval of further requests covers it, or if it exceeds a bound.
func (r *Queue) addRequest(q Request) (*queueEntry, error) {
	now := time.Now()
	sum := q.hashApproval()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeExpired(now)
	if r.isCovered(q) {
		return nil, nil //nolint:nilnil // it passes
	}
	ofRun := 0
	for i, e := range r.held {
		// An approval counts once: delete it with its use.
		if e.sum == sum && e.Approved {
			r.held = slices.Delete(r.held, i, i+1)
			return e, nil
		}
		if e.Run == q.Run && e.request.Tenant == q.Tenant && e.request.Generation == q.Generation {
			ofRun++
		}
	}
	// Code that was run again repeats the request of the ended run, so the new one replaces the old.
	r.held = slices.DeleteFunc(r.held, func(e *queueEntry) bool { return e.sum == sum && !e.Waiting })
	if ofRun >= maxOfRun || !r.evictFor(q) {
		return nil, ErrFull
	}
	e := &queueEntry{request: q, sum: sum, size: q.memorySize(), answer: make(chan error, 1),
		HeldRequest: approvalapi.HeldRequest{
			ID: newID(), Run: q.Run, Tenant: q.Tenant, Server: q.Server, API: q.API, Rule: q.Rule, Operator: !q.ByAny,
			Method: q.Method, URL: q.URL, Headers: q.Headers, Body: q.Body,
			Since: now.UTC(), Until: now.Add(lifeTime).UTC(), Waiting: true,
		}}
	r.held = append(r.held, e)
	r.notifyChange()
	if r.Added != nil {
		r.Added(e.HeldRequest)
	}
	return e, nil
}

// evictFor evicts requests until one more fits: those that no run waits for and that are not approved, the oldest of
// the tenant with the most. The requests of a tenant that cannot be evicted take at most half of the capacity. The
// caller holds mu.
func (r *Queue) evictFor(q Request) bool {
	count, size := 1, q.memorySize()
	for _, e := range r.held {
		if e.request.Tenant == q.Tenant && !e.canEvict() {
			count, size = count+1, size+e.size
		}
	}
	// So one tenant cannot keep the others, or the operator, from asking.
	if q.Tenant != "" && (count > maxAll/2 || size > MaxBytes/2) {
		return false
	}
	for {
		of, who, size := map[string]int{}, "", q.memorySize()
		for _, e := range r.held {
			size += e.size
			if e.canEvict() {
				of[e.request.Tenant] += e.size + MaxBytes/maxAll // a request also takes one of the maxAll places
			}
		}
		if len(r.held) < maxAll && size <= MaxBytes {
			return true
		}
		// The tenant with the most loses first: a flood evicts only the requests of its sender.
		for tenant, n := range of {
			if n > of[who] {
				who = tenant
			}
		}
		i := slices.IndexFunc(r.held, func(e *queueEntry) bool { return e.canEvict() && e.request.Tenant == who })
		if i < 0 {
			return false
		}
		r.held = slices.Delete(r.held, i, i+1)
	}
}

// canEvict reports whether a request may be evicted.
func (e *queueEntry) canEvict() bool { return !e.Waiting && !e.Approved }

// removeExpired removes requests whose time is over. The caller holds mu.
func (r *Queue) removeExpired(now time.Time) {
	r.held = slices.DeleteFunc(r.held, func(e *queueEntry) bool { return now.After(e.Until) && !e.Waiting })
}

// newID returns an id that is short enough to type: 40 random bits.
func newID() string {
	b := make([]byte, 5)
	_, _ = rand.Read(b) // crypto/rand never fails
	return strings.ToLower(base32.StdEncoding.EncodeToString(b))
}

// ListHeld lists the held requests, the oldest first.
func (r *Queue) ListHeld() []approvalapi.HeldRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeExpired(time.Now())
	out := []approvalapi.HeldRequest{}
	for _, e := range r.held {
		out = append(out, e.HeldRequest)
	}
	return out
}

// ListWaiting lists the requests that a run waits for, and returns a channel that is closed when the list changes. The
// list includes requests of MCP servers that the run may have caused. If another run may have caused such a request
// too, its Held.Run is not this run.
func (r *Queue) ListWaiting(run string) (list []approvalapi.HeldRequest, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	list = []approvalapi.HeldRequest{}
	for _, e := range r.held {
		if e.Waiting && (e.Run == run || slices.Contains(e.request.Pauses, run)) {
			list = append(list, e.HeldRequest)
		}
	}
	return list, r.changed
}

// notifyChange wakes the callers that wait for a change. The caller holds mu.
func (r *Queue) notifyChange() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// DecideHeld approves or refuses a request, once. A wider scope also covers the similar requests of the run.
func (r *Queue) DecideHeld(id string, a approvalapi.Answer) (approvalapi.HeldRequest, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeExpired(time.Now())
	i := slices.IndexFunc(r.held, func(e *queueEntry) bool { return e.ID == id })
	if i < 0 {
		return approvalapi.HeldRequest{}, &rpc.Error{Code: "not_held", Text: "No request waits under this id."}
	}
	e, approve := r.held[i], a.Approve
	if err := checkScope(e, a); err != nil {
		return approvalapi.HeldRequest{}, err
	}
	defer r.notifyChange()
	// If the run no longer waits, the approval stays until the code is run again.
	if e.Waiting || !approve {
		r.held = slices.Delete(r.held, i, i+1)
	}
	if approve && a.Scope.IsWide() {
		r.approveScope(e, a.Scope)
	}
	// The channel has room for the only answer, so a send under mu never blocks.
	switch {
	case e.Waiting && approve:
		e.answer <- nil
	case e.Waiting:
		e.answer <- ErrDenied
	case approve:
		e.Approved, e.Until = true, time.Now().Add(lifeTime).UTC()
	}
	out := e.HeldRequest
	out.Approved = approve
	if approve {
		out.Scope = cmp.Or(a.Scope, approvalapi.ScopeOnce)
	}
	if r.Decided != nil {
		r.Decided(out)
	}
	return out, nil
}

// DropApprovals drops the approvals and refuses the waiting requests that a new catalog makes stale: one of the APIs
// that decide about them has changed.
func (r *Queue) DropApprovals(c *catalog.Catalog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.notifyChange()
	r.held = slices.DeleteFunc(r.held, func(e *queueEntry) bool {
		stale := e.request.versionIn(c) != e.request.Catalog
		if stale && e.Waiting {
			e.answer <- ErrStale
		}
		return stale
	})
	r.grants = slices.DeleteFunc(r.grants, func(g runApproval) bool { return ruleVersionIn(c, g.of.api) != g.of.catalog })
}
