package firewall

import (
	"strconv"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// DNSPort is where the proxy answers DNS, at its own address alone.
const DNSPort = 53

// The chains that belong to this package. They are flushed and filled at every start.
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

// Plan is a complete set-up: the rules of our chains, and the jumps to them, each of which must be the first rule of
// its chain.
type Plan struct {
	Rules []Rule
	Jumps []Rule
}

// Plan4 is the set-up for IPv4. inside is the interface of the sandbox's network n.
func Plan4(inside string, n slot.Network) Plan {
	subnet, self, resolver := n.Subnet().String(), n.Proxy().String()+"/32", slot.SyntheticAddr.String()+"/32"
	port := strconv.Itoa(DNSPort)
	dns := func(proto string) Rule {
		return Rule{"filter", chainInput, []string{"-s", subnet, "-d", resolver, "-i", inside, "-p", proto, "-m", proto,
			"--dport", port, "-j", "ACCEPT"}}
	}
	return Plan{
		Rules: []Rule{
			// To the same port of the proxy's own address. Which ports are open follows the catalog: the proxy listens there
			// at those, and without a capability. The kernel refuses connections to the others.
			{"nat", chainRedirect, []string{"-s", subnet, "-p", "tcp", "-m", "tcp", "!", "--dport", port, "-j", "REDIRECT"}},
			{"filter", chainInput, []string{"-s", subnet, "-d", self, "-i", inside, "-p", "tcp", "-m", "tcp",
				"!", "--dport", port, "-j", "ACCEPT"}},
			dns("udp"), dns("tcp"),
			// Everything else from the sandbox, including traffic to the address on the other network.
			{"filter", chainInput, []string{"-i", inside, "-j", "DROP"}},
			// Nothing else may reach the sandbox's side.
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

// Plan6 is the set-up for IPv6, which the sandbox does not have.
func Plan6(inside string) Plan {
	return Plan{
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
