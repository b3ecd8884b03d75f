package sandboxfleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandbox"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandboxfleet"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// cluster is pods behind hand-written slices.
type cluster struct {
	*sandboxfleet.Fleet
	pods []*pod

	mu     sync.Mutex
	places []sandboxfleet.Place
	change chan struct{}
}

// pod is a sandbox and a proxy, each a substitute.
type pod struct {
	*fakepeers.FakeSandbox
	proxy *fakepeers.FakeProxy
}

func newCluster(t *testing.T, pods, slots int) *cluster {
	t.Helper()
	c := &cluster{change: make(chan struct{}, 1)}
	var places []sandboxfleet.Place
	for i := range pods {
		p := &pod{fakepeers.NewSandbox(t, slots), fakepeers.NewProxy(t, proxyapi.API{Name: "a", Domains: []string{"a.example.com"}})}
		c.pods = append(c.pods, p)
		places = append(places, sandboxfleet.Place{ID: fmt.Sprintf("pod-%03d", i), Runs: p.Socket, Control: p.proxy.Socket, Ready: true})
	}
	c.Fleet = sandboxfleet.New(sandboxfleet.Config{
		Follow: c.follow, Log: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", address)
		},
	})
	c.set(places)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	c.await(t, pods)
	return c
}

func (c *cluster) set(places []sandboxfleet.Place) {
	c.mu.Lock()
	c.places = places
	c.mu.Unlock()
	select {
	case c.change <- struct{}{}:
	default:
	}
}

func (c *cluster) follow(ctx context.Context, on func([]sandboxfleet.Place)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.change:
			c.mu.Lock()
			places := c.places
			c.mu.Unlock()
			on(places)
		}
	}
}

// await waits until so many pods may get leases.
func (c *cluster) await(t *testing.T, pods int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if n, _ := c.CountPods(); n == pods {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%d pods, want %d", n, pods)
		}
	}
}

func (c *cluster) acquire(t *testing.T) sandbox.SlotLease {
	t.Helper()
	l, err := c.Acquire(t.Context(), sandboxapi.LeaseRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestFull: a pod that is full refuses, and another one is asked; when all are full, that is what the caller hears.
func TestFull(t *testing.T) {
	c := newCluster(t, 3, 2)
	var leases []sandbox.SlotLease
	for range 6 {
		leases = append(leases, c.acquire(t))
	}
	if _, err := c.Acquire(t.Context(), sandboxapi.LeaseRequest{}); !errors.Is(err, sandboxapi.ErrBusy) {
		t.Errorf("all are full: %v", err)
	}
	if err := leases[3].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := c.acquire(t); l.Of != leases[3].Of {
		t.Error("the lease is of another pod than the one with a free slot")
	}
	if _, n := c.CountPods(); n != 6 {
		t.Errorf("%d leases, want 6", n)
	}
}

// TestLeaving: a pod that is to go gets no lease, and keeps the one it has until that ends, even when no slice has it any
// more.
func TestLeaving(t *testing.T) {
	c := newCluster(t, 2, 50)
	held := map[*sandbox.Sandbox]sandbox.SlotLease{}
	for len(held) < 2 {
		l := c.acquire(t)
		held[l.Of] = l
	}
	places := c.places
	going := places[0]
	going.Ready = false
	c.set([]sandboxfleet.Place{going, places[1]})
	c.await(t, 1)
	stays := c.acquire(t).Of
	for range 20 {
		if l := c.acquire(t); l.Of != stays {
			t.Fatal("a pod that is to go got a lease")
		}
	}
	c.set(places[1:])
	time.Sleep(50 * time.Millisecond)
	for of, l := range held {
		if of != stays {
			if err := l.Release(t.Context()); err != nil {
				t.Errorf("its lease did not last: %v", err)
			}
			if _, err := of.Runs.Health(t.Context()); err == nil {
				t.Error("it has gone with its last lease, and its client has not")
			}
		}
	}
}

// TestNone: without a sandbox there is no lease, and the error says where to look.
func TestNone(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.set(nil)
	c.await(t, 0)
	if _, err := c.Acquire(t.Context(), sandboxapi.LeaseRequest{}); err == nil || errors.Is(err, sandboxapi.ErrBusy) || !strings.Contains(err.Error(), "kubectl") {
		t.Errorf("got %v", err)
	}
}
