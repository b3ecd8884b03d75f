// Package fakepeers has substitutes for sandboxd and egress-proxy, for tests. They are small servers that keep the
// contracts of sandboxapi and proxyapi, with leases, generations and registrations. Code runs in real Deno if a test
// asks for it. Tests of the whole system use the real binaries.
package fakepeers

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Script is the work of a run: it emits output and returns the exit.
type Script func(ctx context.Context, r sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit

// FakeSandbox is a substitute for sandboxd.
type FakeSandbox struct {
	// Socket is the path on which it listens.
	Socket string
	// Ahead grants leases ahead as long as another slot stays free. Set it before the first lease.
	Ahead bool
	// Script is the work of every run. Set it before the first run, or with SetScript if the client is another process.
	Script Script

	tb     testing.TB
	server *sandboxapi.Server

	mu         sync.Mutex
	slots      int
	generation uint64
	leases     map[uint64]slot.ID
	hash       string
	allow      []string
	packages   string
	running    int
	most       int
	journal    []string
}

// NewSandbox starts a Sandbox with a number of slots. It ends with the test.
func NewSandbox(tb testing.TB, slots int) *FakeSandbox {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sbx")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &FakeSandbox{tb: tb, Socket: filepath.Join(dir, "s"), slots: slots, leases: map[uint64]slot.ID{}}
	s.Script = func(context.Context, sandboxapi.RunRequest, func(sandboxapi.Event)) sandboxapi.Exit {
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
	s.Start()
	tb.Cleanup(s.Stop)
	return s
}

// InstallPackages makes the packages for code the only ones that are installed.
func (s *FakeSandbox) InstallPackages(packages []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packages = sandboxapi.PackageSet(packages)
}

// Start listens, even after Stop. Earlier leases, permissions and runs are gone. Generations keep growing.
func (s *FakeSandbox) Start() {
	s.tb.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", s.Socket)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.mu.Lock()
	s.leases, s.hash = map[uint64]slot.ID{}, ""
	s.mu.Unlock()
	s.server = sandboxapi.NewServer(sandboxapi.ServerConfig{
		Sandbox: fakePool{FakeSandbox: s}, Log: slog.New(slog.DiscardHandler),
	})
	go func() { _ = s.server.Serve(l, nil) }()
}

// Stop closes it at once.
func (s *FakeSandbox) Stop() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.server.Shutdown(now)
}

// Dial connects to it, for sandboxapi.ClientConfig.
func (s *FakeSandbox) Dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", s.Socket)
}

// CountLeased returns the number of leases.
func (s *FakeSandbox) CountLeased() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.leases)
}

// WaitForReleases is CountLeased after the last run: it waits for releases in progress.
func (s *FakeSandbox) WaitForReleases() int {
	for deadline := time.Now().Add(time.Second); s.CountLeased() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	return s.CountLeased()
}

// MostRuns returns the highest number of simultaneous runs.
func (s *FakeSandbox) MostRuns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// AllowedHosts returns the permission set.
func (s *FakeSandbox) AllowedHosts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allow
}

// Journal lists the requests so far: "lease 1", "run 1", "exit 1", "release 1".
func (s *FakeSandbox) Journal() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.journal...)
}

// ForgetAll empties the journal.
func (s *FakeSandbox) ForgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal = nil
}

func (s *FakeSandbox) recordRequest(what string, generation uint64) {
	s.journal = append(s.journal, what+" "+strconv.FormatUint(generation, 10))
}

// SetScript sets Script for all later runs.
func (s *FakeSandbox) SetScript(script Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Script = script
}

// fakePool implements the part of sandboxapi.Sandbox that runs need.
type fakePool struct {
	sandboxapi.Sandbox // nil: tests use no other method
	*FakeSandbox
}

func (s fakePool) Acquire(_ context.Context, req sandboxapi.LeaseRequest) (sandboxapi.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Ahead && (!s.Ahead || len(s.leases) >= s.slots-1) {
		return sandboxapi.Lease{}, sandboxapi.ErrBusy
	}
	taken := slices.Collect(maps.Values(s.leases))
	for id := range slot.ID(s.slots) {
		if !slices.Contains(taken, id) {
			s.generation++
			s.leases[s.generation] = id
			s.recordRequest("lease", s.generation)
			return sandboxapi.Lease{Slot: id, Generation: s.generation, Taken: len(s.leases)}, nil
		}
	}
	return sandboxapi.Lease{}, sandboxapi.ErrBusy
}

func (s fakePool) Release(generation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.leases[generation]; !ok {
		return sandboxapi.ErrLeaseGone
	}
	delete(s.leases, generation)
	s.recordRequest("release", generation)
	return nil
}

func (s fakePool) SetPermissions(p sandboxapi.Permissions) (sandboxapi.PermissionSet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if set := sandboxapi.PackageSet(p.Packages); set != s.packages && set != "" {
		return sandboxapi.PermissionSet{}, sandboxapi.ErrNotInstalled
	}
	s.allow, s.hash = p.AllowNet, "h:"+strings.Join(p.AllowNet, ",")
	return sandboxapi.PermissionSet{Hash: s.hash, AllowNet: p.AllowNet}, nil
}

func (s fakePool) Health() sandboxapi.Health { return sandboxapi.Health{Ready: true, Slots: s.slots} }

func (s fakePool) Run(ctx context.Context, r sandboxapi.RunRequest, out sandboxapi.Output) (sandboxapi.Exit, error) {
	script, err := s.beginRun(r)
	if err != nil {
		return sandboxapi.Exit{}, err
	}
	exit := script(ctx, r, func(e sandboxapi.Event) { _ = out.Send(e) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.recordRequest("exit", r.Generation)
	return exit, nil
}

// beginRun checks a run's generation and permissions, and counts the run. It returns the run's work.
func (s *FakeSandbox) beginRun(r sandboxapi.RunRequest) (Script, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.leases[r.Generation]; !ok {
		return nil, sandboxapi.ErrLeaseGone
	}
	if r.Permissions != s.hash {
		return nil, sandboxapi.ErrPermissions
	}
	s.running++
	s.most = max(s.most, s.running)
	s.recordRequest("run", r.Generation)
	return s.Script, nil
}
