// Package catalogwatch holds mcp-server's view of the catalog: the public catalog that the proxy last published, and
// the permission set that sandboxd made from it.
package catalogwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Config configures a Watcher.
type Config struct {
	Control *proxyapi.Client
	Sandbox *sandboxapi.Client
	Log     *slog.Logger
	// Changed, if not nil, is called with every catalog before Catalog returns it. It must not block.
	Changed func(proxyapi.Catalog)
	// Report, if not nil, is called with the sandbox's report, before the first catalog is known and at each
	// renewal.
	Report func(sandboxapi.Health)
	// Install installs packages of one kind for code within minutes, from a registry. An empty registry means the one of
	// the settings. Nil means that this sandbox has only the packages of its image.
	Install func(ctx context.Context, pins []string, registry string) error
}

// Watcher follows the catalog. Create it with New and call Run. All methods are safe for concurrent use.
type Watcher struct {
	cfg Config

	// renewing is full during a renewal. Only one runs at a time, so that an older catalog cannot overwrite a newer one.
	renewing chan struct{}

	mu      sync.Mutex
	catalog proxyapi.Catalog
	hash    string
	known   bool // there is a catalog and a permission set
	problem error
	ready   chan struct{} // closed when known becomes true

	packages packageState
}

// errStarting is the problem before the first catalog.
var errStarting = errors.New("the proxy and the sandbox have not answered yet")

// errEnded is the problem when the proxy ends its stream of events.
var errEnded = errors.New("the stream of events ended")

// New returns a watcher without a catalog.
func New(cfg Config) *Watcher {
	if cfg.Install == nil {
		cfg.Install = refuseInstall
	}
	return &Watcher{cfg: cfg, problem: errStarting, ready: make(chan struct{}), renewing: make(chan struct{}, 1),
		packages: packageState{ask: make(chan struct{}, 1)}}
}

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Run fetches the catalog and sends sandboxd the permission set, and repeats this after every change, until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	var installer sync.WaitGroup
	defer installer.Wait()
	installer.Go(func() { w.installWanted(ctx) })
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := w.followStream(ctx)
		if ctx.Err() != nil {
			return
		}
		w.setProblem(err)
		// A stream that lasted was no failure, so the pauses start again from the shortest.
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		timing.WaitFor(ctx, pause)
	}
}

// followStream does the work of Run over one stream of events, and returns why the stream ended.
func (w *Watcher) followStream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Subscribed before the fetch, so that no change is missed in between.
	events, err := w.cfg.Control.Subscribe(ctx, proxyapi.CatalogEvents)
	if err != nil {
		return fmt.Errorf("following the catalog: %w", err)
	}
	changed, done := make(chan string, 1), make(chan struct{})
	var ended error
	go func() {
		defer close(done)
		ended = events.EachEvent(func(e proxyapi.Event) { sendLatestVersion(changed, e) })
	}()
	defer func() {
		cancel()
		<-done
	}()
	for err := w.UpdateCatalog(ctx); ; {
		if err != nil {
			return err
		}
		select {
		case version := <-changed:
			// Events may repeat the version that FetchCatalog has already fetched.
			if version != w.Catalog().Version {
				err = w.UpdateCatalog(ctx)
			}
		case <-done:
			return fmt.Errorf("following the catalog: %w", errors.Join(errEnded, ended))
		}
	}
}

// sendLatestVersion stores the latest catalog version of the events in a channel of one.
func sendLatestVersion(changed chan string, e proxyapi.Event) {
	if e.Catalog == "" {
		return
	}
	for {
		select {
		case changed <- e.Catalog:
			return
		default:
		}
		select {
		case <-changed:
		// The channel has an older version, which is dropped below.
		default:
		}
	}
}

// UpdateCatalog fetches the catalog and sends sandboxd its permission set. Call it if sandboxd reports another set, for
// example after a restart.
func (w *Watcher) UpdateCatalog(ctx context.Context) error {
	select {
	case w.renewing <- struct{}{}:
		defer func() { <-w.renewing }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for another renewal: %w", context.Cause(ctx))
	}
	cat, err := w.cfg.Control.FetchCatalog(ctx)
	if err != nil {
		return fmt.Errorf("fetching the catalog: %w", err)
	}
	set, err := w.setPermissions(ctx, &cat)
	if err != nil {
		return fmt.Errorf("sending the sandbox its permissions: %w", err)
	}
	// Asked before the catalog counts as known, so that the first call lists the languages.
	if w.cfg.Report != nil {
		h, err := w.cfg.Sandbox.Health(ctx)
		if err != nil {
			return fmt.Errorf("asking the sandbox for its languages: %w", err)
		}
		w.cfg.Report(h)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Under the lock, so that Catalog never returns a catalog before Changed has seen it.
	changed := !w.known || w.catalog.Version != cat.Version || !slices.Equal(w.catalog.Packages, cat.Packages)
	if w.cfg.Changed != nil && changed {
		w.cfg.Changed(cat)
	}
	if !w.known {
		close(w.ready)
	}
	if changed || w.problem != nil {
		w.cfg.Log.Info("catalog in use", logline.Tag("mcp"), slog.Int("apis", len(cat.APIs)),
			slog.Int("problems", len(cat.Problems)), slog.Bool("yolo", cat.YOLO))
	}
	w.catalog, w.hash, w.problem, w.known = cat, set.Hash, nil, true
	return nil
}

// FetchCatalog returns the proxy's catalog. Calls see it too from then on, unless the sandbox does not answer in time.
func (w *Watcher) FetchCatalog(ctx context.Context) (proxyapi.Catalog, error) {
	cat, err := w.cfg.Control.FetchCatalog(ctx)
	if err == nil && cat.Version != w.Catalog().Version {
		ctx, cancel := context.WithTimeout(ctx, lastPause)
		defer cancel()
		_ = w.UpdateCatalog(ctx) // Run repeats it, and stores the problem
	}
	return cat, err
}

// setProblem stores the reason why the last catalog may be out of date.
func (w *Watcher) setProblem(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.problem == nil || w.problem.Error() != err.Error() {
		w.cfg.Log.Warn("no connection to the proxy or the sandbox, trying again",
			logline.Tag("mcp"), slog.String("error", err.Error()))
	}
	w.problem = err
}

// Catalog returns the last fetched catalog, or an empty one. Its Packages are those that code can import.
func (w *Watcher) Catalog() proxyapi.Catalog {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.catalog
}

// Problem returns the reason why the catalog may be out of date, or nil.
func (w *Watcher) Problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// Permissions waits for the first permission set and returns the hash of the current one.
func (w *Watcher) Permissions(ctx context.Context) (string, error) {
	select {
	case <-w.ready:
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for the first catalog: %w: %w", ctx.Err(), w.Problem())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hash, nil
}

// AllowNet returns the permission set of a catalog: the hosts of its APIs, sorted, with the host of MCP servers, which
// also has the stash. Under YOLO_MODE it allows all hosts.
func AllowNet(cat proxyapi.Catalog) []string {
	if cat.YOLO {
		return []string{"*"}
	}
	hosts := []string{proxyapi.ServersHost}
	for _, a := range cat.APIs {
		hosts = append(hosts, a.Domains...)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
