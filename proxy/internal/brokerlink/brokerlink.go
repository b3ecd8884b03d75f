// Package brokerlink is the proxy's connection to the broker of MCP servers in mcp-server.
//
// mcp-server opens the connection over the control socket, and serves HTTP/2 on it. The proxy sends the calls of code.
//
// Contract: only the newest connection is used. Cancelling a call also cancels it at the broker. A call whose arguments
// or answer are not read does not block other calls.
package brokerlink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// ErrNone means that no broker is connected. The request was not sent.
var ErrNone = errors.New("no broker of MCP servers is connected")

const (
	pingAfter    = 15 * time.Second
	pingTime     = 15 * time.Second
	streamWindow = 256 << 10 // unread bytes of one answer
)

// Broker is the connection. The zero Broker has no connection. It is safe for concurrent use.
type Broker struct{ line atomic.Pointer[brokerConn] }

type brokerConn struct {
	conn *http.ClientConn
	done chan struct{}
}

// Serve makes c the broker's connection and ends an earlier one. It returns when c or ctx has ended.
func (b *Broker) Serve(ctx context.Context, c net.Conn) error {
	l := &brokerConn{done: make(chan struct{})}
	over := rpc.OnClose(c, sync.OnceFunc(func() { close(l.done) }))
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
	if l.conn, err = tr.NewClientConn(ctx, "http", proxyapi.ServersHost+":80"); err != nil {
		return fmt.Errorf("talking to the broker: %w", err)
	}
	if old := b.line.Swap(l); old != nil {
		// Only the newest connection is used.
		_ = old.conn.Close()
	}
	// A newer connection may already have replaced this one.
	defer b.line.CompareAndSwap(l, nil)
	defer func() { _ = l.conn.Close() }()
	select {
	case <-ctx.Done():
	case <-l.done:
	}
	return nil
}

// IsConnected reports whether a broker is connected.
func (b *Broker) IsConnected() bool {
	l := b.line.Load()
	return l != nil && l.conn.Err() == nil
}

// RoundTrip sends a request to the broker. It returns ErrNone without a connection. After any other error the broker
// may have acted on the request.
func (b *Broker) RoundTrip(r *http.Request) (*http.Response, error) {
	l := b.line.Load()
	if l == nil || l.conn.Err() != nil {
		return nil, ErrNone
	}
	// The caller's request must not change.
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host = "http", proxyapi.ServersHost, proxyapi.ServersHost
	resp, err := l.conn.RoundTrip(out)
	if err == nil && out.Body != nil && out.Body != http.NoBody {
		// While Go's HTTP/2 client waits for more of the request body, it does not notice a cancelled request.
		context.AfterFunc(r.Context(), func() { _ = resp.Body.Close() })
	}
	return resp, err
}
