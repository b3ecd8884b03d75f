// Package broker calls the tools of MCP servers for code. It starts servers in server slots on their first call, queues
// and checks calls, cancels them at the server, and stops idle and failing servers.
//
// Code reaches the broker only through the egress-proxy, which names the run that asks (package proxy/proxyapi). The
// broker reaches a server through the bridge in its slot, and trusts the bridge no more than the server (package
// bridgewire). It holds back tools that changed, until the user has accepted them.
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

	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// maxTimeout is the longest timeout that code may set for a call.
	maxTimeout = 15 * time.Minute
	// sweepTime is the interval between searches for idle servers.
	sweepTime = time.Second
)

// ErrFull is returned by a Launcher if all server slots are taken.
var ErrFull = errors.New("all server slots are taken")

// ErrNotInstalled is returned by a Launcher if a server's package is missing.
var ErrNotInstalled = errors.New("the package is not installed")

// Launcher starts bridges in server slots.
type Launcher interface {
	// Launch starts the bridge of a server for a tenant. An empty tenant means the operator.
	Launch(ctx context.Context, api proxyapi.API, tenant string) (Slot, error)
	// Install installs a server's package, and reports its progress in lines.
	Install(ctx context.Context, api proxyapi.API, progress func(string)) error
}

// Config configures a Broker. Functions are required, unless their comment permits nil.
type Config struct {
	Launcher Launcher
	// Slots is the number of server slots. The servers of one tenant get at most half of the slots, rounded up, at once. 0
	// sets no bound for tenants.
	Slots int
	// Catalog returns the current public catalog.
	Catalog func() proxyapi.Catalog
	// Session returns the MCP session of a run, while the run lasts.
	Session func(run string) (string, bool)
	// Ask puts a server's question to the user of the client that started a run.
	Ask func(ctx context.Context, run string, q userform.Question) (userform.Answer, error)
	// Progress reports the progress of a run's call to the client that started the run.
	Progress func(run, text string)
	// Tidy, if not nil, removes packages that no API names any more. The broker calls it after each change of the catalog,
	// never twice at once, and repeats the call as long as it returns true.
	Tidy func(context.Context) (again bool)
	// Called is called after each call. The outcome is "ok", "tool_error" or the code of a failure.
	Called func(server, outcome string, took time.Duration)
	// Started is called after each start of a server.
	Started func(server string, failed bool)
	// Pins is the folder of the tool definitions that the user has accepted. If empty, they are lost when the process
	// ends.
	Pins string
	Log  *slog.Logger
}

// Broker calls tools. Create it with New and end it with Close. It is an http.Handler for the proxy's requests.
type Broker struct {
	cfg    Config
	stash  stashStore
	memory *membudget.Budget
	// decoding is read-locked by each request that has memory for decoded values.
	decoding sync.RWMutex
	pins     acceptedStore

	printing sync.Mutex
	printed  map[string]*logTail // by server; guarded by printing

	ctx    context.Context
	cancel context.CancelFunc
	parts  sync.WaitGroup

	mu             sync.Mutex
	attributedCond *sync.Cond // signals a change of a count unattributed
	version        string     // of the catalog that servers come from
	servers        map[string]*configuredServer
	retired        map[*serverInstance]struct{} // instances that still have calls in flight
	runs           map[string]map[string]bool   // the servers that each run has used
	lentSessions   map[string]lentSession       // by run
	caused         map[string]*causedRequests   // by run
	limits         map[string]*callTimers       // by run, for runs with calls in flight
	running        int                          // instances whose slot is not free yet
	slotsByTenant  map[string]int               // by tenant: instances that hold a slot, or may take one
	free           chan struct{}                // closed and replaced when a slot may be free
	installs       map[string]*packageInstall   // by package, while they run, and for installPause after a failure
}

// New makes a broker.
func New(cfg Config) *Broker {
	ctx, cancel := context.WithCancel(context.Background())
	b := &Broker{
		cfg: cfg, ctx: ctx, cancel: cancel, servers: map[string]*configuredServer{},
		retired: map[*serverInstance]struct{}{}, memory: membudget.New(maxHolds),
		runs: map[string]map[string]bool{}, caused: map[string]*causedRequests{}, limits: map[string]*callTimers{},
		slotsByTenant: map[string]int{}, lentSessions: map[string]lentSession{},
		free: make(chan struct{}), installs: map[string]*packageInstall{},
		pins: acceptedStore{dir: cfg.Pins, loaded: map[string]*acceptedTools{}, said: map[string]string{}},
	}
	b.attributedCond = sync.NewCond(&b.mu)
	b.parts.Go(b.sweepRepeatedly)
	if cfg.Tidy != nil {
		b.parts.Go(b.tidyAfterChanges)
	}
	return b
}

// Close ends all servers and waits for them until ctx ends. It may not wait longer: sandboxd and the proxy, which free
// the slots, may already be gone.
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

// CountRunning returns the number of servers that run now.
func (b *Broker) CountRunning() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

// KnownTools returns the known tools of a server that code may call. It starts no server.
func (b *Broker) KnownTools(name string) (tools []toolsignature.Tool, known bool) {
	s := b.findServer(name)
	if s == nil {
		return nil, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.recallTools()
	return s.callableTools(s.tools), s.known
}

// LearnTools is KnownTools, but asks the server if the tools are unknown. The error is a sentence for a model.
func (b *Broker) LearnTools(ctx context.Context, name string) ([]toolsignature.Tool, error) {
	s := b.findServer(name)
	if s == nil {
		return nil, errors.New("there is no such server")
	}
	tools, f := s.learnTools(ctx)
	if f != nil {
		return nil, errors.New(f.message)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.callableTools(tools), nil
}

// callableTools returns the tools that the configuration allows and that are not held back. The caller holds Broker.mu.
func (s *configuredServer) callableTools(tools []*declaredTool) []toolsignature.Tool {
	var all []toolsignature.Tool
	for _, t := range tools {
		if s.mayCall(t) && t.held == "" {
			all = append(all, t.Tool)
		}
	}
	return all
}

// findServer returns a server of the catalog, or nil.
func (b *Broker) findServer(name string) *configuredServer {
	cat := b.cfg.Catalog()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adoptCatalog(cat)
	return b.servers[name]
}

// adoptCatalog adopts a new catalog. A server that was removed or configured differently ends after its calls in
// flight. The caller holds b.mu.
func (b *Broker) adoptCatalog(cat proxyapi.Catalog) {
	if cat.Version == b.version || b.ctx.Err() != nil {
		return
	}
	b.version = cat.Version
	old := b.servers
	b.servers = map[string]*configuredServer{}
	for _, api := range cat.APIs {
		if api.Server == nil {
			continue
		}
		digest := digestOf(api)
		// An unchanged server keeps its processes, so that a reload does not interrupt the work of other servers.
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
			b.retireInstance(i)
		}
	}
	// Instances of every earlier catalog are checked, because they may live on with a call in flight.
	for i := range b.retired {
		if next := b.servers[i.server.api.Name]; next != nil && serverIdentity(next.api) != serverIdentity(i.server.api) {
			// The proxy finds a slot's hosts by the API's name, which now has other hosts or belongs to another server.
			i.kill(errStopped)
		}
	}
}

// serverIdentity returns the settings that make a server a different one. Other settings may change without this.
func serverIdentity(api proxyapi.API) string {
	line, _ := json.Marshal([]any{api.Server.URL, api.Server.Package, api.Server.Command, api.Domains})
	return string(line)
}

// digestOf returns a digest of everything that a server is started with.
func digestOf(api proxyapi.API) string {
	line, _ := json.Marshal([]any{api.Server, api.Domains})
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// recordUse records that a run uses a server. It fails if the configuration excludes one of the run's other servers.
func (b *Broker) recordUse(run string, s *configuredServer) *callFailure {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Either server's configuration may name the other, so the check must not depend on the order of the calls.
	for _, other := range slices.Sorted(maps.Keys(b.runs[run])) {
		excluder := b.servers[other]
		if slices.Contains(s.spec.ExclusiveWith, other) ||
			excluder != nil && slices.Contains(excluder.spec.ExclusiveWith, s.api.Name) {
			return &callFailure{
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

// admitCall asks the server's breaker whether a call may be made.
func (b *Broker) admitCall(s *configuredServer) (ok, probe bool, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ok, probe = s.breaker.admitCall(time.Now())
	return ok, probe, s.breaker.until
}

func (b *Broker) recordResult(s *configuredServer, probe bool, f *callFailure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	// An error that the server itself answered proves that its process and connection work.
	case f == nil || f.code == serverError || f.code == resultTooLarge:
		s.breaker.resetFailures()
		s.problem = ""
	case f.transport:
		open := s.breaker.until
		s.breaker.countFailure(time.Now())
		if s.breaker.until != open {
			s.logWarning("the server keeps failing and is not called for a while", "error", f.message)
		}
	case probe:
		s.breaker.releaseProbe()
	}
}
