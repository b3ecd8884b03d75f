//go:build !linux

package tcpsocket

import "net/netip"

func ask(netip.AddrPort, netip.AddrPort) (entry, bool) { return entry{}, false }
