// Package slot maps slots to their uids, source addresses and inherited files.
//
// A slot is the place of one run or of one MCP server: a separate uid, a separate network identity, perhaps a warm
// interpreter. Every daemon derives a slot's identity and purpose only from its number, so the daemons cannot disagree.
package slot

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const (
	// Max is the number of possible slots for runs: 0 to Max-1.
	Max = 100
	// MaxServers is the number of possible slots for MCP servers: Max to Total-1.
	MaxServers = 32
	// Total is the number of possible slots of both kinds.
	Total = Max + MaxServers
	// BaseUID is the uid of slot 0.
	BaseUID = 20000
	// ServerUID is the user of mcp-server in embedded mode under root. It is next to the slots' uids, but not a slot's.
	ServerUID = BaseUID - 1
	// GroupID is the group of every slot. It owns /skills.
	GroupID = 20000
	// ServiceUID is the user, and with the same number the group, of mcp-server and of `sandboxd attach` in Docker mode.
	// Only this user may connect to sockets for mcp-server: sandboxd's, the proxy's control socket, docker-shim's.
	ServiceUID = 19998
)

// SyntheticAddr is the only address in the resolver's answers. In Docker mode it is also the resolver's address, so
// that the sandbox's resolv.conf is the same in every Network.
var SyntheticAddr = netip.MustParseAddr("198.18.0.1")

// ID is a slot's number, from 0 to Total-1.
type ID int

// IsValid reports whether the number belongs to a slot.
func (id ID) IsValid() bool { return id >= 0 && id < Total }

// IsServer reports whether the slot is for an MCP server. A run never gets such a slot.
func (id ID) IsServer() bool { return id >= Max && id < Total }

// IDs lists the slots of a sandbox with these numbers of slots for runs and for MCP servers.
func IDs(runs, servers int) []ID {
	ids := make([]ID, 0, runs+servers)
	for n := range runs {
		ids = append(ids, ID(n))
	}
	for n := range servers {
		ids = append(ids, ID(Max+n))
	}
	return ids
}

// UID returns the user of code in the slot.
func (id ID) UID() int { return BaseUID + int(id) }

// Kind is the purpose of an inherited file.
type Kind string

// The kinds of inherited files in LISTEN_FDNAMES. Those of a slot follow "slotN-".
const (
	HTTP   Kind = "http"    // TCP listener on port 80 inside the slot's network namespace
	HTTPS  Kind = "https"   // TCP listener on port 443
	DNSUDP Kind = "dns-udp" // UDP socket on port 53
	DNSTCP Kind = "dns-tcp" // TCP listener on port 53
	NetNS  Kind = "netns"   // the network namespace itself, for sandboxd
	// Ports belongs to no slot. It is the socket on which the proxy requests listeners on further ports
	// (internal/slotport).
	Ports Kind = "ports"
)

// FileName returns the name of an inherited file in LISTEN_FDNAMES, e.g. "slot3-https".
func FileName(id ID, k Kind) string {
	if k == Ports {
		return string(k)
	}
	return fmt.Sprintf("slot%d-%s", int(id), k)
}

// ParseFileName is the inverse of FileName. It accepts only results of FileName.
func ParseFileName(name string) (ID, Kind, error) {
	if name == string(Ports) {
		return 0, Ports, nil
	}
	rest, ok := strings.CutPrefix(name, "slot")
	num, kind, ok2 := strings.Cut(rest, "-")
	n, err := strconv.Atoi(num)
	id, k := ID(n), Kind(kind)
	// Atoi also accepts "+3" and "03".
	if !ok || !ok2 || err != nil || !id.IsValid() || FileName(id, k) != name {
		return 0, "", fmt.Errorf("inherited file name %q: want slotN-kind", name)
	}
	switch k {
	case HTTP, HTTPS, DNSUDP, DNSTCP, NetNS:
		return id, k, nil
	}
	return 0, "", fmt.Errorf("inherited file name %q: unknown kind %q", name, kind)
}
