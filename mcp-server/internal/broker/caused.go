package broker

import (
	"context"
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

// begun counts a call that an instance is about to get.
func (b *Broker) begun(i *instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i.inFlight++
	i.window++
	i.untold++
}

// over asks the proxy what the server sent during a call that is over. With other calls in flight since it was asked
// last, the requests may be theirs.
func (b *Broker) over(c *call, i *instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i.inFlight--
	among := i.window
	i.window = i.inFlight
	if c == nil || b.ctx.Err() != nil || len(i.server.api.Domains) == 0 { // it can send nothing
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

// told counts a call whose requests are known, or will not be. b.mu is held.
func (b *Broker) told(i *instance) {
	i.untold--
	b.tellings.Broadcast()
}

// awaitTold waits for that of all calls of an instance that has ended, which are over soon.
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
