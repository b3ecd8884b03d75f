package catalog

import (
	"fmt"
	"net/netip"

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

func parsePrefixes(list ...string) []netip.Prefix {
	return convert.Each(list, netip.MustParsePrefix)
}

// PrivateRanges are the ranges of "allow_private": true (RFC 1918).
func PrivateRanges() []netip.Prefix {
	return parsePrefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
}

// uniqueLocal are the unique local addresses (RFC 4193). siteBits is the prefix length of a site. A wider range opens
// no such address, because cloud metadata services have addresses at other sites.
var uniqueLocal = netip.MustParsePrefix("fc00::/7")

const siteBits = 48

// listableRanges are the ranges that allow_private may list:
//   - the private ranges, and loopback
//   - carrier-grade NAT (RFC 6598), which overlay networks use
//   - documentation addresses (RFC 5737, RFC 3849, RFC 9637), which some networks use for services
func listableRanges() []netip.Prefix {
	return append(PrivateRanges(), parsePrefixes(uniqueLocal.String(), "100.64.0.0/10", "127.0.0.0/8", "::1/128",
		"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")...)
}

// forbiddenRanges are the ranges that no API may open, by their name in messages.
func forbiddenRanges() map[string][]netip.Prefix {
	return map[string][]netip.Prefix{
		"link-local addresses (cloud metadata)": parsePrefixes("169.254.0.0/16", "fe80::/10"),
		"multicast addresses":                   parsePrefixes("224.0.0.0/4", "ff00::/8"),
		"unspecified addresses":                 parsePrefixes("0.0.0.0/8", "::/128"),
		"addresses that CodeForge uses itself":  parsePrefixes("198.18.0.0/15"),
		"IPv4 addresses embedded in IPv6":       parsePrefixes("::ffff:0:0/96", "64:ff9b::/96", "2002::/16"),
	}
}

// parseRange reads one entry of allow_private. If the entry is bad, want describes a right one.
func parseRange(text string) (p netip.Prefix, want string) {
	const example = `a private range like "10.0.0.0/8" or "192.168.1.10/32"`
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return p, fmt.Sprintf("a range, e.g. %q", netip.PrefixFrom(a, a.BitLen()).String())
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, example
	}
	if p != p.Masked() {
		return p, fmt.Sprintf("%q, which has no bits set after the prefix", p.Masked().String())
	}
	for class, ranges := range forbiddenRanges() {
		for _, r := range ranges {
			if r.Contains(p.Addr()) {
				return p, example + ": " + class + " are never opened"
			}
		}
	}
	for _, r := range listableRanges() {
		// The whole range must be inside, not only its first address.
		if r.Contains(p.Addr()) && r.Bits() <= p.Bits() {
			return p, ""
		}
	}
	return p, example + " that lies within 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, " +
		"fc00::/7 or 127.0.0.0/8"
}
