// Package firewall makes the proxy's container the gateway of the sandbox's network.
//
// Contract: a TCP connection to any address arrives at the same port of the proxy's address on the sandbox's network.
// The proxy listens only at the ports of the catalog there, and answers DNS on port 53. All other addresses and ports
// of this container, and of networks behind it, are unreachable from the sandbox. Install is idempotent: it reads the
// current rules, changes them, and verifies the result.
package firewall

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/coreos/go-iptables/iptables"
	"github.com/vishvananda/netlink"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

const lockTime = 5 // seconds to wait for another iptables

// Install sets up the firewall of this network namespace, between the sandbox's network and another network. It returns
// the interface of the sandbox's network.
func Install(n slot.Network) (inside string, err error) {
	inside, err = FindInterface(n)
	if err != nil {
		return "", err
	}
	if err := checkRoute(inside); err != nil {
		return "", err
	}
	if err := enableQuickACK(inside); err != nil {
		return "", err
	}
	if err := applyPlan(iptables.ProtocolIPv4, NewIPv4Plan(inside, n)); err != nil {
		return "", fmt.Errorf("setting up the firewall: %w", err)
	}
	// Without IPv6 in the kernel, ip6tables fails.
	if !hasIPv6() {
		return inside, nil
	}
	if err := applyPlan(iptables.ProtocolIPv6, NewIPv6Plan(inside)); err != nil {
		return "", fmt.Errorf("setting up the firewall for IPv6: %w", err)
	}
	return inside, nil
}

// FindInterface returns the interface with the proxy's address on the sandbox's network.
func FindInterface(n slot.Network) (string, error) {
	links, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("listing interfaces: %w", err)
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			return "", fmt.Errorf("listing addresses of %s: %w", l.Name, err)
		}
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.String() == n.Proxy().String() {
				return l.Name, nil
			}
		}
	}
	return "", fmt.Errorf("gateway mode: no interface has the address %s", n.Proxy())
}

// AddResolver adds the resolver's address to this network namespace.
func AddResolver() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("inspecting lo: %w", err)
	}
	ip := &net.IPNet{IP: slot.SyntheticAddr.AsSlice(), Mask: net.CIDRMask(32, 32)}
	if err := netlink.AddrReplace(lo, &netlink.Addr{IPNet: ip}); err != nil {
		return fmt.Errorf("adding the resolver's address: %w", err)
	}
	return nil
}

// checkRoute fails if outgoing traffic would go back into the sandbox's network.
func checkRoute(inside string) error {
	link, err := netlink.LinkByName(inside)
	if err != nil {
		return fmt.Errorf("inspecting %s: %w", inside, err)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("listing routes: %w", err)
	}
	found := false
	for _, r := range routes {
		if r.Dst != nil && r.Dst.String() != "0.0.0.0/0" {
			continue
		}
		if r.LinkIndex == link.Attrs().Index {
			return fmt.Errorf("the default route leads into the sandbox's network (%s): "+
				"give the other network the higher gw_priority, or attach it first", inside)
		}
		found = true
	}
	if !found {
		return errors.New("there is no default route: the proxy needs a second network with a way out")
	}
	return nil
}

// enableQuickACK makes the kernel acknowledge packets from the sandbox at once (quickack). Deno uses Nagle's algorithm:
// its next small frame waits for the previous acknowledgement, which the kernel otherwise delays by 40 ms.
func enableQuickACK(inside string) error {
	link, err := netlink.LinkByName(inside)
	if err != nil {
		return fmt.Errorf("inspecting %s: %w", inside, err)
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("listing the routes of %s: %w", inside, err)
	}
	for _, r := range routes {
		r.QuickACK = 1
		if err := netlink.RouteReplace(&r); err != nil {
			return fmt.Errorf("changing the route to %s: %w", r.Dst, err)
		}
	}
	return nil
}

// hasIPv6 reports whether the kernel has IPv6.
func hasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

// applyPlan puts a plan into force. It fills the chains, then sets the jumps to them, then verifies everything.
func applyPlan(proto iptables.Protocol, p RuleSet) error {
	t, err := iptables.New(iptables.IPFamily(proto), iptables.Timeout(lockTime))
	if err != nil {
		return err
	}
	type chain struct{ table, name string }
	cleared := map[chain]bool{}
	for _, r := range p.Rules {
		if c := (chain{r.Table, r.Chain}); !cleared[c] {
			// Rules of an earlier start may still be there. ClearChain also creates the chain.
			if err := t.ClearChain(r.Table, r.Chain); err != nil {
				return err
			}
			cleared[c] = true
		}
		if err := t.Append(r.Table, r.Chain, r.Spec...); err != nil {
			return err
		}
	}
	// The chains are complete before any jump leads to them.
	for _, j := range p.Jumps {
		if isFirstRule(t, j) {
			continue
		}
		// The jump may exist further down, after a rule that another program inserted.
		if err := t.DeleteIfExists(j.Table, j.Chain, j.Spec...); err != nil {
			return err
		}
		if err := t.Insert(j.Table, j.Chain, 1, j.Spec...); err != nil {
			return err
		}
	}
	return verifyPlan(t, p)
}

// verifyPlan reads back the rules in force and compares them with the plan.
func verifyPlan(t *iptables.IPTables, p RuleSet) error {
	for _, r := range p.Rules {
		ok, err := t.Exists(r.Table, r.Chain, r.Spec...)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("the rule %v of %s is missing after it was set", r.Spec, r.Chain)
		}
	}
	for _, j := range p.Jumps {
		if !isFirstRule(t, j) {
			return fmt.Errorf("the jump %v is not the first rule of %s", j.Spec, j.Chain)
		}
	}
	return nil
}

// isFirstRule reports whether a jump is the first rule of its chain.
func isFirstRule(t *iptables.IPTables, j Rule) bool {
	rules, err := t.List(j.Table, j.Chain)
	if err != nil {
		return false
	}
	for _, line := range rules {
		if strings.HasPrefix(line, "-A ") {
			return line == "-A "+j.Chain+" "+strings.Join(j.Spec, " ")
		}
	}
	return false
}
