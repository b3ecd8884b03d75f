// Package permission is the set of hosts that Deno lets code connect to. It is hygiene: kernel rules and the proxy are
// the boundary. Still nothing reaches the interpreter's command line that is not a host name.
package permission

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// All allows every host (YOLO_MODE).
const All = "*"

// maxHosts bounds the command line.
const maxHosts = 2000

// Set is an immutable, sorted set of hosts. The zero Set allows none.
type Set struct{ hosts []string }

// Parse checks and sorts a list of host names ("api.example.com", "*.example.com"). The list ["*"] allows all.
func Parse(list []string) (Set, error) {
	if len(list) > maxHosts {
		return Set{}, fmt.Errorf("allow_net: %d hosts, want at most %d", len(list), maxHosts)
	}
	hosts := slices.Clone(list)
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	for _, h := range hosts {
		if h == All {
			return Set{hosts: []string{All}}, nil
		}
		if !validHost(strings.TrimPrefix(h, "*.")) {
			return Set{}, fmt.Errorf("allow_net: %q: want a lower-case host name, or one behind \"*.\"", h)
		}
	}
	return Set{hosts: hosts}, nil
}

// Hosts is the sorted list.
func (s Set) Hosts() []string { return slices.Clone(s.hosts) }

// Hash names the set.
func (s Set) Hash() string {
	sum := sha256.Sum256([]byte(strings.Join(s.hosts, "\n")))
	return hex.EncodeToString(sum[:8])
}

// validHost accepts ASCII names in lower case, as the catalog normalises them.
func validHost(h string) bool {
	if len(h) == 0 || len(h) > 253 {
		return false
	}
	last := h[strings.LastIndexByte(h, '.')+1:]
	if strings.Trim(last, "0123456789") == "" {
		return false // an address
	}
	for label := range strings.SplitSeq(h, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}
