package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
)

// hold returns the instance for a call, and starts one if necessary.
func (b *Broker) hold(s *server, key string) (*instance, *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil || s.closed {
		return nil, unavailable("the server's configuration has just changed", "Try again.")
	}
	i := s.instances[key]
	if i == nil {
		i = b.begin(s, key)
	}
	// Counted under the same lock as the look-up: otherwise the sweep could stop the instance in between.
	i.users++
	return i, nil
}

// begin starts an instance. The caller holds b.mu.
func (b *Broker) begin(s *server, key string) *instance {
	ctx, kill := context.WithCancelCause(b.ctx)
	i := newInstance(s, key, kill)
	s.instances[key] = i
	b.running++
	b.parts.Go(func() {
		i.run(ctx)
		kill(nil)
	})
	return i
}

// letGo releases an instance after a call. A server that hangs is stopped. A server that may still work on a cancelled
// call gets no new calls. If it keeps state for a session or run, it gets calls until the cancelled call's run is over:
// see clear.
func (b *Broker) letGo(i *instance, r rest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i.users--
	i.used = time.Now()
	switch {
	case r == hung:
		i.server.warn("the server does not answer after a cancelled call, so CodeForge ends it")
		i.server.breaker.failed(time.Now())
		i.kill(errors.New("the server hung after a cancelled call and was ended"))
		b.retire(i)
	case r == abandoned && (i.key == "" || !i.server.keepsState()):
		b.retire(i)
	case i.retired && i.users == 0:
		i.kill(errStopped)
	}
	if i.users == 0 {
		delete(b.retired, i)
	}
}

// retire gives an instance no new calls, and stops it after its last one. The caller holds b.mu.
func (b *Broker) retire(i *instance) {
	i.retired = true
	// A newer instance may already have taken the key.
	if i.server.instances[i.key] == i {
		delete(i.server.instances, i.key)
	}
	if i.users == 0 {
		i.kill(errStopped)
		return
	}
	b.retired[i] = struct{}{}
}

// remove takes an ended instance out of its server.
func (b *Broker) remove(i *instance, f *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i.server.instances[i.key] == i {
		delete(i.server.instances, i.key)
	}
	if f.transport || f.unsent {
		i.server.problem = f.message
	}
	if f.transport {
		i.server.notBefore = time.Now().Add(max(firstPause, i.server.breaker.pause()))
		b.cfg.Log.Warn("an MCP server ended", logline.Tag("server"),
			slog.String("server", i.server.api.Name), slog.String("why", f.message))
	}
}

// freed records that an instance's slot is free, and wakes every launch that waits for one.
func (b *Broker) freed(i *instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	if i.tenant != "" {
		if b.seats[i.tenant]--; b.seats[i.tenant] == 0 {
			delete(b.seats, i.tenant)
		}
	}
	close(b.free)
	b.free = make(chan struct{})
}

// sweep stops idle servers, and forgets runs that are over.
func (b *Broker) sweep() {
	tick := time.NewTicker(sweepTime)
	defer tick.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case now := <-tick.C:
			b.stash.sweep()
			b.clear(now)
		}
	}
}

// clear does one sweep.
func (b *Broker) clear(now time.Time) {
	cat := b.cfg.Catalog()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.follow(cat)
	for run, l := range b.lent {
		if now.After(l.until) {
			delete(b.lent, run)
		}
	}
	for run := range b.runs {
		if _, ok := b.sessionOf(run); !ok {
			delete(b.runs, run)
		}
	}
	// Calls can end after their run's receipt was made, and Caused is not called again for that run.
	for run := range b.caused { // calls that ended after the run was asked for
		if _, ok := b.sessionOf(run); !ok {
			delete(b.caused, run)
		}
	}
	for _, s := range b.servers {
		for _, i := range s.instances {
			ended := func(run string) bool { _, runs := b.sessionOf(run); return !runs }
			over := s.spec.State == "run" && i.key != "" && ended(i.key)
			// An instance that may still work for an ended run must go: its requests would look like those of the next run.
			if i.users == 0 && (over || now.Sub(i.used) > s.idle()) || slices.ContainsFunc(i.abandoned, ended) {
				b.retire(i)
			}
		}
	}
}

// connected reports whether a call would find its server started.
func (b *Broker) connected(s *server, key string) bool {
	b.mu.Lock()
	i := s.instances[key]
	b.mu.Unlock()
	if i == nil {
		return false
	}
	select {
	case <-i.ready:
		return true
	default:
		return false
	}
}
