package guard

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// Limit bounds the connections of a listener. When all are taken, a new one takes the place of the oldest on which no
// request was admitted, so that nobody without the token can keep out those who have it. If every connection has had
// such a request, new ones wait. A tenant has at most half of them. A connection loses its place with a request that
// is not admitted: its token may have been taken away. It needs ConnContext in the http.Server, and Guard.Local.
func Limit(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, room: make(chan struct{}, most), closed: make(chan struct{}), tenants: map[string]int{}}
}

type limited struct {
	net.Listener
	room   chan struct{} // has an element per connection
	once   sync.Once
	closed chan struct{}

	mu        sync.Mutex
	strangers list.List      // of *conn, the oldest first
	tenants   map[string]int // how many connections have had a request of theirs, by name
}

// Accept waits for a connection and for room.
func (l *limited) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case l.room <- struct{}{}:
	default:
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

// Close stops listening. Accepted connections stay.
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
		oldest.Value.(*conn).gone = true // a request that comes now is not served
	}
	l.mu.Unlock()
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
	place    *list.Element // among the strangers, or nil
	tenant   string        // whose the last request was, empty for the operator's
	admitted bool          // the request that is being served
	gone     bool
}

// known takes the connection from the strangers. of.mu is held.
func (c *conn) known() {
	if c.place != nil {
		c.of.strangers.Remove(c.place)
		c.place = nil
	}
}

// served is called after each request. One that was not admitted makes the connection a stranger's again.
func (c *conn) served() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.admitted && c.place == nil && !c.gone {
		c.of.count(c.tenant, -1)
		c.tenant, c.place = "", c.of.strangers.PushBack(c)
	}
	c.admitted = false
}

// Close closes the connection and gives its place away.
func (c *conn) Close() error {
	err := c.Conn.Close()
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

// count changes how many connections a tenant has. l.mu is held.
func (l *limited) count(tenant string, by int) {
	if tenant == "" {
		return
	}
	if l.tenants[tenant] += by; l.tenants[tenant] == 0 {
		delete(l.tenants, tenant)
	}
}

// admit takes the connection from the strangers, unless its tenant has enough.
func (c *conn) admit(tenant string) bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
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

// Admit keeps the connection of a request that carries a token: it makes room for no other. The tenant is empty for the
// operator. False means that the request must not be served: its connection has made room already, or the tenant has
// too many.
func Admit(ctx context.Context, tenant string) bool {
	c, ok := ctx.Value(connKey{}).(*conn)
	return !ok || c.admit(tenant)
}
