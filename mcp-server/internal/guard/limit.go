package guard

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// Limit bounds the connections of a listener. If all places are taken, a new connection replaces the oldest one without
// an admitted request. So a client without the token cannot keep out clients with the token.
//
// If every connection has had an admitted request, new ones wait. A tenant has at most half of the places. A connection
// loses its place with a request that is not admitted, because its token may have been revoked. Limit needs ConnContext
// in the http.Server, and Guard.Local.
func Limit(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, room: make(chan struct{}, most), closed: make(chan struct{}), tenants: map[string]int{}}
}

type limited struct {
	net.Listener
	room   chan struct{} // has one element for each connection
	once   sync.Once
	closed chan struct{}

	mu        sync.Mutex
	strangers list.List      // of *conn, oldest first
	tenants   map[string]int // the number of connections of each tenant, by name
}

// Accept waits for a connection and for a place.
func (l *limited) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case l.room <- struct{}{}:
	default:
		// The evicted connection frees its place in Close, so the wait below is short.
		l.evict()
		select {
		case l.room <- struct{}{}:
		case <-l.closed:
			_ = accepted.Close()
			return nil, net.ErrClosed
		}
	}
	c := &conn{Conn: accepted, of: l}
	l.mu.Lock()
	c.place = l.strangers.PushBack(c)
	l.mu.Unlock()
	return c, nil
}

// Close stops listening. Accepted connections stay open.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// evict closes the oldest stranger, if there is one.
func (l *limited) evict() {
	l.mu.Lock()
	oldest := l.strangers.Front()
	if oldest != nil {
		oldest.Value.(*conn).known()
		oldest.Value.(*conn).gone = true // a request that arrives now is not served
	}
	l.mu.Unlock()
	// Outside the lock, which Close takes.
	if oldest != nil {
		_ = oldest.Value.(*conn).Close()
	}
}

// conn is a connection of a limited listener.
type conn struct {
	net.Conn
	of   *limited
	once sync.Once

	// of.mu guards these.
	place    *list.Element // in the list of strangers, or nil
	tenant   string        // the tenant of the last request; empty for the operator
	admitted bool          // the current request was admitted
	gone     bool
}

// known removes the connection from the strangers. The caller holds of.mu.
func (c *conn) known() {
	if c.place != nil {
		c.of.strangers.Remove(c.place)
		c.place = nil
	}
}

// served is called after each request. A request that was not admitted makes the connection a stranger's again.
func (c *conn) served() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.admitted && c.place == nil && !c.gone {
		c.of.count(c.tenant, -1)
		c.tenant, c.place = "", c.of.strangers.PushBack(c)
	}
	c.admitted = false
}

// Close closes the connection and frees its place.
func (c *conn) Close() error {
	err := c.Conn.Close()
	// net/http may close a connection more than once, but the place must be freed once.
	c.once.Do(func() {
		c.of.mu.Lock()
		c.gone = true
		c.known()
		c.of.count(c.tenant, -1)
		c.of.mu.Unlock()
		<-c.of.room
	})
	return err
}

// count changes the number of a tenant's connections. The caller holds l.mu.
func (l *limited) count(tenant string, by int) {
	if tenant == "" {
		return
	}
	if l.tenants[tenant] += by; l.tenants[tenant] == 0 {
		delete(l.tenants, tenant)
	}
}

// admit removes the connection from the strangers, unless its tenant has enough connections.
func (c *conn) admit(tenant string) bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	// evict has already given the place to another connection.
	if c.gone {
		return false
	}
	if tenant != c.tenant {
		if tenant != "" && c.of.tenants[tenant] >= cap(c.of.room)/2 {
			return false
		}
		c.of.count(c.tenant, -1)
		c.of.count(tenant, 1)
		c.tenant = tenant
	}
	c.known()
	c.admitted = true
	return true
}

type connKey struct{}

// ConnContext is http.Server.ConnContext for the connections of Limit.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Admit protects the connection of a request with a valid token from eviction. tenant is empty for the operator. If
// Admit returns false, the request must not be served: the connection was evicted, or the tenant has too many.
func Admit(ctx context.Context, tenant string) bool {
	c, ok := ctx.Value(connKey{}).(*conn)
	return !ok || c.admit(tenant)
}
