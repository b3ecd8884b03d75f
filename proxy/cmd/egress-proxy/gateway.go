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
	in := inputs{asker: asker(n)}
	ctx := context.Background()
	var lc net.ListenConfig
	for _, p := range []struct {
		port uint16
		tls  bool
	}{{firewall.HTTPPort, false}, {firewall.HTTPSPort, true}} {
		l, err := lc.Listen(ctx, "tcp4", netip.AddrPortFrom(n.Proxy(), p.port).String())
		if err != nil {
			return in, fmt.Errorf("gateway mode: %w", err)
		}
		in.listeners = append(in.listeners, entrance.Listener{TCP: l.(*net.TCPListener), TLS: p.tls, Network: n})
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

// secure gives up what only the start needs. CAP_DAC_READ_SEARCH stays, to read a config.json that only its owner may
// read.
func secure() error {
	if err := privilege.HideMemory(); err != nil {
		return err
	}
	return privilege.Drop(unix.CAP_DAC_READ_SEARCH)
}
