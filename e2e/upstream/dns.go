package upstream

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/miekg/dns"
)

// dnsServer answers for the names of this package and records every question.
type dnsServer struct {
	addresses Addresses
	more      sync.Map // of Name: addresses by name
	fault     atomic.Int64
	mu        sync.Mutex
	turns     map[string]int
	asked     []string
}

// serveDNS answers on addr over UDP.
func (s *Server) serveDNS(addr string) error {
	pc, err := net.ListenPacket("udp", addr) //nolint:noctx // lives as long as the server
	if err != nil {
		return fmt.Errorf("upstream dns: %w", err)
	}
	s.dns = &dnsServer{addresses: s.cfg.Addresses, turns: map[string]int{}}
	srv := &dns.Server{PacketConn: pc, Handler: s.dns}
	s.closers = append(s.closers, pc)
	s.wg.Go(func() { _ = srv.ActivateAndServe() })
	return nil
}

// ServeDNS answers one question.
func (d *dnsServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	switch rcode := d.fault.Load(); {
	case rcode == NoAnswer:
		return
	case rcode != 0:
		m.Rcode = int(rcode)
	case len(q.Question) == 1:
		d.answer(m, q.Question[0])
	}
	_ = w.WriteMsg(m)
}

// NoAnswer lets the DNS server leave questions without an answer.
const NoAnswer = -1

// FailNames makes the DNS server answer all questions with a code, or not at all if it is NoAnswer. 0 ends that.
func (s *Server) FailNames(rcode int) { s.dns.fault.Store(int64(rcode)) }

// Name makes the DNS server answer with an address for one more name.
func (s *Server) Name(name string, a netip.Addr) { s.dns.more.Store(name, a) }

func (d *dnsServer) answer(m *dns.Msg, q dns.Question) {
	name := strings.TrimSuffix(strings.ToLower(q.Name), ".")
	d.mu.Lock()
	turn := d.turns[name]
	if q.Qtype == dns.TypeA {
		d.turns[name]++
	}
	if len(d.asked) < MaxSeen {
		d.asked = append(d.asked, name)
	}
	d.mu.Unlock()
	addrs, ok := d.addresses.Resolve(name, turn)
	if more, found := d.more.Load(name); found {
		addrs, ok = []netip.Addr{more.(netip.Addr)}, true
	}
	if !ok {
		m.Rcode = dns.RcodeNameError
		return
	}
	for _, a := range addrs {
		if rr := resource(q, a); rr != nil {
			m.Answer = append(m.Answer, rr)
		}
	}
}

// resource is the record for an address, or nil when it is of the other family.
func resource(q dns.Question, a netip.Addr) dns.RR {
	head := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 0}
	switch {
	case q.Qtype == dns.TypeA && a.Is4():
		return &dns.A{Hdr: head, A: a.AsSlice()}
	case q.Qtype == dns.TypeAAAA && !a.Is4():
		return &dns.AAAA{Hdr: head, AAAA: a.AsSlice()}
	}
	return nil
}

// Asked lists the names asked for, in order.
func (s *Server) Asked() []string {
	if s.dns == nil {
		return nil
	}
	s.dns.mu.Lock()
	defer s.dns.mu.Unlock()
	return append([]string{}, s.dns.asked...)
}
