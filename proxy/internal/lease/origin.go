package lease

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// serverCall is a call that an MCP server works on, or has answered.
type serverCall struct {
	proxyapi.ServerCall
	run    *Lease          // nil if there is no run, or if it belongs to another proxy
	ctx    context.Context //nolint:containedctx // ends when requests that the call caused may wait no longer
	cancel context.CancelCauseFunc
	open   atomic.Bool // the server has not answered
}

// ReplaceCalls replaces the list of calls that the server in a slot works on. The generation must be that of the lease,
// else SetCalls returns proxyapi.ErrFenced. A call belongs to a run only if the run is under way, may use the server
// and has the server's tenant. So mcp-server cannot bring a request under another tenant's approval.
func (b *Table) ReplaceCalls(id slot.ID, generation uint64, s proxyapi.ServerCalls) error {
	l, err := b.FindLease(id, generation)
	if err != nil {
		return err
	}
	server := l.Server()
	if server == "" {
		return fmt.Errorf("%w: calls: only MCP servers have them", proxyapi.ErrBadRegistration)
	}
	runs := b.ListLeases()
	find := func(run string) *Lease {
		i := slices.IndexFunc(runs, func(r *Lease) bool {
			//defence:call-tenant permits
			same := r.Tenant == l.Tenant
			return r.clientType == policy.ClientRun && r.Run == run && r.CanUse(server) && same
		})
		if i < 0 {
			return nil
		}
		return runs[i]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// Lists may arrive out of order: ignore an older one.
	if s.Version <= l.version {
		return nil
	}
	old := l.calls
	l.calls, l.version = nil, s.Version
	for _, c := range s.Calls {
		i := slices.IndexFunc(old, func(o *serverCall) bool { return o.ID == c.ID })
		if i < 0 {
			old, i = append(old, newServerCall(c, find(c.Run))), len(old)
		}
		// The call stays on the list: the server may still send requests for it.
		if l.calls = append(l.calls, old[i]); c.GivenUp {
			old[i].cancel(ErrEnded)
		}
	}
	for _, o := range old {
		if !slices.Contains(l.calls, o) {
			o.markAnswered()
		}
	}
	return nil
}

func newServerCall(c proxyapi.ServerCall, run *Lease) *serverCall {
	parent := context.Background()
	if run != nil {
		parent = run.ctx
	}
	out := &serverCall{ServerCall: c, run: run}
	out.open.Store(true)
	out.ctx, out.cancel = context.WithCancelCause(parent)
	return out
}

// markAnswered records that the server has answered. If the run is known, requests that the server still sends for the
// call may wait until the run ends.
func (c *serverCall) markAnswered() {
	c.open.Store(false)
	if c.run == nil && c.Run != "" {
		c.cancel(ErrEnded)
	}
}

// Origin is the run or the MCP server that a request belongs to, from the request's beginning to its end.
type Origin struct {
	// Lease is the lease of the run that sends the request, or for which an MCP server sends it. If no run or several runs
	// may have caused the request, Lease is the server's.
	*Lease
	// Cause is set if exactly one run caused the request of an MCP server.
	Cause *proxyapi.Cause

	calls []*serverCall // the calls that may have caused it
}

// CurrentOrigin returns the Origin of a request that begins now.
func (l *Lease) CurrentOrigin() Origin {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := Origin{Lease: l, calls: slices.Clone(l.calls)}
	if len(o.calls) == 0 {
		return o
	}
	last := o.calls[len(o.calls)-1]
	// A server does not say for which call it sends a request. Only if all calls are of one run is the run certain.
	//defence:call-run
	several := slices.ContainsFunc(o.calls, func(c *serverCall) bool { return c.Run != last.Run || c.run != last.run })
	if last.Run == "" || several {
		return o
	}
	o.Cause = &proxyapi.Cause{Run: last.Run, Among: len(o.calls)}
	if len(o.calls) == 1 {
		o.Cause.Call = last.Call
	}
	if last.run != nil {
		o.Lease = last.run
	}
	return o
}

// ListRuns returns the runs that may have caused the request.
func (o Origin) ListRuns() []*Lease {
	if o.clientType == policy.ClientRun {
		return []*Lease{o.Lease}
	}
	var runs []*Lease
	for _, c := range o.calls {
		if c.run != nil && !slices.Contains(runs, c.run) {
			runs = append(runs, c.run)
		}
	}
	return runs
}

// PauseRuns stops the countdowns that end the leases of these runs. resume restarts them.
func (o Origin) PauseRuns() (resume func()) {
	runs := o.ListRuns()
	for _, r := range runs {
		r.expiry.Pause()
	}
	return func() {
		for _, r := range runs {
			r.expiry.Resume()
		}
	}
}

// BindContext returns a context in which a request waits. It ends with ctx and with the last call that may have caused
// the request. If several runs may have caused it, the request may belong to any run. So the context also ends with the
// first run whose call the server has not answered.
func (o Origin) BindContext(ctx context.Context) (bound context.Context, release func()) {
	bound, cancel := context.WithCancelCause(ctx)
	var left atomic.Int64
	left.Store(int64(len(o.calls)))
	alone := o.Cause != nil
	var stops []func() bool
	for _, c := range o.calls {
		end := c.ctx
		if end.Err() != nil && c.run != nil { // the client gave the call up, and the server may still work on it
			end = c.run.ctx
		}
		stops = append(stops, context.AfterFunc(end, func() {
			//defence:call-end
			if left.Add(-1) == 0 || !alone && c.open.Load() {
				cancel(ErrEnded)
			}
		}))
	}
	return bound, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}
