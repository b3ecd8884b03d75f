package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-iptables/iptables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// Pod is the network configuration of a pod. The slots, sandboxd and the proxy share its network namespace.
type Pod struct {
	Size
	// ProxyGID is the group of the proxy's process. Only this group may open connections to other machines.
	ProxyGID int
	// Ports are the ports to which other pods may connect: the control APIs of sandboxd and the proxy.
	Ports []uint16
}

// loopback is the interface with the addresses of the proxy and the slots in a pod.
const loopback = "lo"

// chainNAT redirects the slots' packets to the proxy's address on the loopback interface.
const chainNAT = "CODEFORGE-NAT"

// SetUpPod configures the network namespace of a pod and verifies the result. It is idempotent and needs NET_ADMIN.
//
// The addresses of the slots and the proxy are on the loopback interface. Routing by uid gives each slot its source
// address, as in Docker mode. NAT changes the destination of the slots' packets to the proxy's address with the same
// port. So no NAT rule touches the address that identifies a slot, and the filter compares it with the uid for every
// packet. An attacker who takes over the NAT entry of another slot, by its port, gains no access.
func SetUpPod(p Pod) error {
	dev, err := netlink.LinkByName(loopback)
	if err != nil {
		return fmt.Errorf("inspecting %s: %w", loopback, err)
	}
	list := podRules(p)
	if err := setFilter(list); err != nil {
		return err
	}
	if err := closePodIPv6(); err != nil {
		return err
	}
	if err := setPodNAT(p.Network); err != nil {
		return err
	}
	if err := setPodRoutes(p.Size, dev); err != nil {
		return err
	}
	if err := errors.Join(verifyFilter(list, true), verifyPod(p.Size, dev)); err != nil {
		return fmt.Errorf("checking the network of the pod: %w", err)
	}
	return nil
}

// podRules returns the filter rules of a pod, in order.
func podRules(p Pod) []filterRule {
	proxy, subnet, lo := p.Network.Proxy().String(), p.Network.Subnet().String(), loopback
	var list []filterRule
	in := func(spec ...string) { list = append(list, filterRule{chainIn, spec}) }
	out := func(spec ...string) { list = append(list, filterRule{chainOut, spec}) }
	known := []string{"-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"}

	in("-i", lo, "-s", subnet, "-d", proxy, "-p", "tcp", "-j", "ACCEPT")
	in("-i", lo, "-s", subnet, "-d", proxy, "-p", "udp", "-m", "udp", "--dport", "53", "-j", "ACCEPT")
	in(known...)
	// The replies of REJECT below.
	in("-i", lo, "-p", "tcp", "--tcp-flags", "RST", "RST", "-j", "ACCEPT")
	in("-i", lo, "-p", "icmp", "-m", "icmp", "--icmp-type", "3", "-j", "ACCEPT")
	for _, port := range p.Ports {
		in("!", "-d", subnet, "!", "-i", lo, "-p", "tcp", "-m", "tcp", "--dport", strconv.Itoa(int(port)), "-j", "ACCEPT")
	}

	for _, s := range p.listSlots() {
		from := []string{
			"-s", s.addr.String(), "-d", proxy, "-o", lo, "-m", "owner", "--uid-owner", strconv.Itoa(int(s.uid)),
		}
		with := func(more ...string) []string { return append(slices.Clone(from), more...) }
		// The rules allow every port: the proxy listens only on the ports of the catalog, and its address has no other
		// listener.
		out(with("-p", "tcp", "-j", "ACCEPT")...)
		out(with("-p", "udp", "-m", "udp", "--dport", "53", "-j", "ACCEPT")...)
	}
	slots := fmt.Sprintf("%d-%d", slot.BaseUID, slot.BaseUID+slot.Total-1)
	out("-m", "owner", "--uid-owner", slots, "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
	out("-m", "owner", "--uid-owner", slots, "-j", "REJECT", "--reject-with", "icmp-port-unreachable")
	out("-m", "owner", "--gid-owner", strconv.Itoa(p.ProxyGID), "-j", "ACCEPT")
	// Answers to mcp-server, and last packets of connections whose process has ended.
	out(known...)
	out("-o", lo, "-p", "tcp", "--tcp-flags", "RST", "RST", "-m", "owner", "!", "--socket-exists", "-j", "ACCEPT")
	out("-o", lo, "-p", "icmp", "-m", "icmp", "--icmp-type", "3", "-m", "owner", "!", "--socket-exists", "-j", "ACCEPT")
	return list
}

// natRules redirect the slots' TCP to the proxy, for every destination, and DNS that goes to the resolver.
func natRules(n slot.Network) [][]string {
	slots := fmt.Sprintf("%d-%d", slot.BaseUID, slot.BaseUID+slot.Total-1)
	of := []string{"-m", "owner", "--uid-owner", slots}
	to := []string{"-j", "DNAT", "--to-destination", n.Proxy().String()}
	resolver := slot.SyntheticAddr.String() + "/32"
	return [][]string{
		slices.Concat([]string{"-p", "tcp", "-m", "tcp", "!", "--dport", "53"}, of, to),
		slices.Concat([]string{"-d", resolver, "-p", "tcp", "-m", "tcp", "--dport", "53"}, of, to),
		slices.Concat([]string{"-d", resolver, "-p", "udp", "-m", "udp", "--dport", "53"}, of, to),
	}
}

// setPodNAT sets the rules of the NAT table and verifies them.
func setPodNAT(n slot.Network) error {
	const table = "nat"
	ipt, err := iptables.New()
	if err != nil {
		return fmt.Errorf("looking for iptables: %w", err)
	}
	// Kubernetes may run an init container again, and the pod then still has the rules.
	if err := ipt.ClearChain(table, chainNAT); err != nil {
		return fmt.Errorf("emptying %s: %w", chainNAT, err)
	}
	for _, spec := range natRules(n) {
		if err := ipt.Append(table, chainNAT, spec...); err != nil {
			return fmt.Errorf("adding a rule to %s: %w", chainNAT, err)
		}
	}
	if err := ipt.AppendUnique(table, "OUTPUT", "-j", chainNAT); err != nil {
		return fmt.Errorf("using %s: %w", chainNAT, err)
	}
	for _, spec := range natRules(n) {
		ok, err := ipt.Exists(table, chainNAT, spec...)
		if err == nil && !ok {
			err = fmt.Errorf("the chain %s lacks %s", chainNAT, strings.Join(spec, " "))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// closePodIPv6 closes IPv6 to the slots if the kernel has IPv6, because a pod may not set the sysctl that disables it.
func closePodIPv6() error {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return nil
	}
	ipt, err := iptables.New(iptables.IPFamily(iptables.ProtocolIPv6))
	if err != nil {
		return fmt.Errorf("looking for ip6tables: %w", err)
	}
	slots := fmt.Sprintf("%d-%d", slot.BaseUID, slot.BaseUID+slot.Total-1)
	for _, r := range []filterRule{
		// REJECT answers at once, so that a client tries IPv4 without waiting for a timeout.
		{chainOut, []string{"-m", "owner", "--uid-owner", slots, "-j", "REJECT"}},
		{chainIn, []string{"-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"}},
		// IPv6 finds neighbours through ICMPv6 (RFC 4861).
		{chainIn, []string{"-p", "ipv6-icmp", "-j", "ACCEPT"}},
		{chainIn, []string{"-p", "tcp", "-j", "REJECT"}},
		{chainIn, []string{"-j", "DROP"}},
	} {
		if ok, _ := ipt.ChainExists(filterTable, r.chain); !ok {
			if err := ipt.NewChain(filterTable, r.chain); err != nil {
				return fmt.Errorf("making %s for IPv6: %w", r.chain, err)
			}
		}
		if err := ipt.AppendUnique(filterTable, r.chain, r.spec...); err != nil {
			return fmt.Errorf("closing IPv6: %w", err)
		}
	}
	for _, j := range jumps {
		if err := ipt.AppendUnique(filterTable, j.from, "-j", j.to); err != nil {
			return fmt.Errorf("closing IPv6: %w", err)
		}
	}
	return nil
}

// setPodRoutes sets the addresses and, for each slot, a default route with its source address. The local route to a
// slot has quick ACKs, for the same reason as in the proxy's firewall.
func setPodRoutes(n Size, lo netlink.Link) error {
	have, err := listAddresses(lo)
	if err != nil {
		return err
	}
	add := func(a netip.Addr) error {
		if have[a] {
			return nil
		}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: hostNet(a)}); err != nil {
			return fmt.Errorf("giving %s the address %s: %w", loopback, a, err)
		}
		return nil
	}
	if err := add(n.Network.Proxy()); err != nil {
		return err
	}
	for _, s := range n.listSlots() {
		if err := add(s.addr); err != nil {
			return err
		}
		index, src := lo.Attrs().Index, net.IP(s.addr.AsSlice())
		for _, r := range []netlink.Route{
			{LinkIndex: index, Table: s.table, Dst: anyAddress(), Src: src, Scope: netlink.SCOPE_LINK},
			{
				LinkIndex: index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Dst: hostNet(s.addr), Src: src,
				Scope: netlink.SCOPE_HOST, QuickACK: 1,
			},
		} {
			if err := netlink.RouteReplace(&r); err != nil {
				return fmt.Errorf("setting the route of slot %d: %w", s.id, err)
			}
		}
		if err := ensureRule(s); err != nil {
			return err
		}
	}
	return nil
}

// verifyPod compares the kernel's addresses, and the source address of each slot's packets, with the wanted ones.
func verifyPod(n Size, lo netlink.Link) error {
	have, err := listAddresses(lo)
	errs := []error{err}
	for _, s := range n.listSlots() {
		if !have[s.addr] {
			errs = append(errs, fmt.Errorf("the address %s of slot %d is missing", s.addr, s.id))
		}
		got, err := netlink.RouteGetWithOptions(slot.SyntheticAddr.AsSlice(), &netlink.RouteGetOptions{UID: &s.uid})
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("asking for the route of slot %d: %w", s.id, err))
		case len(got) != 1 || got[0].LinkIndex != lo.Attrs().Index || !got[0].Src.Equal(s.addr.AsSlice()):
			errs = append(errs, fmt.Errorf("slot %d has the routes %v, want one by %s as %s", s.id, got, loopback, s.addr))
		}
	}
	return errors.Join(errs...)
}
