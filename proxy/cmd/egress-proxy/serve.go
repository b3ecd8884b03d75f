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
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/health"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mtls"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
	"github.com/codeforge-mcp/codeforge/internal/version"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/attempt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/authority"
	"github.com/codeforge-mcp/codeforge/proxy/internal/broker"
	"github.com/codeforge-mcp/codeforge/proxy/internal/budget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/control"
	"github.com/codeforge-mcp/codeforge/proxy/internal/credentials"
	"github.com/codeforge-mcp/codeforge/proxy/internal/egress"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/hold"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/minted"
	"github.com/codeforge-mcp/codeforge/proxy/internal/plan"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/ports"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reach"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/internal/resolver"
	"github.com/codeforge-mcp/codeforge/proxy/internal/seats"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/planapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// daemon holds the parts of a running proxy.
type daemon struct {
	log      *slog.Logger
	reloader *reload.Reloader
	book     *lease.Book
	entrance *entrance.Entrance
	resolver *resolver.Resolver
	control  *control.Control
	values   *minted.Values
	minter   *mint.Minter
	room     *hold.Room
	plans    *plan.Book
	ledger   *ledger.Log // or nil
	budget   *budget.Ledger
	ports    *ports.Ports
	remote   net.Listener // for mcp-server in another pod; nil if there is none
	ready    atomic.Bool

	authority *authority.Authority
	pods      *seats.Seats // of pods that share the proxy, or nil
	publish   net.Listener // where these pods get the authority's certificate
}

// serve runs the proxy until ctx ends.
func serve(ctx context.Context, o options, getenv func(string) string, stderr io.Writer) error {
	d, l, logins, err := open(ctx, o, getenv, stderr)
	if err != nil {
		return health.CannotStart(err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.control.Serve(ctx, l) })
	if d.remote != nil {
		g.Go(func() error { return d.control.Serve(ctx, d.remote) })
	}
	if d.publish != nil {
		g.Go(func() error { return rpc.Serve(ctx, d.publish, http.HandlerFunc(d.certificate)) })
	}
	g.Go(func() error {
		return credentials.Serve(ctx, logins, credentials.Handler(d.minter, d.room, d.plans, ledger.Dir(o.audit)))
	})
	g.Go(func() error { d.values.Run(ctx); return nil })
	counting, stop := context.WithCancel(context.WithoutCancel(ctx)) // plans spend until they are closed
	counted := make(chan struct{})
	go func() { defer close(counted); d.budget.Run(counting, d.uncounted) }()
	g.Go(func() error { return d.entrance.Serve(ctx) })
	g.Go(func() error { return d.resolver.Serve(ctx) })
	g.Go(func() error { d.reloader.Watch(ctx); return nil })
	g.Go(func() error { d.ports.Run(ctx); return nil })
	d.ready.Store(true)
	d.log.LogAttrs(ctx, slog.LevelInfo, "ready", logline.Tag("proxy"), slog.String("mode", o.mode))
	err = g.Wait()
	d.plans.Close()
	d.book.Close()
	stop()
	<-counted
	d.minter.Close()
	if d.ledger != nil {
		err = errors.Join(err, d.ledger.Close())
	}
	return err
}

// certificate answers with the authority's certificate, and nothing else.
func (d *daemon) certificate(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-pem-file")
	_ = pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: d.authority.Certificate().Raw}) // the client notices
}

// catalog returns the catalog in force.
func (d *daemon) catalog() *catalog.Catalog { return d.reloader.Current().Rules.Catalog }

// open does everything that can fail before the proxy serves. l is the control socket, logins the credentials' socket.
func open(
	ctx context.Context, o options, getenv func(string) string, stderr io.Writer,
) (d *daemon, l, logins net.Listener, err error) {
	set, err := settings.Parse(getenv)
	if err != nil {
		return nil, nil, nil, err
	}
	d = &daemon{}
	if o.mode == modeShared {
		d.pods = seats.New(seats.Config{
			Busy:   func(id slot.ID) bool { return d.book.Busy(id) },
			Forget: func(id slot.ID) { d.book.Forget(id) },
		})
	}
	in, mode, err := sockets(o, set.Network, d.pods, getenv)
	if err != nil {
		return nil, nil, nil, err
	}
	if err = d.assemble(o, set, in, getenv, stderr); err != nil {
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
	return d, l, logins, secure(o.mode)
}

// assemble builds the parts and loads the catalog.
func (d *daemon) assemble(
	o options, set settings.Settings, in inputs, getenv func(string) string, stderr io.Writer,
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
	clean := func(s string) string { return redactor.String(d.reloader.Current().Scrub.Loggable(s)) }
	d.log = logline.New(stderr, set.LogFormat, clean)
	log.SetOutput(unquoted{d.log})
	if err := d.openLedger(o, set); err != nil {
		return err
	}
	journals := receipt.Config{Log: d.log, Clean: clean}
	if d.ledger != nil {
		journals.Ledger = d.ledger.Append
	}
	journal := receipt.NewJournal(journals)
	var handler *egress.Egress
	d.values = minted.New(nil)
	d.minter = mint.New(mint.Config{
		Transport: pool, Values: d.values, Dir: o.tokens, APIs: o.apis, UserAgent: set.UserAgent, Log: d.log,
		Login: func(name string, out bool) { _ = d.record(ledger.Entry{Login: &ledger.Login{Name: name, Out: out}}) },
	})
	prepare := func(c *catalog.Catalog) {
		if err := d.minter.Configure(c); err != nil {
			d.log.LogAttrs(context.Background(), slog.LevelError, "credentials cannot be obtained", logline.Tag("error"),
				slog.String("error", err.Error()))
		}
	}
	conf := reload.Config{Dir: o.apis, YOLO: set.YOLO, Signal: hangups(), Minted: d.values, Prepare: prepare}
	conf.Changed = func(c reload.Change) {
		d.room.Forget()
		d.plans.Forget()
		handler.Cut(c) // before anything that may take its time: what is in flight holds credentials that are no longer valid
		d.ports.Set(c.Now.Rules.Catalog.Ports())
		journal.Publish(proxyapi.Event{Catalog: c.Now.Public.Version})
		settle()
	}
	conf.Registry, conf.RegistryPrivate = policy.NewRegistry(set.Registry, set.RegistryPrivate), set.RegistryPrivate
	if o.mode == modeEmbedded {
		conf.Getenv = getenv
	}
	d.reloader = reload.New(conf)
	tunnel := &broker.Broker{}
	d.room = &hold.Room{Added: func(h approvalapi.Held) {
		d.log.LogAttrs(context.Background(), slog.LevelWarn, "a request waits for approval", logline.Tag("hold"),
			slog.String("id", h.ID), slog.String("run", h.Run), slog.String("tenant", h.Tenant),
			slog.String("server", h.Server),
			slog.String("api", h.API), slog.String("method", h.Method))
	}, Decided: func(h approvalapi.Held) {
		_ = d.record(ledger.Entry{Decision: &ledger.Decision{
			Run: h.Run, Tenant: h.Tenant, Server: h.Server, API: h.API, Method: clean(h.Method), URL: clean(h.URL),
			Approved: h.Approved, Scope: string(h.Scope),
		}})
	}}
	memory := newBudget()
	d.plans = plan.New(plan.Config{
		Memory: memory.Open("plans"),
		Open: func(ctx context.Context, id, run, tenant string, apis []string) plan.Sender {
			return handler.Open(ctx, id, run, tenant, apis)
		},
		Decided: func(p planapi.Plan, approved bool, steps []int) {
			_ = d.record(ledger.Entry{Decision: &ledger.Decision{Run: p.Run, Plan: p.ID, Approved: approved, Steps: steps}})
		},
	})
	d.budget = &budget.Ledger{Path: filepath.Join(o.tokens, "limits")}
	if err := d.budget.Load(); err != nil {
		return fmt.Errorf("reading the used amounts of limits: %w", err)
	}
	handler = egress.New(egress.Config{
		Memory:  memory,
		Current: d.reloader.Current, Pool: pool, Broker: tunnel, Journal: journal, Redact: redactor,
		Mint: d.minter, Room: d.room, Budget: d.budget, Keys: &attempt.Keys{}, Sending: d.sending(set),
		Checkpoint: d.checkpoint,
		UserAgent:  set.UserAgent, Debug: set.Debug, Log: d.log,
	})
	d.book = lease.NewBook(lease.Config{
		Drain: func(id slot.ID) { d.entrance.Drain(id) }, Plans: d.plans, Memory: memory,
		Lost: func(id slot.ID, rec proxyapi.Receipt) { d.control.Lost(id, rec) },
	})
	d.entrance, err = entrance.New(entrance.Config{
		Listeners: in.listeners, Attach: d.book.Attach, GetCertificate: ca.GetCertificate, Handler: handler,
		Refused: refused(journal, d.log),
	})
	if err != nil {
		return err
	}
	d.ports = ports.New(ports.Config{Seats: in.seats, Open: in.open, Add: d.entrance.Add, Log: d.log})
	d.resolver = resolver.New(resolver.Config{
		Known:   d.newHostCheck(in.find),
		Allow:   in.asker(),
		Address: o.address,
		Packets: in.packets, Streams: in.streams, PacketSlots: in.packetSlots, StreamSlots: in.streamSlots,
		Asked: d.asked(in.find, journal),
	})
	d.control = control.New(control.Config{
		Book: d.book, Journal: journal, Current: d.reloader.Current, Broker: tunnel, Room: d.room, Plans: d.plans,
		Hosts: (&reach.Checker{Pool: pool, Catalog: d.catalog, UserAgent: set.UserAgent}).Hosts,
		CA:    string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate().Raw})),
		Ready: d.problem, Profile: o.profile, Ledger: d.ledger, Pods: d.pods,
	})
	journal.Metrics().Gauge("codeforge_proxy_exchanges_in_flight", "Exchanges in flight.",
		func() float64 { return float64(handler.InFlight()) })
	journal.Metrics().Gauge("codeforge_proxy_memory_bytes", "Bytes of the memory budget that requests have taken.",
		func() float64 { return float64(memory.Used()) })
	journal.Metrics().Gauge("codeforge_audit_records_lost", "Records that the ledger could not take since the start.",
		func() float64 {
			if d.ledger == nil {
				return 0
			}
			return float64(d.ledger.Lost())
		})
	journal.Metrics().Gauge("codeforge_proxy_leases", "Slots with a run or an MCP server.",
		func() float64 { return float64(len(d.book.Leases())) })
	journal.Metrics().Gauge("codeforge_proxy_broker_connected", "Whether the broker of MCP servers is connected: 1 or 0.",
		func() float64 {
			if tunnel.Connected() {
				return 1
			}
			return 0
		})
	d.reloader.Start(d.log)
	return nil
}

// lockTime is how long a starting proxy waits for an ending one to release the ledger.
const lockTime = 10 * time.Second

// openLedger opens the ledger, unless it is switched off.
func (d *daemon) openLedger(o options, set settings.Settings) (err error) {
	if set.Audit == "off" {
		return nil
	}
	d.ledger, err = ledger.Open(ledger.Config{
		Dir: o.audit, Patience: lockTime, Keep: set.AuditKeep, Most: set.AuditSize, Anchor: set.AuditAnchor,
		Version: version.Version, Log: d.log,
	})
	if err != nil {
		return fmt.Errorf("%w; AUDIT=off starts without it", err)
	}
	return nil
}

// record writes to the ledger, if there is one.
func (d *daemon) record(e ledger.Entry) error {
	if d.ledger == nil {
		return nil
	}
	return d.ledger.Append(e)
}

// checkpoint brings the ledger to the disk, and returns its short form, or nothing.
func (d *daemon) checkpoint(run string) string {
	if d.ledger == nil {
		return ""
	}
	head, err := d.ledger.Checkpoint(run)
	if err != nil {
		return "" // a lost record is counted and logged
	}
	return head.String()
}

// sending records requests before they leave, where that is required.
func (d *daemon) sending(set settings.Settings) func(ledger.Sending) error {
	if set.Audit != "required" {
		return nil
	}
	return func(s ledger.Sending) error { return d.record(ledger.Entry{Sending: &s}) }
}

// uncounted logs that the use of limits cannot be stored.
func (d *daemon) uncounted(err error) {
	d.log.LogAttrs(context.Background(), slog.LevelError, "a restart forgets the used amounts of limits",
		logline.Tag("error"), slog.String("error", err.Error()))
}

// problem returns why the proxy is not ready, or nil.
func (d *daemon) problem() error {
	if !d.ready.Load() {
		return errors.New("starting")
	}
	return nil
}

// newPool makes the pool from the settings for upstreams.
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

// refused records connections that end before there is a request: with a receipt entry when there is a run. Without a
// run they are unbounded, so most of a flood is only counted.
func refused(j *receipt.Journal, log *slog.Logger) func(*lease.Lease, string, error) {
	limit := rate.NewLimiter(10, 50)
	refusals := j.Metrics().Counter("codeforge_proxy_connections_refused_total",
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
		j.Record(egress.HandshakeNote(l, h))
	}
}

// hangups returns a channel of SIGHUPs.
func hangups() <-chan struct{} {
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

// findLease returns the lease of a slot, or of the slot that an address identifies. It is nil if the slot has none.
func (d *daemon) findLease(find func(netip.Addr) (slot.ID, bool), seat *slot.ID, from netip.Addr) *lease.Lease {
	if seat == nil {
		id, ok := find(from)
		if !ok {
			return nil
		}
		seat = &id
	}
	return d.book.Holder(*seat)
}

// newHostCheck returns a function that reports whether a host resolves for the run or server in a slot. Hosts of other
// tenants' APIs do not resolve.
func (d *daemon) newHostCheck(find func(netip.Addr) (slot.ID, bool)) func(*slot.ID, netip.Addr, catalog.Host) bool {
	return func(seat *slot.ID, from netip.Addr, h catalog.Host) bool {
		rules := d.reloader.Current().Rules
		if l := d.findLease(find, seat, from); l != nil {
			return rules.Known(l, h)
		}
		return rules.Known(nil, h)
	}
}

// asked raises the alarm for a queried name that carries what no request may. The name does not leave the machine, so
// the alarm is about the attempt.
func (d *daemon) asked(find func(netip.Addr) (slot.ID, bool), j *receipt.Journal) func(*slot.ID, netip.Addr, string) {
	return func(seat *slot.ID, from netip.Addr, name string) {
		l := d.findLease(find, seat, from)
		if l == nil || l.Canaries == nil {
			return
		}
		snap := d.reloader.Current()
		if host, err := catalog.ParseHost(name); err == nil && len(snap.Rules.Catalog.Match(host)) > 0 {
			return // the configuration's own text, or judged with the request
		}
		if c, ok := egress.Guarded(snap, l).NameCarries(name, "name"); ok {
			egress.Alarm(j, l, c, "", strings.TrimSuffix(name, "."))
		}
	}
}

// asker limits who may query the resolver, where slots are known by address. A pod that shares the proxy may query it
// before it has a run: nothing is forwarded.
func (in inputs) asker() func(netip.Addr) bool {
	if in.find == nil || in.anyAsks {
		return nil
	}
	return func(a netip.Addr) bool { _, ok := in.find(a); return ok }
}

// The modes of the sockets' files: in Docker access to its volume is the boundary of the control socket, and mcp-server
// is another user.
const (
	fileOwner   fs.FileMode = 0o600
	fileGateway fs.FileMode = 0o666
)

// unquoted is the output of the standard library's log, which net/http's Transport writes to: it quotes unsolicited
// bytes of an upstream, and a part of a credential in them would not be recognised. The log says that there was a line,
// not what it said.
type unquoted struct{ log *slog.Logger }

// Write logs that there was a line.
func (u unquoted) Write(p []byte) (int, error) {
	u.log.LogAttrs(context.Background(), slog.LevelWarn, "an upstream connection misbehaved", logline.Tag("error"),
		slog.Int("bytes", len(p)))
	return len(p), nil
}
