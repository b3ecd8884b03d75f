package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

const (
	// drainTime is how long the proxy may take to say what a server sent.
	drainTime = 2 * time.Second
	// maxCaused is how many requests of servers a run's receipt shows.
	maxCaused = 200
)

// causes are what the calls of one run made servers send.
type causes struct {
	pending sync.WaitGroup
	list    []controlapi.Caused
	count   int
}

type callKey struct{}

// callOf is the call of a tool that a context belongs to, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// startCall counts a call that an instance is about to get, and tells the proxy whose call it is. After a failure the
// caller must not send the call: the proxy would attribute its requests to another call.
func (b *Broker) startCall(ctx context.Context, i *instance) (id uint64, f *failure) {
	b.mu.Lock()
	i.inFlight++
	i.window++
	i.untold++
	i.lastCall++
	id = i.lastCall
	call := controlapi.ServerCall{ID: id}
	if c := callOf(ctx); c != nil {
		call.Run, call.Call = c.run, i.server.api.Name+"."+c.tool
	}
	i.calls = append(i.calls, call)
	b.mu.Unlock()
	err := i.sendCalls(ctx)
	switch {
	case err == nil || ctx.Err() != nil: // a caller that gave up does not send the call
		return id, nil
	case errors.Is(err, controlapi.ErrFenced): // the proxy restarted
		f = ended("the proxy does not know the server's process any more", true)
		b.mu.Lock()
		b.retire(i)
		b.mu.Unlock()
		i.kill(f)
		return id, f
	}
	return id, unavailable("the proxy did not take the call: "+clean(err.Error()), "Try again.")
}

// settleCall records that the server has come to rest after a call, or may still work on it. In the second case the
// call stays in the list as long as the process lives, once for each run.
func (b *Broker) settleCall(i *instance, id uint64, r rest) {
	b.mu.Lock()
	n := slices.IndexFunc(i.calls, func(c controlapi.ServerCall) bool { return c.ID == id })
	call := i.calls[n]
	// A server may send requests for a call that its caller gave up. As long as the proxy has the call, it does not
	// attribute these requests to another run.
	if r == atRest || slices.Contains(i.abandoned, call.Run) {
		i.calls = slices.Delete(i.calls, n, n+1)
	} else if call.Run != "" {
		i.abandoned = append(i.abandoned, call.Run)
	}
	b.mu.Unlock()
	if call.GivenUp {
		b.parts.Go(func() { _ = i.sendCalls(b.ctx) }) // the next call sends the list again
	}
}

// sendCalls sends the proxy the list of calls that the server works on. The proxy ignores a list that comes after a
// newer one.
func (i *instance) sendCalls(ctx context.Context) error {
	if len(i.server.api.Domains) == 0 { // it has no host to send to
		return nil
	}
	i.telling.Lock()
	defer i.telling.Unlock()
	b := i.server.broker
	b.mu.Lock()
	i.version++
	list := controlapi.ServerCalls{Version: i.version, Calls: slices.Clone(i.calls)}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	return i.slot.SetCalls(ctx, list)
}

// over tells the proxy that a call is over, and fetches the requests that the server sent during the call. If other
// calls were in flight since the last fetch, these may have caused the requests.
func (b *Broker) over(c *call, i *instance, id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i.inFlight--
	among := i.window
	i.window = i.inFlight
	if n := slices.IndexFunc(i.calls, func(c controlapi.ServerCall) bool { return c.ID == id }); n >= 0 {
		i.calls[n].GivenUp = true
	}
	if c == nil || b.ctx.Err() != nil || len(i.server.api.Domains) == 0 { // it has no host to send to
		b.told(i)
		return
	}
	of := b.caused[c.run]
	if of == nil {
		of = &causes{}
		b.caused[c.run] = of
	}
	of.pending.Add(1)
	b.parts.Go(func() {
		defer of.pending.Done()
		ctx, cancel := context.WithTimeout(b.ctx, drainTime)
		defer cancel()
		_ = i.sendCalls(ctx) // the next call sends the list again
		cause := controlapi.Cause{Run: c.run, Call: i.server.api.Name + "." + c.tool, Among: among}
		r, err := i.slot.Drain(ctx, cause)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.told(i)
		if err != nil || len(r.Exchanges) == 0 {
			return
		}
		list := r.Exchanges[:min(len(r.Exchanges), maxCaused-of.count)]
		of.count += len(list)
		of.list = append(of.list, controlapi.Caused{
			Cause: cause, Exchanges: list, Omitted: r.Omitted + len(r.Exchanges) - len(list),
		})
	})
}

// told counts a call whose requests the broker knows, or will never know. The caller holds b.mu.
func (b *Broker) told(i *instance) {
	i.untold--
	b.tellings.Broadcast()
}

// awaitTold waits until the requests of all calls of an ended instance are known. These calls are over soon.
func (b *Broker) awaitTold(i *instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i.untold > 0 {
		b.tellings.Wait()
	}
}

// Caused is what the calls of a run made servers send. It is asked once, when the run is over.
func (b *Broker) Caused(run string) []controlapi.Caused {
	b.mu.Lock()
	of := b.caused[run]
	delete(b.caused, run)
	b.mu.Unlock()
	if of == nil {
		return nil
	}
	of.pending.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return of.list
}
