// Package pool owns the slots. It knows which are leased, which interpreters wait warm in them, and when a slot may be
// used again.
//
// The end of a lease frees a slot, not the end of its run. A lease can end without Release: its connection closed, or
// it was unused for too long. Its slot then stays in quarantine for a moment, because the holder may still use the
// slot.
package pool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/generation"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/output"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/serverslot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Config configures a Pool.
type Config struct {
	// Slots is the number of slots. Warm and WarmPython are the numbers of Deno and Python interpreters that wait in free
	// slots.
	Slots, Warm, WarmPython int
	Jail                    jail.Jail
	Generations             *generation.Counter
	Keep                    *output.RunFiles
	// CA is the file of the certificate that interpreters trust. If it changes, the pool replaces them.
	CA string
	// Memory limits a run's memory, Output its printed output, both in bytes.
	Memory, Output int64
	Servers        Servers
	// Quota bounds the files that a run leaves in shared directories.
	Quota *quota.Meter
	// LeaseIdle limits how long a lease may be held without a run. Zero means 30 s.
	LeaseIdle time.Duration
	// TZ is the interpreters' time zone. Health reports Deno, Version and Python.
	TZ, Deno, Version string
	// TypeScript is the version of the compiler, or empty if there is no compiler.
	TypeScript string
	// Python reports whether runs can use Python.
	Python sandboxapi.Python
	// Folders are the folders of the host.
	Folders []jail.Folder
	// Canaries puts a canary into each slot.
	Canaries bool
	Log      *slog.Logger
}

const (
	defaultLeaseIdle = 30 * time.Second
	// aheadIdle limits how long a lease ahead may be held. Usually its holder releases it, or its connection closes,
	// sooner.
	aheadIdle  = time.Hour
	quarantine = time.Second
	tick       = time.Second
	maxBackoff = 5 * time.Second
)

// Pool implements sandboxapi.Sandbox.
type Pool struct {
	cfg  Config
	work sync.WaitGroup // every goroutine of the pool
	stop chan struct{}

	mu     sync.Mutex
	closed bool
	// draining refuses leases for runs.
	draining bool
	slots    []*slotState // for runs
	servers  []*slotState // for MCP servers
	leases   map[uint64]*slotState
	set      hostSet
	packages codePackages
	ca       string // hash of the CA file; empty if the file is missing
	problem  error  // why the last interpreter did not start, or errFirst
	backoff  time.Duration
	retryAt  time.Time
	python   pythonState
	next     runKind // of waiting interpreters: that of the last lease, and pinned as the last run of TypeScript

	runs uint64
}

// runKind are the properties of a run for which an interpreter is prepared.
type runKind struct {
	private bool // the run shares no file with others
	pinned  bool // it imports pinned skills
	folders []jail.Folder
}

// slotState is one slot, for runs or for MCP servers.
type slotState struct {
	id         slot.ID
	lease      uint64  // 0: free, or in quarantine
	python     bool    // the lease is for a run of Python
	ahead      bool    // the lease is for a future run
	kind       runKind // of the lease; pinned is a guess until the run begins
	quarantine bool
	// broken is why the slot is out of use: a process could not be killed, or see Pool.retryRemoval.
	broken  error
	used    bool               // the lease has had its run
	canary  string             // of the next or current run; empty: no canary
	running chan struct{}      // closed when the run, or a discarded interpreter, has ended; nil if there is neither
	cancel  context.CancelFunc // of the run
	pauses  chan bool          // to the run
	idle    *time.Timer
	// forgetOwner stops watching the connection that owns the lease.
	forgetOwner func() bool

	warm   *warmInterpreter          // for a run
	server *serverslot.RunningServer // for an MCP server, while its program runs
}

// errFirst means that no interpreter has started yet. The first start can fail even if the configuration is right.
var errFirst = errors.New("the first interpreter is starting")

// New makes a pool and starts its warm interpreters. The pool is ready when one interpreter waits for code.
func New(cfg Config) *Pool {
	cfg.LeaseIdle = cmp.Or(cfg.LeaseIdle, defaultLeaseIdle)
	p := &Pool{cfg: cfg, stop: make(chan struct{}), leases: map[uint64]*slotState{}}
	p.next.folders = cfg.Folders
	p.packages, _ = p.holdCodePackages(nil)
	if cfg.Warm > 0 {
		p.problem = errFirst
	}
	for n := range cfg.Slots {
		p.slots = append(p.slots, &slotState{id: slot.ID(n), canary: p.newCanary()})
	}
	for n := range cfg.Servers.Slots {
		p.servers = append(p.servers, &slotState{id: slot.ID(slot.Max + n)})
	}
	p.mu.Lock()
	p.ca = hashFile(cfg.CA)
	p.refillWarm()
	p.mu.Unlock()
	p.work.Go(p.runMaintenance)
	if cfg.WarmPython > 0 && cfg.Python.Version != "" {
		p.work.Go(p.preparePython)
	}
	return p
}

// runMaintenance runs every tick. It notices a changed CA and retries interpreters that failed to start.
func (p *Pool) runMaintenance() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-t.C:
			ca := hashFile(p.cfg.CA)
			p.mu.Lock()
			// A new CA may be what failed starts lacked, so retry at once.
			if ca != p.ca {
				p.ca = ca
				p.retryAt, p.python.retryAt = time.Time{}, time.Time{}
			}
			p.refillWarm()
			p.mu.Unlock()
		}
	}
}

// hashFile returns the hash of a file's content, or "" if the file is empty or cannot be read.
func hashFile(path string) string {
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return ""
	}
	sum := sha256.Sum256(data)
	return string(sum[:])
}

// Close ends every run and every interpreter, and waits for them.
func (p *Pool) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.stop)
	// Runs end first: work.Wait below waits for their goroutines.
	for _, s := range slices.Concat(p.slots, p.servers) {
		p.endLease(s, false)
	}
	p.mu.Unlock()
	p.work.Wait()
	var errs []error
	for _, s := range p.slots {
		if s.warm != nil {
			errs = append(errs, s.warm.Close())
		}
	}
	return errors.Join(errs...)
}

// interpreterKey identifies the current permissions and CA, the folders of the slot's run, and whether that run is
// private or has pinned skills.
// An interpreter prepared with another key is outdated. Python has neither permissions nor an import map.
func (p *Pool) interpreterKey(s *slotState, python bool) string {
	key, kind := p.permissionHash()+p.ca, p.kindOf(s)
	if python {
		key = "python" + p.packages.python.interpreterKey() + p.ca
	} else if kind.pinned {
		key = "pinned" + key
	}
	if kind.private {
		key = "private" + key
	}
	return jail.FolderNames(kind.folders) + "|" + key
}

// kindOf returns the kind of an interpreter for the slot. The caller holds p.mu.
func (p *Pool) kindOf(s *slotState) runKind {
	if s.lease != 0 {
		return s.kind
	}
	return p.next
}

// SetPermissions implements sandboxapi.Sandbox.
func (p *Pool) SetPermissions(r sandboxapi.Permissions) (sandboxapi.PermissionSet, error) {
	set, err := parseHosts(r.AllowNet)
	if err != nil {
		return sandboxapi.PermissionSet{}, fmt.Errorf("%w: %w", sandboxapi.ErrBadRequest, err)
	}
	packages, err := p.holdCodePackages(r.Packages)
	if err != nil {
		return sandboxapi.PermissionSet{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packages.release()
	p.set, p.packages = set, packages
	p.refillWarm()
	return sandboxapi.PermissionSet{Hash: p.permissionHash(), AllowNet: set.SortedHosts()}, nil
}

// Health implements sandboxapi.Sandbox.
func (p *Pool) Health() sandboxapi.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := sandboxapi.Health{
		Slots: p.cfg.Slots, Servers: p.cfg.Servers.Slots, ServersProblem: p.cfg.Servers.Problem,
		Deno: p.cfg.Deno, TypeScript: p.cfg.TypeScript, Version: p.cfg.Version, Python: p.cfg.Python,
		Folders: convert.Each(p.cfg.Folders, func(f jail.Folder) sandboxapi.Folder { return f.Folder }),
	}
	usable := 0
	for _, s := range p.slots {
		if s.broken == nil {
			usable++
		}
	}
	switch {
	case p.closed:
		h.Problem = "sandboxd is stopping"
	case p.ca == "":
		h.Problem = "there is no CA certificate at " + p.cfg.CA + " yet"
	case usable == 0:
		h.Problem = "every slot is out of use"
	case p.problem != nil:
		h.Problem = p.problem.Error()
	default:
		h.Ready = true
	}
	return h
}

// Stats implements sandboxapi.Sandbox.
func (p *Pool) Stats() sandboxapi.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := sandboxapi.Stats{
		Slots: len(p.slots), Runs: p.runs, Generation: p.cfg.Generations.Last(),
	}
	for _, s := range p.slots {
		if s.quarantine || s.broken != nil {
			st.Quarantined++
		}
		switch {
		case s.ahead:
			st.Ahead++
		case s.lease != 0:
			st.Leased++
		}
		if s.canReplace() && s.warm != nil && s.isReady(p.interpreterKey(s, s.warm.python)) {
			st.Warm++
		}
	}
	st.Servers = len(p.servers)
	for _, s := range p.servers {
		if s.lease != 0 {
			st.ServersLeased++
		}
		if s.server != nil {
			st.ServersMemory += s.server.Memory()
		}
	}
	return st
}
