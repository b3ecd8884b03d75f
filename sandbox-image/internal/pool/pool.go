// Package pool owns the slots: who holds a lease on which, which interpreters wait warm in them, and when a slot may be
// used again.
//
// The end of a run does not free its slot, the end of its lease does. A lease that ends any other way than by Release
// (its connection went away, or nothing was asked of it for too long) leaves its slot in quarantine for a moment,
// since somebody may still believe in it.
package pool

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/generation"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/output"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/permission"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// Config configures a Pool.
type Config struct {
	// Slots is how many there are, Warm how many interpreters wait in free ones.
	Slots, Warm int
	Jail        jail.Jail
	Generations *generation.Counter
	Keep        *output.Keep
	// CA is the file that interpreters trust; they are replaced when it changes.
	CA string
	// Memory is a run's limit in bytes; Output how many bytes a run may print.
	Memory, Output int64
	// Quota bounds what a run leaves in shared directories.
	Quota *quota.Meter
	// LeaseIdle is how long a lease may be held without a run. Zero means 30 s.
	LeaseIdle time.Duration
	// TZ is the interpreters' time zone; Deno and Version are told by Health.
	TZ, Deno, Version string
	Log               *slog.Logger
}

const (
	defaultLeaseIdle = 30 * time.Second
	// aheadIdle is how long a lease ahead may be held. Who holds it gives it back sooner, or its connection ends.
	aheadIdle  = time.Hour
	quarantine = time.Second
	tick       = time.Second
	maxBackoff = 5 * time.Second
)

// Pool is the sandbox that runapi serves.
type Pool struct {
	cfg  Config
	work sync.WaitGroup // every goroutine of the pool
	stop chan struct{}

	mu      sync.Mutex
	closed  bool
	seats   []*seat
	leases  map[uint64]*seat
	set     permission.Set
	ca      string // hash of the CA file, empty while there is none
	problem error  // why the last interpreter did not start
	backoff time.Duration
	retryAt time.Time

	runs, warmRuns uint64
}

// seat is one slot.
type seat struct {
	id         slot.ID
	lease      uint64 // 0: free, or in quarantine
	ahead      bool   // the lease is for a run that is not there yet
	quarantine bool
	broken     error // something of the slot could not be ended: it is never used again
	used       bool  // the lease has had its run
	running    chan struct{}
	cancel     context.CancelFunc // of the run
	idle       *time.Timer
	unown      func() bool

	warm *warm
}

// New makes a pool and starts its warm interpreters.
func New(cfg Config) *Pool {
	if cfg.LeaseIdle == 0 {
		cfg.LeaseIdle = defaultLeaseIdle
	}
	p := &Pool{cfg: cfg, stop: make(chan struct{}), leases: map[uint64]*seat{}}
	for n := range cfg.Slots {
		p.seats = append(p.seats, &seat{id: slot.ID(n)})
	}
	p.mu.Lock()
	p.ca = hashFile(cfg.CA)
	p.refill()
	p.mu.Unlock()
	p.work.Go(p.tend)
	return p
}

// tend looks now and then for a changed CA, and for interpreters that could not be started before.
func (p *Pool) tend() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-t.C:
			ca := hashFile(p.cfg.CA)
			p.mu.Lock()
			if ca != p.ca {
				p.ca = ca
				p.retryAt = time.Time{}
			}
			p.refill()
			p.mu.Unlock()
		}
	}
}

// hashFile names a file's content, empty when it cannot be read.
func hashFile(path string) string {
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return ""
	}
	sum := sha256.Sum256(data)
	return string(sum[:])
}

// Close ends every run and every interpreter, and waits for all of it.
func (p *Pool) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.stop)
	for _, s := range p.seats {
		p.endLease(s, false)
	}
	p.mu.Unlock()
	p.work.Wait()
	var errs []error
	for _, s := range p.seats {
		if s.warm != nil {
			errs = append(errs, s.warm.Close())
		}
	}
	return errors.Join(errs...)
}

// key is what an interpreter must have been started with to be of use now.
func (p *Pool) key() string { return p.set.Hash() + p.ca }

// SetPermissions implements runapi.Sandbox.
func (p *Pool) SetPermissions(r runapi.Permissions) (runapi.PermissionSet, error) {
	set, err := permission.Parse(r.AllowNet)
	if err != nil {
		return runapi.PermissionSet{}, fmt.Errorf("%w: %w", runapi.ErrBadRequest, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = set
	p.refill()
	return runapi.PermissionSet{Hash: set.Hash(), AllowNet: set.Hosts()}, nil
}

// Health implements runapi.Sandbox.
func (p *Pool) Health() runapi.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := runapi.Health{Slots: p.cfg.Slots, Deno: p.cfg.Deno, Version: p.cfg.Version}
	usable := 0
	for _, s := range p.seats {
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

// Stats implements runapi.Sandbox.
func (p *Pool) Stats() runapi.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := runapi.Stats{
		Slots: len(p.seats), Runs: p.runs, WarmRuns: p.warmRuns,
		Generation: p.cfg.Generations.Last(),
	}
	for _, s := range p.seats {
		if s.quarantine || s.broken != nil {
			st.Quarantined++
		}
		switch {
		case s.ahead:
			st.Ahead++
		case s.lease != 0:
			st.Leased++
		}
		if s.open() && s.ready(p.key()) {
			st.Warm++
		}
	}
	return st
}
