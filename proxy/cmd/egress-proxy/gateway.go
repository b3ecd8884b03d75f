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
)

// gateway listens on the sandbox's network first and then makes the container its gateway, so that nothing is
// redirected to a port without a listener.
func gateway(n slot.Network) (inputs, error) {
	in := inputs{asker: asker(n), seats: []*slot.ID{nil}, open: opener(n)}
	ctx := context.Background()
	var lc net.ListenConfig
	for _, port := range []uint16{80, 443} {
		l, err := in.open(nil, port)
		if err != nil {
			return in, fmt.Errorf("gateway mode: %w", err)
		}
		in.listeners = append(in.listeners, l)
	}
	if err := firewall.AddResolver(); err != nil {
		return in, fmt.Errorf("gateway mode: %w", err)
	}
	resolver := netip.AddrPortFrom(slot.SyntheticAddr, firewall.DNSPort).String()
	l, err := lc.Listen(ctx, "tcp4", resolver)
	if err != nil {
		return in, fmt.Errorf("gateway mode: %w", err)
	}
	in.streams = append(in.streams, l)
	p, err := lc.ListenPacket(ctx, "udp4", resolver)
	if err != nil {
		return in, fmt.Errorf("gateway mode: %w", err)
	}
	in.packets = append(in.packets, p)
	_, err = firewall.Install(n)
	return in, err
}

// opener listens on a port of the proxy's address on the sandbox's network, and no other, for every slot. Below 1024 it
// needs net.ipv4.ip_unprivileged_port_start to be 0.
func opener(n slot.Network) func(*slot.ID, uint16) (entrance.Listener, error) {
	return func(_ *slot.ID, port uint16) (entrance.Listener, error) {
		at := netip.AddrPortFrom(n.Proxy(), port).String()
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", at)
		if err != nil {
			return entrance.Listener{}, err
		}
		return entrance.Listener{TCP: l.(*net.TCPListener), Port: port, Network: n}, nil
	}
}

// secure gives up what only the start needs. CAP_DAC_READ_SEARCH stays, to read a config.json that only its owner may
// read.
func secure() error {
	if err := privilege.HideMemory(); err != nil {
		return err
	}
	return privilege.Drop(unix.CAP_DAC_READ_SEARCH)
}
