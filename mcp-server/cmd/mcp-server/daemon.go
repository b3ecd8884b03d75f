package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/mtls"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/version"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/alarm"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/alertwatch"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/apidoc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/authserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/broker"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/catalogwatch"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/console"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/endpoint"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/operator"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/queue"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandbox"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandboxfleet"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/telemetry"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tools"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/transport"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	// drainTime is how long running calls may go on after SIGTERM, unless --drain sets another time. unwindTime is how
	// long their end may take after that. Together they stay below the ten seconds after which a container engine kills.
	drainTime  = 5 * time.Second
	unwindTime = 3 * time.Second
	// retireTime is how long clients of a cluster have to move to another mcp-server.
	retireTime = 5 * time.Second
	// firstPause and lastPause bound the pauses between attempts to connect to the proxy as the broker of MCP servers.
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// daemon is the assembled process.
type daemon struct {
	flags    flagValues
	settings settings.Settings
	log      *slog.Logger

	// sandbox and control belong to the only sandbox. If there are many, they belong to any one that is used for common
	// requests.
	sandbox  *sandboxapi.Client
	control  *proxyapi.Client
	fleet    *sandboxfleet.Fleet // nil if there is one sandbox
	queue    *queue.Queue
	catalog  *catalogwatch.Watcher
	library  *apidoc.Library
	broker   *broker.Broker
	executor *execution.Executor
	skills   *skill.Store
	database *database.DB                   // Postgres, or nil
	carried  func(string) map[string]string // skills that runs carry along, or nil
	history  *history.Store
	alarms   *alarm.Set
	surface  *tools.Surface
	mcp      *transport.Handler
	guard    *guard.Guard
	console  *console.Console
	tenants  *tenantSet
	logins   *authserver.Server // nil if an identity provider has the logins, or if there are none
	meter    *serverMeter
	recorder *telemetry.Recorder // nil without a collector
	// background has one entry for each background run of all tenants. Its capacity leaves a slot to other runs.
	background chan struct{}
	answers    *membudget.Budget
	report     atomic.Pointer[sandboxapi.Health]
	inputs     execution.InputStore
	endpoint   *endpoint.Endpoint
}

// maxAnswers bounds the memory for answers of /mcp, in bytes. All clients without a tenant have at most a quarter, and
// so has each tenant.
const maxAnswers = 384 << 20

// newDaemon creates all parts and opens the listeners.
func newDaemon(ctx context.Context, f flagValues, getenv func(string) string, stderr io.Writer) (*daemon, error) {
	s, err := settings.Parse(getenv)
	if err != nil {
		return nil, err
	}
	d := &daemon{flags: f, settings: s, log: logline.New(stderr, s.LogFormat, newRedactor(s.RedactingStrings))}
	if err := d.openTelemetry(ctx); err != nil {
		return nil, err
	}
	// The database comes first: skills and alarms may be in it.
	if err = d.openDatabase(ctx); err != nil {
		return nil, err
	}
	if err := d.openSkills(ctx); err != nil {
		return nil, err
	}
	if d.alarms, err = alarm.Open(f.pins, d.database, d.showAlarm, d.log); err != nil {
		return nil, err
	}
	only := &sandbox.Sandbox{}
	var source sandbox.Source = only
	// A cluster has several sandboxes, each with its proxy and catalog.
	if f.follow == nil {
		d.sandbox = sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: f.sandbox})
		d.control = proxyapi.NewClient(f.control)
	} else {
		d.fleet = sandboxfleet.New(d.fleetConfig())
		d.sandbox = sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: d.fleet.DialRuns})
		d.control = proxyapi.NewClientOver(d.fleet.DialControl)
		source = d.fleet
	}
	d.background, d.answers = make(chan struct{}, max(1, s.Slots-1)), membudget.New(maxAnswers)
	d.openHistory()
	d.queue = queue.New(queue.Config{Source: source})
	d.library = apidoc.NewLibrary(d.control, d.log)
	launcher := &broker.BridgeLauncher{
		Client: d.sandbox, Control: d.control, Registry: registryAddress(s), Sent: d.history.RecordSent, Database: d.database,
	}
	install := launcher.InstallForCode
	if d.fleet != nil {
		install = nil // each pod has separate packages
	}
	d.catalog = catalogwatch.New(catalogwatch.Config{
		Control: d.control, Sandbox: d.sandbox, Log: d.log,
		Changed: func(c proxyapi.Catalog) { d.library.Follow(c); d.tenants.SetCatalog(c) },
		Report: func(h sandboxapi.Health) {
			d.report.Store(&h)
			d.surface.AcceptReport(h)
			d.tenants.acceptReport(h)
		},
		Install: install,
	})
	// The watcher needs the clients and the clients' source needs the watcher, so the source is completed here.
	only.Runs, only.Control, only.Catalog = d.sandbox, d.control, d.catalog
	sum := func(of func(*transport.Handler) int) func() int {
		return func() (n int) {
			for _, h := range d.listHandlers() {
				n += of(h)
			}
			return n
		}
	}
	m := newMeter(meterGauges{
		Sessions: sum((*transport.Handler).CountSessions),
		Calls:    sum((*transport.Handler).CountCalls),
		Waiting:  d.queue.CountWaiting,
		Servers:  func() int { return d.broker.CountRunning() },
	})
	d.broker = broker.New(broker.Config{
		Launcher: launcher, Slots: s.Servers, Pins: d.flags.pins,
		Tidy:    func(ctx context.Context) bool { return launcher.RemoveUnused(ctx, d.log) },
		Catalog: d.catalog.Catalog, Log: d.log, Called: m.ServerCalled, Started: m.ServerStarted,
		// The executor does not exist yet, and each part needs the other, so the broker gets functions.
		Session: func(run string) (string, bool) { return d.executor.SessionOf(run) },
		Ask: func(ctx context.Context, run string, q userform.Question) (userform.Answer, error) {
			return d.executor.AskUser(ctx, run, q)
		},
		Progress: func(run, text string) { d.executor.ReportProgress(run, text) },
	})
	d.executor = execution.New(execution.Config{
		Queue: d.queue, Catalog: d.catalog, Servers: d.broker, Log: d.log,
		Sources: execution.Sources{
			Modules: d.newModuleLookup(d.library, d.skills, func(c proxyapi.Catalog) proxyapi.Catalog { return c }),
			Skills:  d.carried, Pins: d.skills.ReadPinned,
		},
		Alarms: d.alarms, Database: d.database, Ended: d.recorder.RecordRun,
	})
	d.meter = m
	surface := d.surfaceConfig()
	surface.TakeInput = d.inputs.Take
	d.surface = tools.New(surface)
	d.mcp = transport.New(transport.Config{
		Server: d.surface.Server(), Log: d.log, Answers: d.answers,
		Elsewhere: func(id string) bool { return d.isKnownElsewhere(id, d.mcp) },
	})
	if d.tenants, err = openTenants(d, s.MCPTokensFile); err != nil {
		return nil, err
	}
	// Listening comes last, so that no client connects before all parts exist.
	return d, d.openListeners(ctx, getenv, m)
}

// openTelemetry creates the recorder, and also sends the log to the collector, if the settings have one.
func (d *daemon) openTelemetry(ctx context.Context) (err error) {
	c := d.settings.Collector
	if d.recorder, err = telemetry.New(ctx, telemetry.Config{
		Endpoint: c.URL, Signals: c.Signals, Interval: c.Interval, Log: d.log,
	}); err == nil {
		d.log, err = d.recorder.ExtendLogger(d.log, newRedactor(d.settings.RedactingStrings))
	}
	return err
}

// fleetConfig returns the configuration for finding and reaching the sandboxes of a cluster, with their proxies or a
// shared one.
func (d *daemon) fleetConfig() sandboxfleet.Config {
	f := d.flags
	c := sandboxfleet.Config{Follow: f.follow, Dial: sandboxfleet.NewDialer(f.identity, mtls.Sandbox), Log: d.log}
	// Each pod has a proxy for its sandbox, so each is served when it joins.
	if f.proxy == "" {
		c.Joined = func(ctx context.Context, s *sandbox.Sandbox) { d.followProxy(ctx, s.Control) }
		return c
	}
	dial := sandboxfleet.NewDialer(f.identity, mtls.Proxy)
	c.Proxy = func(ctx context.Context) (net.Conn, error) { return dial(ctx, f.proxy) }
	return c
}

func (d *daemon) surfaceConfig() tools.Config {
	s := d.settings
	return tools.Config{
		Executor: d.executor, Servers: d.broker, Library: d.library,
		Catalog: d.catalog, Control: d.control, Skills: d.skills, History: d.history, Alarms: d.alarms,
		Log: d.log, Called: d.meter.CountCall,
		Version: version.Version, Debug: s.Debug, YOLO: s.YOLO,
		OutputLimit: s.OutputLimit, TimeoutDefault: s.TimeoutDefault, TimeoutMax: s.TimeoutMax,
		AnswerAfter: s.AnswerAfter, Slots: s.Slots, Background: d.background,
	}
}

// knownWithin bounds the wait for the documents of APIs before a run that imports their clients.
const knownWithin = 5 * time.Second

// newModuleLookup returns a function for the typed clients that code imports, of the APIs in a view of the catalog.
func (d *daemon) newModuleLookup(
	library *apidoc.Library, store *skill.Store, view func(proxyapi.Catalog) proxyapi.Catalog,
) func(ctx context.Context, code string) []sandboxapi.Module {
	return func(ctx context.Context, code string) []sandboxapi.Module {
		ctx, cancel := context.WithTimeout(ctx, knownWithin)
		defer cancel()
		return library.TypedModules(ctx, view(d.catalog.Catalog()), code, func(name string) string {
			_, source, err := store.ReadSkill(name)
			if err != nil {
				return "" // the import reports the reason
			}
			return source
		})
	}
}

func (d *daemon) openListeners(ctx context.Context, getenv func(string) string, m *serverMeter) error {
	// Also closed if only tenants have tokens: an open endpoint would let everyone act as the operator.
	closed := !d.settings.MCPAuthToken.IsEmpty() || d.tenants != nil
	about := operatorapi.About{
		Version: version.Version, Started: time.Now(), Slots: d.settings.Slots, Port: d.settings.MCPPort, Token: closed,
		PublicURL: d.settings.PublicURL, Issuer: d.settings.OIDC.Issuer,
	}
	checks := guard.Config{
		AllowedHosts: d.settings.MCPAllowedHosts, Token: d.settings.MCPAuthToken, Required: closed, Page: console.Path,
	}
	if d.tenants != nil {
		checks.Tenant = d.tenants.Handler
	}
	metadata, err := d.openLogins(&checks)
	if err != nil {
		return err
	}
	var logins http.Handler // not a nil *authserver.Server
	if d.logins != nil {
		logins = d.logins
	}
	metrics := prometheus.Gatherers{m.Registry, newGatherer(d.control.FetchMetrics)}
	if err := d.recorder.ReportMetrics(ctx, metrics); err != nil {
		return err
	}
	d.guard = guard.New(checks)
	d.openConsole(ctx, getenv, about)
	d.endpoint, err = endpoint.OpenEndpoint(ctx, endpoint.Config{
		Listen:    d.flags.listen,
		Socket:    d.flags.socket,
		Guard:     d.guard,
		HasToken:  closed,
		Container: getenv("CODEFORGE_CONTAINER") == "1",
		UIDs:      []int{d.flags.ownerUID, 0},
		MCP:       d.mcp,
		Metadata:  metadata,
		Logins:    logins,
		Ready:     d.checkReady,
		Servers:   d.broker.ListStates,
		Console:   d.console,
		Operator: operator.NewHandler(operator.Config{
			About: about, Control: d.control, History: d.history, Alarms: d.alarms, Servers: d.broker, Stop: ctx.Done(),
			Console: d.consoleLogin, Tenants: d.tenants.States, Database: d.databaseState, Packages: d.catalog.Packages,
			AddInput: d.inputs.Add, Logins: d.logins, Catalog: d.catalog.FetchCatalog,
		}),
		Metrics: metrics,
		Log:     d.log,
	})
	if err != nil {
		return err
	}
	for _, a := range d.endpoint.ListAddrs() {
		d.log.Info("listening", logline.Tag("mcp"), slog.String("url", "http://"+a.String()+"/mcp"))
	}
	return nil
}

// checkReady returns the reason why runs cannot be served, or nil.
func (d *daemon) checkReady(ctx context.Context) error {
	if err := d.catalog.Problem(); err != nil {
		return err
	}
	h, err := d.sandbox.Health(ctx)
	if err != nil {
		return err
	}
	if !h.Ready {
		return fmt.Errorf("the sandbox is not ready: %s", h.Problem)
	}
	return nil
}

// serveUntilDone runs until ctx ends or a listener fails. Then it stops all parts in order.
func (d *daemon) serveUntilDone(ctx context.Context) error {
	// The parts must outlive ctx, because calls that drain still need them.
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	parts.Go(func() { d.catalog.Run(background) })
	parts.Go(func() { d.library.Run(background) })
	parts.Go(func() { d.surface.WatchSkills(background) })
	if d.tenants != nil {
		parts.Go(func() { d.tenants.Run(background) })
	}
	parts.Go(func() { d.skills.Follow(background) })
	parts.Go(func() { d.alarms.Follow(background, d.executor.StopFrozenRuns) })
	parts.Go(func() { d.skills.WatchChanges(background, d.log, d.console.SkillsChanged) })
	if d.fleet != nil {
		parts.Go(func() { d.fleet.Run(background) })
	}
	if d.fleet == nil || d.flags.proxy != "" {
		parts.Go(func() { d.followProxy(background, d.control) })
	}
	if d.history.Mode() != history.Off {
		parts.Go(func() { alertwatch.New(d.history, d.broker.ListStates).Run(background) })
	}

	ended := make(chan error, 1)
	parts.Go(func() { ended <- d.endpoint.Serve() })
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	d.stopAll()
	cancel()
	parts.Wait()
	return err
}

// stopAll lets running calls end, then cancels them, then closes all parts.
func (d *daemon) stopAll() {
	d.log.Info("stopping", logline.Tag("mcp"), slog.Int("calls", d.mcp.CountCalls()))
	if d.fleet != nil { // another mcp-server takes over
		d.endpoint.RetireConnections(retireTime)
	}
	drain, cancel := context.WithTimeout(context.Background(), d.flags.drain)
	var draining sync.WaitGroup
	// The endpoints of all tenants drain together, within one time limit.
	for _, h := range d.listHandlers() {
		draining.Go(func() { h.Drain(drain) })
	}
	draining.Wait()
	// Runs drain after the calls, because a call could otherwise not start its run.
	for _, one := range d.listSurfaces() {
		draining.Go(func() { one.DrainRuns(drain) })
	}
	draining.Wait()
	cancel()
	unwind, cancel := context.WithTimeout(context.Background(), unwindTime)
	defer cancel()
	d.mcp.Close(unwind)
	for _, one := range d.listSurfaces() {
		one.CloseRuns(unwind)
	}
	d.tenants.Close(unwind)
	// After the endpoints, whose runs release their leases, and before the sandbox's connection that releases them.
	d.queue.Close()
	d.broker.Close(unwind) // while the proxy and the sandbox are still connected
	d.endpoint.Close(unwind)
	_ = d.sandbox.Close() // its runs have ended
	d.control.Close()
	_ = d.skills.Close() // opened for reading only
	d.history.Close(unwind)
	_ = d.logins.Close() // each change is complete
	// An error means that the collector is away, which it has logged.
	_ = d.recorder.Close(unwind)
	if d.database != nil {
		_ = d.database.Close() // its users are closed above
	}
}

func registryAddress(s settings.Settings) string {
	if s.Registry == nil {
		return ""
	}
	return s.Registry.String()
}

// newRedactor returns a function that removes REDACTING_STRINGS from log lines. In DEBUG_MODE the lines contain code as
// it was written.
func newRedactor(list []string) func(string) string {
	sorted := slices.Clone(list)
	// Longest first: a string that contains a shorter one must be removed as a whole.
	slices.SortFunc(sorted, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range sorted {
		pairs = append(pairs, s, "REDACTED")
	}
	return strings.NewReplacer(pairs...).Replace
}
