// Package hostname normalises host names once, so that all later code can compare them with ==.
//
// Threat: two parts of the system reading one name differently (case, a trailing dot, a port, percent signs, NUL,
// another spelling of an IP address), so that policy decides on one host and the dialler reaches another.
package hostname

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Host is a normalised host name, perhaps at a port: lower case, IDNA to ASCII, no trailing dot, never an IP address.
// Two hosts are the same if and only if they are ==. The zero Host is not a host.
type Host struct {
	name string
	port uint16 // 0: the ports of HTTPS and HTTP
}

// String is the normalised name, with ":" and the port if there is one.
func (h Host) String() string {
	if h.port == 0 {
		return h.name
	}
	return h.name + ":" + strconv.Itoa(int(h.port))
}

// Name is the normalised name alone.
func (h Host) Name() string { return h.name }

// Port is the host's port, or 0 for those of HTTPS and HTTP.
func (h Host) Port() uint16 { return h.port }

// At is the host of the same name at a port. 443 and 80, where a name without a port is, are 0.
func (h Host) At(port uint16) Host {
	if usual(port) || h.name == "" {
		port = 0
	}
	return Host{h.name, port}
}

// usual reports whether a name without a port stands for the port too.
func usual(port uint16) bool { return port == 443 || port == 80 }

// IsZero reports whether this is not a host.
func (h Host) IsZero() bool { return h.name == "" }

// Parent is the name without its first label, or empty if there is only one.
func (h Host) Parent() string {
	_, parent, _ := strings.Cut(h.name, ".")
	return parent
}

// Exact is the pattern that the host alone matches.
func (h Host) Exact() Pattern { return Pattern{h.String()} }

// Wildcard is the one pattern with a wildcard that the host could match.
func (h Host) Wildcard() Pattern { return Pattern{Host{"*." + h.Parent(), h.port}.String()} }

// Lengths in bytes of the ASCII form (RFC 1035, section 2.3.4).
const (
	maxHost  = 253
	maxLabel = 63
	// maxInput bounds the input before it is normalised.
	maxInput = 1024
)

// Why Parse refuses a name. Each error completes the sentence "this is ...".
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

// Parse normalises a host name: lower case, IDNA to ASCII as browsers do (UTS 46, non-transitional), one trailing dot
// removed. It refuses everything that is not a plain name: ports, userinfo, percent signs, NUL, white space, empty
// labels, IP addresses in every spelling that some resolver takes for one ("127.1", "0x7f.0.0.1"). Single-label names
// ("localhost") and underscores ("_dmarc.example.com") are names. Its errors do not show the input.
func Parse(s string) (Host, error) {
	if s == "" {
		return Host{}, errEmpty
	}
	if len(s) > maxInput {
		return Host{}, errLong
	}
	if !utf8.ValidString(s) { // IDNA would encode the bytes it cannot read as U+FFFD
		return Host{}, errIDNA
	}
	if err := refusePunctuation(s); err != nil {
		return Host{}, err
	}
	name := strings.ToLower(s)
	if !plain(name) {
		ascii, err := profile().ToASCII(s)
		if err != nil {
			return Host{}, errIDNA
		}
		name = strings.ToLower(ascii)
	}
	name = strings.TrimSuffix(name, ".")
	if err := check(name); err != nil {
		return Host{}, err
	}
	return Host{name: name}, nil
}

// plain reports whether IDNA would leave a lower-case name as it is.
func plain(name string) bool {
	for i := range len(name) {
		if name[i] >= 0x80 {
			return false
		}
	}
	return !strings.HasPrefix(name, "xn--") && !strings.Contains(name, ".xn--")
}

// profile accepts underscores and hyphens where real names have them ("r3---sn.example.com"); check restricts the
// characters afterwards.
func profile() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(),
		idna.StrictDomainName(false), idna.CheckHyphens(false))
}

// refusePunctuation refuses the common mistakes by name, before IDNA could map them to something else.
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

// check checks a normalised name.
func check(name string) error {
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
	if numeric(last) {
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

// numeric reports whether a last label makes the name an IPv4 address to a URL parser (WHATWG URL, "ends in a
// number"): all digits, or 0x and hex digits.
func numeric(label string) bool {
	digits, set := label, "0123456789"
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		digits, set = hex, "0123456789abcdef"
	}
	return strings.Trim(digits, set) == ""
}
