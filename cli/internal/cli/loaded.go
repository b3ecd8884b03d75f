package cli

import (
	"context"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// loadedWithin limits the wait for a running CodeForge to load a change of apis/: its slowest poll and a little more.
const loadedWithin = 6 * time.Second

// loadEffect is the effect of a change of apis/ on the running CodeForge.
type loadEffect int

const (
	// notRunning: no CodeForge runs, or it has another folder of APIs.
	notRunning loadEffect = iota
	// loaded: the change is in force.
	loaded
	// notLoaded: CodeForge runs without the change.
	notLoaded
)

// String describes it for an added API.
func (r loadEffect) String() string {
	switch r {
	case loaded:
		return "The running CodeForge has loaded it"
	case notLoaded:
		return "The running CodeForge has not loaded it yet: codeforge check lists mistakes"
	}
	return "CodeForge is not running. It loads the API when it starts"
}

// waitForLoad waits until the running CodeForge has the newest version of an API among its active ones or, if not
// active, no longer has the API.
func (o *apiOptions) waitForLoad(ctx context.Context, e *Env, name string, active bool) loadEffect {
	// The running CodeForge may have another folder of APIs.
	if o.target.hasFlag("apis") {
		return notRunning
	}
	c, err := o.target.newConfig(e)
	if err != nil {
		return notRunning
	}
	ctx, cancel := context.WithTimeout(ctx, loadedWithin)
	defer cancel()
	op, _, local, err := mcpclient.ConnectOperator(ctx, c)
	if err != nil || !local {
		return notRunning
	}
	for {
		cat, err := op.Catalog(ctx)
		if err != nil && ctx.Err() == nil {
			return notRunning
		}
		has := slices.ContainsFunc(cat.APIs, func(a proxyapi.API) bool { return a.Name == name && (!active || !a.Stale) })
		if err == nil && has == active {
			return loaded
		}
		if !timing.WaitFor(ctx, 20*time.Millisecond) {
			return notLoaded
		}
	}
}
