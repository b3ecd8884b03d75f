package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/hostname"
)

// allHosts allows every host (YOLO_MODE).
const allHosts = "*"

// maxHosts bounds the length of the interpreter's command line.
const maxHosts = 2000

// hostSet is the immutable, sorted set of hosts to which Deno lets code connect. The zero hostSet allows no host. The
// security boundary is not this set, but the kernel's rules and the proxy. Even so, only valid host names reach the
// interpreter's command line.
type hostSet struct{ hosts []string }

// parseHosts checks and sorts a list of host names ("api.example.com", "*.example.com", "localhost:3000"). A list that
// contains "*" allows all hosts.
func parseHosts(list []string) (hostSet, error) {
	if len(list) > maxHosts {
		return hostSet{}, fmt.Errorf("allow_net: %d hosts, want at most %d", len(list), maxHosts)
	}
	hosts := slices.Clone(list)
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	for _, h := range hosts {
		// "*" makes the other hosts redundant.
		if h == allHosts {
			return hostSet{hosts: []string{allHosts}}, nil
		}
		if !isNormalHost(h) {
			return hostSet{}, fmt.Errorf(
				"allow_net: %q: want a lower-case host name, or one behind \"*.\", perhaps with a port", h)
		}
	}
	return hostSet{hosts: hosts}, nil
}

// SortedHosts returns the sorted list.
func (s hostSet) SortedHosts() []string { return slices.Clone(s.hosts) }

// HashHosts identifies the set: 8 bytes of its SHA-256, in hexadecimal.
func (s hostSet) HashHosts() string {
	sum := sha256.Sum256([]byte(strings.Join(s.hosts, "\n")))
	return hex.EncodeToString(sum[:8])
}

// isNormalHost reports whether h is a host name pattern in the spelling of the catalog.
func isNormalHost(h string) bool {
	p, err := hostname.ParsePattern(h)
	return err == nil && p.String() == h
}
