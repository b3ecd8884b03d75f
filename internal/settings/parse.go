package settings

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/hostname"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// Error lists every variable that did not parse, in the order of .env.example.
type Error []Mistake

// Mistake is one variable that did not parse. Found quotes the value, unless the variable may contain a secret.
type Mistake struct{ Name, Found, Want string }

// Error returns one line per variable: "MCP_PORT: \"http\"; want a whole number from 1 to 65535".
func (e Error) Error() string {
	lines := convert.Each(e, func(m Mistake) string { return m.Name + ": " + m.Found + "; want " + m.Want })
	return strings.Join(lines, "\n")
}

// Parse reads every setting from the environment. Unset and empty mean the default. The error is an Error that names
// every variable that does not parse. After an error the Settings are incomplete.
func Parse(getenv func(string) string) (Settings, error) {
	var s Settings
	var mistakes Error
	for _, v := range settingSpecs() {
		// White space around a value is not part of the value.
		text := strings.TrimSpace(getenv(v.name))
		text = cmp.Or(text, v.def)
		if want := v.read(&s, text); want != "" {
			mistakes = append(mistakes, Mistake{v.name, quoteFound(v.name, text), want})
		}
	}
	mistakes = append(mistakes, listRemoved(getenv)...)
	// The comparisons below need every value.
	if mistakes != nil {
		return s, mistakes
	}
	// After all variables are read: it needs DATABASE_CA_FILE too.
	s.completeDatabase(&s.Database)
	s.completeDatabase(&s.ProxyDatabase)
	mistakes = append(mistakes, s.completeLogins()...)
	// SANDBOX_SLOTS=1 alone is not a mistake, so the default of SANDBOX_WARM follows it.
	if strings.TrimSpace(getenv("SANDBOX_WARM")) == "" {
		s.Warm = min(s.Warm, s.Slots)
	}
	if s.Warm > s.Slots {
		mistakes = append(mistakes, Mistake{"SANDBOX_WARM", strconv.Itoa(s.Warm),
			fmt.Sprintf("at most SANDBOX_SLOTS, which is %d", s.Slots)})
	}
	if s.WarmPython > s.Slots {
		mistakes = append(mistakes, Mistake{"SANDBOX_WARM_PYTHON", strconv.Itoa(s.WarmPython),
			fmt.Sprintf("at most SANDBOX_SLOTS, which is %d", s.Slots)})
	}
	s.TimeoutDefault = cmp.Or(s.TimeoutDefault, s.TimeoutMax)
	if s.TimeoutDefault > s.TimeoutMax {
		mistakes = append(mistakes, Mistake{"TIMEOUT_DEFAULT", formatSeconds(s.TimeoutDefault),
			"at most TIMEOUT_MAX, which is " + formatSeconds(s.TimeoutMax)})
	}
	if mistakes != nil {
		return s, mistakes
	}
	return s, nil
}

func formatSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// quoteFound quotes a shortened value. It does not quote a setting that may be secret.
func quoteFound(name, text string) string {
	switch name {
	// URLs may contain a password.
	case "MCP_AUTH_TOKEN", "REDACTING_STRINGS", "UPSTREAM_PROXY", "PACKAGE_REGISTRY", "DATABASE_URL",
		"PROXY_DATABASE_URL":
		return "a value of " + strconv.Itoa(len(text)) + " bytes, not shown"
	}
	if len(text) > 60 {
		text = text[:60] + "..."
	}
	return strconv.Quote(text)
}

func parseBool(t string, to *bool) string {
	switch strings.ToLower(t) {
	case "true", "1", "yes", "on":
		*to = true
	case "false", "0", "no", "off":
		*to = false
	default:
		return "true or false"
	}
	return ""
}

func parseInt(t string, low, high int, to *int) string {
	n, err := strconv.Atoi(t)
	if err != nil || n < low || n > high {
		return fmt.Sprintf("a whole number from %d to %d", low, high)
	}
	*to = n
	return ""
}

// maxTimeout is a day in seconds: more than any run needs, and far from overflow.
const maxTimeout = 24 * 60 * 60

func parseSeconds(t string, to *time.Duration) string {
	var n int
	if want := parseInt(t, 1, maxTimeout, &n); want != "" {
		return fmt.Sprintf("seconds, a whole number from 1 to %d", maxTimeout)
	}
	*to = time.Duration(n) * time.Second
	return ""
}

// The bounds of SANDBOX_MEMORY and SANDBOX_SERVER_MEMORY in bytes, as in sandboxd.
const (
	minRunMemory    = 128 << 20
	minServerMemory = 64 << 20
	maxMemory       = 1 << 40
)

// minAuditSize is the minimum of AUDIT_SIZE in bytes. Half of AUDIT_SIZE is for one day.
const minAuditSize = 16 << 20

func parseSize(t string, least int64, to *int64) string {
	want := fmt.Sprintf("a number with k, m or g, e.g. 512m or 1g, from %dm to 1024g", least>>20)
	t = strings.TrimSuffix(strings.ToLower(t), "b")
	var shift uint
	for unit, bits := range map[string]uint{"k": 10, "m": 20, "g": 30} {
		if digits, ok := strings.CutSuffix(t, unit); ok {
			t, shift = digits, bits
			break
		}
	}
	n, err := strconv.ParseInt(t, 10, 64)
	// The comparison with the shifted maximum cannot overflow.
	if err != nil || n < 0 || n > maxMemory>>shift || n<<shift < least {
		return want
	}
	*to = n << shift
	return ""
}

func parseSubnet(t string, to *slot.Network) string {
	n, ok := slot.ParseNetwork(t)
	if !ok {
		return `the first three numbers of a private network that is not in use here, e.g. "10.78.0"`
	}
	*to = n
	return ""
}

func parseHeader(t string, to *string) string {
	if strings.ContainsFunc(t, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) }) {
		return "printable ASCII, as a header's value"
	}
	*to = t
	return ""
}

// minRedacting prevents that a stray letter or comma is redacted in every request.
const minRedacting = 4

func parseRedacting(t string, to *[]string) string {
	for _, part := range splitList(t) {
		if len(part) < minRedacting {
			return fmt.Sprintf("strings of at least %d bytes each, separated by commas", minRedacting)
		}
		*to = append(*to, part)
	}
	return ""
}

// minBearer is a length in bytes that is too long to be guessed over the network.
const minBearer = 16

func parseBearer(t string, to *secret.Value) string {
	if t == "" {
		return ""
	}
	unprintable := func(r rune) bool { return r > unicode.MaxASCII || r <= ' ' || r == 0x7f }
	if len(t) < minBearer || strings.ContainsFunc(t, unprintable) {
		return fmt.Sprintf("at least %d printable ASCII characters without spaces", minBearer)
	}
	*to = secret.New(t)
	return ""
}

func parseHosts(t string, to *[]string) string {
	return parseEach(t, to, parseHostPort,
		"host names or addresses, each with an optional port, separated by commas, e.g. codeforge.example.com")
}

// parseEach parses a list, and returns want if an element is invalid.
func parseEach(t string, to *[]string, parse func(string) (string, bool), want string) string {
	for _, part := range splitList(t) {
		one, ok := parse(part)
		if !ok {
			return want
		}
		*to = append(*to, one)
	}
	return ""
}

// parseHostPort normalises the value of a Host header: a name or an address (IPv6 in brackets), with an optional port.
func parseHostPort(s string) (string, bool) {
	name, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		var n int
		if name, port = s[:i], s[i+1:]; parseInt(port, 1, 65535, &n) != "" {
			return "", false
		}
		port = ":" + strconv.Itoa(n)
	}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		// Normalise the spelling, because the Host header is compared as text.
		a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return "[" + a.String() + "]" + port, err == nil && a.Is6() && a.Zone() == "" && strings.HasSuffix(inner, "]")
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return a.String() + port, a.Is4()
	}
	h, err := hostname.Parse(name)
	return h.String() + port, err == nil
}

func splitList(t string) []string {
	var out []string
	for part := range strings.FieldsFuncSeq(t, func(r rune) bool { return r == ',' || r == '\n' }) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func parseProxyURL(t string, to **url.URL) string {
	if t == "" {
		return ""
	}
	u, err := url.Parse(t)
	if err != nil || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return "a URL like http://proxy.example.com:3128"
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
		*to = u
		return ""
	}
	return "a URL that starts with http://, https:// or socks5://"
}

// parseRegistryURL reads the address of a package registry. An installation can reach only this host, over TLS on port
// 443.
func parseRegistryURL(t string, to **url.URL) string {
	if t == "" {
		return ""
	}
	const want = "an https:// URL without user, password and port, e.g. what `npm config get registry` prints"
	u, err := url.Parse(t)
	if err != nil || u.Scheme != "https" || u.User != nil || u.Port() != "" || u.RawQuery != "" || u.Fragment != "" {
		return want
	}
	// The host becomes a rule of the proxy, which knows only normalised names.
	if _, err := hostname.Parse(u.Hostname()); err != nil {
		return want
	}
	*to = u
	return ""
}

// registryRanges are the ranges that PACKAGE_REGISTRY_PRIVATE may list: private addresses, carrier-grade NAT, loopback,
// and documentation addresses. Some networks use documentation addresses for services.
var registryRanges = [...]string{
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "100.64.0.0/10", "127.0.0.0/8", "::1/128",
	"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20",
}

func parseRanges(t string, to *[]netip.Prefix) string {
	for _, part := range splitList(t) {
		p, err := netip.ParsePrefix(part)
		if err != nil || p != p.Masked() || !isRegistryRange(p) {
			return "ranges of private addresses or of addresses for documentation, separated by commas, e.g. 10.1.0.0/16"
		}
		*to = append(*to, p)
	}
	return ""
}

// isRegistryRange reports whether a whole range is in registryRanges.
func isRegistryRange(p netip.Prefix) bool {
	return slices.ContainsFunc(registryRanges[:], func(text string) bool {
		r := netip.MustParsePrefix(text)
		return r.Contains(p.Addr()) && r.Bits() <= p.Bits()
	})
}

func parsePath(t, want string, to *string) string {
	if strings.ContainsFunc(t, unicode.IsControl) {
		return want
	}
	*to = t
	return ""
}

func parseZone(t string, to *string) string {
	const want = "a time zone of the IANA database, e.g. UTC or Europe/Berlin"
	for part := range strings.SplitSeq(t, "/") {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-") != "" {
			return want
		}
	}
	// "Local" would be the zone of this machine, not of the sandbox.
	if _, err := time.LoadLocation(t); t == "Local" || err != nil && hasZones() {
		return want
	}
	*to = t
	return ""
}

// hasZones reports whether this machine has the time zone database. Without it a zone cannot be checked; Deno has its
// own database.
func hasZones() bool {
	_, err := time.LoadLocation("Europe/London")
	return err == nil
}

func parseOption(t string, to *string, options ...string) string {
	for _, o := range options {
		if strings.EqualFold(t, o) {
			*to = o
			return ""
		}
	}
	return strings.Join(options, " or ")
}
