package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// site is a server whose protocols can change, and what it saw.
type site struct {
	*httptest.Server
	speaks  atomic.Pointer[[]string]
	resumed atomic.Int32
	mu      sync.Mutex
	seen    []string // protocol, method, what the connection does next
	from    []string
	bodies  []string
}

func newSite(t *testing.T, protocols ...string) *site {
	s := &site{}
	s.speaks.Store(&protocols)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		word := r.Proto + " " + r.Method
		if r.Close {
			word += " close"
		}
		if r.TLS.DidResume {
			s.resumed.Add(1)
		}
		s.seen, s.from, s.bodies = append(s.seen, word), append(s.from, r.RemoteAddr), append(s.bodies, string(b))
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{}
	s.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := s.TLS.Clone()
		c.NextProtos, c.GetConfigForClient = *s.speaks.Load(), nil
		return c, nil
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// pool connects to the site under a name of its certificate.
func (s *site) pool(t *testing.T) (*Pool, Want) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	p := newPool(t, Config{Resolve: at127, Connect: to(s.Listener.Addr().String(), new(atomic.Int32))})
	return p, Want{APIs: []*catalog.API{{Name: "a", AllowPrivate: loopback, CAs: ca}}}
}

func (s *site) last() (word, from, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.seen) - 1
	return s.seen[n], s.from[n], s.bodies[n]
}

// run is an owner that can end.
type run struct{ ctx context.Context }

func (r *run) Context() context.Context { return r.ctx }

// send sends one request for an owner; a body streams.
func send(t *testing.T, p *Pool, w Want, o Owner, method, body string) error {
	t.Helper()
	var up io.Reader
	if body != "" {
		up = struct{ io.Reader }{strings.NewReader(body)}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "https://example.com/", up)
	if err != nil {
		t.Fatal(err)
	}
	w.Owner = o
	resp, err := p.RoundTrip(req, w)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return err
}

// TestHTTP2: owners share HTTP/2 connections, with bodies and without; logins and upgrades do not use them.
// Promise: one-reading
func TestHTTP2(t *testing.T) {
	s := newSite(t, "h2", "http/1.1")
	p, w := s.pool(t)
	one, two := &run{t.Context()}, &run{t.Context()}
	login, upgrade := w, w
	login.Login, upgrade.Upgrade = true, true
	var shared string
	for i, c := range []struct {
		want   Want
		owner  *run
		method string
		body   string
		seen   string
		shared bool
	}{
		{w, one, "POST", "first", "HTTP/2.0 POST", false}, // nobody knows yet what the host speaks
		{w, one, "POST", "second", "HTTP/2.0 POST", true},
		{w, two, "DELETE", "third", "HTTP/2.0 DELETE", true},
		{w, two, "GET", "", "HTTP/2.0 GET", true},
		{login, one, "GET", "", "HTTP/1.1 GET close", false},
		{upgrade, one, "GET", "", "HTTP/1.1 GET", false},
		{w, one, "GET", "", "HTTP/2.0 GET", true},
	} {
		if err := send(t, p, c.want, c.owner, c.method, c.body); err != nil {
			t.Fatal(i, err)
		}
		seen, from, body := s.last()
		if c.shared && shared == "" {
			shared = from
		}
		if seen != c.seen || body != c.body || (from == shared) != c.shared {
			t.Errorf("%d: %s from %s with %q; shared is %s", i, seen, from, body, shared)
		}
	}
	if s.resumed.Load() == 0 {
		t.Error("no TLS session was resumed")
	}
}

// TestAsleep: after the machine has slept no request goes over a connection from before, even if it is in use.
func TestAsleep(t *testing.T) {
	s := newSite(t, "h2", "http/1.1")
	p, w := s.pool(t)
	one := &run{t.Context()}
	from := func() string {
		t.Helper()
		testkit.Must(t, send(t, p, w, one, "POST", "x"))
		_, from, _ := s.last()
		return from
	}
	from() // nobody knows yet what the host speaks
	before := from()
	body, more := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "https://example.com/", body)
	testkit.Must(t, err)
	w.Owner = one
	done := make(chan error, 1)
	go func() {
		resp, err := p.RoundTrip(req, w)
		if err == nil {
			err = resp.Body.Close()
		}
		done <- err
	}()
	_, err = more.Write([]byte("begun")) // it is in flight
	testkit.Must(t, err)
	if got := from(); got != before {
		t.Errorf("from %s, want %s", got, before)
	}
	p.mu.Lock()
	p.now = func() time.Time { return testkit.AfterSleep(time.Now(), 8*time.Hour) }
	p.mu.Unlock()
	after := from()
	if after == before {
		t.Error("a request went over a connection from before")
	}
	from() // which learns anew what the host speaks
	if again := from(); again == before {
		t.Errorf("from %s, then from %s", after, again)
	}
	testkit.Must(t, more.Close())
	testkit.Must(t, <-done)
}

// TestHTTP2Ends: a host that no longer speaks HTTP/2 gets requests over HTTP/1, each of them once.
func TestHTTP2Ends(t *testing.T) {
	for name, left := range map[string][]string{"another protocol": {"http/1.1"}, "no protocols": nil} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "h2", "http/1.1")
			p, w := s.pool(t)
			one := &run{t.Context()}
			if err := send(t, p, w, one, "GET", ""); err != nil {
				t.Fatal(err)
			}
			s.speaks.Store(&left)
			grpc := w
			grpc.HTTP2 = true
			if err := send(t, p, grpc, one, "POST", "a call"); err == nil {
				t.Error("HTTP/1 where nothing but HTTP/2 will do")
			}
			p.learnProtocol("example.com", protocolHTTP2)
			if err := send(t, p, w, &run{t.Context()}, "POST", "a body"); err != nil {
				t.Fatal(err)
			}
			if seen, _, body := s.last(); seen != "HTTP/1.1 POST close" || body != "a body" || len(s.seen) != 2 {
				t.Errorf("%q, %q", s.seen, body)
			}
		})
	}
}

// TestHTTP11Required: a host that refuses a request over HTTP/2 gets the next one over HTTP/1.
func TestHTTP11Required(t *testing.T) {
	s := newSite(t, "h2", "http/1.1")
	config := &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	addr := serveConns(t, config, func(c net.Conn) { resetStreams(c.(*tls.Conn), http2.ErrCodeHTTP11Required, new(atomic.Int32)) })
	p, w := s.pool(t)
	p.conf.Connect = to(addr, new(atomic.Int32))
	one := &run{t.Context()}
	if err := send(t, p, w, one, "GET", ""); err == nil {
		t.Error("answered over HTTP/2")
	}
	if err := send(t, p, w, one, "GET", ""); err != nil {
		t.Errorf("over HTTP/1: %v", err)
	}
}

// TestApprovedReset: a server gets an approved request once, with a body or without, although it resets the stream with a
// code after which net/http sends other requests again.
// Promise: exact-approvals
func TestApprovedReset(t *testing.T) {
	for _, c := range []struct {
		once bool
		body io.Reader
	}{{true, nil}, {true, strings.NewReader("body")}, {false, nil}} {
		s := newSite(t, "h2")
		var got atomic.Int32
		config := &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2"}}
		addr := serveConns(t, config, func(c net.Conn) { resetStreams(c.(*tls.Conn), http2.ErrCodeProtocol, &got) })
		p, w := s.pool(t)
		p.conf.Connect = to(addr, new(atomic.Int32))
		w.Owner, w.Once = &run{t.Context()}, c.once
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // net/http repeats it with growing pauses
		req, err := http.NewRequestWithContext(ctx, "DELETE", "https://example.com/", c.body)
		testkit.Must(t, err)
		if resp, err := p.RoundTrip(req, w); err == nil || c.once && !errors.Is(err, errRepeated) {
			t.Errorf("approved %v: %v %v", c.once, resp, err)
		}
		cancel()
		if n := got.Load(); (n == 1) != c.once {
			t.Errorf("approved %v: sent %d times", c.once, n)
		}
	}
}

// resetStreams resets each stream with a code, and counts them. It answers HTTP/1.
func resetStreams(c *tls.Conn, code http2.ErrCode, streams *atomic.Int32) {
	defer c.Close()
	if c.Handshake() != nil {
		return
	}
	if c.ConnectionState().NegotiatedProtocol != "h2" {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		return
	}
	_, _ = io.CopyN(io.Discard, c, int64(len(http2.ClientPreface)))
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		if h, ok := frame.(*http2.HeadersFrame); ok {
			streams.Add(1)
			_ = f.WriteRSTStream(h.StreamID, code)
		}
	}
}

// TestOwners: HTTP/1 connections are used by one owner and closed at its end, and a body is the last thing on one.
// Promise: one-reading
func TestOwners(t *testing.T) {
	s := newSite(t, "http/1.1")
	p, w := s.pool(t)
	ctx, end := context.WithCancel(t.Context())
	one, two := &run{ctx}, &run{t.Context()}
	var from []string
	for _, c := range []struct {
		owner        *run
		method, body string
	}{{one, "GET", ""}, {two, "GET", ""}, {one, "GET", ""}, {one, "POST", "x"}, {one, "GET", ""}, {two, "POST", ""}, {two, "GET", ""}} {
		if err := send(t, p, w, c.owner, c.method, c.body); err != nil {
			t.Fatal(err)
		}
		_, f, _ := s.last()
		from = append(from, f)
	}
	if from[0] == from[1] || from[2] != from[0] || from[3] != from[0] || from[4] == from[0] || from[5] != from[1] || from[6] != from[1] {
		t.Errorf("requests came from %q", from)
	}
	if s.seen[3] != "HTTP/1.1 POST close" {
		t.Errorf("the server saw %q", s.seen)
	}
	end()
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n := len(p.owned)
		p.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d owners are kept", n)
		}
	}
	if err := send(t, p, w, nil, "GET", ""); !errors.Is(err, errNoOwner) {
		t.Errorf("a request of nobody: %v", err)
	}
	for i := range maxPools + 10 {
		w.Version, w.Owner = strings.Repeat("v", i), two
		p.getTransport(w, kindHTTP1)
	}
	if n := len(p.owned[two]); n > maxPools {
		t.Errorf("one owner has %d pools", n)
	}
	for i := range maxHosts + 10 {
		p.learnProtocol(strings.Repeat("h", i), protocolHTTP2)
	}
	if n := len(p.speaks); n > maxHosts {
		t.Errorf("%d hosts are remembered", n)
	}
}

// TestEarlyAnswer: an answer before the body was sent, or instead of 100 Continue, and one after a flood of interim
// responses.
func TestEarlyAnswer(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for name, c := range map[string]struct {
		answer string
		expect bool
		fails  bool
	}{
		"before the body":                  {ok, false, false},
		"in place of 100":                  {ok, true, false},
		"100 and then":                     {"HTTP/1.1 100 Continue\r\n\r\n" + ok, true, false},
		"100 that nobody asked for":        {"HTTP/1.1 100 Continue\r\n\r\n" + ok, false, false},
		"two answers":                      {ok + ok, false, false},
		"both lengths":                     {"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + ok, false, false},
		"204 with a body":                  {"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok" + ok, false, false},
		"304 with a body":                  {"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nok" + ok, false, false},
		"HTTP/1.0 that is kept":            {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok" + ok, false, false},
		"a flood of interim answers":       {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 20000), false, true},
		"101 that nobody asked for, first": {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + ok, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var conns atomic.Int32
			addr := serveConns(t, nil, func(conn net.Conn) {
				conns.Add(1)
				in := bufio.NewReader(conn)
				for {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					_, _ = io.WriteString(conn, c.answer)
				}
			})
			p := newPool(t, Config{Resolve: at127, Connect: to(addr, new(atomic.Int32))})
			w := Want{APIs: []*catalog.API{{Name: "a", AllowPrivate: loopback}}, Owner: &run{t.Context()}}
			for n := int32(1); n <= 3; n++ {
				pr, pw := io.Pipe() // a body that does not end
				go func() { _, _ = io.WriteString(pw, "GET / HTTP/1.1\r\n\r\n") }()
				req, _ := http.NewRequestWithContext(t.Context(), "DELETE", "http://api.test/", pr)
				if c.fails { // net/http reports a malformed response only once the body has ended too
					time.AfterFunc(50*time.Millisecond, func() { _ = pw.Close() })
				}
				if c.expect {
					req.Header.Set("Expect", "100-continue")
				}
				resp, err := p.RoundTrip(req, w)
				if fails := err != nil || resp.StatusCode < 200; fails != c.fails {
					t.Errorf("request %d: %v, %v", n, resp, err)
				}
				if err == nil {
					_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 2))
					_ = resp.Body.Close()
				}
				_ = pw.Close()
				if conns.Load() != n {
					t.Errorf("request %d came on %d connections", n, conns.Load())
				}
			}
		})
	}
}

// TestLastAnswer: an upstream that refuses a long body answers and hangs up; its answer counts, and not that no more of
// the body could be sent.
func TestLastAnswer(t *testing.T) {
	const each = 300
	body := strings.Repeat("x", 1<<20)
	addr := serveConns(t, nil, func(c net.Conn) {
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")
		}
	})
	p := newPool(t, Config{Resolve: at127, Connect: to(addr, new(atomic.Int32))})
	w := Want{APIs: []*catalog.API{{Name: "a", AllowPrivate: loopback}}, Owner: someone}
	lost := 0
	for range each {
		req, _ := http.NewRequest(http.MethodPost, "http://api.test/", io.NopCloser(strings.NewReader(body)))
		req.ContentLength = int64(len(body))
		resp, err := p.RoundTrip(req, w)
		if err != nil {
			lost++
			continue
		}
		text, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusRequestEntityTooLarge || string(text) != "big" || err != nil {
			lost++
		}
		_ = resp.Body.Close()
	}
	if lost > 0 {
		t.Errorf("lost %d answers of %d", lost, each)
	}
}
