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

// Pod is what a pod's network namespace must let through beside the slots. The slots, sandboxd and the proxy share it.
type Pod struct {
	Size
	// ProxyGID is the group of the proxy's process, which alone may open connections to other machines.
	ProxyGID int
	// Ports are those that other pods may connect to: the control APIs of sandboxd and the proxy.
	Ports []uint16
}

// loopback has the addresses of the proxy and the slots in a pod.
const loopback = "lo"

// chainNAT turns what slots send to the proxy's address on the loopback interface.
const chainNAT = "CODEFORGE-NAT"

// SetUpPod configures the network namespace of a pod and verifies the result. It is idempotent, and needs NET_ADMIN.
//
// The addresses of the slots and the proxy are on the loopback interface. Routing by uid gives each slot its source
// address, as in Docker mode; the destination of what it sends becomes the proxy's address with the same port. So a
// slot is identified by an address that no NAT rule touches, and that the filter compares with the uid for every
// packet: taking over a NAT entry of another slot, by its port, gains nothing.
func SetUpPod(p Pod) error {
	dev, err := netlink.LinkByName(loopback)
	if err != nil {
		return fmt.Errorf("inspecting %s: %w", loopback, err)
	}
	list := podRules(p)
	if err := filter(list); err != nil {
		return err
	}
	if err := podIPv6(); err != nil {
		return err
	}
	if err := podNAT(p.Network); err != nil {
		return err
	}
	if err := podRoutes(p.Size, dev); err != nil {
		return err
	}
	if err := errors.Join(verifyFilter(list, true), verifyPod(p.Size, dev)); err != nil {
		return fmt.Errorf("checking the network of the pod: %w", err)
	}
	return nil
}

// podRules are the filter rules of a pod, in order.
func podRules(p Pod) []rule {
	proxy, subnet, lo := p.Network.Proxy().String(), p.Network.Subnet().String(), loopback
	var list []rule
	in := func(spec ...string) { list = append(list, rule{chainIn, spec}) }
	out := func(spec ...string) { list = append(list, rule{chainOut, spec}) }
	known := []string{"-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"}

	in("-i", lo, "-s", subnet, "-d", proxy, "-p", "tcp", "-j", "ACCEPT")
	in("-i", lo, "-s", subnet, "-d", proxy, "-p", "udp", "-m", "udp", "--dport", "53", "-j", "ACCEPT")
	in(known...)
	// The replies that REJECT below makes.
	in("-i", lo, "-p", "tcp", "--tcp-flags", "RST", "RST", "-j", "ACCEPT")
	in("-i", lo, "-p", "icmp", "-m", "icmp", "--icmp-type", "3", "-j", "ACCEPT")
	for _, port := range p.Ports {
		in("!", "-d", subnet, "!", "-i", lo, "-p", "tcp", "-m", "tcp", "--dport", strconv.Itoa(int(port)), "-j", "ACCEPT")
	}

	for _, s := range p.seats() {
		from := []string{
			"-s", s.addr.String(), "-d", proxy, "-o", lo, "-m", "owner", "--uid-owner", strconv.Itoa(int(s.uid)),
		}
		with := func(more ...string) []string { return append(slices.Clone(from), more...) }
		// To whatever port: the proxy listens at those of the catalog only, and nothing else listens at its address.
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

// natRules send TCP of slots to the proxy, whatever its destination, and DNS that is meant for the resolver.
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

// podNAT sets the rules of the NAT table and verifies them.
func podNAT(n slot.Network) error {
	const table = "nat"
	ipt, err := iptables.New()
	if err != nil {
		return fmt.Errorf("looking for iptables: %w", err)
	}
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

// podIPv6 closes IPv6 to the slots, where the kernel has it: the sysctl that switches it off is not for pods to set.
func podIPv6() error {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return nil
	}
	ipt, err := iptables.New(iptables.IPFamily(iptables.ProtocolIPv6))
	if err != nil {
		return fmt.Errorf("looking for ip6tables: %w", err)
	}
	slots := fmt.Sprintf("%d-%d", slot.BaseUID, slot.BaseUID+slot.Total-1)
	for _, r := range []rule{
		{chainOut, []string{"-m", "owner", "--uid-owner", slots, "-j", "REJECT"}},
		{chainIn, []string{"-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"}},
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

// podRoutes sets the addresses, and for each slot a default route with its source address. The local route to a slot
// acknowledges at once, for the reason that the proxy's firewall has.
func podRoutes(n Size, lo netlink.Link) error {
	have, err := addresses(lo)
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
	for _, s := range n.seats() {
		if err := add(s.addr); err != nil {
			return err
		}
		index, src := lo.Attrs().Index, net.IP(s.addr.AsSlice())
		for _, r := range []netlink.Route{
			{LinkIndex: index, Table: s.table, Dst: everywhere(), Src: src, Scope: netlink.SCOPE_LINK},
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

// verifyPod asks the kernel for the addresses, and for the source address of what each slot sends.
func verifyPod(n Size, lo netlink.Link) error {
	have, err := addresses(lo)
	errs := []error{err}
	for _, s := range n.seats() {
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
