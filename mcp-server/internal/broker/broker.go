// Package broker calls the tools of MCP servers for code: it starts servers in server slots when they are first needed,
// queues and checks calls, cancels them for real, and stops what is idle or fails.
//
// Code reaches it through the egress-proxy alone, which says which run asks (package proxy/controlapi). A server is
// reached through a bridge in its slot, which is not trusted more than the server (package frame).
package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/question"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/signature"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// What holds where a configuration does not say.
const (
	defaultConcurrent     = 8
	defaultTimeout        = time.Minute
	defaultConnectTimeout = 30 * time.Second
	defaultIdle           = 10 * time.Minute
)

const (
	// maxTimeout is the longest that code may let a call take.
	maxTimeout = 15 * time.Minute
	// sweepTime is how often idle servers are looked for.
	sweepTime = time.Second
)

// ErrFull is a Launcher's answer when all server slots are taken.
var ErrFull = errors.New("all server slots are taken")

// ErrNotInstalled is a Launcher's answer when a server's package is missing.
var ErrNotInstalled = errors.New("the package is not installed")

// Launcher starts bridges in server slots.
type Launcher interface {
	// Launch starts the bridge of a server that works for a tenant; empty: for the operator.
	Launch(ctx context.Context, api controlapi.API, tenant string) (Slot, error)
	// Install installs a server's package and tells what it does in lines.
	Install(ctx context.Context, api controlapi.API, progress func(string)) error
}

// Config configures a Broker.
type Config struct {
	Launcher Launcher
	// Slots is how many server slots there are. The servers of a tenant have at most half of them, rounded up, at once.
	// 0: as many as are free.
	Slots int
	// Catalog is the current public catalog.
	Catalog func() controlapi.Catalog
	// Session is the MCP session of a run, while it runs. Nil means that every run is its own session, and never ends.
	Session func(run string) (string, bool)
	// Ask puts a server's question to the user of the client that a run belongs to. Nil means that nobody can be asked.
	Ask func(ctx context.Context, run string, q question.Question) (question.Answer, error)
	// Progress tells the client that a run belongs to how far a call of it is. Nil means that no client is told.
	Progress func(run, text string)
	// Definitions is the folder, mcp-server's alone, in which definitions of tools are remembered. Empty: they are not,
	// after a restart.
	Definitions string
	// Tidy, if not nil, is called after each change of the catalog, once nothing else does that: it removes packages that
	// no API names any more. It is called again while it says so.
	Tidy func(context.Context) (again bool)
	// Called, if not nil, is notified of finished calls: the outcome is "ok", "tool_error" or a failure's code.
	Called func(server, outcome string, took time.Duration)
	// Started, if not nil, is notified of starts of servers.
	Started func(server string, failed bool)
	// Pins is the folder of the definitions of tools that the user has accepted. Empty: they are forgotten with the
	// process.
	Pins string
	Log  *slog.Logger
}

// Broker calls tools. Make it with New, end it with Close. It is an http.Handler for the proxy's requests.
type Broker struct {
	cfg        Config
	remembered remembered
	stash      stashes
	memory     *membudget.Budget
	pins       pins

	printing sync.Mutex
	printed  map[string]*printed // by server; guarded by printing

	ctx    context.Context
	cancel context.CancelFunc
	parts  sync.WaitGroup

	mu       sync.Mutex
	tellings *sync.Cond // an instance's untold has changed
	version  string     // of the catalog that servers are of
	servers  map[string]*server
	retired  map[*instance]struct{}     // those that still have calls in flight
	runs     map[string]map[string]bool // the servers that each run has used
	lent     map[string]sessionLent     // by run
	caused   map[string]*causes         // by run
	limits   map[string]*limits         // by run, of those with calls in flight
	running  int                        // instances that are not yet over
	seats    map[string]int             // by tenant: instances that have a slot, or may take one
	free     chan struct{}              // closed and made anew when a slot may be free
	installs map[string]*installation   // by package, while they run, and for installPause after a failure
}

// New makes a broker.
func New(cfg Config) *Broker {
	if cfg.Session == nil {
		cfg.Session = func(run string) (string, bool) { return run, true }
	}
	if cfg.Called == nil {
		cfg.Called = func(string, string, time.Duration) {}
	}
	if cfg.Started == nil {
		cfg.Started = func(string, bool) {}
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string, string) {}
	}
	if cfg.Ask == nil {
		cfg.Ask = func(context.Context, string, question.Question) (question.Answer, error) {
			return question.Answer{}, question.ErrNobody
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Broker{
		cfg: cfg, remembered: remembered(cfg.Definitions), ctx: ctx, cancel: cancel, servers: map[string]*server{},
		retired: map[*instance]struct{}{}, memory: membudget.New(maxHolds),
		runs: map[string]map[string]bool{}, caused: map[string]*causes{}, limits: map[string]*limits{},
		seats: map[string]int{},
		free:  make(chan struct{}), installs: map[string]*installation{},
		pins: pins{dir: cfg.Pins, loaded: map[string]*pinned{}, said: map[string]string{}},
	}
	b.tellings = sync.NewCond(&b.mu)
	b.parts.Go(b.sweep)
	if cfg.Tidy != nil {
		b.parts.Go(b.tidy)
	}
	return b
}

// Close ends all servers and waits for them, at most until ctx ends: who frees their slots may have gone already.
func (b *Broker) Close(ctx context.Context) {
	b.cancel()
	b.mu.Lock()
	for _, s := range b.servers {
		s.closed = true
		for _, i := range s.instances {
			i.kill(errStopped)
		}
	}
	b.mu.Unlock()
	over := make(chan struct{})
	go func() {
		b.parts.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// Running is how many servers run now.
func (b *Broker) Running() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

// Tools are the tools of a server that code may call, as far as they are known. Nothing is started.
func (b *Broker) Tools(name string) (tools []signature.Tool, known bool) {
	s := b.server(name)
	if s == nil {
		return nil, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.recall()
	return s.callable(s.tools), s.known
}

// Learn is Tools, but asks the server if they are not known. The error is a sentence for a model.
func (b *Broker) Learn(ctx context.Context, name string) ([]signature.Tool, error) {
	s := b.server(name)
	if s == nil {
		return nil, errors.New("there is no such server")
	}
	tools, f := s.learn(ctx)
	if f != nil {
		return nil, errors.New(f.message)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.callable(tools), nil
}

// callable are the tools that the configuration allows and that are not held back. Broker.mu is held.
func (s *server) callable(tools []*tool) []signature.Tool {
	var all []signature.Tool
	for _, t := range tools {
		if s.may(t) && t.held == "" {
			all = append(all, t.Tool)
		}
	}
	return all
}

// server is a server of the catalog, or nil.
func (b *Broker) server(name string) *server {
	cat := b.cfg.Catalog()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.follow(cat)
	return b.servers[name]
}

// follow takes over another catalog: servers that are no longer in it, or are configured otherwise, end when their
// calls in flight have. b.mu is held.
func (b *Broker) follow(cat controlapi.Catalog) {
	if cat.Version == b.version || b.ctx.Err() != nil {
		return
	}
	b.version = cat.Version
	old := b.servers
	b.servers = map[string]*server{}
	for _, api := range cat.APIs {
		if api.Server == nil {
			continue
		}
		digest := digestOf(api)
		if s := old[api.Name]; s != nil && s.digest == digest {
			b.servers[api.Name] = s
			delete(old, api.Name)
			continue
		}
		b.servers[api.Name] = newServer(b, api, digest)
	}
	for name, s := range old {
		if b.servers[name] == nil {
			b.printing.Lock()
			delete(b.printed, name)
			b.printing.Unlock()
		}
		s.closed = true
		for _, i := range s.instances {
			b.retire(i)
		}
	}
	for i := range b.retired { // of whatever catalog
		if next := b.servers[i.server.api.Name]; next != nil && identity(next.api) != identity(i.server.api) {
			// The proxy knows its slot by the API's name, which now has other hosts or is another server's.
			i.kill(errStopped)
		}
	}
	if err := b.remembered.forget(b.servers); err != nil {
		b.cfg.Log.Warn("definitions of tools could not be removed", logline.Tag("server"), slog.Any("error", err))
	}
}

// identity is what makes a server another one, however it is set.
func identity(api controlapi.API) string {
	line, _ := json.Marshal([]any{api.Server.URL, api.Server.Package, api.Server.Command, api.Domains})
	return string(line)
}

// digestOf is a digest of all that a server is started with.
func digestOf(api controlapi.API) string {
	line, _ := json.Marshal([]any{api.Server, api.Domains})
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// use notes that a run uses a server, unless that excludes it from one that the run has used.
func (b *Broker) use(run string, s *server) *failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, other := range slices.Sorted(maps.Keys(b.runs[run])) {
		if excludes(s.spec, other) || (b.servers[other] != nil && excludes(b.servers[other].spec, s.api.Name)) {
			return &failure{
				code: exclusive, message: "this run has used " + other + ", which may not be used in the same run as " + s.api.Name,
				hint: "Use them in two runs of execute_code.",
			}
		}
	}
	if b.runs[run] == nil {
		b.runs[run] = map[string]bool{}
	}
	b.runs[run][s.api.Name] = true
	return nil
}

func excludes(spec controlapi.Server, other string) bool {
	return slices.Contains(spec.ExclusiveWith, other)
}

// admit asks the server's breaker.
func (b *Broker) admit(s *server) (ok, probe bool, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ok, probe = s.breaker.admit(time.Now())
	return ok, probe, s.breaker.until
}

// learn tells the server's breaker how a call went.
func (b *Broker) learn(s *server, probe bool, f *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case f == nil || f.code == serverError || f.code == resultTooLarge:
		s.breaker.succeeded()
		s.problem = ""
	case f.transport:
		open := s.breaker.until
		s.breaker.failed(time.Now())
		if s.breaker.until != open {
			s.warn("the server keeps failing and is not called for a while", "error", f.message)
		}
	case probe:
		s.breaker.released()
	}
}
