// Package upstream connects to the real servers.
//
// Contract: the proxy dials the requested host at addresses that it resolved itself and dialguard allows, over verified
// TLS. Connections are pooled by the set of APIs, certificate authorities, open ranges and catalog version. A
// connection is therefore only reused under the rules it was dialled under. Only requests that are safe to repeat are
// retried.
//
// Threat: request and response desync. On HTTP/1 the end of a message depends on how each end reads its length. A
// server may read it wrongly, or not read a body at all. So an HTTP/1 connection serves one Owner, and carries at most
// one body, as its last use. Owners share HTTP/2 connections, whose frames name the stream of every byte.
package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
)

const (
	dialTime      = 10 * time.Second
	lookupTime    = 2 * time.Second // see resolveProxied
	silentTime    = time.Minute
	handshakeTime = 10 * time.Second
	idleTime      = 90 * time.Second
	idlePerHost   = 64
	maxHead       = 256 << 10 // bytes of a response's head
	maxPools      = 256       // transports of one owner, and those that all owners share
	maxSessions   = 64        // TLS sessions of one pool
	maxHosts      = 4096      // hosts whose protocol is remembered
	streamWindow  = 512 << 10 // unread bytes of a response over HTTP/2
	frameSize     = 64 << 10  // bytes of one frame, which a connection keeps
	pingAfter     = 30 * time.Second
	pingTime      = 15 * time.Second
)

// Config configures a Pool.
type Config struct {
	// Proxy is the proxy for every connection, or nil. Only its own address is exempt from the guard.
	Proxy *url.URL
	// Endpoint is the port of CodeForge's MCP endpoint on loopback. See dialguard.Guard.
	Endpoint uint16
	// Sandbox is the network of the slots in Docker mode. The pool never dials it, in any mode.
	Sandbox netip.Prefix
	// CAs are further certificate authorities for every upstream, in PEM.
	CAs []byte
	// Resolve returns a host's addresses. Nil means the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Connect opens a connection to an address that dialguard has allowed. Nil means a TCP connection, which is checked
	// again on the socket. Tests use it to map a well-known port.
	Connect func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// Pool holds one transport per key. It is safe for concurrent use.
type Pool struct {
	conf  Config
	roots *x509.CertPool
	// lookUp returns the addresses of a host in one of networks: "ip4" and "ip6" of the system's resolver, or "ip" of
	// conf.Resolve.
	lookUp   func(ctx context.Context, network, host string) ([]netip.Addr, error)
	networks []string

	mu       sync.Mutex
	owned    map[Owner]map[string]*http.Transport // by appendKey; all owners share those of nil
	sessions map[string]tls.ClientSessionCache    // by appendKey
	speaks   map[string]hostProtocol              // by host, with its port if it has one
	silent   map[string]time.Time                 // network and host without an answer of the name server, and until when
	asked    time.Time                            // the time of the last request for a transport
	now      func() time.Time
}

// New returns a Pool. It fails if Config.CAs contains no certificate.
func New(c Config) (*Pool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		// A container may have no system certificates; Config.CAs may still be enough.
		roots = x509.NewCertPool()
	}
	if len(c.CAs) > 0 && !roots.AppendCertsFromPEM(c.CAs) {
		return nil, errors.New("UPSTREAM_CA_FILE: the file contains no certificate")
	}
	p := &Pool{conf: c, roots: roots, asked: time.Now(), now: time.Now}
	p.networks, p.lookUp = []string{"ip"}, func(ctx context.Context, _, host string) ([]netip.Addr, error) {
		return c.Resolve(ctx, host)
	}
	if c.Resolve == nil {
		p.networks, p.lookUp = []string{"ip4", "ip6"}, lookUpSystem
		p.conf.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return lookUpSystem(ctx, "ip", host)
		}
	}
	p.clearMaps()
	return p, nil
}

// clearMaps empties the maps. The caller holds mu, or is the only user.
func (p *Pool) clearMaps() {
	p.owned, p.sessions = map[Owner]map[string]*http.Transport{}, map[string]tls.ClientSessionCache{}
	p.speaks, p.silent = map[string]hostProtocol{}, map[string]time.Time{}
}

// lookUpSystem asks the system's resolver.
func lookUpSystem(ctx context.Context, network, host string) ([]netip.Addr, error) {
	// The trailing dot keeps the system from trying its search domains. A single label may be in /etc/hosts.
	if strings.Contains(host, ".") {
		host += "."
	}
	return net.DefaultResolver.LookupNetIP(ctx, network, host)
}

// Owner is the only user of its HTTP/1 connections. When its context ends, its idle connections are closed.
type Owner interface{ Context() context.Context }

// ContextOwner is an Owner for requests that belong to no run.
type ContextOwner struct{ ctx context.Context }

// NewOwner returns an Owner whose connections are closed when a context ends.
func NewOwner(ctx context.Context) *ContextOwner { return &ContextOwner{ctx} }

// Context implements Owner.
func (o *ContextOwner) Context() context.Context { return o.ctx }

// DropCertificate returns an API for a server that is not one of its hosts, such as its token server: the client
// certificate is only for its hosts.
func DropCertificate(a *catalog.API) *catalog.API {
	other := *a
	// Connections are shared by name, so the copy needs another name.
	other.Name, other.ClientCert = a.Name+" without its certificate", nil
	return &other
}

// Want describes the connection for a request.
type Want struct {
	// APIs are the APIs whose credentials may be sent over the connection.
	APIs []*catalog.API
	// Version is the version of the catalog.
	Version string
	// Owner owns the HTTP/1 connection. It must be comparable.
	Owner Owner
	// HTTP2 requires HTTP/2, as gRPC does.
	HTTP2 bool
	// Upgrade requires a new HTTP/1 connection that is not used for other requests.
	Upgrade bool
	// Login means that the request may authenticate its connection, as NTLM does. It goes over HTTP/1, as the last request
	// on its connection.
	Login bool
	// Once means that a person approved the request, so it may be sent once. If the server may have acted on it, the Pool
	// must not retry it.
	Once bool
}

// getTransport returns the transport for a request. A private range is open, an authority is trusted and a certificate
// is sent only if every one of the APIs has it.
func (p *Pool) getTransport(w Want, k connKind) *http.Transport {
	r := combineRules(w.APIs)
	var space [1 << 10]byte
	text := appendKey(space[:0], w, k, r.private, r.cas)
	p.mu.Lock()
	defer p.mu.Unlock()
	// Before the lookup: a transport from before the sleep must not be returned.
	p.retireAfterSleep()
	var pools map[string]*http.Transport
	if k.isShared() {
		pools = p.ownerTransports(nil)
	} else {
		//defence:run-connections instead p.ownerTransports(nil)
		pools = p.ownerTransports(w.Owner)
	}
	t := pools[string(text)]
	if t == nil {
		t = p.newTransport(k, r, p.sessionCache(string(text[1:])))
		pools[string(text)] = t
	}
	return t
}

// ownerTransports returns the transports of an owner, which are kept until its context ends. Nil means those that all
// owners share. The caller holds mu.
func (p *Pool) ownerTransports(o Owner) map[string]*http.Transport {
	pools := p.owned[o]
	// An owner with that many sets of APIs starts over: its memory stays bounded.
	if len(pools) >= maxPools {
		closeIdle(pools)
		clear(pools)
	}
	if pools == nil {
		pools = map[string]*http.Transport{}
		p.owned[o] = pools
		if o != nil {
			// A run that has ended never asks again, so its connections would stay until idleTime.
			context.AfterFunc(o.Context(), func() { p.releaseOwner(o) })
		}
	}
	return pools
}

// releaseOwner closes the transports of an owner whose context has ended.
func (p *Pool) releaseOwner(o Owner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	closeIdle(p.owned[o])
	delete(p.owned, o)
}

func closeIdle(pools map[string]*http.Transport) {
	for _, t := range pools {
		t.CloseIdleConnections()
	}
}

// sessionCache returns the TLS session cache for connections under the same rules. All owners share it, because it
// makes new connections cheaper and contains no data that code can choose. The caller holds mu.
func (p *Pool) sessionCache(key string) tls.ClientSessionCache {
	c := p.sessions[key]
	if c == nil {
		if len(p.sessions) >= maxPools {
			clear(p.sessions)
		}
		c = tls.NewLRUClientSessionCache(maxSessions)
		p.sessions[key] = c
	}
	return c
}

// RetireAll forgets every transport after a reload. Requests in flight may finish, but idle connections are not used
// again.
func (p *Pool) RetireAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retireLocked()
}

// retireAfterSleep retires every transport if the machine has slept. http.Transport notices late that the server is
// gone. Until then it would send other requests over a connection with a request in flight. The caller holds mu.
func (p *Pool) retireAfterSleep() {
	last, now := p.asked, p.now()
	p.asked = now
	// The monotonic clock stands still while the machine sleeps; the wall clock does not.
	if now.Round(0).Sub(last.Round(0))-now.Sub(last) > idleTime {
		p.retireLocked()
	}
}

// retireLocked is RetireAll for a caller that holds mu.
func (p *Pool) retireLocked() {
	for _, pools := range p.owned {
		closeIdle(pools)
	}
	p.clearMaps()
}

func (p *Pool) newTransport(k connKind, r connRules, sessions tls.ClientSessionCache) *http.Transport {
	roots := p.roots
	if len(r.cas) > 0 {
		// The pool's roots are shared by all APIs: an API's authority must not get into them.
		roots = roots.Clone()
		roots.AppendCertsFromPEM(r.cas)
	}
	var certs []tls.Certificate
	if r.cert != nil {
		// The catalog has checked the key pair.
		if c, err := tls.X509KeyPair(r.cert.Cert, []byte(r.cert.Key.Reveal())); err == nil {
			certs = append(certs, c)
		}
	}
	d := &dialer{pool: p, guard: p.newGuard(r.private)}
	//defence:upstream-tls permits
	unverified := false
	t := &http.Transport{
		DialContext: d.dialHost,
		TLSClientConfig: &tls.Config{
			RootCAs: roots, Certificates: certs, MinVersion: tls.VersionTLS12, ClientSessionCache: sessions,
			// VerifyPeerCertificate would not run for a resumed session.
			VerifyConnection: func(s tls.ConnectionState) error {
				// Several owners must not share an HTTP/1 connection.
				if k == kindSharedHTTP2 && s.NegotiatedProtocol != "h2" {
					return errNotHTTP2
				}
				return nil
			},
			InsecureSkipVerify: unverified,
		},
		TLSHandshakeTimeout: handshakeTime,
		// The proxy decides itself whether responses may be compressed.
		DisableCompression:     true,
		MaxIdleConnsPerHost:    idlePerHost,
		MaxIdleConns:           idlePerHost,
		IdleConnTimeout:        idleTime,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHead,
		ReadBufferSize:         16 << 10,
		WriteBufferSize:        16 << 10,
		Protocols:              new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamWindow, MaxReadFrameSize: frameSize,
			SendPingTimeout: pingAfter, PingTimeout: pingTime,
		},
	}
	t.Protocols.SetHTTP1(k.hasHTTP1())
	t.Protocols.SetHTTP2(k.hasHTTP2())
	if k == kindSingle || k == kindFresh {
		// Keep no HTTP/1 connection idle. DisableKeepAlives would overwrite Connection: Upgrade.
		t.MaxIdleConnsPerHost = -1
	}
	if p.conf.Proxy != nil {
		t.Proxy = http.ProxyURL(newProxyURL(p.conf.Proxy))
	}
	return t
}

// connRules are the common rules of connections for a set of APIs.
type connRules struct {
	private []netip.Prefix
	cas     []byte
	cert    *catalog.ClientCert
}

func combineRules(apis []*catalog.API) (r connRules) {
	for i, a := range apis {
		if i == 0 {
			r = connRules{a.AllowPrivate, a.CAs, a.ClientCert}
		}
		// A clone, because the first list belongs to the catalog and DeleteFunc writes into it.
		r.private = slices.DeleteFunc(slices.Clone(r.private), func(x netip.Prefix) bool {
			return !slices.Contains(a.AllowPrivate, x)
		})
		if string(r.cas) != string(a.CAs) {
			// An authority of one API must not be trusted for the credentials of another.
			r.cas = nil
		}
		if !r.cert.Equal(a.ClientCert) {
			r.cert = nil
		}
	}
	return r
}

// appendKey appends the properties that a connection and a request must share. The field that may contain any byte
// comes last, so different properties have different keys.
func appendKey(b []byte, w Want, k connKind, private []netip.Prefix, cas []byte) []byte {
	b = append(b, byte(k))
	b = append(append(b, w.Version...), 0)
	for _, a := range w.APIs {
		b = append(append(b, a.Name...), ' ')
	}
	b = append(b, 0)
	for _, p := range private {
		b = append(p.AppendTo(b), ' ')
	}
	return append(append(b, 0), cas...)
}
