package resolver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func known(_ *slot.ID, _ netip.Addr, h catalog.Host) bool { return h.String() == "api.demo.test" }

// start serves on loopback sockets and returns their addresses.
func start(t *testing.T, allow func(netip.Addr) bool) (udp, tcp string) {
	t.Helper()
	return startWith(t, Config{Known: known, Allow: allow})
}

func startWith(t *testing.T, conf Config) (udp, tcp string) {
	t.Helper()
	p, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conf.Sockets = []Socket{{Packets: p}, {Streams: l}}
	r := New(conf)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return p.LocalAddr().String(), l.Addr().String()
}

// TestOddQueries: only a query with one question in the class of the internet has an answer.
func TestOddQueries(t *testing.T) {
	var asked []string
	own := slot.ID(3)
	h := socketHandler{New(Config{Known: known, Asked: func(of *slot.ID, _ netip.Addr, name string) { asked = append(asked, fmt.Sprint(int(*of), " ", name)) }}), &own}
	for name, c := range map[string]struct {
		change func(*dns.Msg)
		rcode  int // -1: no answer
		found  int
	}{
		"usual":         {func(*dns.Msg) {}, dns.RcodeSuccess, 1},
		"a response":    {func(q *dns.Msg) { q.Response = true }, -1, 0},
		"an update":     {func(q *dns.Msg) { q.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented, 0},
		"no question":   {func(q *dns.Msg) { q.Question = nil }, dns.RcodeFormatError, 0},
		"two questions": {func(q *dns.Msg) { q.Question = append(q.Question, q.Question[0]) }, dns.RcodeFormatError, 0},
		"another class": {func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeNameError, 0},
		"an odd name":   {func(q *dns.Msg) { q.Question[0].Name = "a_b." }, dns.RcodeNameError, 0},
	} {
		q := new(dns.Msg).SetQuestion("api.demo.test.", dns.TypeA).SetEdns0(4096, true)
		c.change(q)
		a := h.answerQuery(q, netip.MustParseAddr("10.0.0.1"))
		if (a == nil) != (c.rcode < 0) || a != nil && (a.Rcode != c.rcode || len(a.Answer) != c.found || !a.Response || a.Id != q.Id) {
			t.Errorf("%s: %v", name, a)
		}
		if name == "usual" && (a.IsEdns0() == nil || !a.Authoritative || !a.RecursionAvailable) {
			t.Errorf("%s: %v", name, a)
		}
	}
	h.ServeDNS(&recorder{}, new(dns.Msg).SetQuestion("secret.evil.test.", dns.TypeA))
	if len(asked) != 1 || asked[0] != "3 secret.evil.test." {
		t.Errorf("asked: %q", asked)
	}
}

// recorder is the other end of a query.
type recorder struct{ dns.ResponseWriter }

func (*recorder) RemoteAddr() net.Addr    { return &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7} }
func (*recorder) WriteMsg(*dns.Msg) error { return nil }

// TestServeFails: a socket that another party closes ends Serve with an error, and with it the other sockets.
func TestServeFails(t *testing.T) {
	p, err := net.ListenPacket("udp4", "127.0.0.1:0")
	testkit.Must(t, err)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	testkit.Must(t, l.Close())
	if err := New(Config{Sockets: []Socket{{Packets: p}, {Streams: l}}}).Serve(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "serving DNS: ") {
		t.Errorf("got %v", err)
	}
	if err := p.Close(); err == nil {
		t.Error("the other socket is open")
	}
}

func TestAnswers(t *testing.T) {
	udp, tcp := start(t, nil)
	for _, c := range []struct {
		name   string
		kind   uint16
		rcode  int
		answer string
	}{
		{"api.demo.test.", dns.TypeA, dns.RcodeSuccess, "198.18.0.1"},
		{"API.Demo.Test.", dns.TypeA, dns.RcodeSuccess, "198.18.0.1"},
		{"api.demo.test.", dns.TypeAAAA, dns.RcodeSuccess, ""},
		{"api.demo.test.", dns.TypeHTTPS, dns.RcodeSuccess, ""},
		{"api.demo.test.", dns.TypeTXT, dns.RcodeSuccess, ""},
		{"api.demo.test.", dns.TypeANY, dns.RcodeSuccess, ""},
		{"evil.test.", dns.TypeA, dns.RcodeNameError, ""},
		{"data.in.the.name.api.demo.test.", dns.TypeA, dns.RcodeNameError, ""},
		{"demo.test.", dns.TypeA, dns.RcodeNameError, ""},
		{".", dns.TypeNS, dns.RcodeNameError, ""},
		{"1.0.0.127.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError, ""},
		{strings.Repeat("a", 63) + ".test.", dns.TypeTXT, dns.RcodeNameError, ""},
	} {
		for network, addr := range map[string]string{"udp": udp, "tcp": tcp} {
			q := new(dns.Msg).SetQuestion(c.name, c.kind)
			a, _, err := (&dns.Client{Net: network, Timeout: testkit.Patience}).Exchange(q, addr)
			if err != nil {
				t.Fatalf("%s %s: %v", network, c.name, err)
			}
			got := ""
			if len(a.Answer) > 0 {
				got = a.Answer[0].(*dns.A).A.String()
			}
			if a.Rcode != c.rcode || got != c.answer || a.Id != q.Id {
				t.Errorf("%s %s %s: %s", network, c.name, dns.TypeToString[c.kind], a)
			}
		}
	}
	q := new(dns.Msg).SetQuestion("version.bind.", dns.TypeTXT)
	q.Question[0].Qclass = dns.ClassCHAOS
	if a, _, err := (&dns.Client{Timeout: testkit.Patience}).Exchange(q, udp); err != nil || a.Rcode != dns.RcodeNameError {
		t.Errorf("CHAOS: %v %v", a, err)
	}
}

// TestStrangers: in gateway mode only slots are answered.
func TestStrangers(t *testing.T) {
	udp, _ := start(t, func(netip.Addr) bool { return false })
	q := new(dns.Msg).SetQuestion("api.demo.test.", dns.TypeA)
	if a, _, err := (&dns.Client{Timeout: 200 * time.Millisecond}).Exchange(q, udp); err == nil {
		t.Errorf("a stranger got %s", a)
	}
}

// TestMalformed: bytes that are not a query do no harm.
func TestMalformed(t *testing.T) {
	udp, tcp := start(t, nil)
	for _, b := range [][]byte{{}, {0}, make([]byte, 12), make([]byte, 2000), []byte("GET / HTTP/1.1\r\n\r\n"), {0, 1, 1, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0xc0, 0x0c}} {
		for network, addr := range map[string]string{"udp": udp, "tcp": tcp} {
			c, err := net.Dial(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(b)
			c.Close()
		}
	}
	q := new(dns.Msg).SetQuestion("api.demo.test.", dns.TypeA)
	if _, _, err := (&dns.Client{Timeout: testkit.Patience}).Exchange(q, udp); err != nil {
		t.Errorf("it no longer answers: %v", err)
	}
}

func FuzzPacket(f *testing.F) {
	for _, name := range []string{"api.demo.test.", "evil.test."} {
		b, _ := new(dns.Msg).SetQuestion(name, dns.TypeA).Pack()
		f.Add(b)
	}
	r := socketHandler{Resolver: New(Config{Known: known})}
	f.Fuzz(func(t *testing.T, b []byte) {
		q := new(dns.Msg)
		if q.Unpack(b) != nil {
			return
		}
		a := r.answerQuery(q, netip.Addr{})
		if a == nil {
			return
		}
		out, err := a.Pack()
		if err != nil {
			return
		}
		if len(a.Answer) > 0 && !strings.EqualFold(strings.TrimSuffix(q.Question[0].Name, "."), "api.demo.test") {
			t.Errorf("%q has an address", q.Question[0].Name)
		}
		if len(out) > dns.MaxMsgSize {
			t.Errorf("an answer of %d bytes", len(out))
		}
	})
}
