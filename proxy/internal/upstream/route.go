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

// kind is the protocol of a transport's connections, and who may use them.
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

// protocol is what is known about a host. The zero protocol means nothing is known.
type protocol byte

const (
	speaks2 protocol = 1 // it has agreed to HTTP/2
	wants1  protocol = 2 // it has agreed to HTTP/2, and then asked for HTTP/1
)

// errNotHTTP2 is for a server that does not negotiate HTTP/2 where it is required.
var errNotHTTP2 = errors.New("the server does not speak HTTP/2")

var errNoOwner = errors.New("the request has no owner")

// RoundTrip sends a request and returns the head of its response. A body over HTTP/1 is the last thing on its
// connection: not even the response shows whether the server has read it.
func (p *Pool) RoundTrip(req *http.Request, w Want) (*http.Response, error) {
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
		req.Body = body
	}
	resp, err := p.send(k, req, w)
	if refusesHTTP2(err) {
		p.learn(req.URL.Host, 0)
		if !w.HTTP2 && body.retry() {
			return p.send(either, req, w)
		}
	}
	body.settle()
	return resp, err
}

// send sends a request over a connection of one kind.
func (p *Pool) send(k kind, req *http.Request, w Want) (*http.Response, error) {
	//defence:last-body
	body := hasBody(req)
	if k.http1() && (w.Login || body) {
		req.Close = true // also over HTTP/2, where the server could have chosen either
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

// once keeps http.Transport from sending a request again that may have been acted on. That it does for whatever has an
// Idempotency-Key, which code can add where the server has never heard of it. It looks for the canonical name.
func once(req *http.Request) *http.Request {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return req
	}
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := req.Header[name]; ok {
			req = req.WithContext(req.Context()) // a copy, since the caller's stays as it is
			req.Header = maps.Clone(req.Header)
			delete(req.Header, name)
			req.Header[strings.ToLower(name)] = values
		}
	}
	return req
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// route chooses the connections for a request.
func (p *Pool) route(req *http.Request, w Want) kind {
	switch {
	case w.Upgrade:
		return single
	case w.HTTP2:
		return shared2
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

// agreed is called after every TLS handshake: it refuses a connection that would be an HTTP/1 one shared by owners.
func agreed(k kind, s tls.ConnectionState) error {
	if k == shared2 && s.NegotiatedProtocol != "h2" {
		return errNotHTTP2
	}
	return nil
}

// learn records what a host speaks.
func (p *Pool) learn(host string, what protocol) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.speaks[host] == wants1 && what == speaks2 {
		return
	}
	if len(p.speaks) >= maxHosts {
		clear(p.speaks)
	}
	p.speaks[host] = what
}

// refusesHTTP2 reports whether an error says that a server refused HTTP/2: nothing of the request was sent.
func refusesHTTP2(err error) bool {
	var op *net.OpError // crypto/tls reports an alert from the other end in no other way
	return errors.Is(err, errNotHTTP2) ||
		errors.As(err, &op) && op.Op == "remote error" && op.Err.Error() == "tls: no application protocol"
}

// retriableBody is a body that stays open when a connection fails, so that it can be sent over another one: until the
// attempt is settled, Close closes it only if some of it has been read.
type retriableBody struct {
	io.ReadCloser // nil: no body

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

// retry reports whether the body can be sent again, and settles it if so.
func (b *retriableBody) retry() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read {
		return false
	}
	b.closed, b.settled = false, true
	return true
}

// settle closes the body if Close was called and had to wait.
func (b *retriableBody) settle() {
	b.mu.Lock()
	now := b.closed && !b.read && !b.settled && b.ReadCloser != nil
	b.settled = true
	b.mu.Unlock()
	if now {
		_ = b.ReadCloser.Close()
	}
}
