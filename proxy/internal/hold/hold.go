// Package hold keeps requests that a rule holds until a person decides.
//
// Threat: code that gets another request approved than the one a person saw, uses an approval twice or that of another
// tenant, or floods the person; an MCP server that uses an approval of one run for another. Contract: an approval is
// for the exact bytes of method, host, path, query, headers and body. Only the boundary between a body's parts, which
// differs each time, may change. An approval is also for the tenant, the MCP server, the catalog and the rule of the
// request. It is used once. A wider approval is for one run and ends with that run. A run holds few requests at a time,
// and all runs together a bounded number.
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
	// waitTime is how long a request waits for an answer: less than the two minutes after which many MCP clients give a
	// call up. The run's time limit is paused during the wait.
	waitTime = 100 * time.Second
	// lifeTime is how long a request can be decided, and an approval that came too late be used.
	lifeTime = 15 * time.Minute
	// maxOfRun and maxAll bound the requests that are held, of one run and of all.
	maxOfRun = 8
	maxAll   = 500
	// MaxBytes bounds the memory of all held requests.
	MaxBytes = 16 << 20
)

var (
	// ErrDenied is for a request that a person refused.
	ErrDenied = errors.New("a person refused the request")
	// ErrUnanswered is for a request about which nobody has decided yet.
	ErrUnanswered = errors.New("nobody has answered yet")
	// ErrStale is for a request that waited under a catalog which is no longer in force.
	ErrStale = errors.New("the catalog changed")
	// ErrFull is for one request too many.
	ErrFull = errors.New("too many requests wait for a person")
)

// Request is what is held.
type Request struct {
	Run, API, Rule string
	// Tenant is whose run it is. An approval is for the same one's alone.
	Tenant string
	// Server is the MCP server that sends it. Empty: code does.
	Server string
	// Generation is that of the lease for which maxOfRun counts requests: the run's lease, or the MCP server's if the
	// request belongs to no run.
	Generation uint64
	// Ended is closed when the run ends. Approvals for the rest of the run end then too. Nil: the request belongs to no
	// run.
	Ended <-chan struct{}
	// Pauses are further runs that may have caused the request: Waiting lists it for them too.
	Pauses []string
	// Catalog is the version of the catalog whose rule holds it.
	Catalog           string
	Method, URL, Body string
	Headers           []string // a line each
	// ByAny means that not only the operator may decide. It is part of the catalog.
	ByAny bool
}

// size is about how many bytes it takes to keep.
func (r Request) size() int {
	n := len(r.URL) + len(r.Body)
	for _, h := range r.Headers {
		n += len(h)
	}
	return n
}

// sum identifies what is approved.
func (r Request) sum() [sha256.Size]byte {
	h := sha256.New()
	headers, body := formdata.Unbound(r.Headers, r.Body)
	for _, s := range []string{r.Tenant, r.Server, r.API, r.Rule, strconv.FormatBool(r.ByAny),
		r.Catalog, r.Method, r.URL, strings.Join(headers, "\n"), body} {
		_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Room holds requests. The zero Room is empty and ready.
type Room struct {
	// Wait is how long a request waits. 0: waitTime.
	Wait time.Duration
	// Added is called for each request that waits. It may be nil.
	Added func(approvalapi.Held)
	// Decided is called for each decision of a person. It may be nil.
	Decided func(approvalapi.Held)

	mu      sync.Mutex
	held    []*entry      // the oldest first
	grants  []grant       // the oldest first
	changed chan struct{} // closed at the next change of held. Nil means nobody waits for that
}

type entry struct {
	approvalapi.Held
	request Request
	sum     [sha256.Size]byte
	size    int
	answer  chan error // what Pass returns. It has room for the one answer
}

// Pass waits until a person approves a request, and returns nil once for each approval. The id is that of a request
// that waited.
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
		e.answer <- nil // for what follows
		err = context.Cause(ctx)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = ErrUnanswered
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.tell()
	e.Waiting = false
	select {
	case answer := <-e.answer: // in the meantime
		if answer == nil && !errors.Is(err, ErrUnanswered) { // the run has ended: the next one may use it
			e.Approved = true
			r.held = append(r.held, e)
			return err
		}
		return answer
	default:
	}
	return err
}

// enter adds a request. The entry is nil for one that need not wait: it was approved before, or is one too many.
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
		if e.sum == sum && e.Approved {
			r.held = slices.Delete(r.held, i, i+1)
			return nil, nil //nolint:nilnil // it passes
		}
		if e.Run == q.Run && e.request.Tenant == q.Tenant && e.request.Generation == q.Generation {
			ofRun++
		}
	}
	// The same request of an ended run gives way to this one.
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

// room makes room for one more request: those that no run waits for and nobody approved give way, the oldest of the
// tenant who has most. The others of a tenant take half of the room at most. The caller holds the lock.
func (r *Room) room(q Request) bool {
	count, size := 1, q.size()
	for _, e := range r.held {
		if e.request.Tenant == q.Tenant && !e.gives() {
			count, size = count+1, size+e.size
		}
	}
	if q.Tenant != "" && (count > maxAll/2 || size > MaxBytes/2) {
		return false
	}
	for {
		of, who, size := map[string]int{}, "", q.size()
		for _, e := range r.held {
			size += e.size
			if e.gives() {
				of[e.request.Tenant] += e.size + MaxBytes/maxAll // and its place
			}
		}
		if len(r.held) < maxAll && size <= MaxBytes {
			return true
		}
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

// gives reports whether a request makes room for others.
func (e *entry) gives() bool { return !e.Waiting && !e.Approved }

// sweep forgets what is too old. The caller holds the lock.
func (r *Room) sweep(now time.Time) {
	r.held = slices.DeleteFunc(r.held, func(e *entry) bool { return now.After(e.Until) && !e.Waiting })
}

// newID is short enough to type: 40 random bits.
func newID() string {
	b := make([]byte, 5)
	_, _ = rand.Read(b) // it never fails
	return strings.ToLower(base32.StdEncoding.EncodeToString(b))
}

// List lists what is held, the oldest first.
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
// has requests of MCP servers that the run may have caused. If another run may have caused such a request too, its
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

// tell wakes those who wait for a change. The caller holds the lock.
func (r *Room) tell() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Decide approves or refuses a request, once, and with a wider scope what else of its run is alike.
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

// Forget ends what was approved or waits under a catalog that is no longer in force: it must not pass any more.
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
