//go:build !linux

package tcpsocket

import (
	"errors"
	"net/netip"
)

func ask(netip.AddrPort, netip.AddrPort) (entry, error) { return entry{}, errors.ErrUnsupported }
