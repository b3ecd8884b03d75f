package resolver

import (
	"net"
	"net/netip"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
)

// maxStreams is the number of TCP connections that one slot may have open. A DNS client needs one for a moment.
const maxStreams = 16

// boundedListener is a listener with at most maxStreams connections for each slot. It closes a further connection at
// once. All connections to the listener of one slot belong to that slot. Otherwise the address identifies the slot.
type boundedListener struct {
	net.Listener
	allow func(netip.Addr) bool // nil for the listener of one slot

	mu   sync.Mutex
	open map[netip.Addr]int
}

func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if who, ok := b.admitConn(c); ok {
			// Close may be called more than once.
			return rpc.OnClose(c, sync.OnceFunc(func() { b.releaseConn(who) })), nil
		}
		// An error would end the loop of package dns, and Resolver.Serve with it.
		_ = c.Close()
	}
}

// admitConn counts a connection and returns its slot's address. ok is false if the connection must not be served.
func (b *boundedListener) admitConn(c net.Conn) (who netip.Addr, ok bool) {
	if b.allow != nil {
		from, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if who = from.Addr().Unmap(); err != nil || !b.allow(who) {
			return who, false
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// A slot must not use up the file descriptors of the others.
	if b.open[who] >= maxStreams {
		return who, false
	}
	b.open[who]++
	return who, true
}

func (b *boundedListener) releaseConn(who netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[who]--; b.open[who] == 0 {
		delete(b.open, who)
	}
}
