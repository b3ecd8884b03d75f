// Package network sets up the network namespace of the container: the addresses that each slot's user can reach, and
// the source address of its packets.
//
// Threat: code that reaches anything but the proxy, or that reaches the proxy as another slot. The kernel enforces the
// identity without NAT, because an attacker can manipulate the NAT table. Routing by uid gives each slot its source
// address, and a filter rejects every packet of a slot's user with another source address.
package network

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// baseTable and basePriority plus a slot's number are its routing table and the priority of its routing rule.
const (
	baseTable    = 100
	basePriority = 1000
)

type slotNetwork struct {
	id       slot.ID
	addr     netip.Addr
	uid      uint32
	table    int
	priority int
}

// Size is the number of slots for runs and for MCP servers, and their network.
type Size struct {
	Runs, Servers int
	Network       slot.Network
}

func (n Size) listSlots() []slotNetwork {
	list := make([]slotNetwork, 0, n.Runs+n.Servers)
	for _, id := range slot.IDs(n.Runs, n.Servers) {
		list = append(list, slotNetwork{id, n.Network.SlotAddr(id), uint32(id.UID()), baseTable + int(id),
			basePriority + int(id)})
	}
	return list
}

// filterRule is one rule of the filter table, in the arguments of iptables.
type filterRule struct {
	chain string
	spec  []string
}

// policies are the built-in chains and their policies.
var policies = []struct{ chain, policy string }{{"INPUT", "DROP"}, {"FORWARD", "DROP"}, {"OUTPUT", "DROP"}}

// CodeForge's chains. The built-in chains jump to them, so that SetUp can replace their rules.
const (
	chainIn  = "CODEFORGE-IN"
	chainOut = "CODEFORGE-OUT"
)

// filterRules returns the filter rules on a device, in order.
func filterRules(n Size, dev string) []filterRule {
	resolver := slot.SyntheticAddr.String()
	var list []filterRule
	in := func(spec ...string) { list = append(list, filterRule{chainIn, spec}) }
	out := func(spec ...string) { list = append(list, filterRule{chainOut, spec}) }

	// Responses from any address: if the proxy redirected a connection, its packets carry the original destination.
	in("-i", dev, "-p", "tcp", "!", "--syn", "-j", "ACCEPT")
	in("-i", dev, "-s", resolver, "-p", "udp", "-m", "udp", "--sport", "53", "-j", "ACCEPT")
	in("-i", dev, "-p", "icmp", "-m", "icmp", "--icmp-type", "3", "-j", "ACCEPT")
	// The replies of REJECT below.
	in("-i", "lo", "-p", "tcp", "--tcp-flags", "RST", "RST", "-j", "ACCEPT")
	in("-i", "lo", "-p", "icmp", "-m", "icmp", "--icmp-type", "3", "-j", "ACCEPT")

	for _, s := range n.listSlots() {
		from := []string{"-o", dev, "-s", s.addr.String(), "-m", "owner", "--uid-owner", strconv.Itoa(int(s.uid))}
		with := func(more ...string) []string { return append(append([]string{}, from...), more...) }
		// The rule allows every port: the proxy's firewall keeps the connection at the proxy, and opens only the catalog's
		// ports.
		out(with("-p", "tcp", "-m", "tcp", "!", "--dport", "53", "-j", "ACCEPT")...)
		out(with("-d", resolver, "-p", "tcp", "-m", "tcp", "--dport", "53", "-j", "ACCEPT")...)
		out(with("-d", resolver, "-p", "udp", "-m", "udp", "--dport", "53", "-j", "ACCEPT")...)
	}
	// Reject, not drop: code then gets an error at once instead of a timeout.
	slots := fmt.Sprintf("%d-%d", slot.BaseUID, slot.BaseUID+slot.Total-1)
	out("-m", "owner", "--uid-owner", slots, "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
	out("-m", "owner", "--uid-owner", slots, "-j", "REJECT", "--reject-with", "icmp-port-unreachable")
	// The last packets of connections whose process has ended have no owner. They cannot open a connection.
	out("-o", dev, "-p", "tcp", "!", "--syn", "-m", "owner", "!", "--socket-exists", "-j", "ACCEPT")
	out("-o", "lo", "-p", "tcp", "--tcp-flags", "RST", "RST", "-m", "owner", "!", "--socket-exists", "-j", "ACCEPT")
	out("-o", "lo", "-p", "icmp", "-m", "icmp", "--icmp-type", "3", "-m", "owner", "!", "--socket-exists", "-j", "ACCEPT")
	return list
}
