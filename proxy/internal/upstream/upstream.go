// Package upstream reaches the real servers.
//
// Contract: the proxy dials the name it was asked for at addresses it resolved itself, past dialguard, over verified
// TLS. Connections are pooled per set of APIs, certificate authorities, open ranges and catalog version, so that none
// is reused under other rules than those it was dialled under. Nothing is retried that is not safe to repeat.
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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/disarm"
	"github.com/codeforge-mcp/codeforge/proxy/internal/dialguard"
)

const (
	dialTime      = 10 * time.Second
	handshakeTime = 10 * time.Second
	idleTime      = 90 * time.Second
	idlePerHost   = 64
	maxHead       = 256 << 10 // bytes of a response's head
	maxPools      = 256       // pools kept; the least recently made goes first
)

// Config is what a Pool needs.
type Config struct {
	// Proxy is where every connection goes through, or nil. Its own address alone is not guarded.
	Proxy *url.URL
	// CAs is PEM of further certificate authorities for every upstream.
	CAs []byte
	// Resolve finds a host's addresses. Nil: the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Connect opens a connection to an address that dialguard has passed. Nil: a TCP connection, guarded once more on
	// the socket. Tests give one that leads a well-known port to their own.
	Connect func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// Pool holds a transport per key. It is safe for concurrent use.
type Pool struct {
	conf  Config
	roots *x509.CertPool

	mu    sync.Mutex
	pools map[string]*http.Transport // by appendKey
	order []string
}

// New makes a pool.
func New(c Config) (*Pool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if len(c.CAs) > 0 && !roots.AppendCertsFromPEM(c.CAs) {
		return nil, errors.New("UPSTREAM_CA_FILE: no certificate in it")
	}
	if c.Resolve == nil {
		c.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			// The dot at the end keeps the system from trying its search domains.
			return net.DefaultResolver.LookupNetIP(ctx, "ip", rooted(host))
		}
	}
	return &Pool{conf: c, roots: roots, pools: map[string]*http.Transport{}}, nil
}

// rooted makes a name with dots absolute. Single labels stay, for /etc/hosts.
func rooted(host string) string {
	if strings.Contains(host, ".") {
		return host + "."
	}
	return host
}

// Want is what a transport is needed for.
type Want struct {
	// APIs are those whose credentials may go over it.
	APIs []*catalog.API
	// Version is the catalog's.
	Version string
	// HTTP2 asks for HTTP/2, which only gRPC needs.
	HTTP2 bool
}

// Transport is the one for these APIs. The strictest of them decides: a private range is open, and an own authority
// trusted, only if every one of them says so.
func (p *Pool) Transport(w Want) *http.Transport {
	private, cas := common(w.APIs)
	var space [1 << 10]byte
	text := appendKey(space[:0], w, private, cas)
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.pools[string(text)]; t != nil {
		return t
	}
	t, key := p.transport(w, private, cas), string(text)
	p.pools[key] = t
	p.order = append(p.order, key)
	if len(p.order) > maxPools {
		p.pools[p.order[0]].CloseIdleConnections()
		delete(p.pools, p.order[0])
		p.order = p.order[1:]
	}
	return t
}

// Retire forgets every transport, after a reload: what is in flight ends, nothing idle is used again.
func (p *Pool) Retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.pools {
		t.CloseIdleConnections()
	}
	p.pools, p.order = map[string]*http.Transport{}, nil
}

func (p *Pool) transport(w Want, private []netip.Prefix, cas []byte) *http.Transport {
	roots := p.roots
	if len(cas) > 0 {
		roots = roots.Clone()
		roots.AppendCertsFromPEM(cas)
	}
	d := &dialer{pool: p, guard: dialguard.Guard{AllowPrivate: private}}
	t := &http.Transport{
		DialContext:            d.dial,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, InsecureSkipVerify: disarm.Off("upstream-tls")}, //nolint:gosec // false in what is shipped
		TLSHandshakeTimeout:    handshakeTime,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleTime,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHead,
		ReadBufferSize:         16 << 10,
		WriteBufferSize:        16 << 10,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(!w.HTTP2)
	t.Protocols.SetHTTP2(w.HTTP2)
	if p.conf.Proxy != nil {
		t.Proxy = http.ProxyURL(p.conf.Proxy)
	}
	return t
}

// common is what all the APIs have in common.
func common(apis []*catalog.API) (private []netip.Prefix, cas []byte) {
	for i, a := range apis {
		if i == 0 {
			private, cas = a.AllowPrivate, a.CAs
			continue
		}
		private = slices.DeleteFunc(slices.Clone(private), func(x netip.Prefix) bool {
			return !slices.Contains(a.AllowPrivate, x)
		})
		if string(cas) != string(a.CAs) {
			cas = nil
		}
	}
	return private, cas
}

// appendKey appends what a connection must have in common with a request to be used for it. What may have any byte is
// last, so no two keys of different things are equal.
func appendKey(b []byte, w Want, private []netip.Prefix, cas []byte) []byte {
	b = strconv.AppendBool(b, w.HTTP2)
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
