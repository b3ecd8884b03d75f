package egress_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/authority"
	"github.com/codeforge-mcp/codeforge/proxy/internal/brokerlink"
	"github.com/codeforge-mcp/codeforge/proxy/internal/budget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/egress"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/idempotency"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// The credential of the test API, and what code writes instead.
const (
	secretValue = "sk_live_51canary0123456789"
	tokenName   = "DEMO_AUTH_TOKEN"
	demoHost    = "api.demo.test"
)

// rig is a whole proxy in one process: real listeners, real TLS on both sides, a real upstream.
type rig struct {
	t         testing.TB
	apis      string
	reloader  *reload.Reloader
	book      *lease.Table
	journal   *receipt.Journal
	handler   *egress.Egress
	authority *authority.Authority
	upstreams *upstreams
	logs      *testkit.Buffer
	values    *renewedvalues.Values
	minter    *mint.Minter
	tokens    string // the folder
	approvals *approval.Store
	broker    *brokerlink.Broker
	memory    *membudget.Budget
	budget    *budget.Counter
	https     map[slot.ID]string // address of each slot's listener for 443
	http      map[slot.ID]string // and for 80
	late      bool               // a person decides before the room hears of a reload
	ports     map[string]string  // slot 0's listeners for further ports, by port
}

// further are the ports that slot 0 has listeners for besides 443 and 80, whatever the catalog says.
var further = []uint16{3000, 3001}

// setup configures a rig. The zero setup has one API for demoHost.
type setup struct {
	yolo   bool
	redact []string
	debug  bool
	// sending and ledger are the functions of egress.Config and receipt.Config.
	sending func(ledger.Sending) error
	ledger  func(ledger.Entry) error
	// registry is the host of the package registry, which is on loopback. It is empty if there is none.
	registry string
	// now is the clock of what is minted. Nil means time.Now.
	now func() time.Time
	// apis are the texts of config.json by API. Nil means demoAPI.
	apis map[string]string
	// database is the one that several proxies share, or nil.
	database *database.DB
	// limits counts the limits. Nil means the rig's budget, or the database.
	limits budget.LimitCounter
}

// demoAPI is a config.json whose upstream is one of the test's.
func demoAPI(extra string) string {
	return `{"description": "demo", "domains": ["` + demoHost + `"], "credentials": {"` + tokenName + `": "` + secretValue + `"},
		"ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"]` + extra + `}`
}

func newRig(t testing.TB, s setup) *rig {
	t.Helper()
	r := &rig{t: t, apis: t.TempDir(), logs: &testkit.Buffer{}, upstreams: newUpstreams(t)}
	if s.apis == nil {
		s.apis = map[string]string{"demo": demoAPI("")}
	}
	for name, text := range s.apis {
		r.writeAPI(name, text)
	}
	var err error
	r.authority, err = authority.New(authority.Config{Private: t.TempDir(), Public: t.TempDir()})
	check(t, err)
	pool, err := upstream.New(upstream.Config{Resolve: r.upstreams.resolve, Connect: r.upstreams.connect})
	check(t, err)
	redactor := redact.New(s.redact)
	clean := func(text string) string { return redactor.String(r.reloader.Current().Scrub.CleanForLog(text)) }
	log := logline.New(r.logs, "text", clean)
	r.journal = receipt.NewJournal(receipt.Config{Log: log, Clean: clean, Ledger: s.ledger})
	var registry *catalog.API
	if s.registry != "" {
		registry = policy.NewRegistry(&url.URL{Scheme: "https", Host: s.registry}, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
		registry.CAs = r.upstreams.ca.pem()
	}
	r.broker = &brokerlink.Broker{}
	r.values, r.tokens = renewedvalues.New(s.now), filepath.Join(t.TempDir(), "tokens")
	r.minter = mint.New(mint.Config{Transport: pool, Values: r.values, Dir: r.tokens, UserAgent: "CodeForge/test", Log: log, Now: s.now})
	t.Cleanup(r.minter.Close)
	r.approvals = approval.New(approval.Config{DB: s.database, Open: func(id, run, tenant, version string, apis []string) approval.Sender {
		return r.handler.OpenSender(id, run, tenant, version, apis)
	}})
	r.approvals.Wait = testkit.Patience
	t.Cleanup(r.approvals.Close)
	r.reloader = reload.New(reload.Config{Dir: r.apis, YOLO: s.yolo, Registry: registry, Changed: r.changed,
		Minted: r.values, Prepare: func(c *catalog.Catalog) {
			if err := r.minter.Configure(c); err != nil {
				t.Error(err)
			}
		}})
	r.memory, r.budget = membudget.New(budgetSize), &budget.Counter{}
	var limits budget.LimitCounter = r.budget
	if s.database != nil {
		limits = budget.NewShared(s.database)
		ctx, stop := context.WithCancel(context.Background())
		var follow sync.WaitGroup
		follow.Go(func() { r.approvals.FollowDecisions(ctx, func(error) {}) })
		t.Cleanup(func() { stop(); follow.Wait() })
	}
	if s.limits != nil {
		limits = s.limits
	}
	r.handler = egress.New(egress.Config{
		Memory:  r.memory,
		Current: r.reloader.Current, Pool: pool, Broker: r.broker, Journal: r.journal, Redact: redactor, Mint: r.minter,
		Approvals: r.approvals, Budget: limits, Keys: &idempotency.Keys{}, Sending: s.sending, UserAgent: "CodeForge/test", Debug: s.debug, Log: log,
	})
	r.reloader.LoadFirst(log)
	r.serve(log)
	return r
}

// changed does what the proxy does after a reload.
func (r *rig) changed(c reload.ReloadChange) {
	if !r.late {
		r.approvals.DropStale(c.Now.Rules.Catalog)
	}
	r.handler.CutStale(c)
}

// serverSlot is a slot for an MCP server.
const serverSlot = slot.ID(slot.Max)

// serve opens the listeners of two slots for runs, and of one for a server.
func (r *rig) serve(log *slog.Logger) {
	var ent *entrance.Entrance
	r.book = lease.NewTable(lease.Config{Drain: func(id slot.ID) { ent.DrainQueue(id) }, Plans: r.approvals, Memory: r.memory})
	var listeners []entrance.Listener
	r.https, r.http = map[slot.ID]string{}, map[slot.ID]string{}
	for _, id := range []slot.ID{0, 1, serverSlot} {
		for _, over := range []bool{true, false} {
			port := map[bool]uint16{true: 443, false: 80}[over]
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			check(r.t, err)
			listeners = append(listeners, entrance.Listener{TCP: l.(*net.TCPListener), Port: port, Slot: &id})
			if over {
				r.https[id] = l.Addr().String()
			} else {
				r.http[id] = l.Addr().String()
			}
		}
	}
	r.ports = map[string]string{}
	for _, port := range further {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		check(r.t, err)
		listeners = append(listeners, entrance.Listener{TCP: l.(*net.TCPListener), Port: port, Slot: new(slot.ID)})
		r.ports[strconv.Itoa(int(port))] = l.Addr().String()
	}
	ent, err := entrance.New(entrance.Config{
		Listeners: listeners, Attach: r.book.AttachConn, GetCertificate: r.authority.GetCertificate, Handler: r.handler,
		Refused: func(l *lease.Lease, from string, err error) {
			if h, ok := err.(*entrance.HandshakeError); ok && l != nil { //nolint:errorlint // never wrapped
				r.journal.RecordExchange(egress.NewHandshakeNote(l, h))
				return
			}
			log.LogAttrs(context.Background(), slog.LevelWarn, "refused", logline.Tag("deny"), slog.String("from", from), slog.String("cause", err.Error()))
		},
	})
	check(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ent.Serve(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("the entrance ended with: %v", err)
		}
		r.book.Close()
	})
}

func (r *rig) writeAPI(name, text string) {
	r.t.Helper()
	dir := filepath.Join(r.apis, name)
	check(r.t, os.MkdirAll(dir, 0o755))
	check(r.t, os.WriteFile(filepath.Join(dir, "ca.pem"), r.upstreams.ca.pem(), 0o644))
	check(r.t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600))
}

// begin registers a run in slot 0 that may use everything, and returns the function that ends it.
func (r *rig) begin(apis ...string) (end func() proxyapi.Receipt) {
	r.t.Helper()
	return r.beginIn(0, 1, apis...)
}

func (r *rig) beginIn(id slot.ID, generation uint64, apis ...string) (end func() proxyapi.Receipt) {
	r.t.Helper()
	return r.beginOf("", id, generation, apis...)
}

// beginOf registers a tenant's run.
func (r *rig) beginOf(tenant string, id slot.ID, generation uint64, apis ...string) (end func() proxyapi.Receipt) {
	r.t.Helper()
	_, err := r.book.BeginLease(id, proxyapi.Registration{
		Generation: generation, Run: "run-" + r.t.Name(), Tenant: tenant, APIs: apis, Deadline: time.Now().Add(10 * testkit.Patience),
	})
	check(r.t, err)
	return func() proxyapi.Receipt {
		r.t.Helper()
		rec, err := r.book.EndLease(id, generation)
		check(r.t, err)
		return rec
	}
}

// client is a client inside slot 0: every name resolves to the slot's listeners.
func (r *rig) client(h2 bool) *http.Client { return r.clientIn(0, h2) }

func (r *rig) clientIn(id slot.ID, h2 bool) *http.Client {
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(addr)
			to := r.https[id]
			if port == "80" {
				to = r.http[id]
			} else if at := r.ports[port]; at != "" {
				to = at
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", to)
		},
		TLSClientConfig:    &tls.Config{RootCAs: r.roots()},
		DisableCompression: true,
		Protocols:          new(http.Protocols),
	}
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetHTTP2(h2)
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testkit.Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (r *rig) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(r.authority.Certificate())
	return pool
}

// upstreams are the servers that names resolve to, all on loopback.
type upstreams struct {
	t  testing.TB
	ca *testCA

	mu    sync.Mutex
	addrs map[string][]netip.Addr // by host; other hosts have 127.0.0.1
	ports map[uint16]string       // by well-known port: the real one
	dials int
	late  time.Duration // how long after its bytes have left a write returns
	asked sync.Map      // hosts that were resolved
}

func newUpstreams(t testing.TB) *upstreams {
	return &upstreams{t: t, ca: newTestCA(t), addrs: map[string][]netip.Addr{}, ports: map[uint16]string{}}
}

func (u *upstreams) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	u.asked.Store(host, true)
	u.mu.Lock()
	defer u.mu.Unlock()
	if a, ok := u.addrs[host]; ok {
		return a, nil
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

func (u *upstreams) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	u.mu.Lock()
	u.dials++
	addr, late := u.ports[to.Port()], u.late
	u.mu.Unlock()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil || late == 0 {
		return c, err
	}
	return lateConn{c, late}, nil
}

// lateConn is a connection of a machine that is busy when bytes have left.
type lateConn struct {
	net.Conn
	by time.Duration
}

func (c lateConn) Write(p []byte) (int, error) {
	defer time.Sleep(c.by)
	return c.Conn.Write(p)
}

// dialDirect connects a client without the proxy to what the proxy would reach.
func (u *upstreams) dialDirect(ctx context.Context, _, _ string) (net.Conn, error) {
	u.mu.Lock()
	addr := u.ports[443]
	u.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

// client is a client that does not use the proxy.
func (u *upstreams) client() *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(u.ca.cert)
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, DialContext: u.dialDirect, DisableCompression: true,
	}
	u.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (u *upstreams) dialled() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dials
}

// https serves a handler over TLS as every host, with a certificate of the test's authority.
func (u *upstreams) https(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{GetCertificate: func(hi *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return u.ca.leaf(hi.ServerName), nil
	}}
	s.StartTLS()
	u.t.Cleanup(s.Close)
	u.lead(443, s.Listener.Addr().String())
	return s
}

// http2 is https for a server that speaks HTTP/2.
func (u *upstreams) http2(h http.Handler) {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{GetCertificate: func(hi *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return u.ca.leaf(hi.ServerName), nil
	}}
	s.StartTLS()
	u.t.Cleanup(s.Close)
	u.lead(443, s.Listener.Addr().String())
}

// plain serves a handler over plain HTTP.
func (u *upstreams) plain(h http.Handler) *httptest.Server {
	s := httptest.NewServer(h)
	u.t.Cleanup(s.Close)
	u.lead(80, s.Listener.Addr().String())
	return s
}

// raw serves connections as bytes, behind TLS.
func (u *upstreams) raw(serve func(net.Conn)) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		GetCertificate: func(hi *tls.ClientHelloInfo) (*tls.Certificate, error) { return u.ca.leaf(hi.ServerName), nil },
	})
	check(u.t, err)
	u.t.Cleanup(func() { l.Close() })
	u.lead(443, l.Addr().String())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); serve(c) }()
		}
	}()
}

func (u *upstreams) lead(port uint16, addr string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ports[port] = addr
}

// testCA is the authority of the upstreams.
type testCA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newTestCA(t testing.TB) *testCA {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "upstreams"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	return &testCA{t, cert, key}
}

func (c *testCA) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})
}

func (c *testCA) leaf(host string) *tls.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, c.key.Public(), c.key)
	if err != nil {
		return nil
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: c.key}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// body reads a response to its end.
func body(t testing.TB, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	check(t, err)
	return string(b)
}

// refusal reads the JSON body of a refused request.
func refusal(t testing.TB, resp *http.Response) proxyapi.Refusal {
	t.Helper()
	var r proxyapi.Refusal
	text := body(t, resp)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("status %d, body %q is no refusal: %v", resp.StatusCode, text, err)
	}
	return r
}
