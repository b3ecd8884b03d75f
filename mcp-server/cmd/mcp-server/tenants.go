package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/apidoc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/queue"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tools"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/transport"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	// lookTime is the interval between checks of the tokens file.
	lookTime = time.Second
	// tenantWaiting is the default number of runs of a tenant that may wait.
	tenantWaiting = 64
)

// tenantSet are the clients of MCP_TOKENS_FILE. Each has a separate MCP server with sessions, skills and library, so
// that one client's data never reaches another. The server is created with the tenant's first request. A nil *tenants
// has no tenants.
type tenantSet struct {
	daemon *daemon
	path   string

	mu      sync.Mutex
	list    []*tenantState
	file    os.FileInfo // the file of the current list
	problem error       // the mistake in the current file
	closed  bool
	ended   sync.WaitGroup // the closing of changed and removed tenants
}

type tenantState struct {
	tokenfile.Tenant
	share *queue.Share

	// openTenant sets these at the first request, and holds opening and tenantSet.mu. Readers hold tenantSet.mu.
	opening sync.Mutex
	tenant  *execution.TenantSources
	surface *tools.Surface
	mcp     *transport.Handler
	library *apidoc.Library
	skills  *skill.Store
	stop    context.CancelFunc
	parts   sync.WaitGroup
}

// openTenants reads the file. Without a path there are no tenants.
func openTenants(d *daemon, path string) (*tenantSet, error) {
	if path == "" {
		return nil, nil
	}
	if d.flags.tenants == "" {
		return nil, errors.New("MCP_TOKENS_FILE is set: --tenants is required")
	}
	t := &tenantSet{daemon: d, path: path}
	t.readIfChanged()
	return t, t.problem
}

// readIfChanged reads the file if it has changed. A file with a mistake changes no tenant, and is logged once. The
// result reports whether the list was replaced.
func (t *tenantSet) readIfChanged() bool {
	info, err := os.Stat(t.path) //nolint:gosec // the operator's own setting
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.file
	// Only a changed file is read, because this runs every second.
	if err == nil && last != nil && os.SameFile(last, info) && last.ModTime().Equal(info.ModTime()) &&
		last.Size() == info.Size() {
		return false
	}
	var list []tokenfile.Tenant
	if err == nil {
		list, err = t.readFile()
	}
	// Stored even after a mistake, so that the same file is not parsed again each second.
	t.file = info
	if err != nil {
		if t.problem == nil || t.problem.Error() != err.Error() {
			t.daemon.log.Error("the tokens file has mistakes, so its last good version stays in force", logline.Tag("mcp"),
				slog.String("error", err.Error()))
		}
		t.problem = err
		return false
	}
	t.problem = nil
	t.replaceTenants(list)
	return true
}

func (t *tenantSet) readFile() ([]tokenfile.Tenant, error) {
	f, err := os.Open(t.path) //nolint:gosec // as above
	if err != nil {
		return nil, fmt.Errorf("MCP_TOKENS_FILE (for user %d): %w", os.Getuid(), err)
	}
	defer f.Close()
	// One byte more than the bound, so that Parse notices a file that is too large.
	data, err := io.ReadAll(io.LimitReader(f, tokenfile.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("MCP_TOKENS_FILE: %w", err)
	}
	list, problems := tokenfile.Parse(data, "MCP_TOKENS_FILE")
	if len(problems) > 0 {
		return nil, errors.New(problems.String())
	}
	// With an equal token a tenant would be the operator, or the operator a tenant.
	own := sha256.Sum256([]byte(t.daemon.settings.MCPAuthToken.Reveal()))
	for _, one := range list {
		if one.HasToken(own) {
			return nil, fmt.Errorf("MCP_TOKENS_FILE: a token of %s is MCP_AUTH_TOKEN, which is the operator's", one.Name)
		}
	}
	return list, nil
}

// replaceTenants replaces the tenants by a list. A tenant that was changed or removed ends with all its sessions and
// calls. The caller holds mu.
func (t *tenantSet) replaceTenants(list []tokenfile.Tenant) {
	old := map[string]*tenantState{}
	for _, c := range t.list {
		old[c.Name] = c
	}
	t.list = nil
	for _, one := range list {
		// An unchanged tenant keeps its sessions.
		if c := old[one.Name]; c != nil && reflect.DeepEqual(c.Tenant, one) {
			t.list = append(t.list, c)
			delete(old, one.Name)
			continue
		}
		share := queue.NewShare(one.Name, cmp.Or(one.Runs, (t.daemon.settings.Slots+1)/2), cmp.Or(one.Waiting, tenantWaiting))
		t.list = append(t.list, &tenantState{Tenant: one, share: share})
	}
	for _, c := range old {
		if c.mcp != nil {
			// In the background, because closing waits for calls and mu is held.
			t.ended.Go(func() { c.closeTenant(context.Background(), t.daemon.executor) })
		}
	}
	t.daemon.log.Info("tenants in use", logline.Tag("mcp"), slog.Int("count", len(t.list)))
}

// Handler returns the name and the MCP endpoint of the tenant with this token, or nil. It takes the same time for every
// token.
func (t *tenantSet) Handler(token string) (name string, own http.Handler) {
	found := t.findTenant(sha256.Sum256([]byte(token)))
	if found == nil {
		return "", nil
	}
	return found.Name, t.serveTenant(found)
}

func (t *tenantSet) serveTenant(found *tenantState) http.Handler {
	opened, err := t.openTenant(found)
	if err != nil {
		t.daemon.log.Error("a tenant cannot be served", logline.Tag("mcp"), slog.String("tenant", found.Name),
			slog.String("error", err.Error()))
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the server cannot serve this client; its log has the reason", http.StatusServiceUnavailable)
		})
	}
	return opened
}

// findTenant returns the tenant of a token with this hash, or nil.
func (t *tenantSet) findTenant(hash [sha256.Size]byte) (found *tenantState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// No early return: the time would reveal the tenant's place in the list.
	for _, c := range t.list {
		if c.HasToken(hash) {
			found = c
		}
	}
	if t.closed {
		return nil
	}
	return found
}

// findLogin returns the tenant of a user with these logins. It returns nil if no tenant lists such a login, or several
// tenants do: a guess could give the user the rights of the wrong tenant.
func (t *tenantSet) findLogin(names []string) (found *tenantState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	for _, c := range t.list {
		if !slices.ContainsFunc(c.Logins, func(login string) bool { return slices.Contains(names, login) }) {
			continue
		}
		if found != nil {
			return nil
		}
		found = c
	}
	return found
}

// openTenant returns a tenant's MCP server. The first request creates it, so that tenants without requests take no
// memory.
func (t *tenantSet) openTenant(c *tenantState) (*transport.Handler, error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.mcp != nil {
		return c.mcp, nil
	}
	d := t.daemon
	dir := filepath.Join(d.flags.tenants, c.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	// This does not hold mu: it may wait for the database, and other tenants must not wait too.
	store, err := d.openTenantSkills(ctx, dir, c.Name)
	if err != nil {
		stop()
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || !slices.Contains(t.list, c) {
		stop()
		return nil, errors.Join(errors.New("the tokens file has changed, or the server stops"), store.Close())
	}
	store.SetShared(d.skills, c.CanUseSkill)
	c.skills, c.library = store, apidoc.NewLibrary(d.control, d.log)
	own := &tenant.Tenant{Tenant: c.Tenant, Share: c.share}
	cfg := d.surfaceConfig()
	cfg.Skills, cfg.Library, cfg.Servers = store, c.library, d.broker
	c.tenant = &execution.TenantSources{Tenant: own, Sources: execution.Sources{
		Modules: d.newModuleLookup(c.library, store, own.NarrowCatalog),
		Skills:  func(code string) map[string]string { return store.ReadImported(code, sandboxapi.MaxSkills) },
	}}
	cfg.Tenant, cfg.Slots = c.tenant, c.share.CountSlots()
	if c.Timeout > 0 {
		// A tenant's limit can only lower the server's.
		cfg.TimeoutMax = min(cfg.TimeoutMax, c.Timeout)
		cfg.TimeoutDefault = min(cfg.TimeoutDefault, c.Timeout)
	}
	c.surface = tools.New(cfg)
	if h := d.report.Load(); h != nil {
		c.surface.AcceptReport(*h)
	}
	c.mcp = transport.New(transport.Config{
		Server: c.surface.Server(), Log: d.log, Answers: d.answers,
		Elsewhere: func(id string) bool { return d.isKnownElsewhere(id, c.mcp) },
	})
	c.stop = stop
	c.parts.Go(func() { store.Follow(ctx) })
	c.parts.Go(func() { c.library.Run(ctx) })
	c.parts.Go(func() { c.surface.WatchSkills(ctx) })
	c.library.Follow(own.NarrowCatalog(d.catalog.Catalog()))
	return c.mcp, nil
}

// closeTenant cancels a tenant's calls and ends its sessions.
func (c *tenantState) closeTenant(ctx context.Context, e *execution.Executor) {
	e.StopTenant(c.tenant)
	ctx, cancel := context.WithTimeout(ctx, unwindTime)
	defer cancel()
	c.mcp.Close(ctx)
	c.surface.DrainRuns(ctx)
	c.stop()
	c.parts.Wait()
	_ = c.skills.Close() // opened for reading only
}

// listOpened returns the tenants that have had a request.
func (t *tenantSet) listOpened() []*tenantState {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*tenantState
	for _, c := range t.list {
		if c.mcp != nil {
			out = append(out, c)
		}
	}
	return out
}

// Run checks the file until ctx ends.
func (t *tenantSet) Run(ctx context.Context) {
	isChanged := true // by the first reading
	for range timing.EachTick(ctx, lookTime) {
		isChanged = t.readIfChanged() || isChanged
		// The database may not answer now. Then the next tick tries again.
		if isChanged && t.daemon.logins.EndUnownedLogins(ctx) == nil {
			isChanged = false
		}
	}
}

// Close ends all tenants. Call it after Drain.
func (t *tenantSet) Close(ctx context.Context) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	for _, c := range t.listOpened() {
		c.closeTenant(ctx, t.daemon.executor)
	}
	t.ended.Wait()
}

// SetCatalog passes a new catalog to the tenants. Each gets its part.
func (t *tenantSet) SetCatalog(cat proxyapi.Catalog) {
	for _, c := range t.listOpened() {
		c.library.Follow((&tenant.Tenant{Tenant: c.Tenant}).NarrowCatalog(cat))
	}
}

// acceptReport passes the sandbox's report to the tenants.
func (t *tenantSet) acceptReport(h sandboxapi.Health) {
	for _, c := range t.listOpened() {
		c.surface.AcceptReport(h)
	}
}

// States returns the tenants for the operator.
func (t *tenantSet) States() operatorapi.Tenants {
	out := operatorapi.Tenants{Tenants: []operatorapi.TenantInfo{}}
	if t == nil {
		return out
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.problem != nil {
		out.Problem = t.problem.Error()
	}
	for _, c := range t.list {
		one := operatorapi.TenantInfo{Name: c.Name, APIs: c.APIs, Tokens: len(c.Hashes)}
		one.Runs, one.Waiting = c.share.CountUse()
		if c.mcp != nil {
			one.Sessions = c.mcp.CountSessions()
		}
		out.Tenants = append(out.Tenants, one)
	}
	return out
}

// listHandlers returns the MCP endpoints of all clients.
func (d *daemon) listHandlers() []*transport.Handler {
	own := func(c *tenantState) *transport.Handler { return c.mcp }
	return append(convert.Each(d.tenants.listOpened(), own), d.mcp)
}

func (d *daemon) listSurfaces() []*tools.Surface {
	own := func(c *tenantState) *tools.Surface { return c.surface }
	return append(convert.Each(d.tenants.listOpened(), own), d.surface)
}

// isKnownElsewhere reports whether another endpoint knows a session.
func (d *daemon) isKnownElsewhere(id string, here *transport.Handler) bool {
	return slices.ContainsFunc(d.listHandlers(), func(h *transport.Handler) bool {
		return h != here && h.IsKnownSession(id)
	})
}
