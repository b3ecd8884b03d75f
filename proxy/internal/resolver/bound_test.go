package resolver

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// dialFrom connects from one of loopback's addresses.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp4", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// answered reports whether a query on the connection is answered; otherwise it was closed.
func answered(t *testing.T, c net.Conn) bool {
	t.Helper()
	a, _, err := (&dns.Client{Timeout: testkit.Patience}).ExchangeWithConn(new(dns.Msg).SetQuestion("api.demo.test.", dns.TypeA), &dns.Conn{Conn: c})
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // not wrapped
		t.Error("neither answered nor closed")
	}
	return err == nil && len(a.Answer) == 1
}

// fill holds this many connections open, each proven to be served.
func fill(t *testing.T, from, to string, n int) []net.Conn {
	t.Helper()
	var held []net.Conn
	for range n {
		c := dialFrom(t, from, to)
		if !answered(t, c) {
			t.Fatalf("connection %d of %d is not served", len(held)+1, n)
		}
		held = append(held, c)
	}
	return held
}

// TestStreamBound: one slot's connections are bounded, whatever addresses it uses on its own listener, and do not
// affect those of others.
// Promise: bounded-connections
func TestStreamBound(t *testing.T) {
	for name, c := range map[string]struct {
		allow  func(netip.Addr) bool
		shared bool // the address is the slot
	}{
		"a slot's own listener":   {nil, false},
		"a listener for them all": {func(a netip.Addr) bool { return a != netip.MustParseAddr("127.0.0.9") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, tcp := startWith(t, Config{Known: known, Allow: c.allow, Patience: time.Hour})
			held := fill(t, "127.0.0.1", tcp, maxStreams)
			if answered(t, dialFrom(t, "127.0.0.1", tcp)) {
				t.Error("one connection too many is served")
			}
			if answered(t, dialFrom(t, "127.0.0.2", tcp)) != c.shared {
				t.Errorf("from another address: served must be %t", c.shared)
			}
			if c.shared && answered(t, dialFrom(t, "127.0.0.9", tcp)) {
				t.Error("a stranger is served")
			}
			held[0].Close()
			for end := time.Now().Add(testkit.Patience); !answered(t, dialFrom(t, "127.0.0.1", tcp)); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the place of a closed connection is not free again")
				}
			}
		})
	}
}

// TestSilentStream: a connection without a query is closed, and no longer counts.
func TestSilentStream(t *testing.T) {
	_, tcp := startWith(t, Config{Known: known, Patience: 300 * time.Millisecond})
	var held []net.Conn
	for range maxStreams {
		held = append(held, dialFrom(t, "127.0.0.1", tcp))
	}
	for _, c := range held {
		_ = c.SetDeadline(time.Now().Add(testkit.Patience))
		if _, err := c.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // io.Reader's own
			t.Errorf("a silent connection: %v", err)
		}
	}
	for end := time.Now().Add(testkit.Patience); !answered(t, dialFrom(t, "127.0.0.1", tcp)); { // unless the query is late too
		if time.Now().Before(end) {
			continue
		}
		t.Fatal("no place is free")
	}
}
