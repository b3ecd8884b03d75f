package upstream

import (
	"net/netip"
	"strings"
)

// The host names of the upstream. The APIs and attacks of the test suites use them, and the DNS server resolves them.
const (
	HTTPBin  = "httpbin.test"   // the ordinary API of most tests
	Other    = "other.test"     // a second API with a credential of its own
	Strict   = "strict.test"    // an API with restricted methods
	Plain    = "plain.test"     // an API with allow_http
	H2       = "h2.test"        // of the httpbin API; offers HTTP/2
	Wild     = "a.wild.test"    // of an API with the domain *.wild.test
	Limited  = "limited.test"   // whose subdomains are of APIs with limits, for those who add them
	Signed   = "s.wild.test"    // of an API whose requests are signed, for those who add one
	Shared   = "shared.test"    // in two APIs with different rules
	Evil     = "evil.test"      // in no API, at a public address
	EvilH2   = "h2.evil.test"   // in no API, at a public address, offers HTTP/2
	BadCA    = "badca.test"     // shows a certificate of an unknown authority
	Wrong    = "wrongname.test" // shows a certificate for another name
	Expired  = "expired.test"   // shows an expired certificate
	GitHub   = "api.github.com" // what the README's first API calls, at a public address; answers /user/repos alone
	Registry = "registry.test"  // an npm registry
	Ports    = "ports.test"     // of several APIs, each at a port of its own; see OtherTLS and OtherHTTP
	Rebind   = "rebind.test"    // resolves to the upstream, then to a forbidden address, in turn
)

// The ports besides 443 and 80 at which the upstream answers: over TLS, and without.
var (
	OtherTLS  = []string{":3000", ":3001"}
	OtherHTTP = []string{":3002"}
)

// forbidden are names that resolve to addresses no proxy may dial.
var forbidden = map[string][]string{
	"meta.test":     {"169.254.169.254"},
	"link.test":     {"169.254.10.10"},
	"loop.test":     {"127.0.0.1"},
	"zero.test":     {"0.0.0.0"},
	"multi.test":    {"224.0.0.251"},
	"bcast.test":    {"255.255.255.255"},
	"synth.test":    {"198.18.0.1"},
	"cgnat.test":    {"100.64.0.1"},
	"priv10.test":   {"10.1.2.3"},
	"priv172.test":  {"172.16.9.9"},
	"priv192.test":  {"192.168.7.7"},
	"proxy.test":    {"10.77.0.2"},
	"slot.test":     {"10.77.0.101"},
	"loop6.test":    {"::1"},
	"link6.test":    {"fe80::1"},
	"ula6.test":     {"fd00::1"},
	"mapped.test":   {"::ffff:169.254.169.254"},
	"mapped2.test":  {"::ffff:127.0.0.1"},
	"nat64.test":    {"64:ff9b::a9fe:a9fe"},
	"6to4.test":     {"2002:7f00:1::"},
	"metaipv6.test": {"fd00:ec2::254"},
}

// ForbiddenNames lists the names whose addresses must never be dialled, in a fixed order.
func ForbiddenNames() []string {
	return []string{
		"meta.test", "link.test", "loop.test", "zero.test", "multi.test", "bcast.test", "synth.test", "cgnat.test",
		"priv10.test", "priv172.test", "priv192.test", "proxy.test", "slot.test", "loop6.test", "link6.test", "ula6.test",
		"mapped.test", "mapped2.test", "nat64.test", "6to4.test", "metaipv6.test",
	}
}

// Addresses says where the upstream listens.
type Addresses struct {
	// Private is the address of the ordinary names: APIs that reach it need allow_private.
	Private netip.Addr
	// Public is the address of the names in no API: outside every private range, so that YOLO_MODE reaches it.
	Public netip.Addr
}

// Embedded are the addresses inside the tests' own network namespace.
var Embedded = Addresses{
	Private: netip.MustParseAddr("10.99.0.10"),
	Public:  netip.MustParseAddr("93.184.215.14"),
}

// Resolve returns the addresses of a name, and false if it does not exist. turn counts the questions for this name: a
// rebinding name resolves differently each time.
func (a Addresses) Resolve(name string, turn int) ([]netip.Addr, bool) {
	if list, ok := forbidden[name]; ok {
		out := make([]netip.Addr, 0, len(list))
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out, true
	}
	if _, ok := vendors[name]; ok || mcpVendors[name] != "" {
		return []netip.Addr{a.Public}, true
	}
	if strings.HasSuffix(name, "."+Limited) {
		return []netip.Addr{a.Private}, true
	}
	switch name {
	case HTTPBin, Other, Strict, Plain, H2, Wild, Shared, BadCA, Wrong, Expired, Registry, Ports, "b.wild.test", "c.wild.test", "d.wild.test", Signed, "github.wild.test", "stripe.wild.test", "x.y.wild.test", "wild.test":
		return []netip.Addr{a.Private}, true
	case Evil, EvilH2, GitHub, "xn--bcher-kva.evil.test":
		return []netip.Addr{a.Public}, true
	case Rebind:
		if turn%2 == 0 {
			return []netip.Addr{a.Private}, true
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, true
	}
	return nil, false
}
