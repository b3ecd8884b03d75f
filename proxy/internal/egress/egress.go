// Package egress carries one request from the sandbox to its upstream, and the response back.
//
// The steps are in steps.go. Contract: the proxy denies by default before it dials. Every path through this package
// ends in one receipt entry and one log line. If a response breaks off upstream, the client never receives it as
// complete. One exception: net/http resets a stream that is not valid HTTP/2 before this package sees it.
package egress

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/brokerlink"
	"github.com/codeforge-mcp/codeforge/proxy/internal/budget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/idempotency"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

// errReloaded is the cause of an exchange that Egress.CutStale ended.
var errReloaded = errors.New("the catalog changed")

// Config holds the parts that an Egress needs.
type Config struct {
	// Current is the snapshot in force; an exchange keeps the one it began with.
	Current func() *reload.Snapshot
	Pool    *upstream.Pool
	// Broker forwards calls to MCP servers.
	Broker  *brokerlink.Broker
	Journal *receipt.Journal
	// Approvals holds requests that a person must approve.
	Approvals *approval.Store
	// Memory bounds the buffers of all runs together: see lease.Config. This budget serves the leases of plans.
	Memory *membudget.Budget
	// Budget counts the use of APIs that have limits.
	Budget budget.LimitCounter
	// Keys makes the idempotency keys of requests.
	Keys   *idempotency.Keys
	Redact *redact.Redactor
	// Checkpoint returns the ledger's checkpoint that covers all entries of a run so far, or "". Nil means that there is
	// no ledger.
	Checkpoint func(run string) string
	// Sending writes an intent to the ledger before a request leaves that may change something. After an error the request
	// must not leave. Nil means that the ledger gets only the entries of finished requests.
	Sending func(ledger.Sending) error
	// Mint obtains minted credentials.
	Mint *mint.Minter
	// UserAgent is sent in place of the sandbox's.
	UserAgent string
	// Debug logs payloads, before swapping and after scrubbing.
	Debug bool
	Log   *slog.Logger
}

// Egress handles every request of the entrance. Make one with New.
type Egress struct {
	conf  Config
	proxy http.Handler

	mu     sync.Mutex
	flight map[*exchange]struct{}
}

// New makes the handler.
func New(c Config) *Egress {
	return &Egress{conf: c, proxy: newProxy(), flight: map[*exchange]struct{}{}}
}

// InFlight counts the exchanges under way.
func (e *Egress) InFlight() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.flight)
}

// trackExchange makes an exchange count as under way, or not.
func (e *Egress) trackExchange(x *exchange, underWay bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if delete(e.flight, x); underWay {
		e.flight[x] = struct{}{}
	}
}

// CutStale ends the exchanges that a reload made stale. If the reload brought new credentials, it ends all exchanges
// with an earlier snapshot, because their scrubbers do not know the new values. Otherwise it ends only those that use a
// removed API.
func (e *Egress) CutStale(c reload.ReloadChange) {
	e.conf.Pool.RetireAll()
	isRemoved := func(a *catalog.API) bool { return c.Removed[a.Name] }
	e.mu.Lock()
	defer e.mu.Unlock()
	for x := range e.flight {
		// An exchange that asks a person takes the new snapshot afterwards.
		if !x.snap.asking && x.snap.Snapshot != c.Now && (c.NewValues || slices.ContainsFunc(x.verdict.APIs, isRemoved)) {
			x.cancel(errReloaded)
		}
	}
}
