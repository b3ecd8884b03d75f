package embedded

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// slotNet is the network namespace of a slot, with the sockets opened inside it.
//
// The namespace has only lo, and a route that makes every IPv4 address local. So a connection to any address reaches a
// listener of the proxy, which was opened inside the namespace before any code ran. The namespace has no other exit,
// and the host's network is unchanged.
type slotNet struct {
	ID slot.ID
	// NetNS is the namespace. It exists as long as this file is open or a process is in it.
	NetNS *os.File
	// Sockets are the proxy's listeners, in the order of slotKinds.
	Sockets []*os.File
}

// slotKinds are the sockets opened in every namespace.
var slotKinds = [...]slot.Kind{slot.HTTP, slot.HTTPS, slot.DNSUDP, slot.DNSTCP}

// makeSlotNets creates the namespaces of the slots. On an error it leaves none behind.
func makeSlotNets(ids []slot.ID) ([]slotNet, error) {
	type result struct {
		slots []slotNet
		err   error
	}
	done := make(chan result)
	go func() {
		// The thread is never unlocked. It ends with this goroutine, so no other code runs in its namespaces.
		runtime.LockOSThread()
		slots, err := makeEach(ids)
		done <- result{slots, err}
	}()
	r := <-done
	return r.slots, r.err
}

func makeEach(ids []slot.ID) ([]slotNet, error) {
	var slots []slotNet
	for _, id := range ids {
		s, err := makeSlotNet(id)
		if err != nil {
			// Some sockets of this slot may be open already.
			s.Close()
			for _, s := range slots {
				s.Close()
			}
			return nil, fmt.Errorf("making the network namespace of slot %d: %w", id, err)
		}
		slots = append(slots, s)
	}
	return slots, nil
}

// makeSlotNet moves the calling thread into a new namespace and sets it up.
func makeSlotNet(id slot.ID) (slotNet, error) {
	s := slotNet{ID: id}
	ns, err := netns.New()
	if err != nil {
		return s, fmt.Errorf("creating it: %w", err)
	}
	s.NetNS = os.NewFile(uintptr(ns), slot.FileName(id, slot.NetNS))
	// The thread is in the new namespace now, so everything below applies to it.
	if err := setUpNet(); err != nil {
		return s, err
	}
	for _, kind := range slotKinds {
		f, err := openSlotSocket(kind)
		if err != nil {
			return s, fmt.Errorf("listening for %s: %w", kind, err)
		}
		s.Sockets = append(s.Sockets, f)
	}
	return s, nil
}

// setUpNet brings lo up and makes every IPv4 address local.
func setUpNet() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bringing lo up: %w", err)
	}
	route := &netlink.Route{
		LinkIndex: lo.Attrs().Index,
		Dst:       &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
		Type:      unix.RTN_LOCAL,
		Table:     unix.RT_TABLE_LOCAL,
		Scope:     netlink.SCOPE_HOST,
		// Deno leaves Nagle's algorithm on: its next small frame waits for the acknowledgement of the previous one. Without
		// quick ACKs the kernel delays that acknowledgement by 40 ms.
		QuickACK: 1,
	}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("making every address local: %w", err)
	}
	return nil
}

// openSlotSocket opens one listener in the calling thread's namespace.
func openSlotSocket(kind slot.Kind) (*os.File, error) {
	if kind == slot.DNSUDP {
		c, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp4", ":53")
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return c.(*net.UDPConn).File()
	}
	return openListener(map[slot.Kind]string{slot.HTTP: ":80", slot.HTTPS: ":443", slot.DNSTCP: ":53"}[kind])
}

func openListener(address string) (*os.File, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", address)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.(*net.TCPListener).File()
}

// Close closes the files. The namespace ends with the last process in it.
func (s slotNet) Close() {
	if s.NetNS != nil {
		_ = s.NetNS.Close()
	}
	s.CloseSockets()
}

// CloseSockets closes the listeners. The proxy has inherited copies.
func (s slotNet) CloseSockets() {
	for _, f := range s.Sockets {
		_ = f.Close()
	}
}

// Listen opens another listener in the namespace, on a port of every address.
func (s slotNet) Listen(port uint16) (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // as in makeSlotNets
		var r result
		if r.err = netns.Set(netns.NsHandle(s.NetNS.Fd())); r.err == nil {
			r.file, r.err = openListener(":" + strconv.Itoa(int(port)))
		}
		done <- r
	}()
	r := <-done
	return r.file, r.err
}

// inheritedFiles returns the files that the two daemons inherit, with their names in LISTEN_FDNAMES: sockets for the
// proxy, namespaces for sandboxd.
func inheritedFiles(slots []slotNet) (proxy, sandbox []slot.File) {
	for _, s := range slots {
		for i, f := range s.Sockets {
			proxy = append(proxy, slot.File{Slot: s.ID, Kind: slotKinds[i], File: f})
		}
		sandbox = append(sandbox, slot.File{Slot: s.ID, Kind: slot.NetNS, File: s.NetNS})
	}
	return proxy, sandbox
}
