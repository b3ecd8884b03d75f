package guard

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// LimitConns bounds the connections of a listener. If all places are taken, a new connection replaces the oldest one
// without an admitted request. So a client without the token cannot keep out clients with the token.
//
// If every connection has had an admitted request, new ones wait. A tenant has at most half of the places. A connection
// loses its place with a request that is not admitted, because its token may have been revoked. LimitConns needs
// ConnContext in the http.Server, and Guard.SplitRequests.
func LimitConns(l net.Listener, most int) net.Listener {
	return &limitedListener{Listener: l, room: make(chan struct{}, most), closed: make(chan struct{}),
		tenants: map[string]int{}}
}

type limitedListener struct {
	net.Listener
	room   chan struct{} // has one element for each connection
	once   sync.Once
	closed chan struct{}

	mu        sync.Mutex
	strangers list.List      // of *conn, oldest first
	tenants   map[string]int // the number of connections of each tenant, by name
}

// Accept waits for a connection and for a place.
func (l *limitedListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case l.room <- struct{}{}:
	default:
		// The evicted connection frees its place in Close, so the wait below is short.
		l.evictStranger()
		select {
		case l.room <- struct{}{}:
		case <-l.closed:
			_ = accepted.Close()
			return nil, net.ErrClosed
		}
	}
	c := &limitedConn{Conn: accepted, of: l}
	l.mu.Lock()
	c.place = l.strangers.PushBack(c)
	l.mu.Unlock()
	return c, nil
}

// Close stops listening. Accepted connections stay open.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// evictStranger closes the oldest stranger, if there is one.
func (l *limitedListener) evictStranger() {
	l.mu.Lock()
	oldest := l.strangers.Front()
	if oldest != nil {
		oldest.Value.(*limitedConn).markKnown()
		oldest.Value.(*limitedConn).gone = true // a request that arrives now is not served
	}
	l.mu.Unlock()
	// Outside the lock, which Close takes.
	if oldest != nil {
		_ = oldest.Value.(*limitedConn).Close()
	}
}

// limitedConn is a connection of a limited listener.
type limitedConn struct {
	net.Conn
	of   *limitedListener
	once sync.Once

	// of.mu guards these.
	place    *list.Element // in the list of strangers, or nil
	tenant   string        // the tenant of the last request; empty for the operator
	admitted bool          // the current request was admitted
	gone     bool
}

// markKnown removes the connection from the strangers. The caller holds of.mu.
func (c *limitedConn) markKnown() {
	if c.place != nil {
		c.of.strangers.Remove(c.place)
		c.place = nil
	}
}

// endRequest is called after each request. A request that was not admitted makes the connection a stranger's again.
func (c *limitedConn) endRequest() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.admitted && c.place == nil && !c.gone {
		c.of.addConns(c.tenant, -1)
		c.tenant, c.place = "", c.of.strangers.PushBack(c)
	}
	c.admitted = false
}

// Close closes the connection and frees its place.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	// net/http may close a connection more than once, but the place must be freed once.
	c.once.Do(func() {
		c.of.mu.Lock()
		c.gone = true
		c.markKnown()
		c.of.addConns(c.tenant, -1)
		c.of.mu.Unlock()
		<-c.of.room
	})
	return err
}

// addConns changes the number of a tenant's connections. The caller holds l.mu.
func (l *limitedListener) addConns(tenant string, by int) {
	if tenant == "" {
		return
	}
	if l.tenants[tenant] += by; l.tenants[tenant] == 0 {
		delete(l.tenants, tenant)
	}
}

// admitConn removes the connection from the strangers, unless its tenant has enough connections.
func (c *limitedConn) admitConn(tenant string) bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	// evictStranger has already given the place to another connection.
	if c.gone {
		return false
	}
	if tenant != c.tenant {
		if tenant != "" && c.of.tenants[tenant] >= cap(c.of.room)/2 {
			return false
		}
		c.of.addConns(c.tenant, -1)
		c.of.addConns(tenant, 1)
		c.tenant = tenant
	}
	c.markKnown()
	c.admitted = true
	return true
}

type connKey struct{}

// ConnContext is http.Server.ConnContext for the connections of LimitConns.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// AdmitConn protects the connection of a request with a valid token from eviction. tenant is empty for the operator. If
// AdmitConn returns false, the request must not be served: the connection was evicted, or the tenant has too many.
func AdmitConn(ctx context.Context, tenant string) bool {
	c, ok := ctx.Value(connKey{}).(*limitedConn)
	return !ok || c.admitConn(tenant)
}
