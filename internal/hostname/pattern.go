package hostname

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Pattern is an exact host name or a one-label wildcard ("*.example.com"), normalised like a Host, perhaps with a port
// ("localhost:3000"). The zero Pattern matches no host.
type Pattern struct{ text string }

// String returns the normalised pattern.
func (p Pattern) String() string { return p.text }

// Name returns the pattern without its port.
func (p Pattern) Name() string {
	name, _, _ := strings.Cut(p.text, ":")
	return name
}

// Port returns the pattern's port, or 0 for the ports of HTTPS and HTTP.
func (p Pattern) Port() uint16 {
	_, text, _ := strings.Cut(p.text, ":")
	port, _ := strconv.ParseUint(text, 10, 16) // ParsePattern accepts only a valid port or none
	return uint16(port)
}

// Site returns the registrable domain of a pattern's hosts, e.g. "example.co.uk", or the whole name if it has none.
func (p Pattern) Site() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(p.text, "*."), ":")
	if site, err := publicsuffix.EffectiveTLDPlusOne(name); err == nil {
		return site
	}
	return name
}

// ExplainUnknown returns the remedy for a host without an API, as a template of readertext. near is a similar host of
// an API, or empty.
func (h Host) ExplainUnknown(near string) string {
	// The registered domain names the API: code can choose the labels before it, such as api.stripe.com in
	// api.stripe.com.evil.example. A look-alike gets no command, because a person might run it unread.
	switch name, _, _ := strings.Cut(h.ExactPattern().Site(), "."); {
	case near != "":
		return "Did you mean " + near + "? This host may be a look-alike."
	case strings.Contains(h.name, "xn--"):
		return "It has letters besides a to z, so it may be a look-alike of another host."
	default:
		return "{The user can add|Add} an API for it: codeforge api add " + name + " --domain " + h.String()
	}
}

// ParsePattern parses a host name, or "*." and a host name of at least two labels that is not a public suffix
// (https://publicsuffix.org, including the private section: anybody can register a name below "github.io"). ":" and a
// port may follow, except 443 and 80, which a name without a port already means. Errors show only the suffix of the
// input.
func ParsePattern(s string) (Pattern, error) {
	name, port, err := cutPort(s)
	if err != nil {
		return Pattern{}, err
	}
	suffix, wild := strings.CutPrefix(name, "*.")
	h, err := Parse(suffix)
	if err != nil {
		return Pattern{}, err
	}
	public, icann := publicsuffix.PublicSuffix(h.name)
	single := h.Parent() == ""
	switch {
	// "*.com" and "*.localhost" would cover unrelated owners.
	case wild && single:
		return Pattern{}, fmt.Errorf("a wildcard over the whole of %q", h.name)
	case public == h.name && (wild || icann && !single):
		return Pattern{}, fmt.Errorf("the public suffix %q, under which anybody can register a name", h.name)
	case wild && len(h.name)+2 > maxHost:
		return Pattern{}, errLong
	case wild:
		h.name = "*." + h.name
	}
	h.port = port
	return Pattern{text: h.String()}, nil
}

// dnsPort is the port of the sandbox's resolver.
const dnsPort = 53

// cutPort splits a port off the end of a pattern. Without a port it returns 0. Text that is not a name and a port stays
// whole, so that Parse rejects it.
func cutPort(s string) (name string, port uint16, err error) {
	name, digits, ok := strings.Cut(s, ":")
	if !ok || strings.ContainsAny(s, "/[]@?#") || strings.Contains(digits, ":") {
		return s, 0, nil
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	switch port = uint16(n); {
	case err != nil || n == 0 || digits[0] == '0':
		return "", 0, errNumber
	// One host must have only one spelling.
	case isUsualPort(port):
		return "", 0, errUsual
	// Port 53 is the resolver's.
	case port == dnsPort:
		return "", 0, errDNS
	}
	return name, port, nil
}
