// Package resolver answers the sandbox's DNS queries.
//
// Contract: every host of the catalog (with YOLO_MODE every valid name) resolves to one constant synthetic address.
// Other names do not exist. Queries are never forwarded, so no data leaves in a name. The resolver makes no decision: a
// connection to the synthetic address is checked by the host that it names.
package resolver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/slot"
)

const (
	ttl        = 60 // seconds
	udpSize    = 1232
	tcpTimeout = 5 * time.Second
	maxTCP     = 16 // queries on one TCP connection
)

// Config configures a Resolver.
type Config struct {
	// Known reports whether a host resolves for the client. seat and from are as for Asked.
	Known func(seat *slot.ID, from netip.Addr, h catalog.Host) bool
	// Address is the address in answers. Zero means slot.SyntheticAddr.
	Address netip.Addr
	// Allow reports whether a query from this address is answered. With nil every query is answered. That is right if only
	// a slot's namespace can reach the socket.
	Allow func(netip.Addr) bool
	// Patience is the time that a TCP connection may take for a query, or be idle. Zero means 5 s.
	Patience time.Duration
	// Sockets are the sockets to serve. Serve closes them.
	Sockets []Socket
	// Asked, if not nil, is called with each queried name. The slot is nil if the address identifies it.
	Asked func(seat *slot.ID, from netip.Addr, name string)
}

// Socket is a socket for packets or for streams.
type Socket struct {
	Packets net.PacketConn
	Streams net.Listener
	// Slot is the slot of the socket, or nil if the address of a client identifies the slot.
	Slot *slot.ID
}

// Resolver serves DNS. Make one with New.
type Resolver struct {
	conf    Config
	servers []*dns.Server
}

// New makes a Resolver. Serve starts it.
func New(c Config) *Resolver {
	c.Patience = cmp.Or(c.Patience, tcpTimeout)
	c.Address = cmp.Or(c.Address, slot.SyntheticAddr)
	r := &Resolver{conf: c}
	for _, s := range c.Sockets {
		server := &dns.Server{PacketConn: s.Packets, Handler: socketHandler{r, s.Slot}, UDPSize: udpSize}
		if s.Streams != nil {
			server.Listener = &boundedListener{Listener: s.Streams, allow: c.Allow, open: map[netip.Addr]int{}}
			server.MaxTCPQueries = maxTCP
			server.ReadTimeout, server.WriteTimeout = c.Patience, c.Patience
			server.IdleTimeout = func() time.Duration { return c.Patience }
		}
		r.servers = append(r.servers, server)
	}
	return r
}

// Serve answers until ctx ends. Then it returns nil. If a socket fails earlier, Serve returns an error.
func (r *Resolver) Serve(ctx context.Context) error {
	g, serving := errgroup.WithContext(ctx)
	for _, s := range r.servers {
		g.Go(func() error { return cmp.Or(s.ActivateAndServe(), errors.New("the socket was closed")) })
	}
	<-serving.Done()
	// Closing the sockets ends the servers.
	for _, s := range r.servers {
		if s.Listener != nil {
			_ = s.Listener.Close()
		} else {
			_ = s.PacketConn.Close()
		}
	}
	if err := g.Wait(); ctx.Err() == nil {
		return fmt.Errorf("serving DNS: %w", err)
	}
	return nil
}

type socketHandler struct {
	*Resolver
	slot *slot.ID
}

// ServeDNS answers one query.
func (r socketHandler) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	ap, err := netip.ParseAddrPort(w.RemoteAddr().String())
	from := ap.Addr().Unmap()
	if r.conf.Allow != nil && (err != nil || !r.conf.Allow(from)) {
		return
	}
	// Report names that do not resolve, too: code could encode a credential in a name.
	if r.conf.Asked != nil {
		for _, question := range q.Question {
			r.conf.Asked(r.slot, from, question.Name)
		}
	}
	if a := r.answerQuery(q, from); a != nil {
		_ = w.WriteMsg(a)
	}
}

// answerQuery returns the response to a query, or nil for no response.
func (r socketHandler) answerQuery(q *dns.Msg, from netip.Addr) *dns.Msg {
	// Two servers that answer answers could keep each other busy without end.
	if q.Response {
		return nil
	}
	a := new(dns.Msg)
	switch {
	case q.Opcode != dns.OpcodeQuery:
		return a.SetRcode(q, dns.RcodeNotImplemented)
	// Servers disagree about several questions in one query.
	case len(q.Question) != 1:
		return a.SetRcode(&dns.Msg{MsgHdr: q.MsgHdr}, dns.RcodeFormatError)
	}
	a.SetReply(q)
	a.Authoritative, a.RecursionAvailable = true, true
	question := q.Question[0]
	// RFC 6891, section 6.1.1: the answer to a query with OPT has OPT too.
	if opt := q.IsEdns0(); opt != nil {
		a.SetEdns0(udpSize, false)
	}
	host, err := catalog.ParseHost(question.Name)
	if err != nil || question.Qclass != dns.ClassINET || !r.conf.Known(r.slot, from, host) {
		a.Rcode = dns.RcodeNameError
		return a
	}
	// Other types get an empty answer: the sandbox has no IPv6, and the name exists.
	if question.Qtype == dns.TypeA {
		b := r.conf.Address.As4()
		a.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl},
			A:   net.IP(b[:]),
		}}
	}
	return a
}
