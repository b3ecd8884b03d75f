package entrance

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/strict"
)

// Conn is one connection from the sandbox, bound to a lease from accept on.
type Conn struct {
	net.Conn // the TCP connection
	lease    *lease.Lease
	port     uint16
	first    []byte // the bytes that decide has read
	tls      bool
	host     catalog.Host
	strict   *strict.Conn // nil for HTTP/2
	served   int          // HTTP/1 requests passed to the handler
	close    sync.Once
	closeErr error
	text     cork // written plaintext, before encryption
	wire     cork
	soon     *time.Timer
}

// Lease returns the lease that the connection is bound to.
func (c *Conn) Lease() *lease.Lease { return c.lease }

// IsTLS reports whether the connection is over TLS.
func (c *Conn) IsTLS() bool { return c.tls }

// Port returns the port that the client connected to.
func (c *Conn) Port() uint16 { return c.port }

// Host returns the host of the TLS handshake, at the port. Without TLS it is the zero Host.
func (c *Conn) Host() catalog.Host { return c.host }

// The ports with a known protocol.
const (
	portHTTPS = 443
	portHTTP  = 80
)

// handshakeType is the record type with which a TLS connection begins (RFC 8446, section 5.1). No HTTP request begins
// with it.
const handshakeType = 0x16

// detectTLS determines whether the client speaks TLS. It returns false if the client sends no byte in time.
func (c *Conn) detectTLS(patience time.Duration) bool {
	if c.port == portHTTPS || c.port == portHTTP {
		c.tls = c.port == portHTTPS
		return true
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	first := make([]byte, 1)
	if _, err := io.ReadFull(c.Conn, first); err != nil {
		return false
	}
	_ = c.SetReadDeadline(time.Time{})
	c.first, c.tls = first, first[0] == handshakeType
	return true
}

// Read implements io.Reader.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.first) == 0 || len(p) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}

// IsHTTP1 reports whether the client speaks HTTP/1. Only HTTP/1 can be upgraded to WebSocket.
func (c *Conn) IsHTTP1() bool { return c.strict != nil }

// CheckNext returns the result of the strict check for the request with which the handler was just called. Nil means
// that the request is valid. The handler must call CheckNext exactly once per request.
func (c *Conn) CheckNext() error {
	if c.strict == nil {
		return nil
	}
	c.served++
	return c.strict.FindRefusal(c.served)
}

// EndCheck ends the strict check, for a connection that the handler hijacked after an upgrade.
func (c *Conn) EndCheck() {
	if c.strict != nil {
		c.strict.StopChecks()
	}
}

// Close closes the connection and removes it from the lease.
func (c *Conn) Close() error {
	c.close.Do(func() {
		c.closeErr = c.Conn.Close()
		if c.lease != nil {
			// The lease knows the connection under this type: as a *Conn it would be another key of the map.
			c.lease.DetachConn((*resetConn)(c))
		}
	})
	return c.closeErr
}

// Reset closes the connection in a way that the client sees as an error. An ordinary close could look like the end of a
// response (HTTP/1.0).
func (c *Conn) Reset() {
	// The reset must come first: after Close the socket has already ended in the ordinary way.
	_ = (*resetConn)(c).Close()
	_ = c.Close()
}

// resetConn closes a connection with a TCP reset, for the lease. A lease may close a connection that is still being
// admitted, so reset touches only the socket.
type resetConn Conn

func (r *resetConn) Close() error {
	if tcp, ok := r.Conn.(*net.TCPConn); ok {
		// A linger of 0 makes the kernel send a reset.
		_ = tcp.SetLinger(0)
	}
	return r.Conn.Close()
}

type connKey struct{}

// withConn has the signature of http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	// http.Server passes the outermost wrapper: unwrap it.
	if s, ok := c.(*strict.Conn); ok {
		c = s.Conn
	}
	switch over := c.(type) {
	case textConn:
		c = over.own
	case *tls.Conn:
		c = over.NetConn()
	}
	if own, ok := c.(*Conn); ok {
		return context.WithValue(ctx, connKey{}, own)
	}
	return ctx
}

// FromContext returns the connection of a request, or nil.
func FromContext(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// errNoSlot is for a connection from an address without a slot.
var errNoSlot = errors.New("the source address belongs to no slot")

func findSlot(l Listener, c net.Conn) (slot.ID, error) {
	if l.Slot != nil {
		return *l.Slot, nil
	}
	from, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return 0, errNoSlot
	}
	id, ok := l.Find(from.Addr())
	if !ok {
		return 0, errNoSlot
	}
	return id, nil
}
