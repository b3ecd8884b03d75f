package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// findDevice returns the interface with the sandbox's address.
func findDevice(n slot.Network) (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	for _, l := range links {
		addrs, err := listAddresses(l)
		if err != nil {
			return nil, err
		}
		if addrs[n.SandboxAddr()] {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no interface has the address %s: is this container on sandbox-net?", n.SandboxAddr())
}

// listAddresses returns the IPv4 addresses of an interface.
func listAddresses(l netlink.Link) (map[netip.Addr]bool, error) {
	list, err := netlink.AddrList(l, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s: %w", l.Attrs().Name, err)
	}
	found := map[netip.Addr]bool{}
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok {
			found[ip] = true
		}
	}
	return found, nil
}

func hostNet(a netip.Addr) *net.IPNet { return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)} }

func anyAddress() *net.IPNet { return &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)} }

// setNetwork sets addresses, routes and routing rules.
func setNetwork(n Size, dev netlink.Link) error {
	have, err := listAddresses(dev)
	if err != nil {
		return err
	}
	for _, s := range n.listSlots() {
		if !have[s.addr] {
			if err := netlink.AddrAdd(dev, &netlink.Addr{IPNet: hostNet(s.addr)}); err != nil {
				return fmt.Errorf("giving %s the address %s: %w", dev.Attrs().Name, s.addr, err)
			}
		}
		for _, r := range newRoutes(s.table, n.Network.Proxy(), s.addr, dev) {
			if err := netlink.RouteReplace(&r); err != nil {
				return fmt.Errorf("setting the route of slot %d: %w", s.id, err)
			}
		}
		if err := ensureRule(s); err != nil {
			return err
		}
	}
	// All other users get the same default route, and the filter drops their packets. Without this route the kernel would
	// drop responses from addresses to which it has no route (rp_filter).
	for _, r := range newRoutes(unix.RT_TABLE_MAIN, n.Network.Proxy(), n.Network.SandboxAddr(), dev)[1:] {
		if err := netlink.RouteReplace(&r); err != nil {
			return fmt.Errorf("setting the default route: %w", err)
		}
	}
	return nil
}

// newRoutes returns a route to the proxy and a default route through the proxy, both with one source address.
func newRoutes(table int, proxy, src netip.Addr, dev netlink.Link) []netlink.Route {
	index := dev.Attrs().Index
	return []netlink.Route{
		{LinkIndex: index, Table: table, Dst: hostNet(proxy), Src: src.AsSlice(), Scope: netlink.SCOPE_LINK},
		{LinkIndex: index, Table: table, Dst: anyAddress(), Gw: proxy.AsSlice(), Src: src.AsSlice()},
	}
}

// ensureRule adds the slot's routing rule if it is missing.
func ensureRule(s slotNetwork) error {
	have, err := hasRule(s)
	if err != nil || have {
		return err
	}
	r := netlink.NewRule()
	r.Family, r.Priority, r.Table = netlink.FAMILY_V4, s.priority, s.table
	r.UIDRange = netlink.NewRuleUIDRange(s.uid, s.uid)
	if err := netlink.RuleAdd(r); err != nil {
		return fmt.Errorf("adding the routing rule of slot %d: %w", s.id, err)
	}
	return nil
}

func hasRule(s slotNetwork) (bool, error) {
	list, err := netlink.RuleList(netlink.FAMILY_V4)
	if err != nil {
		return false, fmt.Errorf("listing routing rules: %w", err)
	}
	uids := netlink.RuleUIDRange{Start: s.uid, End: s.uid}
	for _, r := range list {
		if r.Priority == s.priority && r.Table == s.table && r.UIDRange != nil && *r.UIDRange == uids {
			return true, nil
		}
	}
	return false, nil
}

// verifyNetwork compares the kernel's addresses, and the routes of each slot's packets, with the wanted ones.
func verifyNetwork(n Size, dev netlink.Link) error {
	var errs []error
	have, err := listAddresses(dev)
	errs = append(errs, err)
	for _, s := range n.listSlots() {
		if !have[s.addr] {
			errs = append(errs, fmt.Errorf("the address %s of slot %d is missing", s.addr, s.id))
		}
		for _, dst := range []netip.Addr{n.Network.Proxy(), slot.SyntheticAddr} {
			errs = append(errs, verifyRoute(s, n.Network.Proxy(), dst, dev))
		}
	}
	return errors.Join(append(errs, verifyNoIPv6())...)
}

// verifyRoute verifies that packets of the slot's user to dst leave through the proxy with the slot's source address.
func verifyRoute(s slotNetwork, proxy, dst netip.Addr, dev netlink.Link) error {
	got, err := netlink.RouteGetWithOptions(dst.AsSlice(), &netlink.RouteGetOptions{UID: &s.uid})
	if err != nil {
		return fmt.Errorf("asking for slot %d's route to %s: %w", s.id, dst, err)
	}
	if len(got) != 1 {
		return fmt.Errorf("slot %d has %d routes to %s, want 1", s.id, len(got), dst)
	}
	r := got[0]
	// The proxy is on the same link, so the route to the proxy itself has no gateway.
	byProxy := dst == proxy && len(r.Gw) == 0 || r.Gw.Equal(proxy.AsSlice())
	if !r.Src.Equal(s.addr.AsSlice()) || r.LinkIndex != dev.Attrs().Index || !byProxy {
		return fmt.Errorf("slot %d reaches %s as %s by %s, want as %s by %s", s.id, dst, r.Src, r.Gw, s.addr, proxy)
	}
	return nil
}

// verifyNoIPv6 verifies that no interface has an IPv6 address. A sysctl of the container disables IPv6.
func verifyNoIPv6() error {
	list, err := netlink.AddrList(nil, netlink.FAMILY_V6)
	// These errors mean that the kernel has no IPv6.
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing IPv6 addresses: %w", err)
	}
	if len(list) > 0 {
		return fmt.Errorf("there is an IPv6 address, %s: want net.ipv6.conf.all.disable_ipv6=1 set for this container",
			list[0].IPNet)
	}
	return nil
}
