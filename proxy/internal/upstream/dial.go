package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/dialguard"
)

var errResolve = errors.New("the name does not resolve")

// errDial is the error for an address that does not answer.
var errDial = errors.New("cannot connect")

// dialError is an errDial with the last address that was tried.
type dialError struct {
	to    netip.AddrPort
	cause error
}

func (e *dialError) Error() string { return errDial.Error() + ": " + e.cause.Error() }

// Unwrap makes the error an errDial, and also returns the cause.
func (e *dialError) Unwrap() []error { return []error{errDial, e.cause} }

type dialer struct {
	pool  *Pool
	guard dialguard.Guard
}

// dialHost connects to host:port. It is the DialContext of the transport.
func (d *dialer) dialHost(ctx context.Context, _, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	// Only the address of the configured proxy is exempt from the guard.
	if p := d.pool.conf.Proxy; p != nil && addr == proxyAddr(p) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("%w to the upstream proxy: %w", errDial, err)
		}
		return d.pool.connectProxy(ctx, c)
	}
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, err
	}
	addrs, err := d.resolveHost(ctx, host, uint16(port))
	if err != nil {
		return nil, err
	}
	var last netip.AddrPort
	// An address may be unreachable from here although another one works, such as IPv6.
	for i, a := range addrs {
		var c net.Conn
		last = netip.AddrPortFrom(a, uint16(port))
		c, err = d.dialAddress(ctx, last, len(addrs)-i)
		if err == nil {
			return &aheadConn{Conn: sealConn(c)}, nil
		}
	}
	return nil, &dialError{last, err}
}

// connectProxy connects to the upstream proxy, over TLS if its URL has the scheme https. http.Transport would use the
// API's client certificate and authorities for this connection, but the proxy is not a host of the API.
func (p *Pool) connectProxy(ctx context.Context, c net.Conn) (net.Conn, error) {
	sealed := sealConn(c)
	if p.conf.Proxy.Scheme != "https" {
		return sealed, nil
	}
	over := tls.Client(sealed, &tls.Config{
		RootCAs: p.roots, ServerName: p.conf.Proxy.Hostname(), MinVersion: tls.VersionTLS12,
	})
	if err := over.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("to the upstream proxy: %w", err)
	}
	return sealConn(over), nil
}

// newProxyURL returns the proxy URL for http.Transport. For an https proxy it is an http URL, because connectProxy
// already speaks TLS.
func newProxyURL(u *url.URL) *url.URL {
	if u.Scheme != "https" {
		return u
	}
	plain := *u
	plain.Scheme, plain.Host = "http", proxyAddr(u)
	return &plain
}

// resolveHost resolves a host. It returns the addresses that the guard allows at the port, or the guard's error.
func (d *dialer) resolveHost(ctx context.Context, host string, port uint16) ([]netip.Addr, error) {
	all, err := d.pool.conf.Resolve(ctx, host)
	if err == nil && len(all) == 0 {
		err = errors.New("no address")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errResolve, err)
	}
	var open []netip.Addr
	var refused error
	for _, a := range all {
		// One forbidden address does not close a host that also has allowed ones.
		if err := d.guard.CheckPort(netip.AddrPortFrom(a, port)); err != nil {
			refused = err
			continue
		}
		open = append(open, a)
	}
	if len(open) == 0 {
		return nil, refused
	}
	return open, nil
}

// dialAddress tries one address, within an equal share of the remaining time.
func (d *dialer) dialAddress(ctx context.Context, to netip.AddrPort, share int) (net.Conn, error) {
	if until, ok := ctx.Deadline(); ok && share > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(until)/time.Duration(share))
		defer cancel()
	}
	// The guard checks again, directly before the connection: the allowed addresses are the dialled ones.
	if err := d.guard.CheckPort(to); err != nil {
		return nil, err
	}
	if d.pool.conf.Connect != nil {
		return d.pool.conf.Connect(ctx, to)
	}
	// Control checks the address of the socket itself: the last possible moment.
	return (&net.Dialer{Control: d.guard.Control}).DialContext(ctx, "tcp", to.String())
}

// CheckTarget refuses a URL whose host also has a forbidden address. It matters only with an upstream proxy, which
// resolves the host again and connects to any of its addresses. A name that only the proxy can resolve passes.
func (p *Pool) CheckTarget(ctx context.Context, w Want, u *url.URL) error {
	if p.conf.Proxy == nil {
		return nil
	}
	guard := p.newGuard(combineRules(w.APIs).private)
	port, err := strconv.ParseUint(cmp.Or(u.Port(), usualPorts[u.Scheme]), 10, 16)
	if err != nil {
		return err
	}
	for _, a := range p.resolveProxied(ctx, u.Hostname()) {
		//defence:proxied-address
		if err := guard.CheckPort(netip.AddrPortFrom(a, uint16(port))); err != nil {
			return err
		}
	}
	return nil
}

// resolveProxied returns the addresses of a host that the upstream proxy resolves too. Without any, only the proxy may
// know the name. It looks up IPv4 and IPv6 separately: a name server that withholds one of them must not hide the
// other.
func (p *Pool) resolveProxied(ctx context.Context, host string) []netip.Addr {
	all := make([][]netip.Addr, len(p.networks))
	var lookups sync.WaitGroup
	for i, network := range p.networks {
		lookups.Go(func() { all[i] = p.lookUpProxied(ctx, network, host) })
	}
	lookups.Wait()
	return slices.Concat(all...)
}

// lookUpProxied is a lookup of resolveProxied in one network. A name server that does not answer in time gets the same
// question only after a while: a machine that only a proxy leads out of may have no name server.
func (p *Pool) lookUpProxied(ctx context.Context, network, host string) []netip.Addr {
	key := network + " " + host
	p.mu.Lock()
	isSilent := p.now().Before(p.silent[key])
	p.mu.Unlock()
	if isSilent {
		return nil
	}
	lookup, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	list, err := p.lookUp(lookup, network, host)
	if err != nil && lookup.Err() != nil && ctx.Err() == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.silent) >= maxHosts {
			clear(p.silent)
		}
		p.silent[key] = p.now().Add(silentTime)
	}
	return list
}

// usualPorts are the default ports of URL schemes.
var usualPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

// proxyAddr returns the address that http.Transport dials for a proxy URL.
func proxyAddr(u *url.URL) string {
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), usualPorts[u.Scheme]))
}

// newGuard returns the guard for APIs with these private ranges.
func (p *Pool) newGuard(private []netip.Prefix) dialguard.Guard {
	return dialguard.Guard{AllowPrivate: private, Sandbox: p.conf.Sandbox, Endpoint: p.conf.Endpoint}
}
