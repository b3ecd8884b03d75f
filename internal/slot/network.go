package slot

import (
	"net/netip"
)

// DefaultNetwork is the text form of the zero Network.
const DefaultNetwork = "10.77.0"

// Network is the network between the sandbox and the proxy in Docker mode: 256 IPv4 addresses with the same first three
// numbers. The zero Network is 10.77.0.0/24.
type Network struct{ subnet netip.Prefix }

// ParseNetwork parses the first three numbers of a private network, such as "10.78.0". For anything else it returns
// false.
func ParseNetwork(text string) (Network, bool) {
	a, err := netip.ParseAddr(text + ".0")
	if err != nil || !a.Is4() || !a.IsPrivate() || a.String() != text+".0" {
		return Network{}, false
	}
	return Network{netip.PrefixFrom(a, 24)}, true
}

// Subnet returns the prefix of all addresses of the network.
func (n Network) Subnet() netip.Prefix {
	if !n.subnet.IsValid() {
		return netip.MustParsePrefix(DefaultNetwork + ".0/24")
	}
	return n.subnet
}

func (n Network) addrAt(last byte) netip.Addr {
	b := n.Subnet().Addr().As4()
	b[3] = last
	return netip.AddrFrom4(b)
}

// Proxy returns the proxy's address.
func (n Network) Proxy() netip.Addr { return n.addrAt(2) }

// SandboxAddr returns the address of sandbox-net, which owns the sandbox's network namespace.
func (n Network) SandboxAddr() netip.Addr { return n.addrAt(3) }

// SlotAddr returns a slot's source address. Its last number is 100 or more.
func (n Network) SlotAddr(id ID) netip.Addr { return n.addrAt(byte(firstAddr + int(id))) }

// firstAddr is the last number of slot 0's address.
const firstAddr = 100

// SlotOf is the inverse of Addr. For an address that belongs to no slot it returns false.
func (n Network) SlotOf(a netip.Addr) (ID, bool) {
	a = a.Unmap()
	if !n.Subnet().Contains(a) {
		return 0, false
	}
	id := ID(int(a.As4()[3]) - firstAddr)
	return id, id.IsValid()
}
