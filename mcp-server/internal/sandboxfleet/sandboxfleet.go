// Package sandboxfleet follows the sandboxes behind a Kubernetes service, and selects one for each run.
//
// Each pod decides itself whether it has a free slot. So no state is shared, and several mcp-servers need not know each
// other. Of two random pods the less loaded one is asked first. If it is full and refuses, the least loaded pod is
// asked.
//
// Threat: a pod that only claims to be a sandbox. Contract: connections to pods use package internal/mtls.
package sandboxfleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mtls"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/catalogwatch"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandbox"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Config configures a Fleet.
type Config struct {
	// Follow calls on with all pods, at first and after every change, until ctx ends or it fails.
	Follow func(ctx context.Context, on func([]Place)) error
	// Dial connects to an address of a pod, host:port.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Proxy connects to the control API of the proxy that all pods share. It is nil if each pod has a separate proxy.
	Proxy func(ctx context.Context) (net.Conn, error)
	// Joined, if not nil, runs in a separate goroutine for each pod, until its context ends.
	Joined func(context.Context, *sandbox.Sandbox)
	Log    *slog.Logger
}

// NewDialer returns a dialer for peers of a role, with the identity of mcp-server.
func NewDialer(id *mtls.Identity, role string) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		return id.Dial(ctx, address, role)
	}
}

const (
	// dialTime bounds connecting to a pod, because a pod that is gone does not refuse the connection.
	dialTime = 3 * time.Second
	// pingEvery is the time between two pings. A lost pod's runs are known to be lost after at most two of them.
	pingEvery = 5 * time.Second
	// tries bounds the pods that are asked for one lease.
	tries = 3
	// believed is how long a pod's answer counts: the number of slots that others use, or that no slot is free.
	believed = 10 * time.Second
	// firstPause and lastPause bound the pauses between attempts to reach the API server.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// errNone is the error of a run if there is no sandbox.
var errNone = errors.New("no sandbox is ready: see kubectl get pods in the namespace of the sandboxes")

// Fleet is a set of sandboxes. Create it with New and call Run. It is safe for concurrent use.
type Fleet struct {
	cfg  Config
	work sync.WaitGroup

	mu   sync.Mutex
	pods map[string]*sandboxPod
}

type sandboxPod struct {
	sandbox.Sandbox
	place Place
	leave context.CancelFunc
	gone  bool // in no slice any more
	// own is the number of this process's leases there. others is the number of further leases in the pod's last answer.
	own, others int
	said        time.Time
	refused     time.Time // when it had no slot or did not answer; zero if it has granted a lease since
}

// New returns a fleet without sandboxes.
func New(c Config) *Fleet { return &Fleet{cfg: c, pods: map[string]*sandboxPod{}} }

// Run follows the pods until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := f.cfg.Follow(ctx, func(list []Place) { f.setPods(ctx, list) })
		if ctx.Err() != nil {
			break
		}
		// A stream that lasted was no failure, so the pauses start again from the shortest.
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		f.cfg.Log.Warn("the sandboxes cannot be followed, trying again", logline.Tag("mcp"),
			slog.String("error", err.Error()))
		timing.WaitFor(ctx, pause)
	}
	// Runs until all pods have left, so that no goroutine outlives Run.
	f.setPods(ctx, nil)
	f.work.Wait()
}

// setPods replaces the pods of the fleet. A pod that is in no slice any more is removed after its last run.
func (f *Fleet) setPods(ctx context.Context, list []Place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := map[string]bool{}
	for _, place := range list {
		now[place.ID] = true
		p := f.pods[place.ID]
		if p == nil && !place.Ready {
			continue // it does not answer yet
		}
		if p == nil {
			p = f.addPod(ctx, place)
		}
		p.place, p.gone = place, false
	}
	for id, p := range f.pods {
		if !now[id] {
			// Its runs go on; removePod removes it after the last one.
			p.gone = true
			f.removePod(p)
		}
	}
}

// addPod adds a pod. The caller holds mu.
func (f *Fleet) addPod(ctx context.Context, place Place) *sandboxPod {
	p := &sandboxPod{place: place}
	p.Runs = sandboxapi.NewClient(sandboxapi.ClientConfig{
		Dial:      func(ctx context.Context) (net.Conn, error) { return f.cfg.Dial(ctx, place.Runs) },
		PingEvery: pingEvery,
	})
	p.Control = f.proxyClient(place)
	log := f.cfg.Log.With(slog.String("pod", place.Runs))
	p.Catalog = catalogwatch.New(catalogwatch.Config{Control: p.Control, Sandbox: p.Runs, Log: log})
	ctx, p.leave = context.WithCancel(ctx)
	f.pods[place.ID] = p
	f.work.Go(func() { p.Catalog.Run(ctx) })
	if f.cfg.Joined != nil {
		f.work.Go(func() { f.cfg.Joined(ctx, &p.Sandbox) })
	}
	log.Info("a sandbox has joined", logline.Tag("mcp"))
	return p
}

func (f *Fleet) proxyClient(place Place) *proxyapi.Client {
	if f.cfg.Proxy != nil {
		// All pods share the proxy, which tells them apart by their address.
		host, _, _ := net.SplitHostPort(place.Runs) // a place has an address
		return proxyapi.NewClientOver(f.cfg.Proxy).ForPod(host)
	}
	return proxyapi.NewClientOver(func(ctx context.Context) (net.Conn, error) { return f.cfg.Dial(ctx, place.Control) })
}

// removePod removes a pod that is gone, unless it still has runs. The caller holds mu.
func (f *Fleet) removePod(p *sandboxPod) {
	if !p.gone || p.own > 0 || f.pods[p.place.ID] != p {
		return
	}
	delete(f.pods, p.place.ID)
	p.leave()
	_ = p.Runs.Close()
	p.Control.Close()
	f.cfg.Log.Info("a sandbox has left", logline.Tag("mcp"), slog.String("pod", p.place.Runs))
}

// isUsable reports whether a pod may get a lease. The caller holds mu.
func (p *sandboxPod) isUsable() bool { return p.place.Ready && !p.gone && p.Catalog.Problem() == nil }

// usedSlots returns the probable number of a pod's used slots. A pod that has just refused counts as more loaded than
// all others. The caller holds mu.
func (p *sandboxPod) usedSlots() int {
	switch {
	case time.Since(p.refused) < believed:
		return math.MaxInt
	case time.Since(p.said) < believed:
		return p.own + p.others
	}
	return p.own
}

// pickPod returns the next pod to ask, or nil. First it is the less loaded of two random pods, then the least loaded
// one not asked yet.
func (f *Fleet) pickPod(asked []*sandboxPod) *sandboxPod {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*sandboxPod
	for _, p := range f.pods {
		if p.isUsable() && !slices.Contains(asked, p) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil
	}
	//nolint:gosec // guessing the order gains nothing
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if len(asked) == 0 {
		list = list[:min(len(list), 2)] //nolint:mnd // the power of two choices
	}
	// Always taking the least loaded pod would send the runs of all mcp-servers to the same pod at once.
	return slices.MinFunc(list, func(a, b *sandboxPod) int { return cmp.Compare(a.usedSlots(), b.usedSlots()) })
}

// Acquire implements sandbox.Source. It refuses leases ahead, because the next run may get another pod.
func (f *Fleet) Acquire(ctx context.Context, r sandboxapi.LeaseRequest) (sandbox.SlotLease, error) {
	// The next run may get another pod, so a lease here could stay unused.
	if r.Ahead {
		return sandbox.SlotLease{}, sandboxapi.ErrBusy
	}
	var asked []*sandboxPod
	var failed []error
	for len(asked) < tries {
		p := f.pickPod(asked)
		if p == nil {
			break
		}
		// Counted before the request, so that concurrent runs see the load.
		f.addLeases(p, 1)
		l, err := p.Acquire(ctx, r)
		if err == nil {
			f.recordUsed(p, l.Taken)
			// The load counts until the lease has ended.
			l.Released = func() { f.addLeases(p, -1) }
			return l, nil
		}
		f.recordRefusal(p)
		asked, failed = append(asked, p), append(failed, err)
	}
	if len(asked) == 0 {
		return sandbox.SlotLease{}, errNone
	}
	for _, err := range failed { // a slot may become free there soon; other failures will occur again
		if errors.Is(err, sandboxapi.ErrBusy) {
			return sandbox.SlotLease{}, err
		}
	}
	return sandbox.SlotLease{}, errors.Join(failed...)
}

// addLeases changes the number of this process's leases in a pod.
func (f *Fleet) addLeases(p *sandboxPod, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.own += by
	f.removePod(p)
}

// recordUsed records the number of a pod's used slots, including this process's.
func (f *Fleet) recordUsed(p *sandboxPod, taken int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.others, p.said, p.refused = max(0, taken-p.own), time.Now(), time.Time{}
}

// recordRefusal records that a pod granted no lease.
func (f *Fleet) recordRefusal(p *sandboxPod) {
	f.mu.Lock()
	p.refused = time.Now()
	f.mu.Unlock()
	f.addLeases(p, -1)
}

// DialRuns and DialControl connect to one pod for data that all pods share, such as the catalog. They choose the first
// ready pod by ID.
func (f *Fleet) DialRuns(ctx context.Context) (net.Conn, error) {
	return f.dialAny(ctx, func(p Place) string { return p.Runs })
}

// DialControl is DialRuns for the proxy's control API.
func (f *Fleet) DialControl(ctx context.Context) (net.Conn, error) {
	if f.cfg.Proxy != nil {
		return f.cfg.Proxy(ctx)
	}
	return f.dialAny(ctx, func(p Place) string { return p.Control })
}

func (f *Fleet) dialAny(ctx context.Context, address func(Place) string) (net.Conn, error) {
	f.mu.Lock()
	var list []Place
	for _, p := range f.pods {
		if p.place.Ready && !p.gone {
			list = append(list, p.place)
		}
	}
	f.mu.Unlock()
	if len(list) == 0 {
		return nil, errNone
	}
	first := slices.MinFunc(list, func(a, b Place) int { return strings.Compare(a.ID, b.ID) })
	return f.cfg.Dial(ctx, address(first))
}
