// Package upstream is the server that tests and attacks talk to through CodeForge: go-httpbin behind TLS with its own
// certificate authority, and everything that a hostile server could do. It records what it receives, so that a test can
// prove which bytes, and which credential, arrived.
//
// All names share one set of paths: go-httpbin at /, the hostile ones at /x/. Requests are marked with a t parameter
// that Seen filters by.
package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mccutchen/go-httpbin/v2/httpbin"
	"golang.org/x/net/http2"

	"github.com/codeforge-mcp/codeforge/e2e/registry"
	"github.com/codeforge-mcp/codeforge/internal/testca"
)

// Config configures a Server.
type Config struct {
	CA *testca.CA
	// TLS, HTTP and DNS are addresses to listen on, e.g. "10.99.0.10:443". None of a kind means no such listener.
	TLS, HTTP, DNS []string
	// Control is the address of the record's own HTTP API; empty means none.
	Control string
	// Addresses is what the DNS server answers with.
	Addresses Addresses
	// Known are credentials that the upstream knows from elsewhere, by token name, as a hostile server might through
	// another host. Requests ask for them with what=known:NAME.
	Known map[string]string
	// Registry is a folder of npm packages that the name Registry serves; empty means none.
	Registry string
	// Hosts are handlers of names of their own.
	Hosts map[string]http.Handler
	// Listen opens a TCP listener; nil means net.Listen. Tests use one that listens in another network namespace.
	Listen func(address string) (net.Listener, error)
}

// Server is a running upstream.
type Server struct {
	record
	cfg     Config
	unknown *testca.CA // an authority that nobody trusts
	dns     *dnsServer
	web     *http.Server
	h2      *http2.Server //nolint:staticcheck // net/http.Server cannot serve one connection that was accepted and recorded elsewhere
	hand    *handoff
	closers []io.Closer
	stop    context.CancelFunc
	wg      sync.WaitGroup

	connMu sync.Mutex
	conns  map[net.Conn]struct{}

	registry *registry.Registry // nil: none
}

// Start listens and serves until Close.
func Start(cfg Config) (*Server, error) {
	unknown, err := testca.New("nobody trusts this")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{cfg: cfg, unknown: unknown, stop: stop, hand: newHandoff(), h2: &http2.Server{}, conns: map[net.Conn]struct{}{}} //nolint:staticcheck // as above
	if cfg.Registry != "" {
		if s.registry, err = registry.New(cfg.Registry, Registry); err != nil {
			stop()
			return nil, err
		}
	}
	s.web = &http.Server{
		Handler:           s.recording(s.routes()),
		ReadHeaderTimeout: 30 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		MaxHeaderBytes:    4 << 20,
		ErrorLog:          discardLog(),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if rc, ok := c.(*recordedConn); ok {
				return context.WithValue(ctx, nameKey{}, origin{rc.wire.w.Name, rc.wire.w.Local})
			}
			return ctx
		},
	}
	s.wg.Go(func() { _ = s.web.Serve(s.hand) })
	if err := s.listen(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// origin is where a connection came in: the TLS server name and the local address.
type origin struct{ name, local string }

// Keys of a request's context: its origin, and Config.Known.
type (
	nameKey  struct{}
	knownKey struct{}
)

// listen opens every listener of the Config.
func (s *Server) listen() error {
	for _, addr := range s.cfg.TLS {
		if err := s.accept(addr, true); err != nil {
			return err
		}
	}
	for _, addr := range s.cfg.HTTP {
		if err := s.accept(addr, false); err != nil {
			return err
		}
	}
	for _, addr := range s.cfg.DNS {
		if err := s.serveDNS(addr); err != nil {
			return err
		}
	}
	if s.cfg.Control != "" {
		return s.serveControl(s.cfg.Control)
	}
	return nil
}

// accept serves connections of one listener.
func (s *Server) accept(addr string, isTLS bool) error {
	listen := s.cfg.Listen
	if listen == nil {
		listen = func(a string) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(context.Background(), "tcp", a)
		}
	}
	l, err := listen(addr)
	if err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	s.closers = append(s.closers, l)
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.track(c, true)
			s.wg.Go(func() { s.handshake(c, isTLS) })
		}
	})
	return nil
}

// handshake does the TLS handshake and passes the connection to the HTTP server of its protocol.
func (s *Server) handshake(c net.Conn, isTLS bool) {
	if !isTLS {
		s.hand.put(&recordedConn{Conn: c, wire: s.connection(c, "", false, nil)})
		return
	}
	tc := tls.Server(c, &tls.Config{GetConfigForClient: s.tlsConfig, MinVersion: tls.VersionTLS12})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := tc.HandshakeContext(ctx)
	state := tc.ConnectionState()
	w := s.connection(c, state.ServerName, true, err)
	if err != nil {
		_ = c.Close()
		return
	}
	rc := &recordedConn{Conn: tc, wire: w}
	if state.NegotiatedProtocol != "h2" {
		s.hand.put(rc)
		return
	}
	ctx = context.WithValue(context.Background(), nameKey{}, origin{state.ServerName, c.LocalAddr().String()})
	s.h2.ServeConn(rc, &http2.ServeConnOpts{Context: ctx, Handler: s.web.Handler}) //nolint:staticcheck // as above
	s.track(c, false)
}

// tlsConfig chooses certificate and protocols by server name.
func (s *Server) tlsConfig(h *tls.ClientHelloInfo) (*tls.Config, error) {
	name, ca, claim, end := h.ServerName, s.cfg.CA, h.ServerName, time.Now().Add(24*time.Hour)
	switch name {
	case BadCA:
		ca = s.unknown
	case Wrong:
		claim = "somebody-else.test"
	case Expired:
		end = time.Now().Add(-24 * time.Hour)
	case "":
		name, claim = "no-name", "no-name.test"
	}
	cert, err := ca.IssueLeaf(name, claim, end)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	if strings.HasPrefix(name, "h2.") {
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	return cfg, nil
}

// recording records each request before it is served. Bodies are read first, up to a bound, and replayed.
func (s *Server) recording(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _ := r.Context().Value(nameKey{}).(origin)
		seen := Seen{
			At: time.Now(), Trial: r.URL.Query().Get("t"), Name: from.name, Local: from.local, Host: r.Host, Proto: r.Proto, Method: r.Method,
			Target: r.RequestURI, Header: r.Header.Clone(),
		}
		if !strings.HasPrefix(r.URL.Path, "/x/duplex") && r.URL.Path != "/x/deaf" {
			head, err := io.ReadAll(io.LimitReader(r.Body, maxSeenBody))
			seen.Body = head
			if err != nil {
				seen.Body = append(seen.Body, "[broken off: "+err.Error()+"]"...)
			}
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(head), r.Body))
		}
		s.add(seen)
		known := r.WithContext(context.WithValue(r.Context(), knownKey{}, s.cfg.Known))
		next.ServeHTTP(w, known)
		if known.MultipartForm != nil {
			_ = known.MultipartForm.RemoveAll() // the server removes only the files of the request that it made
		}
	})
}

// routes are go-httpbin and the hostile paths.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	bin := httpbin.New(httpbin.WithMaxBodySize(64<<20), httpbin.WithMaxDuration(30*time.Second))
	mux.Handle("/", bin.Handler())
	mux.HandleFunc("/x/echo", echo)
	mux.HandleFunc("/x/hop", hop)
	mux.HandleFunc("/x/raw", raw)
	mux.HandleFunc("/x/bomb", bomb)
	mux.HandleFunc("/x/flood", flood)
	mux.HandleFunc("/x/oracle", oracle)
	mux.HandleFunc("/x/breach", breach)
	mux.HandleFunc("/x/ticks", ticks)
	mux.HandleFunc("/x/slow", slow)
	mux.HandleFunc("/x/ranges", ranges)
	mux.HandleFunc("/x/ws", socket)
	mux.HandleFunc("/x/sink", sink)
	mux.HandleFunc("/x/deaf", s.deaf)
	mux.Handle("/x/item/", &items{})
	mux.HandleFunc("/x/ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	serveVendors(mux, s.cfg.Hosts)
	for name, handler := range s.cfg.Hosts {
		mux.Handle(name+"/", handler)
	}
	if s.registry != nil {
		mux.Handle(Registry+"/", s.registry)
	}
	mux.HandleFunc(GitHub+"/user/repos", func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Authorization"); strings.Contains(key, "placeholder") {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, `{"message":"Bad credentials: %s"}`, key)
			return
		}
		_, _ = io.WriteString(w, `[{"full_name":"octocat/hello-world"},{"full_name":"octocat/spoon-knife"}]`)
	})
	return mux
}

func (s *Server) track(c net.Conn, open bool) {
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if open {
		s.conns[c] = struct{}{}
	} else {
		delete(s.conns, c)
	}
}

// BreakRegistry lets the registry answer other bytes than before.
func (s *Server) BreakRegistry() { s.registry.Broken.Store(true) }

// Close stops every listener and connection and waits for them.
func (s *Server) Close() error {
	s.stop()
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	errs = append(errs, s.hand.Close(), s.web.Close())
	s.connMu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.connMu.Unlock()
	s.wg.Wait()
	return errors.Join(errs...)
}

// handoff is the listener through which accepted connections reach net/http.
type handoff struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newHandoff() *handoff { return &handoff{conns: make(chan net.Conn), done: make(chan struct{})} }

func (h *handoff) put(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		_ = c.Close()
	}
}

// Accept gives the next connection.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (h *handoff) Close() error { h.once.Do(func() { close(h.done) }); return nil }

// Addr is a placeholder: connections come from several listeners.
func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }
