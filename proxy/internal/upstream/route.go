package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"golang.org/x/net/http2"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
)

// kind is what the connections of a transport speak, and who uses them.
type kind byte

const (
	shared2 kind = 'c' // HTTP/2, all owners
	only2   kind = '2' // HTTP/2, one owner
	either  kind = 'e' // HTTP/2 or HTTP/1, as the server likes, one owner
	only1   kind = '1' // HTTP/1, one owner
	single  kind = 's' // HTTP/1, one request
)

func (k kind) shared() bool { return k == shared2 }
func (k kind) http1() bool  { return k == either || k == only1 || k == single }
func (k kind) http2() bool  { return k == either || k == only2 || k == shared2 }

// protocol is what is known of a host. The zero protocol is nothing.
type protocol byte

const (
	speaks2 protocol = 1 // it has agreed to HTTP/2
	wants1  protocol = 2 // it has agreed to HTTP/2, and then asked for HTTP/1
)

// errNotHTTP2 is a server that does not agree to HTTP/2 where nothing else will do.
var errNotHTTP2 = errors.New("the server does not speak HTTP/2")

var errNoOwner = errors.New("a request of nobody")

// RoundTrip sends a request and gives the head of its answer. A body over HTTP/1 is the last thing on its connection:
// not even the answer says whether the server has read it.
func (p *Pool) RoundTrip(req *http.Request, w Want) (*http.Response, error) {
	if w.Owner == nil {
		return nil, errNoOwner
	}
	k := p.route(req, w)
	if !k.shared() {
		return p.over(k, req, w)
	}
	body := &kept{}
	if hasBody(req) {
		body.ReadCloser = req.Body
		req.Body = body
	}
	resp, err := p.over(k, req, w)
	if refusesHTTP2(err) {
		p.learn(req.URL.Hostname(), 0)
		if !w.HTTP2 && body.again() {
			return p.over(either, req, w)
		}
	}
	body.settle()
	return resp, err
}

// over sends a request over a connection of a kind.
func (p *Pool) over(k kind, req *http.Request, w Want) (*http.Response, error) {
	if k.http1() && (w.Login || hasBody(req) && !disarm.Off("last-body")) {
		req.Close = true // over HTTP/2, too, where the server might have spoken either
	}
	resp, err := p.transport(w, k).RoundTrip(req)
	var reset http2.StreamError
	if errors.As(err, &reset) && reset.Code == http2.ErrCodeHTTP11Required {
		p.learn(req.URL.Hostname(), wants1)
	}
	if err == nil && resp.ProtoMajor == 2 && hasBody(req) {
		// While a body waits for more of itself, Go's HTTP/2 does not see that its request is cancelled.
		context.AfterFunc(req.Context(), func() { _ = resp.Body.Close() })
	}
	return resp, err
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// route chooses the connections for a request.
func (p *Pool) route(req *http.Request, w Want) kind {
	// The handshake with a proxy by TLS is one more that Go's transport does not tell apart: nothing is shared there.
	shares := p.conf.Proxy == nil || p.conf.Proxy.Scheme != "https"
	switch {
	case w.Upgrade:
		return single
	case w.HTTP2 && shares:
		return shared2
	case w.HTTP2:
		return only2
	case w.Login, req.URL.Scheme != "https":
		return only1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.speaks[req.URL.Hostname()] {
	case speaks2:
		if shares {
			return shared2
		}
	case wants1:
		return only1
	}
	return either
}

// agreed sees the end of every TLS handshake: it remembers which hosts speak HTTP/2, and lets no connection become an
// HTTP/1 one that owners would share.
func (p *Pool) agreed(k kind, s tls.ConnectionState) error {
	h2 := s.NegotiatedProtocol == "h2"
	switch {
	case k == shared2 && !h2:
		return errNotHTTP2
	case k == either && h2:
		p.learn(s.ServerName, speaks2)
	}
	return nil
}

// learn remembers what a host speaks.
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

// refusesHTTP2 reports whether an error says that a server does not agree to HTTP/2: nothing of the request was sent.
func refusesHTTP2(err error) bool {
	var op *net.OpError // crypto/tls has no other name for an alert of the other end
	return errors.Is(err, errNotHTTP2) ||
		errors.As(err, &op) && op.Op == "remote error" && op.Err.Error() == "tls: no application protocol"
}

// kept is a body that stays open when a connection cannot be had, so that another may carry it: Close waits until the
// attempt is settled, unless the body was read by then.
type kept struct {
	io.ReadCloser // nil: no body

	mu                   sync.Mutex
	read, asked, settled bool
}

// Read implements io.Reader.
func (b *kept) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.asked && !b.settled {
		b.mu.Unlock()
		return 0, io.ErrClosedPipe
	}
	b.read = true
	b.mu.Unlock()
	return b.ReadCloser.Read(p)
}

// Close implements io.Closer.
func (b *kept) Close() error {
	b.mu.Lock()
	b.asked = true
	now := b.settled || b.read
	b.mu.Unlock()
	if !now {
		return nil
	}
	return b.ReadCloser.Close()
}

// again reports whether the body can still be sent, and if so is settled.
func (b *kept) again() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read {
		return false
	}
	b.asked, b.settled = false, true
	return true
}

// settle lets Close through.
func (b *kept) settle() {
	b.mu.Lock()
	now := b.asked && !b.read && !b.settled && b.ReadCloser != nil
	b.settled = true
	b.mu.Unlock()
	if now {
		_ = b.ReadCloser.Close()
	}
}
