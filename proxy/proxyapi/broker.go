package proxyapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
)

// BrokerProtocol is the protocol to which a connection to GET /v1/broker is upgraded: HTTP/2, with the proxy as the
// client.
const BrokerProtocol = "codeforge-broker"

// The headers that the proxy sets on requests to the broker. They identify the run for the broker. The proxy drops
// code's headers with such names, except HeaderTimeout.
const (
	HeaderRun        = "Codeforge-Run"
	HeaderSlot       = "Codeforge-Slot"
	HeaderGeneration = "Codeforge-Generation"
	// HeaderTimeout is the most time that code waits for a call, in milliseconds.
	HeaderTimeout = "Codeforge-Timeout-Ms"
	// HeaderPlan means that the call belongs to a plan: PlanRecord, PlanCheck or PlanSend.
	HeaderPlan = "Codeforge-Plan"
	// HeaderSession is the session of the run whose call is recorded, in the broker's answer. The proxy sends it back with
	// the recorded call, after the run has ended.
	HeaderSession = "Codeforge-Session"
	// HeaderCode is the code of an error in the broker's answer, for the receipt. Code does not see it.
	HeaderCode = "Codeforge-Code"
)

// The values of HeaderPlan.
const (
	// PlanRecord asks the broker to call the tool only if the tool claims to be read-only. Otherwise the broker checks the
	// arguments and answers with CodePlanned.
	PlanRecord = "record"
	// PlanCheck is for a call that a person must approve. The broker checks the arguments and answers with CodePlanned,
	// even if the tool claims to be read-only.
	PlanCheck = "check"
	// PlanSend asks the broker to make a recorded call now.
	PlanSend = "send"
	// CodePlanned is the HeaderCode of the answer if the broker did not make the call.
	CodePlanned = "planned"
)

// IsTool reports whether the second segment of a call's path is a tool of the server.
func IsTool(name string) bool {
	return name != ReadResource && name != GetPrompt && name != ListResources
}

// The names in a call's path that are not tools.
const (
	ReadResource  = "$read"
	GetPrompt     = "$prompt"
	ListResources = "$resources"
)

// MaxArguments bounds the body of a request to the broker, in bytes.
const MaxArguments = 16 << 20

// The limits of the broker's end of the connection.
const (
	brokerStreams = 100 * 64  // calls at once: MaxExchanges of every run
	brokerWindow  = 256 << 10 // unread bytes of one request's body
	// brokerShared is so large that calls whose arguments are not read yet never block other calls.
	brokerShared = 1 << 30
	brokerHead   = 10 * time.Second
)

// ServeBroker connects to the proxy as the broker of MCP servers and serves its requests until ctx or the connection
// ends. The proxy has one broker: a new connection replaces an earlier one. The error is never nil.
func (c *Client) ServeBroker(ctx context.Context, h http.Handler) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return fmt.Errorf("connecting to the proxy: %w", err)
	}
	defer conn.Close()
	// Serve does not watch ctx, so its end closes the connection.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	u := &upgradedConn{Conn: conn}
	if err := u.requestUpgrade(); err != nil {
		return errors.Join(err, ctx.Err())
	}
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: brokerHead, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols),
		BaseContext: func(net.Listener) context.Context { return ctx },
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: brokerStreams, MaxReceiveBufferPerStream: brokerWindow,
			MaxReceiveBufferPerConnection: brokerShared, SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second,
		},
	}
	srv.Protocols.SetUnencryptedHTTP2(true)
	err = srv.Serve(rpc.ListenOnce(u))
	_ = srv.Close()
	// The closed connection is only a consequence of the end of ctx.
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("the connection to the proxy has ended: %w", err)
}

// upgradedConn is a connection whose first bytes are in a buffer.
type upgradedConn struct {
	net.Conn
	r *bufio.Reader
}

// requestUpgrade requests the broker's protocol.
func (u *upgradedConn) requestUpgrade() error {
	// The deadline is only for the upgrade: the connection itself has no time limit.
	_ = u.SetDeadline(time.Now().Add(brokerHead))
	_, err := fmt.Fprintf(u.Conn,
		"GET /v1/broker HTTP/1.1\r\nHost: proxy\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", BrokerProtocol)
	if err != nil {
		return fmt.Errorf("asking the proxy: %w", err)
	}
	// ReadResponse may read the first HTTP/2 frames too: Read continues from this buffer.
	u.r = bufio.NewReader(u.Conn)
	resp, err := http.ReadResponse(u.r, nil)
	if err != nil {
		return fmt.Errorf("asking the proxy: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		return fmt.Errorf("the proxy answered %d", resp.StatusCode)
	}
	return u.SetDeadline(time.Time{})
}

func (u *upgradedConn) Read(p []byte) (int, error) { return u.r.Read(p) }
