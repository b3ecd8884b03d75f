package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/privilege"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/firewall"
	"github.com/codeforge-mcp/codeforge/proxy/internal/resolver"
)

// listenGateway listens on the sandbox's network first and then makes the container its gateway, so that nothing is
// redirected to a port without a listener.
func listenGateway(n slot.Network) (sandboxInputs, error) {
	if err := firewall.AddResolver(); err != nil {
		return sandboxInputs{}, fmt.Errorf("gateway mode: %w", err)
	}
	in, err := listenForAll(n.Proxy(), slot.SyntheticAddr, n.SlotOf)
	if err != nil {
		return in, err
	}
	_, err = firewall.Install(n)
	return in, err
}

// listenForAll listens on the ports that are always open, and for DNS, for every slot.
func listenForAll(at, resolverAt netip.Addr, find func(netip.Addr) (slot.ID, bool)) (sandboxInputs, error) {
	in := sandboxInputs{find: find, slots: []*slot.ID{nil}, open: newOpener(at, find)}
	for _, port := range []uint16{80, 443} {
		l, err := in.open(nil, port)
		if err != nil {
			return in, fmt.Errorf("listening for the sandbox: %w", err)
		}
		in.listeners = append(in.listeners, l)
	}
	ctx := context.Background()
	var lc net.ListenConfig
	dns := netip.AddrPortFrom(resolverAt, firewall.DNSPort).String()
	l, err := lc.Listen(ctx, "tcp4", dns)
	if err != nil {
		return in, fmt.Errorf("listening for DNS: %w", err)
	}
	p, err := lc.ListenPacket(ctx, "udp4", dns)
	if err != nil {
		return in, fmt.Errorf("listening for DNS: %w", err)
	}
	in.dns = append(in.dns, resolver.Socket{Streams: l}, resolver.Socket{Packets: p})
	return in, nil
}

// newOpener listens on a port of the proxy's address on the sandbox's network, and no other, for every slot. Below 1024
// it needs net.ipv4.ip_unprivileged_port_start to be 0, or CAP_NET_BIND_SERVICE.
func newOpener(
	address netip.Addr, find func(netip.Addr) (slot.ID, bool),
) func(*slot.ID, uint16) (entrance.Listener, error) {
	return func(_ *slot.ID, port uint16) (entrance.Listener, error) {
		at := netip.AddrPortFrom(address, port).String()
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", at)
		if err != nil {
			return entrance.Listener{}, err
		}
		return entrance.Listener{TCP: l.(*net.TCPListener), Port: port, Find: find}, nil
	}
}

// dropPrivileges drops the capabilities that only the start needs. CAP_DAC_READ_SEARCH is kept, to read a config.json
// that only its owner may read, and in a pod CAP_NET_BIND_SERVICE, to open ports of the catalog below 1024.
func dropPrivileges(mode string) error {
	if err := privilege.HideMemory(); err != nil {
		return err
	}
	keep := []int{unix.CAP_DAC_READ_SEARCH}
	if mode == modePod {
		keep = append(keep, unix.CAP_NET_BIND_SERVICE)
	}
	return privilege.DropCapabilities(keep...)
}
