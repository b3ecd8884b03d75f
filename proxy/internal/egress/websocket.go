package egress

import (
	"bufio"
	"context"
	"crypto/sha1" //nolint:gosec // the handshake of RFC 6455 is defined with it
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/wsrelay"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

var errHandshake = errors.New("the upstream's answer to the WebSocket handshake is invalid")

// forwardRequest sends the request and passes the answer on. goproxy calls roundTrip. For a WebSocket it does the
// handshake with the upstream, and relays messages only after a valid 101.
func (x *exchange) forwardRequest() error {
	out := x.msg.out
	if x.request.Upgrade == "" {
		x.proxy.ServeHTTP(x.w, out)
		return nil
	}
	key := out.Header.Get("Sec-Websocket-Key")
	raw, err := base64.StdEncoding.DecodeString(key)
	standard := err == nil && len(raw) == 16 && out.Header.Get("Sec-Websocket-Version") == "13"
	// A handshake with a body would leave bytes in the tunnel that policy has not judged.
	if !standard || !x.from.conn.IsHTTP1() || out.ContentLength != 0 {
		return &refusedError{verdict: policy.Refuse(policy.CodeUpgradeRefused, x.request.Host, nil)}
	}
	// Extensions such as compression would hide the messages from the search.
	wsrelay.DropExtensions(out.Header)
	resp, err := sendUpstream(x.conf.Pool, out, x.creds.want, &x.answer.left)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		if resp.StatusCode == http.StatusUnauthorized {
			x.creds.minted.renewValues(x.ctx, x.conf.Mint, false)
		}
		x.w.send(x.scrubResponse(resp)) //nolint:bodyclose // send closes it
		return nil
	}
	defer resp.Body.Close()
	tunnel, ok := resp.Body.(io.ReadWriteCloser)
	// isValidAccept proves that the server speaks WebSocket: any other tunnel would pass unsearched bytes.
	if !ok || !isValidAccept(resp.Header, key) || !wsrelay.HasNoExtensions(resp.Header) {
		return errHandshake
	}
	if err := x.scrubAnswer(resp); err != nil {
		return err
	}
	client, err := x.w.switchProtocols(x.from.conn, resp)
	if client == nil {
		return err
	}
	defer client.Close()
	x.note.Outcome = proxyapi.OutcomeServed
	x.answer.ws = &wsrelay.Report{}
	// An end without a close frame is normal: the run ended, or one side disconnected.
	x.note.Cause = wsrelay.RelayMessages(x.ctx, client, &liveConn{tunnel, x.ctx}, wsrelay.Options{
		Scrub: x.snap.Scrub, Signature: x.creds.signature.newScrubber(), Sent: x.creds.listSent(), Swap: x.snap.guard,
		SwapOptions: x.creds.messages, Redact: x.conf.Redact, Held: membudget.FromContext(x.ctx), Report: x.answer.ws,
	})
	x.answer.cut = context.Cause(x.ctx)
	return nil
}

// isValidAccept checks the upstream's half of the handshake (RFC 6455, section 4.1).
func isValidAccept(h http.Header, key string) bool {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // see the import
	return h.Get("Sec-Websocket-Accept") == base64.StdEncoding.EncodeToString(sum[:]) &&
		strings.EqualFold(h.Get("Upgrade"), "websocket") &&
		httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade")
}

// switchProtocols answers 101 with the headers of resp, and returns the client's connection. It is nil after an error.
// Once the connection is hijacked, an error could no longer become an answer, so it goes to a.err.
func (a *responseWriter) switchProtocols(checked *entrance.Conn, resp *http.Response) (*hijackedConn, error) {
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err != nil {
		return nil, err
	}
	// This comes before the first byte of the relay: messages are not HTTP/1 requests.
	checked.EndCheck()
	a.status = http.StatusSwitchingProtocols
	_ = removeHopHeaders(resp)
	resp.Header.Set("Connection", "Upgrade")
	resp.Header.Set("Upgrade", "websocket")
	// A bufio.Writer keeps its first error, and Flush returns it.
	_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = resp.Header.Write(buffered)
	_, _ = buffered.WriteString("\r\n")
	if a.err = buffered.Flush(); a.err != nil {
		_ = conn.Close()
		return nil, nil //nolint:nilnil // see above
	}
	return &hijackedConn{Conn: conn, r: buffered.Reader}, nil
}

// liveConn is a connection to an upstream. No byte passes after the end of its exchange: see observedBody.Read.
type liveConn struct {
	io.ReadWriteCloser
	ctx context.Context // of the exchange
}

func (c *liveConn) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	if cause := context.Cause(c.ctx); cause != nil {
		return 0, cause
	}
	return n, err
}

// hijackedConn is a connection whose first bytes have already been read.
type hijackedConn struct {
	net.Conn
	r *bufio.Reader
}

func (h *hijackedConn) Read(p []byte) (int, error) { return h.r.Read(p) }
