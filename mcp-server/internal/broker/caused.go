package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// drainTime is the time limit for the proxy's list of requests that a server sent.
	drainTime = 2 * time.Second
	// maxCaused is the largest number of servers' requests in a run's receipt.
	maxCaused = 200
)

// causedRequests are the requests that servers sent because of one run's calls.
type causedRequests struct {
	pending sync.WaitGroup
	list    []proxyapi.CausedRequests
	count   int
}

type callKey struct{}

// callOf returns the call of a tool that a context belongs to, or nil.
func callOf(ctx context.Context) *callRequest {
	c, _ := ctx.Value(callKey{}).(*callRequest)
	return c
}

// startCall counts a call that is about to be sent to an instance, and reports the call's run to the proxy. After a
// failure the caller must not send the call: the proxy would attribute its requests to another call.
func (b *Broker) startCall(ctx context.Context, i *serverInstance) (id uint64, f *callFailure) {
	b.mu.Lock()
	i.inFlight++
	i.window++
	i.unattributed++
	i.lastCall++
	id = i.lastCall
	call := proxyapi.ServerCall{ID: id}
	if c := callOf(ctx); c != nil {
		call.Run, call.Call = c.run, i.server.api.Name+"."+c.tool
	}
	i.calls = append(i.calls, call)
	b.mu.Unlock()
	err := i.sendCalls(ctx)
	switch {
	case err == nil || ctx.Err() != nil: // a caller that gave up does not send the call
		return id, nil
	case errors.Is(err, proxyapi.ErrFenced): // the proxy restarted
		f = newEnded("the proxy no longer knows the server's process", true)
		b.mu.Lock()
		b.retireInstance(i)
		b.mu.Unlock()
		i.kill(f)
		return id, f
	}
	return id, newUnavailable("the proxy did not accept the call: "+cleanText(err.Error()), "Try again.")
}

// settleCall records whether a server has stopped working on a call. If it may still work on the call, the list keeps
// the call as long as the process lives, once per run.
func (b *Broker) settleCall(i *serverInstance, id uint64, r callState) {
	b.mu.Lock()
	n := slices.IndexFunc(i.calls, func(c proxyapi.ServerCall) bool { return c.ID == id })
	call := i.calls[n]
	// A server may send requests for a call that its caller gave up. As long as the proxy has the call, it does not
	// attribute these requests to another run.
	if r == atRest || slices.Contains(i.abandoned, call.Run) {
		i.calls = slices.Delete(i.calls, n, n+1)
	} else if call.Run != "" {
		i.abandoned = append(i.abandoned, call.Run)
	}
	b.mu.Unlock()
	// The list that reportCallEnd sent still had this call, because the server had not settled yet.
	if call.GivenUp {
		b.parts.Go(func() { _ = i.sendCalls(b.ctx) }) // the next call sends the list again
	}
}

// sendCalls sends the proxy the list of calls that the server works on. The proxy ignores a list that is older than its
// current one.
func (i *serverInstance) sendCalls(ctx context.Context) error {
	if len(i.server.api.Domains) == 0 { // it has no host to send to
		return nil
	}
	// Sending under the lock keeps the versions in order, so that the proxy drops a list only if a newer one replaces it.
	i.callsOrder.Lock()
	defer i.callsOrder.Unlock()
	b := i.server.broker
	b.mu.Lock()
	i.version++
	list := proxyapi.ServerCalls{Version: i.version, Calls: slices.Clone(i.calls)}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	return i.slot.SetCalls(ctx, list)
}

// reportCallEnd reports a call's end to the proxy, and fetches the requests that the server sent meanwhile. If other
// calls were in flight since the last fetch, each call may have caused the requests.
func (b *Broker) reportCallEnd(c *callRequest, i *serverInstance, id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i.inFlight--
	among := i.window
	i.window = i.inFlight
	if n := slices.IndexFunc(i.calls, func(c proxyapi.ServerCall) bool { return c.ID == id }); n >= 0 {
		// The call stays in the list until settleCall removes it: the server may still work on it.
		i.calls[n].GivenUp = true
	}
	if c == nil || b.ctx.Err() != nil || len(i.server.api.Domains) == 0 { // it has no host to send to
		b.countAttributed(i)
		return
	}
	of := b.caused[c.run]
	if of == nil {
		of = &causedRequests{}
		b.caused[c.run] = of
	}
	of.pending.Add(1)
	// The caller's answer does not wait for the proxy; TakeRequestsCausedBy does.
	b.parts.Go(func() {
		defer of.pending.Done()
		ctx, cancel := context.WithTimeout(b.ctx, drainTime)
		defer cancel()
		_ = i.sendCalls(ctx) // the next call sends the list again
		cause := proxyapi.Cause{Run: c.run, Call: i.server.api.Name + "." + c.tool, Among: among}
		r, err := i.slot.Drain(ctx, cause)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.countAttributed(i)
		if err != nil || len(r.Exchanges) == 0 {
			return
		}
		list := r.Exchanges[:min(len(r.Exchanges), maxCaused-of.count)]
		of.count += len(list)
		of.list = append(of.list, proxyapi.CausedRequests{
			Cause: cause, Exchanges: list, Omitted: r.Omitted + len(r.Exchanges) - len(list),
		})
	})
}

// countAttributed counts a call whose requests are now known, or can no longer become known. The caller holds b.mu.
func (b *Broker) countAttributed(i *serverInstance) {
	i.unattributed--
	b.attributedCond.Broadcast()
}

// awaitAttribution waits for the requests of all calls of an ended instance. Each call ends within drainTime.
func (b *Broker) awaitAttribution(i *serverInstance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i.unattributed > 0 {
		b.attributedCond.Wait()
	}
}

// TakeRequestsCausedBy returns and forgets the requests that servers sent for a run's calls. Call it once, after the
// run.
func (b *Broker) TakeRequestsCausedBy(run string) []proxyapi.CausedRequests {
	b.mu.Lock()
	of := b.caused[run]
	delete(b.caused, run)
	b.mu.Unlock()
	if of == nil {
		return nil
	}
	// Not under b.mu: the goroutines that are waited for need the lock.
	of.pending.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return of.list
}
