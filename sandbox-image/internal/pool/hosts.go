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

// maxHosts bounds the length of the command line.
const maxHosts = 2000

// hostSet is the immutable, sorted set of hosts that Deno lets code connect to. The zero hostSet allows none. It is not
// a security boundary: kernel rules and the proxy are. Even so, only valid host names reach the interpreter's command
// line.
type hostSet struct{ hosts []string }

// parseHosts checks and sorts a list of host names ("api.example.com", "*.example.com", "localhost:3000"). The list
// ["*"] allows all.
func parseHosts(list []string) (hostSet, error) {
	if len(list) > maxHosts {
		return hostSet{}, fmt.Errorf("allow_net: %d hosts, want at most %d", len(list), maxHosts)
	}
	hosts := slices.Clone(list)
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	for _, h := range hosts {
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

// Hosts is the sorted list.
func (s hostSet) Hosts() []string { return slices.Clone(s.hosts) }

// Hash identifies the set.
func (s hostSet) Hash() string {
	sum := sha256.Sum256([]byte(strings.Join(s.hosts, "\n")))
	return hex.EncodeToString(sum[:8])
}

// isNormalHost reports whether h is a pattern of host names as the catalog writes one.
func isNormalHost(h string) bool {
	p, err := hostname.ParsePattern(h)
	return err == nil && p.String() == h
}
