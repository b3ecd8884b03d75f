// Package slot is the arithmetic of slots: which uid, source address and inherited file belongs to which slot.
//
// A slot is a seat for one run, or for one MCP server: its own uid, its own network identity, perhaps a warm
// interpreter. Every daemon derives a slot's identity, and which of the two it is for, from its number alone, so that
// they cannot disagree about it.
package slot

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const (
	// Max is how many slots there can be for runs: numbers 0 to Max-1.
	Max = 100
	// MaxServers is how many slots there can be for MCP servers: numbers Max to Total-1.
	MaxServers = 32
	// Total is how many slots there can be of both kinds.
	Total = Max + MaxServers
	// BaseUID is the uid of slot 0.
	BaseUID = 20000
	// ServerUID is the user of mcp-server in embedded mode under root: next to the slots, and none of them.
	ServerUID = BaseUID - 1
	// GroupID is the group of every slot. It owns /skills.
	GroupID = 20000
	// ServiceUID is the user, and by the same number the group, of mcp-server and of `sandboxd attach` in Docker
	// mode. Sockets made for mcp-server (sandboxd's, the proxy's control socket, docker-shim's) are for it alone.
	ServiceUID = 19998
)

// SyntheticAddr is the one address that the resolver answers with. In Docker mode the resolver is at it too, so that
// the sandbox's resolv.conf is the same in every Network.
var SyntheticAddr = netip.MustParseAddr("198.18.0.1")

// ID is a slot's number, from 0 to Total-1.
type ID int

// Valid reports whether the number is one of a slot.
func (id ID) Valid() bool { return id >= 0 && id < Total }

// Server reports whether the slot is for an MCP server. A run never gets one of these.
func (id ID) Server() bool { return id >= Max && id < Total }

// IDs lists the slots of a sandbox with that many for runs and that many for MCP servers.
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

// UID is the user that code in the slot runs as.
func (id ID) UID() int { return BaseUID + int(id) }

// Kind says what an inherited file is for.
type Kind string

// The kinds of inherited files, as they stand in LISTEN_FDNAMES, those of a slot behind "slotN-".
const (
	HTTP   Kind = "http"    // TCP listener on port 80 inside the slot's network namespace
	HTTPS  Kind = "https"   // TCP listener on port 443
	DNSUDP Kind = "dns-udp" // UDP socket on port 53
	DNSTCP Kind = "dns-tcp" // TCP listener on port 53
	NetNS  Kind = "netns"   // the network namespace itself, for sandboxd
	// Ports is of no slot: the socket at which the proxy asks for listeners on further ports (internal/slotport).
	Ports Kind = "ports"
)

// FileName is the name of an inherited file in LISTEN_FDNAMES, e.g. "slot3-https".
func FileName(id ID, k Kind) string {
	if k == Ports {
		return string(k)
	}
	return fmt.Sprintf("slot%d-%s", int(id), k)
}

// ParseFileName is the inverse of FileName. It accepts only what FileName makes.
func ParseFileName(name string) (ID, Kind, error) {
	if name == string(Ports) {
		return 0, Ports, nil
	}
	rest, ok := strings.CutPrefix(name, "slot")
	num, kind, ok2 := strings.Cut(rest, "-")
	n, err := strconv.Atoi(num)
	id, k := ID(n), Kind(kind)
	if !ok || !ok2 || err != nil || !id.Valid() || FileName(id, k) != name {
		return 0, "", fmt.Errorf("inherited file name %q: want slotN-kind", name)
	}
	switch k {
	case HTTP, HTTPS, DNSUDP, DNSTCP, NetNS:
		return id, k, nil
	}
	return 0, "", fmt.Errorf("inherited file name %q: unknown kind %q", name, kind)
}
