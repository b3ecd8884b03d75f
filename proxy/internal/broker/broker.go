// Package broker is the proxy's connection to the broker of MCP servers, which is in mcp-server.
//
// mcp-server opens it, over the control socket, and serves HTTP/2 on it; the proxy sends the calls that code makes.
// Contract: there is one connection at a time, the newest; a call that is cancelled is cancelled at the broker too; a
// call whose arguments or answer nobody reads holds up no other.
package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// ErrNone means that no broker is connected: the request was not sent.
var ErrNone = errors.New("no broker of MCP servers is connected")

const (
	pingAfter    = 15 * time.Second
	pingTime     = 15 * time.Second
	streamWindow = 256 << 10 // unread bytes of one answer
)

// Broker holds the connection. The zero Broker has none. It is safe for concurrent use.
type Broker struct {
	mu   sync.Mutex
	line *line
}

// line is one connection.
type line struct {
	conn *http.ClientConn
	done chan struct{}
}

// Serve makes a connection the broker's, in place of an earlier one, and returns when it or ctx has ended.
func (b *Broker) Serve(ctx context.Context, c net.Conn) error {
	l := &line{done: make(chan struct{})}
	over := &closing{Conn: c, closed: sync.OnceFunc(func() { close(l.done) })}
	defer over.Close()
	tr := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return over, nil },
		DisableCompression: true, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamWindow, SendPingTimeout: pingAfter, PingTimeout: pingTime,
		},
	}
	tr.Protocols.SetUnencryptedHTTP2(true)
	var err error
	if l.conn, err = tr.NewClientConn(ctx, "http", controlapi.ServersHost+":80"); err != nil {
		return fmt.Errorf("talking to the broker: %w", err)
	}
	b.replace(l)
	defer b.remove(l)
	defer func() { _ = l.conn.Close() }()
	select {
	case <-ctx.Done():
	case <-l.done:
	}
	return nil
}

// replace puts a connection in place of the earlier one, which ends.
func (b *Broker) replace(l *line) {
	b.mu.Lock()
	old := b.line
	b.line = l
	b.mu.Unlock()
	if old != nil {
		_ = old.conn.Close()
	}
}

// remove forgets a connection that has ended.
func (b *Broker) remove(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.line == l {
		b.line = nil
	}
}

// Connected reports whether there is a broker.
func (b *Broker) Connected() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.line != nil && b.line.conn.Err() == nil
}

// RoundTrip sends a request to the broker. ErrNone if there is none; any other error may mean that the broker acted on
// the request.
func (b *Broker) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	l := b.line
	b.mu.Unlock()
	if l == nil || l.conn.Err() != nil {
		return nil, ErrNone
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host = "http", controlapi.ServersHost, controlapi.ServersHost
	resp, err := l.conn.RoundTrip(out)
	if err == nil && out.Body != nil && out.Body != http.NoBody {
		// While it waits for more of a body, Go's HTTP/2 does not notice that the request is cancelled.
		context.AfterFunc(r.Context(), func() { _ = resp.Body.Close() })
	}
	return resp, err
}

// closing says when a connection was closed.
type closing struct {
	net.Conn
	closed func()
}

func (c *closing) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}
