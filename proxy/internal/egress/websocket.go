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

	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/wsrelay"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

var errHandshake = errors.New("the upstream's answer to the WebSocket handshake is invalid")

// serveWebSocket does the handshake with the upstream, and relays messages only after a valid 101.
func (x *exchange) serveWebSocket(out *http.Request) error {
	key := out.Header.Get("Sec-Websocket-Key")
	raw, err := base64.StdEncoding.DecodeString(key)
	standard := err == nil && len(raw) == 16 && out.Header.Get("Sec-Websocket-Version") == "13"
	// A handshake with a body would leave bytes in the tunnel that policy has not judged.
	if !standard || !x.conn.IsHTTP1() || out.ContentLength != 0 {
		return &refusedError{verdict: policy.Refuse(policy.CodeUpgradeRefused, x.host, nil)}
	}
	// Extensions such as compression would hide the messages from the search.
	wsrelay.DropExtensions(out.Header)
	resp, err := x.sendUpstream(out)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		if resp.StatusCode == http.StatusUnauthorized {
			x.renewMinted(false)
		}
		return x.passPlainAnswer(resp)
	}
	defer resp.Body.Close()
	upstream, ok := resp.Body.(io.ReadWriteCloser)
	// isValidAccept proves that the server speaks WebSocket: any other tunnel would pass unsearched bytes.
	if !ok || !isValidAccept(resp.Header, key) || !wsrelay.HasNoExtensions(resp.Header) {
		return errHandshake
	}
	report, err := x.snap.Scrub.ScrubResponse(resp, scrub.Options{Method: out.Method, Sent: x.listSent()})
	if err == nil {
		err = x.scrubSignature(resp)
	}
	if err != nil {
		return err
	}
	x.scrubbed = report
	return x.relayWebSocket(resp.Header, upstream)
}

// passPlainAnswer passes on an upstream's answer that refused to switch protocols.
func (x *exchange) passPlainAnswer(resp *http.Response) error {
	// net/http panics on a status above 999, and sends a 1xx other than 101 as an interim answer.
	if resp.StatusCode < 200 || resp.StatusCode > 999 {
		_ = resp.Body.Close()
		return errStatus
	}
	x.w.send(x.scrubResponse(resp)) //nolint:bodyclose // send closes it
	return nil
}

// isValidAccept checks the upstream's half of the handshake (RFC 6455, section 4.1).
func isValidAccept(h http.Header, key string) bool {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // see the import
	return h.Get("Sec-Websocket-Accept") == base64.StdEncoding.EncodeToString(sum[:]) &&
		strings.EqualFold(h.Get("Upgrade"), "websocket") &&
		httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade")
}

// relayWebSocket answers 101 and hands both ends to wsrelay.
func (x *exchange) relayWebSocket(h http.Header, upstream io.ReadWriteCloser) error {
	conn, buffered, err := http.NewResponseController(x.w.ResponseWriter).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	// Raw comes before the first byte of the relay: messages are not HTTP/1 requests.
	x.conn.EndCheck()
	x.w.status = http.StatusSwitchingProtocols
	trim(h)
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", "websocket")
	if err := writeSwitch(buffered.Writer, h); err != nil {
		// The connection is hijacked, so a returned error could no longer become an answer.
		x.w.err = err
		return nil
	}
	x.note.Outcome = proxyapi.OutcomeServed
	x.ws = &wsrelay.Report{}
	// An end without a close frame is normal: the run ended, or one side disconnected.
	x.note.Cause = wsrelay.RelayMessages(x.ctx, &hijackedConn{Conn: conn, r: buffered.Reader}, upstream, wsrelay.Options{
		Scrub: x.snap.Scrub, Signature: x.newSignatureScrubber(), Sent: x.listSent(), Swap: x.guard,
		SwapOptions: x.newSwapOptions(),
		Redact:      x.conf.Redact, Held: x.held, Report: x.ws,
	})
	x.cut = context.Cause(x.ctx)
	return nil
}

func writeSwitch(w *bufio.Writer, h http.Header) error {
	// A bufio.Writer keeps its first error, and Flush returns it.
	_, _ = w.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = h.Write(w)
	_, _ = w.WriteString("\r\n")
	return w.Flush()
}

// hijackedConn is a connection whose first bytes have already been read.
type hijackedConn struct {
	net.Conn
	r *bufio.Reader
}

func (h *hijackedConn) Read(p []byte) (int, error) { return h.r.Read(p) }
