// Package network sets up the network namespace of the container: what each slot's user can reach, and as whom.
//
// Threat: code that reaches anything but the proxy, or that reaches it as another slot. Identity is the kernel's,
// without NAT, whose table an attacker can play with: routing by uid gives each slot its source address, and a filter
// refuses every packet of a slot's user that does not carry it.
package network

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// Tables and priorities of the slots' routing rules: the base and the slot's number.
const (
	baseTable    = 100
	basePriority = 1000
)

// seat is what one slot needs.
type seat struct {
	id       slot.ID
	addr     netip.Addr
	uid      uint32
	table    int
	priority int
}

// seats are the slots from 0 to n-1.
func seats(n int) []seat {
	list := make([]seat, n)
	for i := range list {
		id := slot.ID(i)
		list[i] = seat{id, id.Addr(), uint32(id.UID()), baseTable + i, basePriority + i}
	}
	return list
}

// rule is one rule of the filter table, as iptables takes it.
type rule struct {
	chain string
	spec  []string
}

// The chains, built in, and what becomes of a packet that no rule speaks of.
var policies = []struct{ chain, policy string }{{"INPUT", "DROP"}, {"FORWARD", "DROP"}, {"OUTPUT", "DROP"}}

// Our own chains, which the built-in ones jump to, so that a second run can replace them.
const (
	chainIn  = "CODEFORGE-IN"
	chainOut = "CODEFORGE-OUT"
)

// rules are the filter rules on a device for n slots, in order.
func rules(n int, dev string) []rule {
	proxy := slot.ProxyAddr.String()
	var list []rule
	in := func(spec ...string) { list = append(list, rule{chainIn, spec}) }
	out := func(spec ...string) { list = append(list, rule{chainOut, spec}) }

	// Answers, whatever address they come from: what the proxy redirected answers as the address asked.
	in("-i", dev, "-p", "tcp", "-m", "multiport", "--sports", "80,443,53", "!", "--syn", "-j", "ACCEPT")
	in("-i", dev, "-s", proxy, "-p", "udp", "-m", "udp", "--sport", "53", "-j", "ACCEPT")
	in("-i", dev, "-p", "icmp", "-m", "icmp", "--icmp-type", "3", "-j", "ACCEPT")
	// What REJECT below answers.
	in("-i", "lo", "-p", "tcp", "--tcp-flags", "RST", "RST", "-j", "ACCEPT")
	in("-i", "lo", "-p", "icmp", "-m", "icmp", "--icmp-type", "3", "-j", "ACCEPT")

	for _, s := range seats(n) {
		from := []string{"-o", dev, "-s", s.addr.String(), "-m", "owner", "--uid-owner", strconv.Itoa(int(s.uid))}
		with := func(more ...string) []string { return append(append([]string{}, from...), more...) }
		out(with("-p", "tcp", "-m", "multiport", "--dports", "80,443", "-j", "ACCEPT")...)
		out(with("-d", proxy, "-p", "tcp", "-m", "tcp", "--dport", "53", "-j", "ACCEPT")...)
		out(with("-d", proxy, "-p", "udp", "-m", "udp", "--dport", "53", "-j", "ACCEPT")...)
	}
	slots := fmt.Sprintf("%d-%d", slot.BaseUID, slot.BaseUID+slot.Max-1)
	out("-m", "owner", "--uid-owner", slots, "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
	out("-m", "owner", "--uid-owner", slots, "-j", "REJECT", "--reject-with", "icmp-port-unreachable")
	// The ends of connections whose process has ended belong to nobody. They open nothing.
	out("-o", dev, "-p", "tcp", "-m", "multiport", "--dports", "80,443,53", "!", "--syn", "-m", "owner", "!",
		"--socket-exists", "-j", "ACCEPT")
	out("-o", "lo", "-p", "tcp", "--tcp-flags", "RST", "RST", "-m", "owner", "!", "--socket-exists", "-j", "ACCEPT")
	out("-o", "lo", "-p", "icmp", "-m", "icmp", "--icmp-type", "3", "-m", "owner", "!", "--socket-exists", "-j", "ACCEPT")
	return list
}
