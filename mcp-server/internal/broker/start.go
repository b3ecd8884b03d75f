package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

// newInstance returns an instance that is not started yet.
func newInstance(s *configuredServer, key string, kill context.CancelCauseFunc) *serverInstance {
	return &serverInstance{
		server: s, key: key, kill: kill, used: time.Now(),
		ready: make(chan struct{}), gone: make(chan struct{}), left: make(chan struct{}),
		out: make(chan bridgewire.ToBridge, outQueue), pending: map[uint64]*pendingRequest{},
		output: rate.NewLimiter(logRate, logBurst),
	}
}

// launchBridge starts an instance's bridge in a slot. It pauses first if the server failed just now. It installs a
// missing package, and if all slots are taken it stops the server that was idle longest.
func (b *Broker) launchBridge(ctx context.Context, i *serverInstance) (Slot, error) {
	s := i.server
	b.mu.Lock()
	pause := time.Until(s.notBefore)
	b.mu.Unlock()
	if pause > 0 {
		if !timing.WaitFor(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
	began := time.Now()
	slot, err := b.tryLaunch(ctx, i)
	b.cfg.Started(s.api.Name, err != nil)
	if err != nil {
		s.logWarning("the server could not be started", "error", err)
		if f := (*callFailure)(nil); errors.As(err, &f) {
			return nil, f
		}
		return nil, newEnded(cleanText("the server could not be started: "+err.Error()), true)
	}
	b.cfg.Log.Info("an MCP server starts", "server", s.api.Name, "ms", time.Since(began).Milliseconds())
	return slot, nil
}

// tryLaunch tries until it gets a slot, at most as long as connecting may take.
func (b *Broker) tryLaunch(ctx context.Context, i *serverInstance) (Slot, error) {
	s, tenant := i.server, b.tenantOf(i.key)
	waiting := time.NewTimer(s.connectTimeout())
	defer waiting.Stop()
	installed := false
	var leaving *serverInstance // the instance whose slot this waits for
	for {
		b.mu.Lock()
		// Read before the attempt: a slot that becomes free in between closes this channel, so the wait below ends at once.
		free := b.free
		hasSlot := b.takeSlot(i, tenant)
		b.mu.Unlock()
		slot, err := Slot(nil), ErrFull
		if hasSlot {
			slot, err = b.cfg.Launcher.Launch(ctx, s.api, tenant)
		}
		switch {
		case err == nil:
			return slot, nil
		case errors.Is(err, ErrNotInstalled) && !installed:
			// Once only: a package that is gone directly after its installation would otherwise be installed forever.
			installed = true
			if err := b.installOnce(ctx, s); err != nil {
				return nil, &callFailure{
					code: installFailed, unsent: true,
					message: cleanText(fmt.Sprintf("%s could not be installed: %v", s.spec.Package, err)),
					hint:    "Tell the user: the log of CodeForge shows more, in the lines with server=" + s.api.Name + ".",
				}
			}
			continue
		case errors.Is(err, ErrNotInstalled):
			return nil, &callFailure{
				code: packageMissing, message: s.spec.Package + " is not installed", unsent: true,
				hint: "CodeForge had installed the package, but its files are missing now: call again.",
			}
		case !errors.Is(err, ErrFull):
			return nil, err
		}
		// One at a time: each pass of this loop would otherwise stop another idle server.
		if leaving == nil || isClosed(leaving.left) {
			leaving = b.makeRoom(func(i *serverInstance) bool { return hasSlot || i.tenant == tenant })
		}
		select {
		case <-free:
		case <-time.After(100 * time.Millisecond): // the last release may be on its way
		case <-waiting.C:
			return nil, &callFailure{
				code: slotsFull, message: "all server slots that you may use are in use", unsent: true, retryable: true,
				hint: "Try again later, or tell the user to raise SANDBOX_SERVERS.",
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// takeSlot reports whether the instance may take a slot. The instances of one tenant leave half of all slots to the
// others. The caller holds b.mu.
func (b *Broker) takeSlot(i *serverInstance, tenant string) bool {
	switch {
	case tenant == "" || i.tenant != "" || b.cfg.Slots == 0:
		return true
	case b.slotsByTenant[tenant] >= (b.cfg.Slots+1)/2:
		return false
	}
	i.tenant = tenant
	b.slotsByTenant[tenant]++
	return true
}

// makeRoom begins to stop the server that was idle longest among those that may match. It returns the instance, or nil
// if none is idle. On a busy machine the slot becomes free only some time later.
func (b *Broker) makeRoom(may func(*serverInstance) bool) *serverInstance {
	b.mu.Lock()
	defer b.mu.Unlock()
	var oldest *serverInstance
	for _, s := range b.servers {
		for _, i := range s.instances {
			if i.users == 0 && may(i) && (oldest == nil || i.used.Before(oldest.used)) {
				oldest = i
			}
		}
	}
	if oldest != nil {
		b.retireInstance(oldest)
	}
	return oldest
}

// packageInstall is an installation in progress, or one that failed within installPause.
type packageInstall struct {
	done chan struct{}
	err  error
}

// installPause is how long a failed installation is not repeated: code could otherwise keep the registry busy.
const installPause = 5 * time.Second

// installOnce installs a server's package, once for all calls that wait for it.
func (b *Broker) installOnce(ctx context.Context, s *configuredServer) error {
	pkg := s.spec.PackageToInstall()
	b.mu.Lock()
	in := b.installs[pkg]
	if in == nil {
		in = &packageInstall{done: make(chan struct{})}
		b.installs[pkg] = in
		b.parts.Go(func() {
			s.logInfo("installing " + s.spec.Package)
			// Under b.ctx, because one caller that gives up must not end the installation for the others.
			in.err = b.cfg.Launcher.Install(b.ctx, s.api, s.logInfo)
			close(in.done)
			if in.err != nil {
				timing.WaitFor(b.ctx, installPause)
			}
			b.mu.Lock()
			delete(b.installs, pkg)
			b.mu.Unlock()
		})
	}
	b.mu.Unlock()
	select {
	case <-in.done:
		return in.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
