// Package reload keeps the current catalog.
//
// Contract: readers get one immutable Snapshot, and a change of apis/ swaps a pointer. If the new version of an API is
// broken, the old one stays, marked as stale. Every credential that was in force since the start stays scrubbed,
// because a server may still echo a replaced one.
package reload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/secretvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// slowPoll is the interval for finding changes that the kernel does not report, such as those on bind mounts of a
	// virtual machine.
	slowPoll = 5 * time.Second
	// quietTime is the time that apis/ must be unchanged before it is read, because editors write in several steps.
	quietTime = 150 * time.Millisecond
)

// Config configures a Reloader.
type Config struct {
	// Dir is apis/.
	Dir string
	// Getenv reads the environment for credentials that name a variable. Nil means that such credentials are refused.
	Getenv func(string) string
	YOLO   bool
	// Minted are the values of credentials that the proxy obtains. They are not part of a Snapshot, so that a renewal ends
	// no exchange.
	Minted *renewedvalues.Values
	// Registry is the package registry of the settings, or nil. RegistryPrivate are the address ranges to which the names
	// of all registries may resolve.
	Registry        *catalog.API
	RegistryPrivate []netip.Prefix
	// Prepare is called with every new catalog before it is in force. It may be nil.
	Prepare func(*catalog.Catalog)
	// Changed is called for every change, after it is in force.
	Changed func(ReloadChange)
	// Signal requests an immediate reload, as SIGHUP does. It may be nil.
	Signal <-chan struct{}
}

// Snapshot is everything that is derived from one load.
type Snapshot struct {
	Rules    policy.Rules
	Scrub    *scrub.Scrubber
	Swap     *swap.Swapper
	Public   proxyapi.Catalog
	Problems catalog.Problems
	// Superseded is closed when a later Snapshot has read the files that this one left (catalog.Options.Soon). Nil means
	// that no file was left.
	Superseded chan struct{}
}

// ReloadChange describes the changes of a reload.
type ReloadChange struct {
	Now *Snapshot
	// Removed names the APIs that are gone or inactive. It also names APIs whose credentials, surfaces, client certificate
	// or hosts have changed.
	Removed map[string]bool
	// NewValues means that earlier scrubbers do not know all credentials.
	NewValues bool
}

// Reloader keeps the current Snapshot. Make one with New, then call LoadFirst.
type Reloader struct {
	conf    Config
	current atomic.Pointer[Snapshot]
	log     *slog.Logger

	mu    sync.Mutex // one load at a time
	ever  []catalog.Credential
	mints bool   // a catalog since the start had a credential with a Mint
	last  string // the last logged problems
}

// New makes a Reloader with an empty Snapshot.
func New(c Config) *Reloader {
	if c.Changed == nil {
		c.Changed = func(ReloadChange) {}
	}
	r := &Reloader{conf: c}
	r.current.Store(&Snapshot{Scrub: scrub.New(nil), Swap: swap.New(nil)})
	return r
}

// Current returns the Snapshot in force.
func (r *Reloader) Current() *Snapshot { return r.current.Load() }

// LoadFirst loads for the first time. Problems are logged and do not prevent the start. The logger may clean its lines
// with Current.
func (r *Reloader) LoadFirst(log *slog.Logger) {
	r.log = log
	r.loadCatalog(true)
}

// Load reads apis/. It puts the result in force if anything has changed.
func (r *Reloader) Load() { r.loadCatalog(false) }

// loadCatalog is Load. With soon it may leave large operations files for the next load. That load then judges the APIs
// as if it were the first.
func (r *Reloader) loadCatalog(soon bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.Current()
	options := catalog.Options{Getenv: r.conf.Getenv, Previous: old.Rules.Catalog, Soon: soon}
	// The former catalog is incomplete, so it cannot be the previous version.
	if old.Superseded != nil {
		options.Previous = nil
	}
	c, problems := catalog.Load(r.conf.Dir, options)
	// Before the comparison below: a problem may appear or vanish without a new version.
	r.logProblems(problems)
	// An unchanged catalog keeps its Snapshot, and Changed is not called.
	if old.Superseded == nil && old.Rules.Catalog != nil && c.Version() == old.Rules.Catalog.Version() &&
		problems.String() == old.Problems.String() {
		return
	}
	added := r.rememberSecrets(c)
	// Until a catalog had a minted credential, no search needs time for minted values, and no stream holds back bytes.
	var minted *renewedvalues.Values
	if r.mints {
		minted = r.conf.Minted
	}
	scrubber, swapper := r.compileSearches(c)
	next := &Snapshot{
		Rules: policy.Rules{Catalog: c, YOLO: r.conf.YOLO,
			Registry: policy.MergeRegistries(r.conf.Registry, r.conf.RegistryPrivate, c)},
		Scrub:    scrubber.WithMinted(minted),
		Swap:     swapper.WithMinted(minted),
		Public:   newPublicCatalog(c, problems, r.conf.YOLO),
		Problems: problems,
	}
	if c.HasUnread() {
		next.Superseded = make(chan struct{})
	}
	// Package mint must know the catalog before a request uses it.
	if r.conf.Prepare != nil {
		r.conf.Prepare(c)
	}
	r.current.Store(next)
	if old.Superseded != nil {
		// After the swap: a waiting reader gets the new Snapshot.
		close(old.Superseded)
	}
	active := 0
	for _, a := range c.APIs() {
		if a.Active {
			active++
		}
	}
	r.log.LogAttrs(context.Background(), slog.LevelInfo, "catalog in force", logline.Tag("catalog"),
		slog.String("version", next.Public.Version), slog.Int("active", active), slog.Int("problems", len(problems)))
	r.conf.Changed(ReloadChange{Now: next, Removed: listRemoved(old.Rules.Catalog, c), NewValues: added &&
		old.Rules.Catalog != nil})
}

// logProblems logs the problems if they differ from those of the last load.
func (r *Reloader) logProblems(problems catalog.Problems) {
	text := problems.String()
	if text == r.last {
		return
	}
	r.last = text
	for _, p := range problems {
		level := slog.LevelError
		if p.Severity == catalog.Warning {
			level = slog.LevelWarn
		}
		r.log.LogAttrs(context.Background(), level, p.String(), logline.Tag("catalog"),
			slog.String("severity", p.Severity.String()))
	}
}

// compileSearches returns the Scrubber and the Swapper of a catalog. They share their compiled values if both search
// for the same values. That holds if no value was replaced since the start, and there is no client certificate, whose
// key is only scrubbed.
func (r *Reloader) compileSearches(c *catalog.Catalog) (*scrub.Scrubber, *swap.Swapper) {
	all := c.AllCredentials()
	var list []secret.Value
	for _, cr := range all {
		list = append(list, cr.AllSecrets()...)
	}
	known := secretvalues.New(list)
	for _, cr := range r.ever {
		if _, ok := known.FindID(cr.Value); !ok {
			return scrub.New(r.ever), swap.NewWithValues(known, all)
		}
	}
	return scrub.NewWithValues(known, r.ever), swap.NewWithValues(known, all)
}

// rememberSecrets adds the catalog's credentials, and the secrets inside them, to the scrubbed ones. They come first,
// so that a value is replaced by its current name, and by a token name rather than a mask. It reports whether earlier
// scrubbers miss anything: a new value, or the first minted credential.
func (r *Reloader) rememberSecrets(c *catalog.Catalog) (added bool) {
	if !r.mints && c.HasMint() {
		r.mints, added = true, true
	}
	now := c.AllSecrets()
	known := make(map[string]bool, len(r.ever))
	for _, cr := range r.ever {
		known[cr.Value.Reveal()] = true
	}
	current := make(map[string]bool, len(now))
	for _, cr := range now {
		current[cr.Value.Reveal()] = true
		added = added || !known[cr.Value.Reveal()]
	}
	for _, cr := range r.ever {
		if !current[cr.Value.Reveal()] {
			now = append(now, cr)
			current[cr.Value.Reveal()] = true
		}
	}
	r.ever = now
	return added
}

// listRemoved names the APIs of old whose credentials or hosts have changed or are gone.
func listRemoved(old, now *catalog.Catalog) map[string]bool {
	out := map[string]bool{}
	for _, a := range old.APIs() {
		b := now.API(a.Name)
		isLost := func(p catalog.HostPattern) bool { return !slices.Contains(b.Hosts, p) }
		if a.Active && (b == nil || !b.Active || !hasSameCredentials(a, b) || slices.ContainsFunc(a.Hosts, isLost)) {
			out[a.Name] = true
		}
	}
	return out
}

func hasSameCredentials(a, b *catalog.API) bool {
	return a.ClientCert.Equal(b.ClientCert) && slices.EqualFunc(a.Credentials, b.Credentials,
		func(c, d catalog.Credential) bool { return c.IsSame(d) && slices.Equal(c.Surfaces, d.Surfaces) })
}

// newPublicCatalog returns the catalog without credentials.
func newPublicCatalog(c *catalog.Catalog, problems catalog.Problems, yolo bool) proxyapi.Catalog {
	packages := c.Packages()
	out := proxyapi.Catalog{
		YOLO: yolo, APIs: []proxyapi.API{}, Packages: packages.Pins, PackageRegistry: packages.Registry,
		PackageIndex: packages.Index,
	}
	for _, a := range c.APIs() {
		if a.Active && !a.Internal {
			out.APIs = append(out.APIs, newPublicAPI(a))
		}
	}
	for _, p := range problems {
		out.Problems = append(out.Problems, proxyapi.CatalogProblem{
			API: p.API, Text: p.String(), Warning: p.Severity == catalog.Warning,
		})
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(fmt.Sprintf("the public catalog does not marshal: %v", err)) // it consists only of strings and booleans
	}
	sum := sha256.Sum256(append(text, c.Version()...))
	out.Version = hex.EncodeToString(sum[:8])
	return out
}

// newPublicAPI returns an API without credentials.
func newPublicAPI(a *catalog.API) proxyapi.API {
	p := proxyapi.API{
		Name: a.Name, Description: a.Description, Reference: a.Reference,
		Domains: convert.Each(a.Hosts, catalog.HostPattern.String),
		Credentials: convert.Each(a.Credentials, func(c catalog.Credential) proxyapi.Token {
			return proxyapi.Token{
				Name: c.Name, In: convert.Each(c.Surfaces, catalog.Surface.String), Variables: c.Variables(),
				Placeholder: c.Placeholder,
			}
		}),
		RestrictedMethods: a.Methods.Restricted, AllowedMethods: a.Methods.Allowed,
		AllowHTTP: a.AllowHTTP, HasTypes: a.Types != nil, Operations: a.OperationsFile.Digest(), Stale: a.Stale != "",
		Server: a.Server,
	}
	for _, r := range slices.Concat(a.Rules, a.ToolRules) {
		p.Rules = append(p.Rules, r.String())
		p.Approves = p.Approves || r.Then == catalog.ActionApprove
	}
	if a.Limits != nil {
		p.Rules = append(p.Rules, a.Limits.String())
		p.Approves = p.Approves || a.Limits.OverApprove
	}
	if a.Idempotency != "" {
		p.Rules = append(p.Rules, "writes get an "+a.Idempotency)
	}
	return p
}

// NewInspection returns the loaded APIs, without credentials, and the problems.
func (s *Snapshot) NewInspection() proxyapi.Inspection {
	return proxyapi.Inspection{
		Packages: s.Rules.Catalog.Packages().Pins,
		APIs: convert.Each(s.Rules.Catalog.APIs(), func(a *catalog.API) proxyapi.InspectedAPI {
			return proxyapi.InspectedAPI{API: newPublicAPI(a), Active: a.Active}
		}),
		Problems: convert.Each(s.Problems, func(p catalog.Problem) proxyapi.InspectedProblem {
			return proxyapi.InspectedProblem{
				Severity: p.Severity.String(), API: p.API, File: p.File, Field: p.Field, Found: p.Found, Want: p.Want,
				Text: p.String(),
			}
		}),
	}
}

// WatchFolder reloads on every change of apis/ until ctx ends.
func (r *Reloader) WatchFolder(ctx context.Context) {
	var events chan fsnotify.Event
	var errs chan error
	w, err := fsnotify.NewWatcher()
	if err != nil {
		r.log.LogAttrs(ctx, slog.LevelWarn, "changes of apis/ are found by polling only", logline.Tag("catalog"),
			slog.String("error", err.Error()))
	} else {
		defer func() { _ = w.Close() }()
		events, errs = w.Events, w.Errors
	}
	poll := time.NewTicker(slowPoll)
	defer poll.Stop()
	// Load again once the watcher is set up, so that no change since LoadFirst is missed.
	soon := time.NewTimer(0)
	defer soon.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.conf.Signal:
			r.Load()
		case <-poll.C:
			r.Load()
		case <-soon.C:
			r.addWatches(w)
			r.Load()
		case <-events:
			// Each further event restarts the wait.
			soon.Reset(quietTime)
		case err := <-errs: // events were lost
			r.log.LogAttrs(ctx, slog.LevelWarn, "watching apis/", logline.Tag("catalog"), slog.String("error", err.Error()))
			soon.Reset(quietTime)
		}
	}
}

// addWatches adds apis/ and its folders to the watcher. The watcher drops removed folders.
func (r *Reloader) addWatches(w *fsnotify.Watcher) {
	if w == nil {
		return
	}
	_ = w.Add(r.conf.Dir)
	entries, err := os.ReadDir(r.conf.Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			_ = w.Add(filepath.Join(r.conf.Dir, e.Name()))
		}
	}
}
