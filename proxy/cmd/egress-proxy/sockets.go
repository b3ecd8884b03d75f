package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/slotport"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/seats"
)

// inputs are the sockets that the sandbox can reach.
type inputs struct {
	listeners []entrance.Listener
	packets   []net.PacketConn
	streams   []net.Listener
	// packetSlots and streamSlots are the slots of packets and streams.
	packetSlots, streamSlots []*slot.ID
	find                     func(netip.Addr) (slot.ID, bool) // the slot of an address; nil if slots have own sockets
	anyAsks                  bool                             // an address without a slot may query the resolver too
	seats                    []*slot.ID                       // where further ports are opened, see ports.Config
	open                     func(*slot.ID, uint16) (entrance.Listener, error)
}

// sockets opens or inherits the sockets, and returns the mode of the control socket. pods are those that
// share the proxy.
func sockets(
	o options, n slot.Network, pods *seats.Seats, getenv func(string) string,
) (inputs, fs.FileMode, error) {
	switch o.mode {
	case modeGateway:
		in, err := gateway(n)
		return in, fileGateway, err
	case modePod:
		in, err := pod(n)
		return in, fileOwner, err
	case modeShared:
		in, err := shared(o.inside, pods)
		return in, fileOwner, err
	}
	files, err := slot.Inherited(getenv)
	if err != nil {
		return inputs{}, 0, err
	}
	in, err := inherit(files)
	return in, fileOwner, err
}

// inherit turns inherited files into listeners.
func inherit(files []slot.File) (inputs, error) {
	var in inputs
	for _, f := range files {
		if err := in.add(f); err != nil {
			return in, fmt.Errorf("inherited file %s: %w", f.File.Name(), err)
		}
	}
	if len(in.listeners) == 0 {
		return in, errors.New("embedded mode: no listener was inherited (LISTEN_FDS, LISTEN_FDNAMES)")
	}
	if in.open == nil {
		in.open = func(*slot.ID, uint16) (entrance.Listener, error) {
			return entrance.Listener{}, errors.New("the socket that opens ports was not inherited")
		}
	}
	return in, nil
}

// add takes over one file; the listener has a descriptor of its own.
func (in *inputs) add(f slot.File) error {
	defer f.File.Close()
	switch f.Kind {
	case slot.HTTP, slot.HTTPS:
		l, err := net.FileListener(f.File)
		if err != nil {
			return err
		}
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			return errors.New("not a TCP listener")
		}
		id := f.Slot
		port := uint16(80)
		if f.Kind == slot.HTTPS {
			port = 443
			in.seats = append(in.seats, &id)
		}
		in.listeners = append(in.listeners, entrance.Listener{TCP: tcp, Port: port, Slot: &id})
	case slot.Ports:
		asker, err := slotport.NewAsker(f.File)
		if err != nil {
			return err
		}
		in.open = func(seat *slot.ID, port uint16) (entrance.Listener, error) {
			tcp, err := asker.Listen(*seat, port)
			return entrance.Listener{TCP: tcp, Port: port, Slot: seat}, err
		}
	case slot.DNSTCP:
		l, err := net.FileListener(f.File)
		if err != nil {
			return err
		}
		in.streams, in.streamSlots = append(in.streams, l), append(in.streamSlots, &f.Slot)
	case slot.DNSUDP:
		p, err := net.FilePacketConn(f.File)
		if err != nil {
			return err
		}
		in.packets, in.packetSlots = append(in.packets, p), append(in.packetSlots, &f.Slot)
	case slot.NetNS:
		return errors.New("network namespaces are for sandboxd, not the proxy")
	}
	return nil
}
