package execution

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandbox"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// mayHold reports whether a rule of the run's APIs may make a request wait for a person.
func (e *Executor) mayHold(apis []string) bool {
	return slices.ContainsFunc(e.cfg.Catalog.Catalog().APIs, func(a proxyapi.API) bool {
		return a.Approves && (len(apis) == 0 || slices.Contains(apis, a.Name))
	})
}

// watchHeld runs until ctx ends. While requests that the run may have caused wait for a person, it stops the time
// limits of the run and of its calls. It asks the user about each request that belongs to the run.
func (e *Executor) watchHeld(ctx context.Context, l sandbox.SlotLease, r RunRequest, run string) {
	var asking sync.WaitGroup
	defer asking.Wait()
	asked := map[string]context.CancelFunc{}
	waits := false
	err := l.Of.Control.WatchHeld(ctx, l.Slot, l.Generation, func(list []approvalapi.HeldRequest) {
		if now := len(list) > 0; now != waits {
			waits = now
			if err := l.Of.Runs.Pause(ctx, l.Generation, now); err != nil && ctx.Err() == nil {
				e.cfg.Log.Warn("the time limit of a run is not paused while it waits for approval", logline.Tag("sandbox"),
					slog.String("run", run), slog.String("error", err.Error()))
			}
			if e.cfg.Servers != nil {
				e.cfg.Servers.Pause(run, now)
			}
			if r.Waiting != nil {
				r.Waiting(now)
			}
		}
		for id, cancel := range asked {
			if !slices.ContainsFunc(list, func(h approvalapi.HeldRequest) bool { return h.ID == id }) {
				cancel() // decided elsewhere, or given up
				delete(asked, id)
			}
		}
		for _, h := range list {
			// A request of a server may belong to another run that uses the same server, so its user must not decide.
			if asked[h.ID] != nil || h.Operator || r.Approve == nil || h.Run != run {
				continue
			}
			ctx, cancel := context.WithCancel(ctx)
			asked[h.ID] = cancel
			asking.Go(func() { e.askAndSend(ctx, l, r, h) })
		}
	})
	// The forms must close before asking.Wait, which would otherwise wait for a person.
	for _, cancel := range asked {
		cancel()
	}
	// Resumed here if the watch broke while a request waited: the calls' limits must not stay stopped.
	if waits && e.cfg.Servers != nil {
		e.cfg.Servers.Pause(run, false)
	}
	if ctx.Err() == nil {
		e.cfg.Log.Debug("a request that waited for approval is no longer known", logline.Tag("sandbox"),
			slog.String("run", run), slog.String("error", err.Error()))
	}
}

// askAndSend asks about one request, and sends the answer to the proxy.
func (e *Executor) askAndSend(ctx context.Context, l sandbox.SlotLease, r RunRequest, h approvalapi.HeldRequest) {
	answer := r.Approve(ctx, h)
	if answer == nil {
		return
	}
	_, err := l.Of.Control.DecideHeld(ctx, h.ID, *answer)
	if err != nil && ctx.Err() == nil {
		e.cfg.Log.Warn("an answer came too late", logline.Tag("sandbox"), slog.String("held", h.ID),
			slog.String("error", err.Error()))
	}
}
