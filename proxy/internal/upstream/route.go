package upstream

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// connKind is the protocol of a transport's connections, and who may share them.
type connKind byte

const (
	kindSharedHTTP2 connKind = 'c' // HTTP/2, all owners
	kindEither      connKind = 'e' // HTTP/2 or HTTP/1, as the server chooses, one owner
	kindHTTP1       connKind = '1' // HTTP/1, one owner
	kindSingle      connKind = 's' // HTTP/1, one request
	kindFresh       connKind = 'f' // as kindEither, but one request over HTTP/1
)

func (k connKind) isShared() bool { return k == kindSharedHTTP2 }
func (k connKind) hasHTTP1() bool { return k != kindSharedHTTP2 }
func (k connKind) hasHTTP2() bool { return k.isShared() || k.isOpen() }

// isOpen reports whether the server chooses the protocol.
func (k connKind) isOpen() bool { return k == kindEither || k == kindFresh }

// hostProtocol is the known protocol of a host. The zero protocol means unknown.
type hostProtocol byte

const (
	protocolHTTP2 hostProtocol = 1 // the host has agreed to HTTP/2
	protocolHTTP1 hostProtocol = 2 // the host has agreed to HTTP/2, and then asked for HTTP/1
)

// errNotHTTP2 is the error for a server that does not negotiate HTTP/2 although it is required.
var errNotHTTP2 = errors.New("the server does not speak HTTP/2")

var errNoOwner = errors.New("the request has no owner")

// RoundTrip sends a request and returns the response head. A request body over HTTP/1 is the last use of its
// connection: even the response does not show whether the server has read the body.
func (p *Pool) RoundTrip(req *http.Request, w Want) (*http.Response, error) {
	// Without an owner, the connection could be shared by runs.
	if w.Owner == nil {
		return nil, errNoOwner
	}
	k := p.chooseRoute(req, w)
	if !k.isShared() {
		return p.sendOver(k, req, w)
	}
	body := &retriableBody{}
	if hasBody(req) {
		body.ReadCloser = req.Body
		// http.Transport closes the body of a failed attempt, but the second attempt needs it.
		req.Body = body
	}
	resp, err := p.sendOver(k, req, w)
	if isHTTP2Refusal(err) {
		p.learnProtocol(req.URL.Host, 0)
		// The TLS handshake failed, so no byte of the request was sent.
		if !w.HTTP2 && body.tryRetry() {
			return p.sendOver(p.chooseRoute(req, w), req, w)
		}
	}
	body.settleBody()
	return resp, err
}

func (p *Pool) sendOver(k connKind, req *http.Request, w Want) (*http.Response, error) {
	//defence:last-body
	body := hasBody(req)
	// This also closes an HTTP/2 connection of kind either, on which the server could have chosen either protocol.
	if k.hasHTTP1() && (w.Login || body) {
		req.Close = true
	}
	//defence:single-sending
	if w.Once {
		req = sendOnce(req)
	}
	resp, err := p.getTransport(w, k).RoundTrip(preventRetry(req))
	if err != nil && errors.Is(context.Cause(req.Context()), errRepeated) {
		err = errRepeated
	}
	if reset, ok := errors.AsType[http2.StreamError](err); ok && reset.Code == http2.ErrCodeHTTP11Required {
		p.learnProtocol(req.URL.Host, protocolHTTP1)
	}
	if err == nil && k.isOpen() && resp.ProtoMajor == 2 {
		p.learnProtocol(req.URL.Host, protocolHTTP2)
	}
	if err == nil && resp.ProtoMajor == 2 && hasBody(req) {
		// While it waits for more of a body, Go's HTTP/2 does not notice that the request is cancelled. The caller may
		// replace resp.Body meanwhile.
		stream := resp.Body
		context.AfterFunc(req.Context(), func() { _ = stream.Close() })
	}
	return resp, err
}

// errRepeated ends an approved request that net/http begins to send again.
var errRepeated = errors.New("the server reset the request, which is sent only once")

// sendOnce returns a request that ends with errRepeated before its head leaves a second time. Over HTTP/2, net/http
// sends requests again after a reset with PROTOCOL_ERROR, but the server may have processed them.
func sendOnce(req *http.Request) *http.Request {
	ctx, cancel := context.WithCancelCause(req.Context())
	var left atomic.Bool
	return req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaderField: func(string, []string) { left.Store(true) },
		GotConn: func(httptrace.GotConnInfo) {
			if left.Load() {
				cancel(errRepeated)
			}
		},
	}))
}

// preventRetry prevents http.Transport from sending a request again that the server may have acted on. http.Transport
// retries any request with an Idempotency-Key. Code can add this header although the server does not know it.
// http.Transport looks only for the canonical name, so once writes the name in lower case.
func preventRetry(req *http.Request) *http.Request {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return req
	}
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := req.Header[name]; ok {
			// Copy the request: the caller's request must not change.
			req = req.WithContext(req.Context())
			req.Header = maps.Clone(req.Header)
			delete(req.Header, name)
			req.Header[strings.ToLower(name)] = values
		}
	}
	return req
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// chooseRoute returns the kind of connection for a request.
func (p *Pool) chooseRoute(req *http.Request, w Want) connKind {
	k := p.chooseProtocol(req, w)
	// http.Transport retries a request that only reads, if its reused connection breaks before a response. It never
	// retries the first request of a connection. Over HTTP/2 it also sends a request again after some resets: see
	// sendOnce.
	switch {
	//defence:single-sending
	case w.Once && k == kindEither:
		return kindFresh
	//defence:single-sending
	case w.Once && k.hasHTTP1():
		return kindSingle
	}
	return k
}

func (p *Pool) chooseProtocol(req *http.Request, w Want) connKind {
	switch {
	case w.Upgrade:
		return kindSingle
	case w.HTTP2:
		return kindSharedHTTP2
	// A connection that a request has authenticated must not be shared, and HTTP/2 needs TLS here.
	case w.Login, req.URL.Scheme != "https":
		return kindHTTP1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.speaks[req.URL.Host] {
	case protocolHTTP2:
		return kindSharedHTTP2
	case protocolHTTP1:
		return kindHTTP1
	}
	return kindEither
}

func (p *Pool) learnProtocol(host string, what hostProtocol) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// wants1 stays: the server agrees to HTTP/2 in every handshake.
	if p.speaks[host] == protocolHTTP1 && what == protocolHTTP2 {
		return
	}
	// The map only saves handshakes, so it may start over.
	if len(p.speaks) >= maxHosts {
		clear(p.speaks)
	}
	p.speaks[host] = what
}

// isHTTP2Refusal reports whether a server refused HTTP/2 in the handshake, before any part of the request was sent.
func isHTTP2Refusal(err error) bool {
	// crypto/tls has no error type for an alert from the peer.
	var op *net.OpError
	return errors.Is(err, errNotHTTP2) ||
		errors.As(err, &op) && op.Op == "remote error" && op.Err.Error() == "tls: no application protocol"
}

// retriableBody stays open when a connection fails, so that it can be sent over another connection. Until the attempt
// is settled, Close closes it only if a byte was read.
type retriableBody struct {
	io.ReadCloser // nil without a body

	mu                    sync.Mutex
	read, closed, settled bool
}

func (b *retriableBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.closed && !b.settled {
		b.mu.Unlock()
		return 0, io.ErrClosedPipe
	}
	b.read = true
	b.mu.Unlock()
	return b.ReadCloser.Read(p)
}

func (b *retriableBody) Close() error {
	b.mu.Lock()
	b.closed = true
	now := b.settled || b.read
	b.mu.Unlock()
	if !now {
		return nil
	}
	return b.ReadCloser.Close()
}

// tryRetry reports whether the body can be sent again. If so, it settles the body.
func (b *retriableBody) tryRetry() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read {
		return false
	}
	b.closed, b.settled = false, true
	return true
}

// settleBody closes the body if an earlier Close was postponed.
func (b *retriableBody) settleBody() {
	b.mu.Lock()
	now := b.closed && !b.read && !b.settled && b.ReadCloser != nil
	b.settled = true
	b.mu.Unlock()
	if now {
		_ = b.ReadCloser.Close()
	}
}
