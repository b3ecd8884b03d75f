package bridge

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

// streamTime is how long a server may take to start the stream of a GET request. The SDK waits for it when connecting.
const streamTime = 5 * time.Second

// remoteServer is a server that is reached over HTTP. It is connected again if its session is lost.
type remoteServer struct {
	bridge *Bridge
	client *http.Client
	door   *remoteTransport

	connecting sync.Mutex // held while connecting, so that waiting requests share one attempt

	mu      sync.Mutex
	kind    string // the transport that worked
	current *mcp.ClientSession
	never   chan struct{}
}

func (b *Bridge) connectRemote(ctx context.Context) (serverConn, error) {
	u, err := url.Parse(b.start.URL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, &bridgewire.Error{Code: bridgewire.BadRequest, Message: "not a valid url"}
	}
	d, err := newDoor(u, b.start.Headers, b.start.Env["SSL_CERT_FILE"])
	if err != nil {
		return nil, &bridgewire.Error{Code: bridgewire.BadRequest, Message: err.Error()}
	}
	r := &remoteServer{bridge: b, door: d, kind: b.start.Transport, never: make(chan struct{})}
	// A redirect could lead the request, with its arguments, to a host that the user has not named.
	r.client = &http.Client{Transport: d, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) >= 5 || !d.isServerHost(req.URL) {
			return errors.New("the server redirects to another host, which CodeForge does not follow")
		}
		return nil
	}}
	s, err := r.tryTransports(ctx)
	if err != nil {
		d.base.CloseIdleConnections()
		return nil, err
	}
	r.useSession(s)
	return r, nil
}

// tryTransports tries the transports that the configuration allows, each first as a newer and then as an older server.
func (r *remoteServer) tryTransports(ctx context.Context) (*mcp.ClientSession, error) {
	until := time.Now().Add(r.bridge.limit)
	kinds := []string{r.kind}
	if r.kind == "" || r.kind == "auto" {
		kinds = []string{"http", "sse"}
	}
	var why []string
	for _, kind := range kinds {
		ctx, c := withCapture(ctx)
		s, err := r.connectBy(ctx, kind, until)
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.kind = kind
			return s, nil
		}
		c.mu.Lock()
		status, body := c.status, c.body
		c.mu.Unlock()
		// A rejected credential is rejected on every transport. The error of another transport would only hide the reason.
		if status == http.StatusUnauthorized || status == http.StatusForbidden {
			return nil, &bridgewire.Error{Code: bridgewire.Refused,
				Message: strings.TrimSpace(fmt.Sprintf("the server answered %d %s %s",
					status, http.StatusText(status), body))}
		}
		why = append(why, toFrameError(c.explainError(err)).Message)
		if ctx.Err() != nil || time.Now().After(until) {
			break
		}
	}
	all := strings.Join(why, "; over SSE, the older transport: ")
	return nil, &bridgewire.Error{Code: bridgewire.NotConnected, Message: "connecting to the server: " + all}
}

// connectBy connects over one transport.
func (r *remoteServer) connectBy(ctx context.Context, kind string, until time.Time) (*mcp.ClientSession, error) {
	b := r.bridge
	var t mcp.Transport
	switch kind {
	case "http":
		t = &mcp.StreamableClientTransport{Endpoint: b.start.URL, HTTPClient: r.client, MaxRetries: 2}
	case "sse":
		return b.dialSession(ctx, &mcp.SSEClientTransport{Endpoint: b.start.URL, HTTPClient: r.client}, legacy,
			time.Until(until))
	default:
		return nil, &bridgewire.Error{Code: bridgewire.BadRequest, Message: fmt.Sprintf("there is no transport %.20q", kind)}
	}
	if b.start.Protocol != "" {
		return b.dialSession(ctx, t, b.start.Protocol, time.Until(until))
	}
	began := time.Now()
	s, err := b.dialSession(ctx, t, "", min(discoverTime, time.Until(until)))
	// Only an attempt that ran out of discoverTime is repeated: an older server may leave an unknown request unanswered.
	if err == nil || ctx.Err() != nil || time.Since(began) < discoverTime {
		return s, err
	}
	s, err = b.dialSession(ctx, t, legacy, time.Until(until))
	if err == nil || ctx.Err() != nil {
		return s, err
	}
	// The server may support only the current protocol, and have been slow.
	if s, err := b.dialSession(ctx, t, "", time.Until(until)); err == nil {
		return s, nil
	}
	return nil, err
}

// ensureSession returns the current session, or a new one if the session was lost.
func (r *remoteServer) ensureSession() (*mcp.ClientSession, error) {
	r.connecting.Lock()
	defer r.connecting.Unlock()
	r.mu.Lock()
	s := r.current
	r.mu.Unlock()
	if s != nil {
		return s, nil
	}
	// This does not use the context of a request, because other requests wait for the same connection. The SDK would also
	// keep the context's values for the session. Every later question would then count as one of that request.
	s, err := r.tryTransports(context.Background())
	if err != nil {
		return nil, err
	}
	r.useSession(s)
	return s, nil
}

// isSessionLost drops a session that the server does not know, or that has ended.
func (r *remoteServer) isSessionLost(s *mcp.ClientSession, c *wireCapture, err error) bool {
	// The ping costs a request, so it is sent only if the error names a session.
	missing := errors.Is(err, mcp.ErrSessionMissing) || s.ID() != "" && c.hasLostSessionText(err) && r.cannotPing(s)
	if missing || errors.Is(err, mcp.ErrConnectionClosed) {
		r.dropSession(s)
	}
	return missing
}

// pingTime is the timeout of the ping that checks whether a server knows a session.
const pingTime = 5 * time.Second

// cannotPing reports whether a session has ended, or is unknown for a ping too. A tool may have other sessions of its
// kind. If only such a session is lost, closing this one would end the calls of other runs.
func (r *remoteServer) cannotPing(s *mcp.ClientSession) bool {
	ctx, cancel := context.WithTimeout(context.Background(), pingTime)
	defer cancel()
	ctx, c := withCapture(ctx)
	err := s.Ping(ctx, nil)
	return errors.Is(err, mcp.ErrSessionMissing) || c.isUnsent() || c.hasLostSessionText(err)
}

// lostWords are words beside "session" in errors of servers that do not know a session.
var lostWords = []string{"not found", "no valid", "invalid", "unknown", "expired", "not exist", "terminated"}

// hasLostSessionText reports whether an error means that the server does not know the session. MCP requires status 404,
// but many servers answer 400, or 200 with a JSON-RPC error.
func (c *wireCapture) hasLostSessionText(err error) bool {
	c.mu.Lock()
	text := c.body
	c.mu.Unlock()
	if e := (*jsonrpc.Error)(nil); errors.As(err, &e) {
		text = e.Message
	}
	text = strings.ToLower(text)
	return err != nil && strings.Contains(text, "session") &&
		slices.ContainsFunc(lostWords, func(word string) bool { return strings.Contains(text, word) })
}

// dropSession gives up a session, so that the next request connects again.
func (r *remoteServer) dropSession(s *mcp.ClientSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == s {
		r.current = nil
		// In the background, because closing waits for the server.
		go func() { _ = s.Close() }()
	}
}

// useSession makes a session the current one until it ends.
func (r *remoteServer) useSession(s *mcp.ClientSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = s
	go func() {
		_ = s.Wait()
		r.dropSession(s)
	}()
}

func (r *remoteServer) isProcess() bool { return false }

// endSignal is never closed, because a remote server is connected again.
func (r *remoteServer) endSignal() <-chan struct{} { return r.never }

func (r *remoteServer) endReason() error { return nil }

func (r *remoteServer) closeServer() {
	r.mu.Lock()
	s := r.current
	r.current = nil
	r.mu.Unlock()
	if s != nil {
		_ = s.Close()
	}
	r.door.base.CloseIdleConnections()
}

// remoteTransport is the HTTP transport to a remote server. It adds the configured headers only for the server's host,
// and bounds the responses.
type remoteTransport struct {
	base    *http.Transport
	url     *url.URL
	headers map[string]string
}

func newDoor(u *url.URL, headers map[string]string, ca string) (*remoteTransport, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = nil
	base.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		base.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !base.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", ca)
		}
	}
	return &remoteTransport{base: base, url: u, headers: headers}, nil
}

func (d *remoteTransport) isServerHost(u *url.URL) bool {
	return u.Scheme == d.url.Scheme && u.Host == d.url.Host
}

func (d *remoteTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	out := req.Clone(ctx)
	// Only on the server's host: a credential in a header must not leak to another.
	if d.isServerHost(req.URL) {
		for name, value := range d.headers {
			out.Header.Set(name, value)
		}
	}
	stream := req.Method == http.MethodGet
	if stream {
		timer := time.AfterFunc(streamTime, cancel)
		defer timer.Stop()
	}
	resp, err := d.base.RoundTrip(out)
	// Only a failed dial proves that no part of the request was sent.
	if dialling := (*net.OpError)(nil); !errors.As(err, &dialling) || dialling.Op != "dial" {
		captureOf(ctx).recordSend()
	}
	if err != nil {
		cancel()
		if stream && ctx.Err() != nil && req.Context().Err() == nil { // the SDK works without the stream
			return &http.Response{
				StatusCode: http.StatusMethodNotAllowed, Status: "405 Method Not Allowed",
				Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
				Header: http.Header{}, Body: http.NoBody, Request: req,
			}, nil
		}
		return nil, err
	}
	resp.Body = &cancelingBody{resp.Body, cancel}
	if err := d.limitResponse(req, resp); err != nil { // net/http logs a response that comes with an error
		return nil, err
	}
	return resp, nil
}

// cancelingBody is a body that ends the request's context when it is closed.
type cancelingBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (e *cancelingBody) Close() error {
	defer e.cancel()
	return e.ReadCloser.Close()
}

func (d *remoteTransport) limitResponse(req *http.Request, resp *http.Response) error {
	c := captureOf(req.Context())
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode >= 300:
		// The SDK would read such a body without a bound.
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		c.recordErrorStatus(resp.StatusCode, startOfText(text))
		return replaceBody(resp, text)
	case kind == "text/event-stream":
		answers := req.Method == http.MethodPost || req.Header.Get("Last-Event-ID") != ""
		resp.Body = &eventStream{ReadCloser: resp.Body, capture: c, answers: answers}
		return nil
	}
	return d.boundJSON(resp, kind, c)
}

// byteOrderMark starts a text of some Windows programs. JSON does not allow it (RFC 8259, section 8.1).
var byteOrderMark = []byte("\uFEFF")

// boundJSON reads an answer of one message, with any Content-Type. It accepts a byte order mark and a batch. The SDK
// would end the session at a message that is too large. So boundJSON replaces such a message by an error for its
// request.
func (d *remoteTransport) boundJSON(resp *http.Response, kind string, c *wireCapture) error {
	var kept bytes.Buffer
	s := &messageSkimmer{}
	for buf := make([]byte, 64<<10); ; {
		n, err := resp.Body.Read(buf)
		s.addBytes(buf[:n])
		// Kept only up to the bound; skim reads the rest without storing it.
		if s.size <= bridgewire.MaxMessage {
			kept.Write(buf[:n])
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			_ = resp.Body.Close()
			return err
		}
	}
	if !s.isRefused() {
		text := bytes.TrimSpace(bytes.TrimPrefix(kept.Bytes(), byteOrderMark))
		if message, ok := c.readMessage(text); ok {
			text = message
			// Some servers send another Content-Type, which the SDK rejects.
			resp.Header.Set("Content-Type", "application/json")
		} else if len(text) > 0 {
			c.noteMisread(resp.StatusCode, kind, text)
		}
		return replaceBody(resp, text)
	}
	c.tooLarge()
	text := []byte("{}")
	if r, ok := replaceLargeAnswer(s); ok {
		text, _ = jsonrpc.EncodeMessage(r)
	}
	return replaceBody(resp, text)
}

func replaceBody(resp *http.Response, text []byte) error {
	err := resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	resp.ContentLength = int64(len(text))
	resp.Header.Del("Content-Length")
	return err
}

// eventStream is a stream of events. No event may be larger or deeper than a message.
type eventStream struct {
	io.ReadCloser
	capture *wireCapture
	answers bool // the stream answers the request of the capture
	begun   bool
	event   messageSkimmer
	data    []byte // the current event, if the stream answers a request
	blank   bool   // only a line end since the last line
}

func (e *eventStream) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if rest, ok := bytes.CutPrefix(p[:n], byteOrderMark); ok && !e.begun {
		n = copy(p, rest)
	}
	e.begun = e.begun || n > 0
	for rest := p[:n]; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		e.event.addBytes(line)
		e.blank = e.blank && len(bytes.TrimRight(line, "\r")) == 0
		// Checked on every read, so that an event without an end does not fill the memory.
		if e.event.isRefused() {
			e.capture.tooLarge()
			// An error ends the stream: the rest of the event is not read.
			return 0, fmt.Errorf("an event is too large: %w", io.ErrUnexpectedEOF)
		}
		if e.answers {
			e.data = append(e.data, line...)
			if ended {
				e.data = append(e.data, '\n')
			}
		}
		if ended && e.blank {
			e.passMessage()
			e.event, e.data = messageSkimmer{}, nil
		}
		e.blank = ended || e.blank
	}
	return n, err
}

// passMessage passes an event's message to the capture.
func (e *eventStream) passMessage() {
	var data []byte
	for line := range bytes.Lines(e.data) {
		name, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		if string(name) == "event" && string(bytes.TrimSpace(value)) != "message" {
			return
		}
		if string(name) == "data" {
			// HTML standard, section 9.2.6: one space after the colon is not part of the value.
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		}
	}
	if _, ok := e.capture.readMessage(data); !ok && len(data) > 0 {
		e.capture.noteMisread(http.StatusOK, "text/event-stream", data)
	}
}
