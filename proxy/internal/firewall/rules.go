package firewall

import (
	"strconv"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// DNSPort is the port at which the proxy answers DNS, only at its own address.
const DNSPort = 53

// The chains of this package. They are flushed and filled at every start.
const (
	chainRedirect = "CODEFORGE-REDIRECT"
	chainInput    = "CODEFORGE-INPUT"
	chainForward  = "CODEFORGE-FORWARD"
)

// Rule is one rule of iptables.
type Rule struct {
	Table, Chain string
	Spec         []string
}

// RuleSet is a complete set-up: the rules of this package's chains, and the jumps to the chains. Each jump must be the
// first rule of its chain.
type RuleSet struct {
	Rules []Rule
	Jumps []Rule
}

// NewIPv4Plan returns the set-up for IPv4. inside is the interface of the sandbox's network n.
func NewIPv4Plan(inside string, n slot.Network) RuleSet {
	subnet, self, resolver := n.Subnet().String(), n.Proxy().String()+"/32", slot.SyntheticAddr.String()+"/32"
	port := strconv.Itoa(DNSPort)
	dns := func(proto string) Rule {
		return Rule{"filter", chainInput, []string{"-s", subnet, "-d", resolver, "-i", inside, "-p", proto, "-m", proto,
			"--dport", port, "-j", "ACCEPT"}}
	}
	return RuleSet{
		Rules: []Rule{
			// Redirect to the same port of the proxy's address. The catalog decides which ports are open: the proxy listens
			// there without a capability. The kernel refuses connections to other ports.
			{"nat", chainRedirect, []string{"-s", subnet, "-p", "tcp", "-m", "tcp", "!", "--dport", port, "-j", "REDIRECT"}},
			{"filter", chainInput, []string{"-s", subnet, "-d", self, "-i", inside, "-p", "tcp", "-m", "tcp",
				"!", "--dport", port, "-j", "ACCEPT"}},
			dns("udp"), dns("tcp"),
			// Drop all other packets from the sandbox, including those to the address on the other network.
			{"filter", chainInput, []string{"-i", inside, "-j", "DROP"}},
			// Only the sandbox may reach the sandbox's side.
			{"filter", chainInput, []string{"-d", subnet, "!", "-i", inside, "-j", "DROP"}},
			{"filter", chainInput, []string{"-d", resolver, "!", "-i", inside, "-j", "DROP"}},
			{"filter", chainForward, []string{"-j", "DROP"}},
		},
		Jumps: []Rule{
			{"nat", "PREROUTING", []string{"-i", inside, "-j", chainRedirect}},
			{"filter", "INPUT", []string{"-j", chainInput}},
			{"filter", "FORWARD", []string{"-j", chainForward}},
		},
	}
}

// NewIPv6Plan returns the set-up for IPv6, which the sandbox does not have.
func NewIPv6Plan(inside string) RuleSet {
	return RuleSet{
		Rules: []Rule{
			{"filter", chainInput, []string{"-i", inside, "-j", "DROP"}},
			{"filter", chainForward, []string{"-j", "DROP"}},
		},
		Jumps: []Rule{
			{"filter", "INPUT", []string{"-j", chainInput}},
			{"filter", "FORWARD", []string{"-j", chainForward}},
		},
	}
}
