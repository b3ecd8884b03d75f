// Package entrance accepts connections from the sandbox.
//
// It identifies the slot (by the listener or the source address) and binds the connection to the slot's lease. It
// terminates TLS with a certificate of the proxy's authority, and passes strictly checked HTTP to package egress, which
// compares the TLS name with the Host header. Threats: connections of an ended run, floods and slow clients from one
// slot, and requests that two parsers read differently.
package entrance

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/internal/authority"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/strict"
)

// The limits on one connection and one slot.
const (
	handshakeTime = 10 * time.Second
	headTime      = 10 * time.Second
	idleTime      = 60 * time.Second
	maxStreams    = lease.MaxExchanges // HTTP/2 streams of one connection
	// connWindow is the window of an HTTP/2 connection for bodies: four times the unread bytes of its open streams. Deno
	// gives parts of the window to bodies that still have no stream. They could fill a smaller window.
	connWindow  = 4 * maxStreams * lease.MaxUnread
	frameSize   = 64 << 10 // bytes of one HTTP/2 frame, which a connection keeps
	acceptRate  = 2000     // connections per second and slot; more are delayed
	acceptBurst = 500
)

// Listener is one socket that the sandbox can reach.
type Listener struct {
	TCP *net.TCPListener
	// Port is the port that clients connect to. Clients speak TLS at 443 and plain HTTP at 80. At other ports their first
	// byte decides.
	Port uint16
	// Slot is the slot that the socket belongs to. Nil means that the source address determines the slot.
	Slot *slot.ID
	// Find returns the slot of a source address, if Slot is nil. It returns false for an address without a slot.
	Find func(netip.Addr) (slot.ID, bool)
}

// Config holds the parts that an Entrance needs.
type Config struct {
	Listeners []Listener
	// Attach binds an accepted connection to the lease of its slot.
	Attach func(slot.ID, io.Closer) (*lease.Lease, error)
	// GetCertificate returns the leaf for a ClientHello.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Handler serves every request. It gets the connection with FromContext.
	Handler http.Handler
	// Refused, if not nil, is called for each connection that ends before its first request. l is nil if the slot has no
	// lease.
	Refused func(l *lease.Lease, from string, err error)
	// Patience bounds the time that slow clients may take. Zero fields mean 10 s for a handshake, 10 s for a request's
	// head, and 60 s of silence between requests. Bodies may take as long as the run.
	Patience Patience
}

// Patience is the time that a client may take.
type Patience struct{ Handshake, Head, Idle time.Duration }

// Entrance serves the sandbox's connections. Make one with New.
type Entrance struct {
	conf    Config
	tls     *tls.Config
	server  *http.Server
	handoff *rpc.Handoff
	limits  [slot.Total]*rate.Limiter
	conns   sync.WaitGroup
	failed  chan error // the error that ends Serve

	mu        sync.Mutex
	acceptors []*acceptor
	state     entranceState
}

type entranceState byte

const (
	stateNew entranceState = iota // Add keeps listeners for Serve
	stateServing
	stateClosed // Add closes listeners
)

// New makes an entrance; Serve starts it.
func New(c Config) (*Entrance, error) {
	if c.Refused == nil {
		c.Refused = func(*lease.Lease, string, error) {}
	}
	p := &c.Patience
	p.Handshake, p.Head, p.Idle = cmp.Or(p.Handshake, handshakeTime), cmp.Or(p.Head, headTime), cmp.Or(p.Idle, idleTime)
	handoff := rpc.NewHandoff(&net.UnixAddr{Name: "entrance", Net: "unix"})
	e := &Entrance{conf: c, handoff: handoff, failed: make(chan error, 1)}
	e.tls = &tls.Config{
		MinVersion:                  tls.VersionTLS12,
		NextProtos:                  []string{"h2", "http/1.1"},
		GetCertificate:              c.GetCertificate,
		DynamicRecordSizingDisabled: true,
		// No post-quantum curves: Go would send a HelloRetryRequest to a client that offers no share for them, such as Deno.
		// This traffic never leaves the machine.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384},
	}
	e.server = &http.Server{
		Handler:           c.Handler,
		ReadHeaderTimeout: p.Head,
		IdleTimeout:       p.Idle,
		MaxHeaderBytes:    strict.MaxHead,
		ConnContext:       withConn,
		ErrorLog:          log.New(io.Discard, "", 0),
		// net/http would answer OPTIONS * without the handler, and so without a receipt.
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: connWindow,
			MaxReceiveBufferPerStream: lease.MaxUnread, MaxReadFrameSize: frameSize,
		},
	}
	for i := range e.limits {
		e.limits[i] = rate.NewLimiter(acceptRate, acceptBurst)
	}
	for _, l := range c.Listeners {
		if _, err := e.AddListener(l); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// AddListener accepts from a further listener, which then belongs to the entrance. The returned function closes it, but
// keeps its connections. Add closes the connections that clients made before: an earlier Drain did not see them, so the
// run that made them may have ended.
func (e *Entrance) AddListener(l Listener) (remove func(), err error) {
	if l.TCP == nil || l.Port == 0 || l.Slot != nil && !l.Slot.IsValid() || l.Slot == nil && l.Find == nil {
		return nil, errors.New("entrance: a listener has no socket, no port, no slot, or one that does not exist")
	}
	a := &acceptor{listener: l, admit: e.admitConn, done: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == stateClosed {
		_ = l.TCP.Close()
		return func() {}, nil
	}
	for _, c := range a.acceptQueued() {
		_ = c.Close()
	}
	e.acceptors = append(e.acceptors, a)
	if e.state == stateServing {
		e.startAcceptor(a)
	}
	return func() { e.removeListener(a) }, nil
}

// startAcceptor runs an acceptor. The caller holds mu.
func (e *Entrance) startAcceptor(a *acceptor) {
	go func() {
		if err := a.acceptConns(); err != nil {
			e.reportFailure(err)
		}
	}()
}

func (e *Entrance) reportFailure(err error) {
	select {
	case e.failed <- err:
	default: // an earlier error has already ended Serve
	}
}

// removeListener closes a listener. Drain waits for it until its last connection is bound to a lease.
func (e *Entrance) removeListener(a *acceptor) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == stateNew { // no goroutine accepts from it yet
		_ = a.listener.TCP.Close()
	} else {
		// Without mu, because stop waits for admissions. The acceptor stays on the list: Drain must wait for it.
		e.mu.Unlock()
		a.stop()
		e.mu.Lock()
	}
	e.acceptors = slices.DeleteFunc(e.acceptors, func(x *acceptor) bool { return x == a })
}

// setState changes the state and returns the current acceptors.
func (e *Entrance) setState(to entranceState) []*acceptor {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state = to
	if to == stateServing {
		for _, a := range e.acceptors {
			e.startAcceptor(a)
		}
	}
	return slices.Clone(e.acceptors)
}

// Serve accepts until ctx ends; then it closes every connection and returns nil.
func (e *Entrance) Serve(ctx context.Context) error {
	go func() { e.reportFailure(e.server.Serve(e.handoff)) }()
	e.setState(stateServing)
	var first error
	select {
	case <-ctx.Done():
	case first = <-e.failed:
		first = fmt.Errorf("accepting connections: %w", first)
	}
	// Stop the acceptors before the server: a later connection would find a closed handoff.
	for _, a := range e.setState(stateClosed) {
		a.stop()
	}
	_ = e.server.Close()
	_ = e.handoff.Close()
	e.conns.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return first
}

// DrainQueue accepts every connection that clients made to a slot before the call. So Attach judges them now, and not
// for a later run.
func (e *Entrance) DrainQueue(id slot.ID) {
	var wait []<-chan struct{}
	e.mu.Lock()
	for _, a := range e.acceptors {
		if a.listener.Slot == nil || *a.listener.Slot == id {
			wait = append(wait, a.startBarrier())
		}
	}
	e.mu.Unlock()
	// Without mu: admissions may take time, and Add must not wait for them.
	for _, w := range wait {
		<-w
	}
}

// admitConn binds an accepted connection to its lease and serves it. It does not block, because each connection must be
// bound before the next accept.
func (e *Entrance) admitConn(l Listener, tcp net.Conn) {
	id, err := findSlot(l, tcp)
	if err != nil {
		e.conf.Refused(nil, tcp.RemoteAddr().String(), err)
		_ = tcp.Close()
		return
	}
	c := &Conn{Conn: tcp, port: l.Port}
	c.lease, err = e.conf.Attach(id, (*resetConn)(c))
	if err != nil {
		e.conf.Refused(c.lease, slotName(id), err)
		_ = tcp.Close()
		return
	}
	e.conns.Go(func() { e.serveConn(c) })
}

// serveConn terminates TLS, determines the host, and passes the connection to the HTTP server.
func (e *Entrance) serveConn(c *Conn) {
	// Delay a flood here, not in admit, which would also delay the other slots.
	if err := e.limits[c.lease.Slot].Wait(c.lease.Context()); err != nil {
		_ = c.Close()
		return
	}
	if !c.detectTLS(e.conf.Patience.Handshake) {
		_ = c.Close()
		return
	}
	if !c.tls {
		c.strict = strict.New(c)
		e.handoff.PassConn(c.strict)
		return
	}
	ctx, cancel := context.WithTimeout(c.lease.Context(), e.conf.Patience.Handshake)
	defer cancel()
	over := tls.Server(c, e.tls)
	err := over.HandshakeContext(ctx)
	state := over.ConnectionState()
	if err == nil {
		// A resumed session does not call GetCertificate, so check the name here in any case.
		if c.host, err = catalog.ParseHost(state.ServerName); err != nil {
			err = fmt.Errorf("%w: %w", authority.ErrNoHost, err)
		}
		c.host = c.host.AtPort(c.port)
	}
	if err != nil {
		e.conf.Refused(c.lease, slotName(c.lease.Slot), &HandshakeError{err})
		_ = c.Close()
		return
	}
	if state.NegotiatedProtocol == "h2" {
		e.handoff.PassConn(over)
		return
	}
	c.strict = strict.New(textConn{over, c})
	e.handoff.PassConn(c.strict)
}

// HandshakeError is the error of a TLS handshake that did not lead to a request.
type HandshakeError struct{ Err error }

// Error implements error.
func (e *HandshakeError) Error() string { return "TLS handshake: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *HandshakeError) Unwrap() error { return e.Err }

// HasNoHost reports whether the client named no valid host. Otherwise it disconnected, or did not trust the proxy's
// authority.
func (e *HandshakeError) HasNoHost() bool { return errors.Is(e.Err, authority.ErrNoHost) }

func slotName(id slot.ID) string { return fmt.Sprintf("slot%d", int(id)) }
