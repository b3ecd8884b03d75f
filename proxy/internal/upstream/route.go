package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/net/http2"
)

// kind is the protocol of a transport's connections, and who may share them.
type kind byte

const (
	shared2 kind = 'c' // HTTP/2, all owners
	either  kind = 'e' // HTTP/2 or HTTP/1, as the server chooses, one owner
	only1   kind = '1' // HTTP/1, one owner
	single  kind = 's' // HTTP/1, one request
)

func (k kind) shared() bool { return k == shared2 }
func (k kind) http1() bool  { return k == either || k == only1 || k == single }
func (k kind) http2() bool  { return k == either || k == shared2 }

// protocol is the known protocol of a host. The zero protocol means unknown.
type protocol byte

const (
	speaks2 protocol = 1 // the host has agreed to HTTP/2
	wants1  protocol = 2 // the host has agreed to HTTP/2, and then asked for HTTP/1
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
	k := p.route(req, w)
	if !k.shared() {
		return p.send(k, req, w)
	}
	body := &retriableBody{}
	if hasBody(req) {
		body.ReadCloser = req.Body
		// http.Transport closes the body of a failed attempt, but the second attempt needs it.
		req.Body = body
	}
	resp, err := p.send(k, req, w)
	if refusesHTTP2(err) {
		p.learn(req.URL.Host, 0)
		// The TLS handshake failed, so no byte of the request was sent.
		if !w.HTTP2 && body.retry() {
			return p.send(either, req, w)
		}
	}
	body.settle()
	return resp, err
}

// send sends a request over a connection of kind k.
func (p *Pool) send(k kind, req *http.Request, w Want) (*http.Response, error) {
	//defence:last-body
	body := hasBody(req)
	// This also closes an HTTP/2 connection of kind either, on which the server could have chosen either protocol.
	if k.http1() && (w.Login || body) {
		req.Close = true
	}
	resp, err := p.transport(w, k).RoundTrip(once(req))
	var reset http2.StreamError
	if errors.As(err, &reset) && reset.Code == http2.ErrCodeHTTP11Required {
		p.learn(req.URL.Host, wants1)
	}
	if err == nil && k == either && resp.ProtoMajor == 2 {
		p.learn(req.URL.Host, speaks2)
	}
	if err == nil && resp.ProtoMajor == 2 && hasBody(req) {
		// While it waits for more of a body, Go's HTTP/2 does not notice that the request is cancelled. The caller may
		// replace resp.Body meanwhile.
		stream := resp.Body
		context.AfterFunc(req.Context(), func() { _ = stream.Close() })
	}
	return resp, err
}

// once prevents http.Transport from sending a request again that the server may have acted on. http.Transport retries
// any request with an Idempotency-Key. Code can add this header although the server does not know it. http.Transport
// looks only for the canonical name, so once writes the name in lower case.
func once(req *http.Request) *http.Request {
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

// route chooses the kind of connection for a request.
func (p *Pool) route(req *http.Request, w Want) kind {
	switch {
	case w.Upgrade:
		return single
	case w.HTTP2:
		return shared2
	// A connection that a request has authenticated must not be shared, and HTTP/2 needs TLS here.
	case w.Login, req.URL.Scheme != "https":
		return only1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.speaks[req.URL.Host] {
	case speaks2:
		return shared2
	case wants1:
		return only1
	}
	return either
}

// agreed is called after every TLS handshake. It rejects an HTTP/1 connection that several owners would share.
func agreed(k kind, s tls.ConnectionState) error {
	if k == shared2 && s.NegotiatedProtocol != "h2" {
		return errNotHTTP2
	}
	return nil
}

// learn records the protocol of a host.
func (p *Pool) learn(host string, what protocol) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// wants1 stays: the server agrees to HTTP/2 in every handshake.
	if p.speaks[host] == wants1 && what == speaks2 {
		return
	}
	// The map only saves handshakes, so it may start over.
	if len(p.speaks) >= maxHosts {
		clear(p.speaks)
	}
	p.speaks[host] = what
}

// refusesHTTP2 reports whether a server refused HTTP/2 in the handshake, before any part of the request was sent.
func refusesHTTP2(err error) bool {
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

// retry reports whether the body can be sent again. If so, it settles the body.
func (b *retriableBody) retry() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read {
		return false
	}
	b.closed, b.settled = false, true
	return true
}

// settle closes the body if an earlier Close was postponed.
func (b *retriableBody) settle() {
	b.mu.Lock()
	now := b.closed && !b.read && !b.settled && b.ReadCloser != nil
	b.settled = true
	b.mu.Unlock()
	if now {
		_ = b.ReadCloser.Close()
	}
}
