package sandboxfleet_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandbox"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandboxfleet"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// The simulated cluster: 125 pods of 8 slots on 25 nodes, for three mcp-servers.
const (
	nodes, podsPerNode, slotsPerPod = 25, 5, 8
	allSlots                        = nodes * podsPerNode * slotsPerPod
	servers                         = 3
	nodeVar                         = "CODEFORGE_FLEET_NODE"
)

// TestNode is a node: a process that TestThousandSlots starts. It prints the ports of its pods, then each run it gets.
func TestNode(t *testing.T) {
	if os.Getenv(nodeVar) == "" {
		return
	}
	for range podsPerNode {
		s, p := fakepeers.NewSandbox(t, slotsPerPod), fakepeers.NewProxy(t, proxyapi.API{Name: "a", Domains: []string{"a.example.com"}})
		s.SetScript(func(_ context.Context, r sandboxapi.RunRequest, _ func(sandboxapi.Event)) sandboxapi.Exit {
			fmt.Printf("run %s\n", r.Code)
			time.Sleep(200 * time.Millisecond)
			return sandboxapi.Exit{Reason: sandboxapi.Exited}
		})
		var ports [2]int
		for i, socket := range []string{s.Socket, p.Socket} {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
			testkit.Must(t, err)
			ports[i] = l.Addr().(*net.TCPAddr).Port
			go relay(l, socket)
		}
		fmt.Printf("pod %d %d\n", ports[0], ports[1])
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	os.Exit(0)
}

func relay(l net.Listener, socket string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			to, err := (&net.Dialer{}).DialContext(context.Background(), "unix", socket)
			if err != nil {
				return
			}
			defer to.Close()
			go func() { _, _ = io.Copy(c, to); _ = c.Close() }()
			_, _ = io.Copy(to, c)
		}()
	}
}

// node is a process with pods.
type node struct {
	cmd    *exec.Cmd
	slices []string // EndpointSlices, as JSON
}

// simulation is nodes, and an API server that knows their slices.
type simulation struct {
	nodes []*node

	mu      sync.Mutex
	ran     map[string]int // how often each run arrived
	gone    []string       // slices that were deleted, in order
	changed chan struct{}  // closed when a slice is
}

// startNode starts one, and reads what it prints.
func (s *simulation) startNode(t *testing.T, number int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNode$") //nolint:gosec // ourselves
	cmd.Env = append(os.Environ(), nodeVar+"=1", "TMPDIR="+t.TempDir())         // a node that is killed removes nothing
	_, err := cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	n := &node{cmd: cmd}
	s.nodes = append(s.nodes, n)
	lines := bufio.NewScanner(out)
	for len(n.slices) < podsPerNode && lines.Scan() {
		var runs, control int
		if k, _ := fmt.Sscanf(lines.Text(), "pod %d %d", &runs, &control); k != 2 { //nolint:mnd // two ports
			t.Fatalf("a node prints %q", lines.Text())
		}
		n.slices = append(n.slices, fmt.Sprintf(`{"metadata":{"name":"slice-%[1]d-%[2]d","resourceVersion":"1"},"addressType":"IPv4",
			"ports":[{"name":"runs","port":%[3]d},{"name":"control","port":%[4]d}],
			"endpoints":[{"addresses":["127.0.0.1"],"conditions":{"ready":true},"targetRef":{"uid":"pod-%[1]d-%[2]d"}}]}`, number, len(n.slices), runs, control))
	}
	go func() {
		for lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "run "); ok {
				s.mu.Lock()
				s.ran[id]++
				s.mu.Unlock()
			}
		}
	}()
}

// ServeHTTP is the API server: a list, and a watch that tells of slices that go.
func (s *simulation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		var all []string
		for _, n := range s.nodes {
			all = append(all, n.slices...)
		}
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1"},"items":[%s]}`, strings.Join(all, ","))
		return
	}
	for told := 0; ; {
		s.mu.Lock()
		gone, changed := s.gone[told:], s.changed
		s.mu.Unlock()
		for _, slice := range gone {
			fmt.Fprintf(w, `{"type":"DELETED","object":%s}`+"\n", slice)
		}
		told += len(gone)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// kill ends nodes at once. The API server hears of it later.
func (s *simulation) kill(dead []*node) {
	for _, n := range dead {
		_ = n.cmd.Process.Kill()
	}
	time.Sleep(300 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range dead {
		s.gone = append(s.gone, n.slices...)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// TestThousandSlots: three mcp-servers share 1,000 slots in processes that they know of by hand-written EndpointSlices.
// Nobody is refused before nine tenths of the slots are taken. Then more than a tenth of the pods are killed under
// runs: no run is on two pods, those of the killed pods fail, and all others succeed.
func TestThousandSlots(t *testing.T) {
	s := &simulation{ran: map[string]int{}, changed: make(chan struct{})}
	for i := range nodes {
		s.startNode(t, i)
	}
	api := httptest.NewTLSServer(s)
	t.Cleanup(api.CloseClientConnections)
	account := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(account, "ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(account, "token"), []byte("t0ken"), 0o600))
	var fleets []*sandboxfleet.Fleet
	for range servers {
		slices := &sandboxfleet.Slices{Namespace: "boxes", Service: "cf-sandbox", Server: api.URL, Account: account}
		f := sandboxfleet.New(sandboxfleet.Config{
			Follow: slices.Follow, Log: slog.New(slog.DiscardHandler),
			Dial: func(ctx context.Context, address string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp4", address)
			},
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); f.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		(&cluster{Fleet: f}).await(t, nodes*podsPerNode)
		fleets = append(fleets, f)
	}

	var filling sync.WaitGroup
	var mu sync.Mutex
	var leases []sandbox.SlotLease
	var full atomic.Bool
	for _, f := range fleets {
		filling.Go(func() {
			for !full.Load() {
				l, err := f.Acquire(t.Context(), sandboxapi.LeaseRequest{})
				if err != nil {
					full.Store(true)
					if !errors.Is(err, sandboxapi.ErrBusy) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				leases = append(leases, l)
				mu.Unlock()
			}
		})
	}
	filling.Wait()
	t.Logf("the first refusal came when %d of %d slots were taken", len(leases), allSlots)
	if len(leases) < allSlots*9/10 {
		t.Error("that is too early")
	}
	for _, l := range leases {
		testkit.Must(t, l.Release(t.Context()))
	}

	const load, each, dead = 150, 3, 3
	var work sync.WaitGroup
	var lost, good, begun atomic.Int64
	for i := range load {
		work.Go(func() {
			for k := range each {
				begun.Add(1)
				if err := simulated(t.Context(), fleets[i%servers], fmt.Sprintf("%d.%d", i, k)); err != nil {
					lost.Add(1)
				} else {
					good.Add(1)
				}
			}
		})
	}
	for begun.Load() < 2*load {
		time.Sleep(time.Millisecond)
	}
	s.kill(s.nodes[:dead])
	work.Wait()
	t.Logf("%d pods were killed under %d runs: %d were lost, %d gave their answers", dead*podsPerNode, load*each, lost.Load(), good.Load())
	if lost.Load() == 0 || lost.Load() > dead*podsPerNode*slotsPerPod {
		t.Errorf("%d runs were lost of pods with %d slots", lost.Load(), dead*podsPerNode*slotsPerPod)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.ran {
		if n > 1 {
			t.Errorf("run %s was on %d pods", id, n)
		}
	}
	if len(s.ran) < int(good.Load()) {
		t.Errorf("%d runs arrived, %d gave answers", len(s.ran), good.Load())
	}
	for _, f := range fleets {
		if pods, n := f.CountPods(); n != 0 || pods != (nodes-dead)*podsPerNode {
			t.Errorf("at the end %d pods and %d leases", pods, n)
		}
	}
}

// simulated is one run, as package execution makes it: a lease, asked for until there is one, then a run that is not
// repeated.
func simulated(ctx context.Context, f *sandboxfleet.Fleet, id string) error {
	for {
		l, err := f.Acquire(ctx, sandboxapi.LeaseRequest{})
		if err != nil {
			time.Sleep(20 * time.Millisecond) // in the queue
			continue
		}
		defer func() { _ = l.Release(ctx) }() // of a dead pod it fails
		hash, err := l.Of.Catalog.Permissions(ctx)
		if err != nil {
			return err
		}
		_, err = l.Of.Runs.Run(ctx, sandboxapi.RunRequest{Generation: l.Generation, Code: id, Permissions: hash}, func(sandboxapi.Event) {})
		return err
	}
}
