// Package dialguard decides which addresses may be dialled for a host that code, a configuration or a client names.
//
// Threat: a host name that resolves to loopback, a private network, a metadata service or the proxy, in any spelling of
// the address. Contract: the check is made on the dialled address, after resolution, and cannot be disabled.
package dialguard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// ErrRefused is the error for an address that may not be dialled.
var ErrRefused = errors.New("address refused")

// RefusedError is an ErrRefused with the address.
type RefusedError struct {
	Addr netip.Addr
	// Why describes the address.
	Why string
	// Private is the address as a range for allow_private. It is not valid if no configuration can open the address.
	Private netip.Prefix
}

// Error implements error.
func (e *RefusedError) Error() string {
	return ErrRefused.Error() + ": " + e.Addr.String() + " " + e.Why
}

// Unwrap makes the error an ErrRefused.
func (e *RefusedError) Unwrap() error { return ErrRefused }

// closedRanges are the ranges that no configuration opens.
var closedRanges = parsePrefixes(
	"0.0.0.0/8",          // this network, unspecified
	"169.254.0.0/16",     // link-local, metadata of most clouds
	"100.100.100.200/32", // metadata of Alibaba Cloud
	"168.63.129.16/32",   // wire server of Azure
	"192.0.0.0/24",       // protocol assignments, metadata of Oracle Cloud
	"192.88.99.0/24",     // 6to4 relays
	"198.18.0.0/15",      // benchmarking: the resolver's synthetic address
	"224.0.0.0/4",        // multicast
	"240.0.0.0/4",        // reserved, broadcast
	"fd00:ec2::/32",      // metadata of AWS
	"fd20:ce::/32",       // metadata of Google Cloud
)

// uniqueLocal are the unique local addresses (RFC 4193), which include cloud metadata services. siteBits is the prefix
// length of a site. A wider range opens no such address.
var uniqueLocal = netip.MustParsePrefix("fc00::/7")

const siteBits = 48

// privateRanges are the ranges that need an entry in allow_private.
var privateRanges = parsePrefixes(
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", // RFC 1918
	"100.64.0.0/10", // shared address space
	"127.0.0.0/8", "::1/128",
	uniqueLocal.String(),
	// Documentation addresses, which some networks use for services.
	"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20",
)

// The public IPv6 ranges. An address that is neither here nor private is refused.
var (
	global6       = netip.MustParsePrefix("2000::/3")
	closedRanges6 = parsePrefixes(
		"2001::/23", // protocol assignments, Teredo included
	)
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
	sixTo = netip.MustParsePrefix("2002::/16")
)

// Guard decides which addresses may be dialled for one set of APIs. The zero Guard allows only public addresses.
type Guard struct {
	// AllowPrivate are the open private ranges.
	AllowPrivate []netip.Prefix
	// Sandbox is the network of the slots in Docker mode. No API opens it.
	Sandbox netip.Prefix
	// Endpoint is the port of CodeForge's MCP endpoint on loopback. Code must not reach it, because it runs code. 0 means
	// that the endpoint is on another machine.
	Endpoint uint16
}

// CheckAddr returns nil if the address may be dialled.
func (g Guard) CheckAddr(a netip.Addr) error {
	// An IPv4 address inside an IPv6 address must be judged as IPv4.
	inner, err := unwrapIPv4(a)
	if err != nil {
		return err
	}
	switch {
	// Before the private ranges: no entry in allow_private may open these.
	//defence:dialguard
	case containsAddr(closedRanges, inner) || g.Sandbox.Contains(inner):
		return &RefusedError{Addr: a, Why: "is a special address"}
	//defence:dialguard
	case isOwnAddr(inner):
		return &RefusedError{Addr: a, Why: "belongs to this machine"}
	//defence:dialguard
	case containsAddr(privateRanges, inner):
		if g.isAllowedPrivate(inner) {
			return nil
		}
		return &RefusedError{a, "is a private address", netip.PrefixFrom(inner, inner.BitLen())}
	case inner.Is4():
		return nil
	case global6.Contains(inner) && !containsAddr(closedRanges6, inner):
		return nil
	}
	return &RefusedError{Addr: a, Why: "is not a public address"}
}

// isAllowedPrivate reports whether a range in AllowPrivate opens a private address.
func (g Guard) isAllowedPrivate(a netip.Addr) bool {
	for _, p := range g.AllowPrivate {
		// A range wider than a site would open cloud metadata services that are not in closedRanges.
		if p.Contains(a) && (p.Bits() >= siteBits || !uniqueLocal.Contains(a)) {
			return true
		}
	}
	return false
}

// CheckPort returns nil if the address may be dialled at the port.
func (g Guard) CheckPort(to netip.AddrPort) error {
	if err := g.CheckAddr(to.Addr()); err != nil {
		return err
	}
	inner, _ := unwrapIPv4(to.Addr()) // Check has returned its error
	if isDatabase(netip.AddrPortFrom(inner, to.Port())) {
		return &RefusedError{Addr: to.Addr(), Why: "is CodeForge's database at this port"}
	}
	//defence:dialguard
	if inner.IsLoopback() && to.Port() == g.Endpoint && g.Endpoint != 0 {
		return &RefusedError{Addr: to.Addr(), Why: "is CodeForge's own endpoint at this port"}
	}
	return nil
}

// closedDatabase has the addresses that CloseDatabase has closed, the latest last.
var closedDatabase struct {
	mu    sync.Mutex
	addrs []netip.AddrPort
}

// maxDatabaseAddrs bounds the closed addresses of databases.
const maxDatabaseAddrs = 256

// CloseDatabase closes the addresses of CodeForge's database at their ports. No API opens them. The latest
// maxDatabaseAddrs addresses stay closed: another mcp-server may have another database, and a name may resolve to other
// addresses each time.
func CloseDatabase(list []netip.AddrPort) {
	d := &closedDatabase
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range list {
		a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
		d.addrs = append(slices.DeleteFunc(d.addrs, func(b netip.AddrPort) bool { return a == b }), a)
	}
	d.addrs = d.addrs[max(0, len(d.addrs)-maxDatabaseAddrs):]
}

// isDatabase reports whether an address is the database's. All loopback addresses count as the same.
func isDatabase(to netip.AddrPort) bool {
	d := &closedDatabase
	d.mu.Lock()
	defer d.mu.Unlock()
	// A database that listens on every address answers on all of 127.0.0.0/8 and on ::1.
	//defence:database-address
	return slices.ContainsFunc(d.addrs, func(a netip.AddrPort) bool {
		return a.Port() == to.Port() && (a.Addr() == to.Addr() || a.Addr().IsLoopback() && to.Addr().IsLoopback())
	})
}

// Control has the signature of net.Dialer.Control. It checks the address of the socket before it connects.
func (g Guard) Control(network, address string, _ syscall.RawConn) error {
	switch network {
	case "tcp4", "tcp6":
	// Only TCP is expected. Another network would bypass the checks of addresses.
	default:
		return fmt.Errorf("%w: network %q", ErrRefused, network)
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is not an address", ErrRefused, address)
	}
	return g.CheckPort(ap)
}

// unwrapIPv4 returns the IPv4 address inside an IPv6 address, if there is one.
func unwrapIPv4(a netip.Addr) (netip.Addr, error) {
	// A zone selects an interface of this machine.
	if !a.IsValid() || a.Zone() != "" {
		return a, fmt.Errorf("%w: %s is not a plain address", ErrRefused, a)
	}
	a = a.Unmap()
	if a.Is4() {
		return a, nil
	}
	b := a.As16()
	// NAT64 gateways and 6to4 routers lead to the embedded IPv4 address (RFC 6052, section 2.2, and RFC 3056, section 2).
	switch {
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16])), nil
	case sixTo.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), nil
	}
	return a, nil
}

func containsAddr(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

func parsePrefixes(texts ...string) []netip.Prefix {
	return convert.Each(texts, netip.MustParsePrefix)
}

// machineAddrs caches this machine's addresses, because listing them takes longer than all other checks.
var machineAddrs addrCache

type addrCache struct {
	mu    sync.Mutex
	until time.Time
	addrs map[netip.Addr]bool
	err   error
}

// isOwnAddr reports whether an address other than loopback belongs to this machine. It is true if the addresses cannot
// be listed.
func isOwnAddr(a netip.Addr) bool {
	// Loopback is in privateRanges: allow_private may open it.
	if a.IsLoopback() {
		return false
	}
	machineAddrs.mu.Lock()
	defer machineAddrs.mu.Unlock()
	if now := time.Now(); now.After(machineAddrs.until) {
		machineAddrs.addrs, machineAddrs.err = readAddrs(net.InterfaceAddrs())
		// Addresses of a machine change rarely.
		machineAddrs.until = now.Add(5 * time.Second)
	}
	return machineAddrs.err != nil || machineAddrs.addrs[a]
}

// readAddrs returns the addresses in the result of net.InterfaceAddrs.
func readAddrs(all []net.Addr, err error) (map[netip.Addr]bool, error) {
	if err != nil {
		return nil, err
	}
	out := make(map[netip.Addr]bool, len(all))
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, err
		}
		out[p.Addr().Unmap().WithZone("")] = true
	}
	return out, nil
}
