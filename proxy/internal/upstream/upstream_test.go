package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/dialguard"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func at127(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

func newPool(t *testing.T, c Config) *Pool {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.RetireAll)
	return p
}

// to redirects every connection to an address, and counts them.
func to(addr string, n *atomic.Int32) func(context.Context, netip.AddrPort) (net.Conn, error) {
	return func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		n.Add(1)
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
}

// owner is a run that does not end.
type owner struct{ _ int } // not empty, so that pointers differ

func (*owner) Context() context.Context { return context.Background() }

var someone = &owner{}

func get(t *testing.T, p *Pool, target string, w Want) (string, error) {
	t.Helper()
	req, err := http.NewRequest("GET", target, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Owner = someone
	resp, err := p.RoundTrip(req, w)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// TestKeys: connections are shared only under equal rules.
func TestKeys(t *testing.T) {
	p := newPool(t, Config{Resolve: at127})
	a := &catalog.API{Name: "a"}
	base := Want{APIs: []*catalog.API{a}, Version: "1"}
	same := p.getTransport(base, kindSharedHTTP2)
	if p.getTransport(Want{APIs: []*catalog.API{{Name: "a"}}, Version: "1"}, kindSharedHTTP2) != same {
		t.Error("equal rules have two pools")
	}
	for name, w := range map[string]Want{
		"another API":     {APIs: []*catalog.API{{Name: "b"}}, Version: "1"},
		"one API more":    {APIs: []*catalog.API{a, {Name: "b"}}, Version: "1"},
		"no API":          {Version: "1"},
		"another version": {APIs: []*catalog.API{a}, Version: "2"},
		"an open range":   {APIs: []*catalog.API{{Name: "a", AllowPrivate: loopback}}, Version: "1"},
		"an authority":    {APIs: []*catalog.API{{Name: "a", CAs: []byte("x")}}, Version: "1"},
	} {
		if p.getTransport(w, kindSharedHTTP2) == same {
			t.Errorf("%s shares the pool", name)
		}
	}
	p.RetireAll()
	if p.getTransport(base, kindSharedHTTP2) == same {
		t.Error("a retired pool is used again")
	}
	for i := range maxPools + 10 {
		p.getTransport(Want{Version: strings.Repeat("v", i)}, kindSharedHTTP2)
	}
	if n := len(p.owned[nil]); n > maxPools {
		t.Errorf("%d pools are shared", n)
	}
}

// TestStrictest: of several APIs the strictest decides.
func TestStrictest(t *testing.T) {
	open := &catalog.API{Name: "a", AllowPrivate: loopback, CAs: []byte("ca")}
	for name, c := range map[string]struct {
		apis    []*catalog.API
		private int
		cas     string
	}{
		"none":            {nil, 0, ""},
		"one":             {[]*catalog.API{open}, 1, "ca"},
		"both":            {[]*catalog.API{open, open}, 1, "ca"},
		"only the first":  {[]*catalog.API{open, {Name: "b"}}, 0, ""},
		"only the second": {[]*catalog.API{{Name: "b"}, open}, 0, ""},
	} {
		r := combineRules(c.apis)
		private, cas := r.private, r.cas
		if len(private) != c.private || string(cas) != c.cas {
			t.Errorf("%s: %v %q", name, private, cas)
		}
	}
	if len(open.AllowPrivate) != 1 {
		t.Error("the catalog was changed")
	}
}

// TestGuardIsAlwaysThere: with a custom Connect, too, nothing forbidden is dialled.
// Promise: no-private-address
func TestGuardIsAlwaysThere(t *testing.T) {
	var dials atomic.Int32
	p := newPool(t, Config{Resolve: at127, Connect: to("127.0.0.1:1", &dials)})
	_, err := get(t, p, "http://api.test/", Want{})
	if !errors.Is(err, dialguard.ErrRefused) || ClassifyError(err) != CodeAddress || dials.Load() != 0 {
		t.Errorf("%v after %d dials", err, dials.Load())
	}
	// Without one, the socket is guarded too.
	p = newPool(t, Config{Resolve: at127})
	if _, err = get(t, p, "http://api.test/", Want{}); !errors.Is(err, dialguard.ErrRefused) {
		t.Errorf("got %v", err)
	}
}

// TestMixedAnswers: only the permitted addresses of a name are tried, one after the other.
func TestMixedAnswers(t *testing.T) {
	var dialled []string
	p := newPool(t, Config{
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("9.9.9.9")}, nil
		},
		Connect: func(_ context.Context, a netip.AddrPort) (net.Conn, error) {
			dialled = append(dialled, a.String())
			return nil, errors.New("no")
		},
	})
	_, err := get(t, p, "https://api.test/", Want{})
	if got := strings.Join(dialled, " "); got != "8.8.8.8:443 9.9.9.9:443" || ClassifyError(err) != CodeConnect {
		t.Errorf("dialled %s, %v", got, err)
	}
}

func TestUnresolved(t *testing.T) {
	for _, resolve := range []func(context.Context, string) ([]netip.Addr, error){
		func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") },
		func(context.Context, string) ([]netip.Addr, error) { return nil, nil },
	} {
		p := newPool(t, Config{Resolve: resolve})
		if _, err := get(t, p, "https://api.test/", Want{}); ClassifyError(err) != CodeResolve {
			t.Errorf("got %v", err)
		}
	}
}

// TestUpstreamProxy: every connection goes through it; only its own address is exempt from the guard.
// Promise: no-private-address
func TestUpstreamProxy(t *testing.T) {
	target := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer target.Close()
	var asked atomic.Pointer[string]
	addr := serveConns(t, nil, func(c net.Conn) { tunnel(c, target.Listener.Addr().String(), &asked) })
	proxy, _ := url.Parse("http://user:pass@" + addr)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: target.Certificate().Raw})
	p := newPool(t, Config{Proxy: proxy, CAs: ca, Endpoint: 8080, Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
		switch host {
		case "inside.test":
			return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
		case "both.test": // the proxy may connect to either
			return []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("169.254.169.254")}, nil
		case "localhost":
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		return nil, errors.New("only the proxy can resolve it")
	}})
	body, err := get(t, p, "https://example.com/", Want{}) // a name in httptest's certificate
	if err != nil || body != "hello" {
		t.Fatalf("%q, %v", body, err)
	}
	if got := *asked.Load(); !strings.HasPrefix(got, "example.com:443 Basic ") {
		t.Errorf("the proxy was asked for %q", got)
	}
	local := Want{APIs: []*catalog.API{{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}}}
	for _, c := range []struct {
		url     string
		want    Want
		refused bool
	}{
		{"https://example.com/", Want{}, false}, // only the proxy resolves it
		{"https://inside.test/", Want{}, true}, {"https://both.test/", Want{}, true},
		{"http://localhost:8081/", local, false}, {"http://localhost/", local, false},
		{"http://localhost:8080/", local, true}, // our own endpoint
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.CheckTarget(t.Context(), c.want, u); (err != nil) != c.refused || c.refused && !errors.Is(err, dialguard.ErrRefused) {
			t.Errorf("%s: %v", c.url, err)
		}
	}
}

// TestSilentNameServer: behind an upstream proxy a name server that never answers delays the first request of a host by
// two seconds, and the next ones for a minute not at all.
func TestSilentNameServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := newPool(t, Config{Proxy: &url.URL{Scheme: "http", Host: "127.0.0.1:3128"}, Resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			if asked++; host == "inside.test" {
				return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
			}
			<-ctx.Done()
			return nil, &net.DNSError{IsTimeout: true}
		}})
		for _, c := range []struct {
			host    string
			after   time.Duration
			takes   time.Duration
			asked   int
			refused bool
		}{
			{"a.test", 0, 2 * time.Second, 1, false}, {"a.test", 0, 0, 1, false}, {"b.test", 0, 2 * time.Second, 2, false},
			{"inside.test", 0, 0, 3, true}, {"inside.test", 0, 0, 4, true}, // an answer is asked for each time
			{"a.test", time.Minute, 2 * time.Second, 5, false},
		} {
			time.Sleep(c.after) // of the bubble's clock
			began := time.Now()
			err := p.CheckTarget(t.Context(), Want{}, &url.URL{Scheme: "https", Host: c.host})
			if took := time.Since(began); took != c.takes || asked != c.asked || (err != nil) != c.refused {
				t.Errorf("%+v: took %s, the name server was asked %d times, %v", c, took, asked, err)
			}
		}
	})
}

// TestHalfSilentNameServer: a name server that withholds the IPv6 addresses of a host hides no IPv4 address, and delays
// only one request in a minute.
// Promise: no-private-address
func TestHalfSilentNameServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Proxy: &url.URL{Scheme: "http", Host: "127.0.0.1:3128"}})
		p.lookUp = func(ctx context.Context, network, _ string) ([]netip.Addr, error) {
			if network == "ip4" {
				return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
			}
			<-ctx.Done()
			return nil, &net.DNSError{IsTimeout: true}
		}
		for i, takes := range []time.Duration{2 * time.Second, 0, 0} {
			began := time.Now()
			err := p.CheckTarget(t.Context(), Want{}, &url.URL{Scheme: "https", Host: "half.test"})
			if took := time.Since(began); err == nil || took != takes {
				t.Errorf("request %d: took %s, %v", i, took, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_ = p.CheckTarget(ctx, Want{}, &url.URL{Scheme: "https", Host: "other.test"}) // the caller gave up, not the name server
		if p.resolveProxied(t.Context(), "other.test"); len(p.silent) != 2 {
			t.Errorf("silent: %v", p.silent)
		}
	})
}

// TestResolveHost keeps the allowed addresses of a host. Without one, the error is that of the guard or of the resolver.
func TestResolveHost(t *testing.T) {
	down := errors.New("down")
	hosts := map[string][]string{"both.test": {"10.0.0.1", "192.0.2.7", "127.0.0.1", "2001:db9::1"}, "inside.test": {"10.0.0.1"}, "empty.test": {}}
	p := newPool(t, Config{Resolve: func(_ context.Context, host string) (list []netip.Addr, err error) {
		for _, a := range hosts[host] {
			list = append(list, netip.MustParseAddr(a))
		}
		if hosts[host] == nil {
			err = down
		}
		return list, err
	}})
	d := &dialer{pool: p, guard: p.newGuard(nil)}
	for host, want := range map[string]error{"both.test": nil, "inside.test": dialguard.ErrRefused, "empty.test": errResolve, "down.test": down} {
		list, err := d.resolveHost(t.Context(), host, 443)
		if !errors.Is(err, want) || want == nil && err != nil || (len(list) > 0) != (want == nil) {
			t.Errorf("%s: %v, %v", host, list, err)
		}
		for _, a := range list {
			if a.IsPrivate() || a.IsLoopback() {
				t.Errorf("%s: %s is allowed", host, a)
			}
		}
	}
	for _, addr := range []string{"no port", "host:70000", "down.test:443"} {
		if c, err := d.dialHost(t.Context(), "tcp", addr); err == nil {
			_ = c.Close()
			t.Errorf("%s was dialled", addr)
		}
	}
	if _, err := d.dialAddress(t.Context(), netip.MustParseAddrPort("127.0.0.1:443"), 1); !errors.Is(err, dialguard.ErrRefused) {
		t.Errorf("an address that the guard refuses: %v", err)
	}
}

// TestProxyOverTLS: a proxy that is reached over TLS is no host of an API: it is shown no client certificate, and needs a
// certificate of an authority that all upstreams may have.
// Promise: no-private-address
func TestProxyOverTLS(t *testing.T) {
	var shown atomic.Int32
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { shown.Store(int32(len(r.TLS.PeerCertificates))) }))
	target.TLS, target.EnableHTTP2 = &tls.Config{ClientAuth: tls.RequestClientCert}, true
	target.StartTLS()
	defer target.Close()
	var asked atomic.Pointer[string]
	var toProxy atomic.Int32
	config := &tls.Config{Certificates: target.TLS.Certificates, ClientAuth: tls.RequestClientCert,
		VerifyConnection: func(s tls.ConnectionState) error { toProxy.Add(int32(len(s.PeerCertificates))); return nil }}
	addr := serveConns(t, config, func(c net.Conn) { tunnel(c, target.Listener.Addr().String(), &asked) })
	proxy, _ := url.Parse("https://" + addr)
	own := target.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: target.Certificate().Raw})
	api := &catalog.API{Name: "demo", CAs: ca, ClientCert: &catalog.ClientCert{Cert: ca,
		Key: secret.New(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))}}
	if _, err := get(t, newPool(t, Config{Proxy: proxy, Resolve: at127}), "https://example.com/", Want{APIs: []*catalog.API{api}}); ClassifyError(err) != CodeTLS || asked.Load() != nil {
		t.Errorf("a proxy of the API's authority: %v", err)
	}
	p := newPool(t, Config{Proxy: proxy, CAs: ca, Resolve: at127})
	for range 2 { // the second goes over HTTP/2
		if _, err := get(t, p, "https://example.com/", Want{APIs: []*catalog.API{api}}); err != nil {
			t.Fatal(err)
		}
	}
	if at, proxied := shown.Load(), toProxy.Load(); at != 1 || proxied != 0 {
		t.Errorf("%d certificates at the host, %d at the proxy", at, proxied)
	}
}

// serveConns listens on loopback until the test ends, with TLS unless config is nil, and calls serve for each
// connection on a goroutine of its own.
func serveConns(t *testing.T, config *tls.Config, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	addr = l.Addr().String()
	if config != nil {
		l = tls.NewListener(l, config)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return addr
}

// tunnel serves one CONNECT and connects it to the target, whatever was requested.
func tunnel(c net.Conn, target string, asked *atomic.Pointer[string]) {
	defer c.Close()
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil || req.Method != http.MethodConnect {
		return
	}
	text := req.Host + " " + req.Header.Get("Proxy-Authorization")
	asked.Store(&text)
	up, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer up.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(up, c) }()
	_, _ = io.Copy(c, up)
}

// TestNoRetry: a request that is not safe to repeat is sent once, even if an idle connection turns out to be dead, and
// whatever headers code adds.
func TestNoRetry(t *testing.T) {
	for _, method := range []string{"POST", "DELETE"} {
		for _, header := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
			for _, body := range []string{"pay once", ""} {
				t.Run(fmt.Sprint(method, " ", header, " ", body), func(t *testing.T) { noRetry(t, method, header, body) })
			}
		}
	}
}

func noRetry(t *testing.T, method, header, body string) {
	var requests, dials atomic.Int32
	addr := serveConns(t, nil, func(c net.Conn) { // answers one request, reads a second and hangs up
		defer c.Close()
		in := bufio.NewReader(c)
		for i := range 2 {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if req.Method == method && (header == "" || req.Header.Get(header) == "x") {
				requests.Add(1)
			}
			if i == 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		}
	})
	p := newPool(t, Config{Resolve: at127, Connect: to(addr, &dials)})
	w := Want{APIs: []*catalog.API{{Name: "a", AllowPrivate: loopback}}, Owner: someone}
	if _, err := get(t, p, "http://api.test/", w); err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequest(method, "http://api.test/", strings.NewReader(body)) // with GetBody: it could be read again
	if header != "" {
		req.Header.Set(header, "x")
	}
	if resp, err := p.RoundTrip(req, w); err == nil {
		resp.Body.Close()
		t.Errorf("got %d", resp.StatusCode)
	}
	if requests.Load() != 1 || dials.Load() != 1 {
		t.Errorf("the server saw %d requests on %d connections", requests.Load(), dials.Load())
	}
	if header != "" && req.Header.Get(header) != "x" {
		t.Error("the caller's request was changed")
	}
}

func TestBadCAFile(t *testing.T) {
	if _, err := New(Config{CAs: []byte("not a certificate")}); err == nil {
		t.Error("it was taken")
	}
}
