// Package fakepeers has substitutes for sandboxd and egress-proxy, for tests. They are small servers that keep the
// contracts of sandboxapi and proxyapi, with leases, generations and registrations. Code runs in real Deno if a test
// asks for it. Tests of the whole system use the real binaries.
package fakepeers

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
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
	server *http.Server

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
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/leases", s.handleAcquire)
	mux.HandleFunc("DELETE /v1/leases/{generation}", s.handleRelease)
	mux.HandleFunc("PUT /v1/permissions", s.handlePermissions)
	mux.HandleFunc("POST /v1/runs", s.handleRun)
	mux.HandleFunc("GET /v1/health", func(w http.ResponseWriter, _ *http.Request) {
		rpc.WriteAnswer(w, http.StatusOK, sandboxapi.Health{Ready: true, Slots: s.slots})
	})
	s.mu.Lock()
	s.leases, s.hash = map[uint64]slot.ID{}, ""
	s.mu.Unlock()
	s.server = &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.server.Serve(l) }()
}

// Stop closes it at once.
func (s *FakeSandbox) Stop() { _ = s.server.Close() }

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

func (s *FakeSandbox) handleAcquire(w http.ResponseWriter, r *http.Request) {
	var req sandboxapi.LeaseRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		rpc.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Ahead && (!s.Ahead || len(s.leases) >= s.slots-1) {
		rpc.WriteRefusal(w, sandboxapi.ErrBusy)
		return
	}
	taken := map[slot.ID]bool{}
	for _, id := range s.leases {
		taken[id] = true
	}
	for id := range slot.ID(s.slots) {
		if taken[id] {
			continue
		}
		s.generation++
		s.leases[s.generation] = id
		s.recordRequest("lease", s.generation)
		rpc.WriteAnswer(w, http.StatusOK, sandboxapi.Lease{Slot: id, Generation: s.generation, Taken: len(s.leases)})
		return
	}
	rpc.WriteRefusal(w, sandboxapi.ErrBusy)
}

func (s *FakeSandbox) handleRelease(w http.ResponseWriter, r *http.Request) {
	g, _ := strconv.ParseUint(r.PathValue("generation"), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.leases[g]; !ok {
		rpc.WriteRefusal(w, sandboxapi.ErrLeaseGone)
		return
	}
	delete(s.leases, g)
	s.recordRequest("release", g)
	w.WriteHeader(http.StatusNoContent)
}

func (s *FakeSandbox) handlePermissions(w http.ResponseWriter, r *http.Request) {
	var p sandboxapi.Permissions
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		rpc.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if set := sandboxapi.PackageSet(p.Packages); set != s.packages && set != "" {
		rpc.WriteRefusal(w, sandboxapi.ErrNotInstalled)
		return
	}
	s.allow, s.hash = p.AllowNet, "h:"+strings.Join(p.AllowNet, ",")
	rpc.WriteAnswer(w, http.StatusOK, sandboxapi.PermissionSet{Hash: s.hash, AllowNet: p.AllowNet})
}

// beginRun checks a run's generation and permissions, and counts the run.
func (s *FakeSandbox) beginRun(r sandboxapi.RunRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.leases[r.Generation]; !ok {
		return sandboxapi.ErrLeaseGone
	}
	if r.Permissions != s.hash {
		return sandboxapi.ErrPermissions
	}
	s.running++
	s.most = max(s.most, s.running)
	s.recordRequest("run", r.Generation)
	return nil
}

// SetScript sets Script for all later runs.
func (s *FakeSandbox) SetScript(script Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Script = script
}

func (s *FakeSandbox) handleRun(w http.ResponseWriter, req *http.Request) {
	var r sandboxapi.RunRequest
	if err := json.NewDecoder(req.Body).Decode(&r); err != nil {
		rpc.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := s.beginRun(r); err != nil {
		rpc.WriteRefusal(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	enc := json.NewEncoder(w)
	exit := s.Script(req.Context(), r, func(e sandboxapi.Event) {
		var data []byte
		if e.File != nil {
			data = e.File.Data
		}
		_ = enc.Encode(struct {
			sandboxapi.Event
			FileBytes int `json:"file_bytes,omitempty"`
		}{e, len(data)})
		_, _ = w.Write(data)
		_ = http.NewResponseController(w).Flush()
	})
	s.mu.Lock()
	s.running--
	s.recordRequest("exit", r.Generation)
	s.mu.Unlock()
	_ = enc.Encode(sandboxapi.Event{Exit: &exit})
}
