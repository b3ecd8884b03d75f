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
	"github.com/codeforge-mcp/codeforge/proxy/internal/podslots"
	"github.com/codeforge-mcp/codeforge/proxy/internal/resolver"
)

// sandboxInputs are the sockets that the sandbox can reach.
type sandboxInputs struct {
	listeners []entrance.Listener
	dns       []resolver.Socket
	find      func(netip.Addr) (slot.ID, bool) // the slot of an address; nil if slots have own sockets
	anyAsks   bool                             // an address without a slot may query the resolver too
	slots     []*slot.ID                       // where further ports are opened, see ports.Config
	open      func(*slot.ID, uint16) (entrance.Listener, error)
}

// openSockets opens or inherits the sockets, and returns the mode of the control socket. pods are those that
// share the proxy.
func openSockets(
	o options, n slot.Network, pods *podslots.PodSlots, getenv func(string) string,
) (sandboxInputs, fs.FileMode, error) {
	switch o.mode {
	case modeGateway:
		in, err := listenGateway(n)
		return in, fileGateway, err
	case modePod:
		// The init container has set up the proxy's address in the pod: see sandboxd hold --pod.
		in, err := listenForAll(n.Proxy(), n.Proxy(), n.SlotOf)
		return in, fileOwner, err
	case modeShared:
		// Pods reach the address of the proxy's own pod through a Service.
		in, err := listenForAll(o.inside, o.inside, pods.FindSlot)
		in.anyAsks = true
		return in, fileOwner, err
	}
	files, err := slot.InheritedFiles(getenv)
	if err != nil {
		return sandboxInputs{}, 0, err
	}
	in, err := inheritSockets(files)
	return in, fileOwner, err
}

// inheritSockets turns inherited files into listeners.
func inheritSockets(files []slot.File) (sandboxInputs, error) {
	var in sandboxInputs
	for _, f := range files {
		if err := in.addFile(f); err != nil {
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

// addFile takes over one file; the listener has a descriptor of its own.
func (in *sandboxInputs) addFile(f slot.File) error {
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
			in.slots = append(in.slots, &id)
		}
		in.listeners = append(in.listeners, entrance.Listener{TCP: tcp, Port: port, Slot: &id})
	case slot.Ports:
		asker, err := slotport.NewAsker(f.File)
		if err != nil {
			return err
		}
		in.open = func(seat *slot.ID, port uint16) (entrance.Listener, error) {
			tcp, err := asker.ListenOn(*seat, port)
			return entrance.Listener{TCP: tcp, Port: port, Slot: seat}, err
		}
	case slot.DNSTCP:
		l, err := net.FileListener(f.File)
		if err != nil {
			return err
		}
		in.dns = append(in.dns, resolver.Socket{Streams: l, Slot: &f.Slot})
	case slot.DNSUDP:
		p, err := net.FilePacketConn(f.File)
		if err != nil {
			return err
		}
		in.dns = append(in.dns, resolver.Socket{Packets: p, Slot: &f.Slot})
	case slot.NetNS:
		return errors.New("network namespaces are for sandboxd, not the proxy")
	}
	return nil
}
