// Package hostname normalises host names once, so that all later code can compare them with ==.
//
// Threat: two parts of the system that read one name differently (case, a trailing dot, a port, percent signs, NUL,
// another spelling of an IP address). Policy would then decide on one host, and the dialler would reach another.
package hostname

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Host is a normalised host name, perhaps with a port: lower case, IDNA to ASCII, no trailing dot, never an IP address.
// Two hosts are the same if and only if they are ==. The zero Host is not a host.
type Host struct {
	name string
	port uint16 // 0: the ports of HTTPS and HTTP
}

// String returns the normalised name, with ":" and the port if it has one.
func (h Host) String() string {
	if h.port == 0 {
		return h.name
	}
	return h.name + ":" + strconv.Itoa(int(h.port))
}

// Name returns the normalised name without the port.
func (h Host) Name() string { return h.name }

// Port returns the host's port, or 0 for the ports of HTTPS and HTTP.
func (h Host) Port() uint16 { return h.port }

// AtPort returns the host of the same name with a port. 443 and 80, the ports of a name without a port, become 0.
func (h Host) AtPort(port uint16) Host {
	// Both spellings must be == after this.
	if isUsualPort(port) || h.name == "" {
		port = 0
	}
	return Host{h.name, port}
}

// isUsualPort reports whether a name without a port also means this port.
func isUsualPort(port uint16) bool { return port == 443 || port == 80 }

// IsZero reports whether this is not a host.
func (h Host) IsZero() bool { return h.name == "" }

// Parent returns the name without its first label, or "" if it has only one.
func (h Host) Parent() string {
	_, parent, _ := strings.Cut(h.name, ".")
	return parent
}

// ExactPattern returns the pattern that matches only this host.
func (h Host) ExactPattern() Pattern { return Pattern{h.String()} }

// WildcardPattern returns the only wildcard pattern that the host could match.
func (h Host) WildcardPattern() Pattern { return Pattern{Host{"*." + h.Parent(), h.port}.String()} }

// Lengths in bytes of the ASCII form (RFC 1035, section 2.3.4).
const (
	maxHost  = 253
	maxLabel = 63
	// maxInput bounds the input before it is normalised.
	maxInput = 1024
)

// Reasons of Parse. Each completes the sentence "this is ...".
var (
	errEmpty   = errors.New("empty")
	errAddress = errors.New("an IP address")
	errPort    = errors.New("a name with a port")
	errNumber  = errors.New("a name with a port that is not a number from 1 to 65535")
	errUsual   = errors.New("a name with port 443 or 80, which a name without a port stands for")
	errDNS     = errors.New("a name with port 53, which is that of the sandbox's DNS")
	errURL     = errors.New("a URL or a path")
	errUser    = errors.New("a name with user information")
	errLong    = errors.New("longer than 253 characters, or has a label longer than 63")
	errLabel   = errors.New("a name with an empty label")
	errHyphen  = errors.New("a name with a label that starts or ends with a hyphen")
	errChar    = errors.New("a name with a character that no host name has")
	errIDNA    = errors.New("not a valid internationalized name")
	errStar    = errors.New("a wildcard that is not the whole first label")
)

// Parse normalises a host name: lower case, IDNA to ASCII as in browsers (UTS 46, non-transitional), one trailing dot
// removed. It rejects ports, user information, percent signs, NUL, white space and empty labels. It also rejects IP
// addresses in every spelling that some resolver accepts ("127.1", "0x7f.0.0.1"). Single-label names ("localhost") and
// underscores ("_dmarc.example.com") are valid. Its errors do not show the input.
func Parse(s string) (Host, error) {
	if s == "" {
		return Host{}, errEmpty
	}
	if len(s) > maxInput {
		return Host{}, errLong
	}
	if !utf8.ValidString(s) { // IDNA would encode invalid bytes as U+FFFD
		return Host{}, errIDNA
	}
	if err := refusePunctuation(s); err != nil {
		return Host{}, err
	}
	name := strings.ToLower(s)
	if !isPlainName(name) {
		ascii, err := idnaProfile().ToASCII(s)
		if err != nil {
			return Host{}, errIDNA
		}
		name = strings.ToLower(ascii)
	}
	// "example.com." is the same host to DNS. A second dot is an empty label, which check rejects.
	name = strings.TrimSuffix(name, ".")
	if err := checkName(name); err != nil {
		return Host{}, err
	}
	return Host{name: name}, nil
}

// isPlainName reports whether IDNA would not change a lower-case name.
func isPlainName(name string) bool {
	for i := range len(name) {
		if name[i] >= 0x80 {
			return false
		}
	}
	return !strings.HasPrefix(name, "xn--") && !strings.Contains(name, ".xn--")
}

// idnaProfile accepts underscores and hyphens as real names have them ("r3---sn.example.com"). check restricts the
// characters afterwards.
func idnaProfile() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(),
		idna.StrictDomainName(false), idna.CheckHyphens(false))
}

// refusePunctuation rejects common mistakes with a specific error, before IDNA could map them to other characters.
func refusePunctuation(s string) error {
	if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return errAddress
	}
	switch {
	case strings.ContainsAny(s, `/\?#`):
		return errURL
	case strings.Contains(s, "@"):
		return errUser
	case strings.ContainsAny(s, "[]"):
		return errAddress
	case strings.Contains(s, ":"):
		return errPort
	case strings.Contains(s, "*"):
		return errStar
	}
	return nil
}

func checkName(name string) error {
	if name == "" {
		return errLabel
	}
	if len(name) > maxHost {
		return errLong
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return err
		}
		last = label
	}
	// A URL parser would connect to an address instead of resolving a name.
	if isNumericLabel(last) {
		return errAddress
	}
	return nil
}

func checkLabel(l string) error {
	switch {
	case l == "":
		return errLabel
	case len(l) > maxLabel:
		return errLong
	case l[0] == '-' || l[len(l)-1] == '-':
		return errHyphen
	}
	for i := range len(l) {
		b := l[i]
		if (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '-' && b != '_' {
			return errChar
		}
	}
	return nil
}

// isNumericLabel reports whether a last label makes the name an IPv4 address for a URL parser (WHATWG URL, "ends in a
// number"): all digits, or 0x and hex digits.
func isNumericLabel(label string) bool {
	digits, set := label, "0123456789"
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		digits, set = hex, "0123456789abcdef"
	}
	return strings.Trim(digits, set) == ""
}
