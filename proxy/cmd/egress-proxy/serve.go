package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/internal/health"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mtls"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/authority"
	"github.com/codeforge-mcp/codeforge/proxy/internal/brokerlink"
	"github.com/codeforge-mcp/codeforge/proxy/internal/budget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/control"
	"github.com/codeforge-mcp/codeforge/proxy/internal/credentials"
	"github.com/codeforge-mcp/codeforge/proxy/internal/egress"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/hostcheck"
	"github.com/codeforge-mcp/codeforge/proxy/internal/idempotency"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/podslots"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/ports"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/resolver"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// daemon holds the parts of a running proxy.
type daemon struct {
	log       *slog.Logger
	reloader  *reload.Reloader
	leases    *lease.Table
	entrance  *entrance.Entrance
	resolver  *resolver.Resolver
	control   *control.Control
	values    *renewedvalues.Values
	minter    *mint.Minter
	approvals *approval.Store
	ledger    *ledger.Log     // or nil
	database  *database.DB    // shared by several proxies, or nil
	counter   *budget.Counter // nil with a database
	ports     *ports.Ports
	remote    net.Listener // for mcp-server in another pod; nil if there is none
	ready     atomic.Bool

	authority *authority.Authority
	pods      *podslots.PodSlots // of pods that share the proxy, or nil
	publish   net.Listener       // where these pods get the authority's certificate
}

// serveEgress runs the proxy until ctx ends.
func serveEgress(ctx context.Context, o options, getenv func(string) string, stderr io.Writer) error {
	d, l, logins, err := openDaemon(ctx, o, getenv, stderr)
	if err != nil {
		return health.CannotStart(err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.control.Serve(ctx, l) })
	if d.remote != nil {
		g.Go(func() error { return d.control.Serve(ctx, d.remote) })
	}
	if d.publish != nil {
		g.Go(func() error { return rpc.Serve(ctx, d.publish, http.HandlerFunc(d.serveCertificate)) })
	}
	g.Go(func() error {
		return credentials.Serve(ctx, logins, credentials.NewHandler(d.minter, d.approvals, ledger.Dir(o.audit)))
	})
	g.Go(func() error { d.values.RunSweeps(ctx); return nil })
	counting, stop := context.WithCancel(context.WithoutCancel(ctx)) // plans spend until they are closed
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		if d.counter != nil {
			d.counter.StoreEverySecond(counting, d.logUncounted)
		}
	}()
	g.Go(func() error { d.approvals.FollowDecisions(ctx, d.logDatabase); return nil })
	g.Go(func() error { return d.entrance.Serve(ctx) })
	g.Go(func() error { return d.resolver.Serve(ctx) })
	g.Go(func() error { d.reloader.WatchFolder(ctx); return nil })
	g.Go(func() error { d.ports.RetryFailed(ctx); return nil })
	d.ready.Store(true)
	d.log.LogAttrs(ctx, slog.LevelInfo, "ready", logline.Tag("proxy"), slog.String("mode", o.mode))
	err = g.Wait()
	d.approvals.Close()
	d.leases.Close()
	stop()
	<-counted
	if d.database != nil {
		_ = d.database.Close() // all its users are closed above
	}
	d.minter.Close()
	if d.ledger != nil {
		err = errors.Join(err, d.ledger.Close())
	}
	return err
}

// serveCertificate answers with the authority's certificate, and nothing else.
func (d *daemon) serveCertificate(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-pem-file")
	_ = pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: d.authority.Certificate().Raw}) // the client notices
}

func (d *daemon) currentCatalog() *catalog.Catalog { return d.reloader.Current().Rules.Catalog }

// openDaemon does everything that can fail before the proxy serves. l is the control socket, logins the credentials'
// socket.
func openDaemon(
	ctx context.Context, o options, getenv func(string) string, stderr io.Writer,
) (d *daemon, l, logins net.Listener, err error) {
	set, err := settings.Parse(getenv)
	if err != nil {
		return nil, nil, nil, err
	}
	d = &daemon{}
	if o.mode == modeShared {
		d.pods = podslots.New(podslots.Config{
			Busy:   func(id slot.ID) bool { return d.leases.IsBusy(id) },
			Forget: func(id slot.ID) { d.leases.ResetSlot(id) },
		})
	}
	in, mode, err := openSockets(o, set.Network, d.pods, getenv)
	if err != nil {
		return nil, nil, nil, err
	}
	if err = d.assembleParts(o, set, in, getenv, stderr); err != nil {
		return nil, nil, nil, err
	}
	if l, err = unixsocket.Listen(ctx, o.control, mode); err != nil {
		return nil, nil, nil, err
	}
	if logins, err = unixsocket.Listen(ctx, o.credentials, fileOwner); err != nil {
		return nil, nil, nil, err
	}
	if o.listen != "" {
		if d.remote, err = mtls.Listen(ctx, o.listen, o.identity, mtls.MCPServer); err != nil {
			return nil, nil, nil, err
		}
	}
	if o.publish != "" {
		if d.publish, err = mtls.Listen(ctx, o.publish, o.identity, mtls.Sandbox); err != nil {
			return nil, nil, nil, err
		}
	}
	return d, l, logins, dropPrivileges(o.mode)
}

// assembleParts builds the parts and loads the catalog.
func (d *daemon) assembleParts(
	o options, set settings.Settings, in sandboxInputs, getenv func(string) string, stderr io.Writer,
) error {
	pool, err := newPool(o, set)
	if err != nil {
		return err
	}
	ca, err := authority.New(authority.Config{Private: o.private, Public: o.public})
	if err != nil {
		return err
	}
	d.authority = ca
	redactor := redact.New(set.RedactingStrings)
	clean := func(s string) string { return redactor.String(d.reloader.Current().Scrub.CleanForLog(s)) }
	d.log = logline.New(stderr, set.LogFormat, clean)
	log.SetOutput(quietLog{d.log})
	if err := d.openLedger(o, set); err != nil {
		return err
	}
	journal := receipt.NewJournal(receipt.Config{Log: d.log, Clean: clean, Ledger: d.ledger.AppendRecord})
	var handler *egress.Egress
	d.values = renewedvalues.New(nil)
	d.minter = mint.New(mint.Config{
		Transport: pool, Values: d.values, Dir: o.tokens, APIs: o.apis, UserAgent: set.UserAgent, Log: d.log,
		Login: func(name string, out bool) {
			_ = d.ledger.AppendRecord(ledger.Entry{Login: &ledger.Login{Name: name, Out: out}})
		},
	})
	prepare := func(c *catalog.Catalog) {
		if err := d.minter.Configure(c); err != nil {
			d.log.LogAttrs(context.Background(), slog.LevelError, "credentials cannot be obtained", logline.Tag("error"),
				slog.String("error", err.Error()))
		}
	}
	conf := reload.Config{Dir: o.apis, YOLO: set.YOLO, Signal: notifyHangups(), Minted: d.values, Prepare: prepare}
	conf.Changed = func(c reload.ReloadChange) {
		d.approvals.DropStale(c.Now.Rules.Catalog)
		// Before slower steps: exchanges in flight hold credentials that are no longer valid.
		handler.CutStale(c)
		d.ports.SetPorts(c.Now.Rules.Catalog.ListPorts())
		journal.PublishEvent(proxyapi.Event{Catalog: c.Now.Public.Version})
		tuneCollector()
	}
	conf.Registry, conf.RegistryPrivate = policy.NewRegistry(set.Registry, set.RegistryPrivate), set.RegistryPrivate
	if o.mode == modeEmbedded {
		conf.Getenv = getenv
	}
	d.reloader = reload.New(conf)
	tunnel := &brokerlink.Broker{}
	memory := newBudget()
	// An approval names the version of the catalog. Proxies with a shared secret give equal catalogs equal versions, so
	// an approval is valid at each such proxy.
	catalog.SetSharedSecret(shareddb.FindPassword(set))
	if d.database, err = shareddb.OpenDatabase(context.Background(), set); err != nil {
		return err
	}
	d.approvals = approval.New(approval.Config{
		DB: d.database, Memory: memory.OpenAccount("plans"),
		Open: func(id, run, tenant, version string, apis []string) approval.Sender {
			return handler.OpenSender(id, run, tenant, version, apis)
		},
		Held: func(h approvalapi.HeldRequest) {
			d.log.LogAttrs(context.Background(), slog.LevelWarn, "a request waits for approval", logline.Tag("hold"),
				slog.String("id", h.ID), slog.String("run", h.Run), slog.String("tenant", h.Tenant),
				slog.String("server", h.Server), slog.String("api", h.API), slog.String("method", h.Method))
		},
		Decided: func(one ledger.Decision) {
			one.Method, one.URL = clean(one.Method), clean(one.URL)
			_ = d.ledger.AppendRecord(ledger.Entry{Decision: &one})
		},
	})
	limits, err := d.openLimits(filepath.Join(o.tokens, "limits"))
	if err != nil {
		return fmt.Errorf("reading the used amounts of limits: %w", err)
	}
	handler = egress.New(egress.Config{
		Memory:  memory,
		Current: d.reloader.Current, Pool: pool, Broker: tunnel, Journal: journal, Redact: redactor,
		Mint: d.minter, Approvals: d.approvals, Budget: limits, Keys: &idempotency.Keys{}, Sending: d.newIntentWriter(set),
		Checkpoint: d.writeCheckpoint,
		UserAgent:  set.UserAgent, Debug: set.Debug, Log: d.log,
	})
	d.leases = lease.NewTable(lease.Config{
		Drain: func(id slot.ID) { d.entrance.DrainQueue(id) }, Plans: d.approvals, Memory: memory,
		Lost: func(id slot.ID, rec proxyapi.Receipt) { d.control.RecordLost(id, rec) },
	})
	d.entrance, err = entrance.New(entrance.Config{
		Listeners: in.listeners, Attach: d.leases.AttachConn, GetCertificate: ca.GetCertificate, Handler: handler,
		Refused: newRefusalRecorder(journal, d.log),
	})
	if err != nil {
		return err
	}
	d.ports = ports.New(ports.Config{Slots: in.slots, Open: in.open, Add: d.entrance.AddListener, Log: d.log})
	d.resolver = resolver.New(resolver.Config{
		Known:   d.newHostCheck(in.find),
		Allow:   in.newQueryLimit(),
		Address: o.address,
		Sockets: in.dns,
		Asked:   d.newQueryCheck(in.find, journal),
	})
	d.control = control.New(control.Config{
		Leases: d.leases, Journal: journal, Current: d.reloader.Current, Broker: tunnel, Approvals: d.approvals,
		Database: d.database,
		Hosts:    (&hostcheck.Checker{Pool: pool, Catalog: d.currentCatalog, UserAgent: set.UserAgent}).CheckHosts,
		CA:       string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate().Raw})),
		Ready:    d.checkReady, Profile: o.profile, Ledger: d.ledger, Pods: d.pods,
	})
	journal.Metrics().AddGauge("codeforge_proxy_exchanges_in_flight", "Exchanges in flight.",
		func() float64 { return float64(handler.InFlight()) })
	journal.Metrics().AddGauge("codeforge_proxy_memory_bytes", "Bytes of the memory budget that requests have taken.",
		func() float64 { return float64(memory.UsedBytes()) })
	journal.Metrics().AddGauge("codeforge_audit_records_lost", "Records that the ledger could not take since the start.",
		func() float64 { return float64(d.ledger.LostCount()) })
	journal.Metrics().AddGauge("codeforge_proxy_leases", "Slots with a run or an MCP server.",
		func() float64 { return float64(len(d.leases.ListLeases())) })
	journal.Metrics().AddGauge("codeforge_proxy_broker_connected",
		"Whether the broker of MCP servers is connected: 1 or 0.",
		func() float64 {
			if tunnel.IsConnected() {
				return 1
			}
			return 0
		})
	d.reloader.LoadFirst(d.log)
	return nil
}

// openLimits opens the counts of limits: those in the database that several proxies share, or else those in a file.
func (d *daemon) openLimits(path string) (budget.LimitCounter, error) {
	if d.database != nil {
		return budget.NewShared(d.database), nil
	}
	d.counter = &budget.Counter{Path: path}
	return d.counter, d.counter.Load()
}

// logDatabase logs an error of the database, or if err is nil, that the database answers again.
func (d *daemon) logDatabase(err error) {
	if err == nil {
		d.log.LogAttrs(context.Background(), slog.LevelInfo, "the database answers again", logline.Tag("proxy"))
		return
	}
	d.log.LogAttrs(context.Background(), slog.LevelError, "requests that need an approval or a limit are refused",
		logline.Tag("error"), slog.String("error", err.Error()))
}

// checkReady returns why the proxy is not ready, or nil.
func (d *daemon) checkReady() error {
	if !d.ready.Load() {
		return errors.New("starting")
	}
	return nil
}

func newPool(o options, set settings.Settings) (*upstream.Pool, error) {
	conf := upstream.Config{Proxy: set.UpstreamProxy, Endpoint: o.endpoint, Sandbox: set.Network.Subnet()}
	if set.UpstreamCAFile != "" {
		var err error
		if conf.CAs, err = os.ReadFile(set.UpstreamCAFile); err != nil {
			return nil, fmt.Errorf("UPSTREAM_CA_FILE: %w", err)
		}
	}
	return upstream.New(conf)
}

// newRefusalRecorder records connections that end before there is a request: with a receipt entry when there is a run.
// Without a run they are unbounded, so most of a flood is only counted.
func newRefusalRecorder(j *receipt.Journal, log *slog.Logger) func(*lease.Lease, string, error) {
	limit := rate.NewLimiter(10, 50)
	refusals := j.Metrics().AddCounter("codeforge_proxy_connections_refused_total",
		"Connections without a slot or a run, or beyond a limit.")
	return func(l *lease.Lease, from string, err error) {
		var h *entrance.HandshakeError
		if !errors.As(err, &h) || l == nil {
			refusals.Inc()
			if limit.Allow() {
				log.LogAttrs(context.Background(), slog.LevelWarn, "connection refused", logline.Tag("deny"),
					slog.String("from", from), slog.String("cause", err.Error()))
			}
			return
		}
		j.RecordExchange(egress.NewHandshakeNote(l, h))
	}
}

func notifyHangups() <-chan struct{} {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	out := make(chan struct{})
	go func() {
		for range signals {
			out <- struct{}{}
		}
	}()
	return out
}

// The modes of the sockets' files: in Docker access to its volume is the boundary of the control socket, and mcp-server
// is another user.
const (
	fileOwner   fs.FileMode = 0o600
	fileGateway fs.FileMode = 0o666
)

// quietLog is the output of the standard library's log, which net/http's Transport writes to: it quotes unsolicited
// bytes of an upstream, and a part of a credential in them would not be recognised. The log records that there was a
// line, without its text.
type quietLog struct{ log *slog.Logger }

// Write logs that there was a line.
func (u quietLog) Write(p []byte) (int, error) {
	u.log.LogAttrs(context.Background(), slog.LevelWarn, "an upstream connection misbehaved", logline.Tag("error"),
		slog.Int("bytes", len(p)))
	return len(p), nil
}
