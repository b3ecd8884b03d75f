package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/timing"
)

// acquireInstance returns the instance for a call, and starts one if necessary.
func (b *Broker) acquireInstance(s *configuredServer, key string) (*serverInstance, *callFailure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil || s.closed {
		return nil, newUnavailable("the server's configuration has just changed", "Try again.")
	}
	i := s.instances[key]
	if i == nil {
		i = b.startInstance(s, key)
	}
	// Counted under the same lock as the look-up: otherwise the sweep could stop the instance in between.
	i.users++
	return i, nil
}

// startInstance starts an instance. The caller holds b.mu.
func (b *Broker) startInstance(s *configuredServer, key string) *serverInstance {
	ctx, kill := context.WithCancelCause(b.ctx)
	i := newInstance(s, key, kill)
	s.instances[key] = i
	b.running++
	b.parts.Go(func() {
		i.runServer(ctx)
		kill(nil)
	})
	return i
}

// releaseInstance releases an instance after a call. A server that hangs is stopped. A server that may still work on a
// cancelled call gets no new calls. If it keeps state for a session or run, it gets calls until the cancelled call's
// run is over: see sweepOnce.
func (b *Broker) releaseInstance(i *serverInstance, r callState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i.users--
	i.used = time.Now()
	switch {
	case r == hung:
		i.server.logWarning("the server does not answer after a cancelled call, so CodeForge ends it")
		i.server.breaker.countFailure(time.Now())
		i.kill(errors.New("the server hung after a cancelled call and was ended"))
		b.retireInstance(i)
	case r == abandoned && (i.key == "" || !i.server.isStateful()):
		b.retireInstance(i)
	case i.retired && i.users == 0:
		i.kill(errStopped)
	}
	if i.users == 0 {
		delete(b.retired, i)
	}
}

// retireInstance gives an instance no new calls, and stops it after its last one. The caller holds b.mu.
func (b *Broker) retireInstance(i *serverInstance) {
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

// removeInstance takes an ended instance out of its server.
func (b *Broker) removeInstance(i *serverInstance, f *callFailure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i.server.instances[i.key] == i {
		delete(i.server.instances, i.key)
	}
	if f.transport || f.unsent {
		i.server.problem = f.message
	}
	if f.transport {
		i.server.notBefore = time.Now().Add(max(firstPause, i.server.breaker.restartPause()))
		b.cfg.Log.Warn("an MCP server ended", logline.Tag("server"),
			slog.String("server", i.server.api.Name), slog.String("why", f.message))
	}
}

// recordFreeSlot records that an instance's slot is free, and wakes every launch that waits for one.
func (b *Broker) recordFreeSlot(i *serverInstance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	if i.tenant != "" {
		if b.slotsByTenant[i.tenant]--; b.slotsByTenant[i.tenant] == 0 {
			delete(b.slotsByTenant, i.tenant)
		}
	}
	close(b.free)
	b.free = make(chan struct{})
}

// sweepRepeatedly stops idle servers, and forgets runs that are over.
func (b *Broker) sweepRepeatedly() {
	for now := range timing.EachTick(b.ctx, sweepTime) {
		b.stash.sweepExpired()
		b.sweepOnce(now)
	}
}

func (b *Broker) sweepOnce(now time.Time) {
	cat := b.cfg.Catalog()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adoptCatalog(cat)
	for run, l := range b.lentSessions {
		if now.After(l.until) {
			delete(b.lentSessions, run)
		}
	}
	for run := range b.runs {
		if _, ok := b.sessionOfRunLocked(run); !ok {
			delete(b.runs, run)
		}
	}
	// Calls can end after their run's receipt was made, and TakeRequestsCausedBy is not called again for that run.
	for run := range b.caused { // calls that ended after the run was asked for
		if _, ok := b.sessionOfRunLocked(run); !ok {
			delete(b.caused, run)
		}
	}
	for _, s := range b.servers {
		for _, i := range s.instances {
			ended := func(run string) bool { _, runs := b.sessionOfRunLocked(run); return !runs }
			idle := now.Sub(i.used) > time.Duration(s.spec.IdleMS)*time.Millisecond
			over := s.spec.State == "run" && i.key != "" && ended(i.key)
			// An instance that may still work for an ended run must go: its requests would look like those of the next run.
			if i.users == 0 && (over || idle) || slices.ContainsFunc(i.abandoned, ended) {
				b.retireInstance(i)
			}
		}
	}
}

// isConnected reports whether a call would find its server started.
func (b *Broker) isConnected(s *configuredServer, key string) bool {
	b.mu.Lock()
	i := s.instances[key]
	b.mu.Unlock()
	return i != nil && isClosed(i.ready)
}
