// Package hold keeps requests that a rule holds until a person decides.
//
// Threat: code gets another request approved than the one that a person saw, uses an approval twice or that of another
// tenant, or floods the person. An MCP server uses an approval of one run for another. Contract: an approval is for the
// exact bytes of method, host, path, query, headers and body. Only the boundary between a body's parts, which differs
// each time, may change. An approval is also for the tenant, the MCP server, the catalog and the rule of the request.
// It is used once. A wider approval is for one run and ends with that run. A run holds few requests at a time, and all
// runs together a bounded number.
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
	// ErrStale is for a request that waited while the catalog was replaced.
	ErrStale = errors.New("the catalog changed")
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
	// Catalog is the version of the catalog whose rule holds the request.
	Catalog           string
	Method, URL, Body string
	Headers           []string // a line each
	// ByAny means that others than the operator may decide. The catalog determines it.
	ByAny bool
}

// size returns about how many bytes the request takes in memory.
func (r Request) size() int {
	n := len(r.URL) + len(r.Body)
	for _, h := range r.Headers {
		n += len(h)
	}
	return n
}

// sum identifies the parts of a request that an approval covers.
func (r Request) sum() [sha256.Size]byte {
	h := sha256.New()
	// fetch() chooses a new boundary each time: without Unbound no late approval would match.
	headers, body := formdata.Unbound(r.Headers, r.Body)
	for _, s := range []string{r.Tenant, r.Server, r.API, r.Rule, strconv.FormatBool(r.ByAny),
		r.Catalog, r.Method, r.URL, strings.Join(headers, "\n"), body} {
		// Lengths separate the parts, so that text cannot move from one part to the next.
		_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Room holds requests. The zero Room is empty and ready.
type Room struct {
	// Wait is how long a request waits. 0 means waitTime.
	Wait time.Duration
	// Added is called for each request that waits. It may be nil.
	Added func(approvalapi.Held)
	// Decided is called for each decision of a person. It may be nil.
	Decided func(approvalapi.Held)

	mu      sync.Mutex
	held    []*entry      // the oldest first
	grants  []grant       // the oldest first
	changed chan struct{} // closed at the next change of held; nil while Waiting is unused
}

type entry struct {
	approvalapi.Held
	request Request
	sum     [sha256.Size]byte
	size    int
	answer  chan error // the result of Pass, with a buffer for the only answer
}

// Pass waits until a person approves a request, and returns nil once for each approval. The id is that of a request
// that waited, else "".
func (r *Room) Pass(ctx context.Context, q Request) (id string, err error) {
	e, err := r.enter(q)
	if e == nil {
		return "", err
	}
	return e.ID, r.wait(ctx, e)
}

func (r *Room) wait(ctx context.Context, e *entry) (err error) {
	wait := r.Wait
	if wait == 0 {
		wait = waitTime
	}
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
	// From here on Decide sees that the run no longer waits.
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.tell()
	e.Waiting = false
	select {
	case answer := <-e.answer: // Decide was faster than the lock
		if answer == nil && !errors.Is(err, ErrUnanswered) { // the run has ended, so a later run may use the approval
			e.Approved = true
			r.held = append(r.held, e)
			return err
		}
		return answer
	default:
	}
	return err
}

// enter adds a request. It returns a nil entry if the request need not wait: an earlier approval covers it, or it
// exceeds a bound.
func (r *Room) enter(q Request) (*entry, error) {
	now := time.Now()
	sum := q.sum()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(now)
	if r.granted(q) {
		return nil, nil //nolint:nilnil // it passes
	}
	ofRun := 0
	for i, e := range r.held {
		// An approval counts once: delete it with its use.
		if e.sum == sum && e.Approved {
			r.held = slices.Delete(r.held, i, i+1)
			return nil, nil //nolint:nilnil // it passes
		}
		if e.Run == q.Run && e.request.Tenant == q.Tenant && e.request.Generation == q.Generation {
			ofRun++
		}
	}
	// Code that was run again repeats the request of the ended run, so the new one replaces the old.
	r.held = slices.DeleteFunc(r.held, func(e *entry) bool { return e.sum == sum && !e.Waiting })
	if ofRun >= maxOfRun || !r.room(q) {
		return nil, ErrFull
	}
	e := &entry{request: q, sum: sum, size: q.size(), answer: make(chan error, 1), Held: approvalapi.Held{
		ID: newID(), Run: q.Run, Tenant: q.Tenant, Server: q.Server, API: q.API, Rule: q.Rule, Operator: !q.ByAny,
		Method: q.Method, URL: q.URL, Headers: q.Headers, Body: q.Body,
		Since: now.UTC(), Until: now.Add(lifeTime).UTC(), Waiting: true,
	}}
	r.held = append(r.held, e)
	r.tell()
	if r.Added != nil {
		r.Added(e.Held)
	}
	return e, nil
}

// room evicts requests until one more fits: those that no run waits for and that are not approved, the oldest of the
// tenant with the most. The requests of a tenant that cannot be evicted take at most half of the capacity. The caller
// holds mu.
func (r *Room) room(q Request) bool {
	count, size := 1, q.size()
	for _, e := range r.held {
		if e.request.Tenant == q.Tenant && !e.gives() {
			count, size = count+1, size+e.size
		}
	}
	// So one tenant cannot keep the others, or the operator, from asking.
	if q.Tenant != "" && (count > maxAll/2 || size > MaxBytes/2) {
		return false
	}
	for {
		of, who, size := map[string]int{}, "", q.size()
		for _, e := range r.held {
			size += e.size
			if e.gives() {
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
		i := slices.IndexFunc(r.held, func(e *entry) bool { return e.gives() && e.request.Tenant == who })
		if i < 0 {
			return false
		}
		r.held = slices.Delete(r.held, i, i+1)
	}
}

// gives reports whether a request may be evicted.
func (e *entry) gives() bool { return !e.Waiting && !e.Approved }

// sweep removes requests whose time is over. The caller holds mu.
func (r *Room) sweep(now time.Time) {
	r.held = slices.DeleteFunc(r.held, func(e *entry) bool { return now.After(e.Until) && !e.Waiting })
}

// newID returns an id that is short enough to type: 40 random bits.
func newID() string {
	b := make([]byte, 5)
	_, _ = rand.Read(b) // crypto/rand never fails
	return strings.ToLower(base32.StdEncoding.EncodeToString(b))
}

// List lists the held requests, the oldest first.
func (r *Room) List() []approvalapi.Held {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(time.Now())
	out := []approvalapi.Held{}
	for _, e := range r.held {
		out = append(out, e.Held)
	}
	return out
}

// Waiting lists the requests that a run waits for, and returns a channel that is closed when the list changes. The list
// includes requests of MCP servers that the run may have caused. If another run may have caused such a request too, its
// Held.Run is not this run.
func (r *Room) Waiting(run string) (list []approvalapi.Held, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	list = []approvalapi.Held{}
	for _, e := range r.held {
		if e.Waiting && (e.Run == run || slices.Contains(e.request.Pauses, run)) {
			list = append(list, e.Held)
		}
	}
	return list, r.changed
}

// tell wakes the callers that wait for a change. The caller holds mu.
func (r *Room) tell() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Decide approves or refuses a request, once. A wider scope also covers the similar requests of the run.
func (r *Room) Decide(id string, a approvalapi.Answer) (approvalapi.Held, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(time.Now())
	i := slices.IndexFunc(r.held, func(e *entry) bool { return e.ID == id })
	if i < 0 {
		return approvalapi.Held{}, &rpc.Error{Code: "not_held", Text: "No request waits under this id."}
	}
	e, approve := r.held[i], a.Approve
	if err := checkScope(e, a); err != nil {
		return approvalapi.Held{}, err
	}
	defer r.tell()
	// If the run no longer waits, the approval stays until the code is run again.
	if e.Waiting || !approve {
		r.held = slices.Delete(r.held, i, i+1)
	}
	switch {
	case e.Waiting && approve:
		e.answer <- nil
	case e.Waiting:
		e.answer <- ErrDenied
	case approve:
		e.Approved, e.Until = true, time.Now().Add(lifeTime).UTC()
	}
	out := e.Held
	out.Approved = approve
	if approve {
		out.Scope = cmp.Or(a.Scope, approvalapi.ScopeOnce)
	}
	if approve && a.Scope.Wide() {
		r.grant(e, a.Scope)
	}
	if r.Decided != nil {
		r.Decided(out)
	}
	return out, nil
}

// Forget drops all approvals and refuses all waiting requests, because a new catalog has replaced theirs.
func (r *Room) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.tell()
	for _, e := range r.held {
		if e.Waiting {
			e.answer <- ErrStale
		}
	}
	r.held, r.grants = nil, nil
}
