package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/authority"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// networks are two namespaces: the proxy's, with a way out, and the sandbox's, whose default route is the proxy.
// The test's thread is in the namespace that was entered last.
type networks struct {
	t              *testing.T
	proxy, sandbox netns.NsHandle
}

func newNetworks(t *testing.T) *networks {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root for network namespaces")
	}
	if _, err := exec.LookPath("iptables"); err != nil {
		testkit.SkipBecause(t, "needs iptables")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test's goroutine
	n := &networks{t: t}
	var err error
	if n.sandbox, err = netns.New(); err != nil {
		testkit.SkipBecause(t, "cannot make a network namespace: "+err.Error())
	}
	if n.proxy, err = netns.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.sandbox.Close(); n.proxy.Close() })
	n.up("lo")
	n.pair("in0", "sb0", (slot.Network{}).Proxy().String()+"/24")
	n.pair("out0", "out1", "192.168.77.2/24")
	n.up("out1")
	n.route("out0", "192.168.77.1")
	sb, err := netlink.LinkByName("sb0")
	testkit.Must(t, err)
	testkit.Must(t, netlink.LinkSetNsFd(sb, int(n.sandbox)))
	n.enter(n.sandbox)
	n.up("lo")
	for _, id := range []slot.ID{0, 1} {
		n.address("sb0", (slot.Network{}).SlotAddr(id).String()+"/24")
	}
	n.address("sb0", "10.77.0.50/24") // not a slot's
	n.up("sb0")
	n.route("sb0", (slot.Network{}).Proxy().String())
	return n
}

func (n *networks) enter(ns netns.NsHandle) {
	n.t.Helper()
	testkit.Must(n.t, netns.Set(ns))
}

func (n *networks) pair(a, b, addr string) {
	n.t.Helper()
	testkit.Must(n.t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: a}, PeerName: b}))
	n.address(a, addr)
	n.up(a)
}

func (n *networks) up(name string) {
	n.t.Helper()
	l, err := netlink.LinkByName(name)
	testkit.Must(n.t, err)
	testkit.Must(n.t, netlink.LinkSetUp(l))
}

func (n *networks) address(name, addr string) {
	n.t.Helper()
	l, err := netlink.LinkByName(name)
	testkit.Must(n.t, err)
	a, err := netlink.ParseAddr(addr)
	testkit.Must(n.t, err)
	testkit.Must(n.t, netlink.AddrAdd(l, a))
}

func (n *networks) route(name, gateway string) {
	n.t.Helper()
	l, err := netlink.LinkByName(name)
	testkit.Must(n.t, err)
	testkit.Must(n.t, netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(gateway)}))
}

// soon is how long a test waits for an answer that must not come.
const soon = time.Second

// dial connects from a slot's address; it must be called on the test's thread, in the sandbox's namespace.
func (n *networks) dial(from, network, to string, within time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: within}
	if strings.HasPrefix(network, "tcp") {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	} else {
		d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(from)}
	}
	return d.Dial(network, to)
}

// TestGateway is the container between two networks: real REDIRECT, real source addresses.
func TestGateway(t *testing.T) {
	n := newNetworks(t)
	n.enter(n.proxy)
	p := start(t, "gateway", nil)
	n.enter(n.sandbox)
	ctx := context.Background()
	testkit.Must(t, p.client.RegisterRun(ctx, 0, proxyapi.Registration{Generation: 1, Run: "first", Deadline: time.Now().Add(time.Minute)}))
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(filepath.Join(p.dir, "public", authority.PublicFile))
	testkit.Must(t, err)
	pool.AppendCertsFromPEM(pem)

	get := func(from, to, host string, within time.Duration) (int, string, error) {
		c, err := n.dial(from, "tcp4", to, within)
		if err != nil {
			return 0, "", err
		}
		defer c.Close()
		testkit.Must(t, c.SetDeadline(time.Now().Add(within)))
		if strings.HasSuffix(to, ":443") {
			c = tls.Client(c, &tls.Config{RootCAs: pool, ServerName: host})
		}
		if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
			return 0, "", err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}
	first, second := (slot.Network{}).SlotAddr(slot.ID(0)).String(), (slot.Network{}).SlotAddr(slot.ID(1)).String()

	// Any address on 80 and 443 is the proxy, and the slot is the source address.
	for _, to := range []string{"198.18.0.1:443", "198.18.0.1:80", "93.184.216.34:443", "10.77.0.2:443", "192.168.77.2:443"} {
		status, body, err := get(first, to, "evil.test", testkit.Patience)
		if err != nil || status != 403 || !strings.Contains(body, "host_unknown") {
			t.Errorf("%s: %d %q %v", to, status, body, err)
		}
	}
	if rec, err := p.client.UnregisterRun(ctx, 0, 1, proxyapi.Summary{}); err != nil || rec.Count.Denied != 5 {
		t.Errorf("the receipt is %+v, %v", rec, err)
	}
	// A slot without a run, and an address that is not a slot's.
	testkit.Must(t, p.client.RegisterRun(ctx, 0, proxyapi.Registration{Generation: 2, Run: "second", Deadline: time.Now().Add(time.Minute)}))
	for _, from := range []string{second, "10.77.0.50"} {
		if status, body, err := get(from, "198.18.0.1:80", "evil.test", soon); err == nil {
			t.Errorf("from %s: %d %q", from, status, body)
		}
	}
	// Nothing else can be reached: the ports behind the redirect, the proxy's other address, the networks beyond.
	for _, to := range []string{"10.77.0.2:8080", "10.77.0.2:8443", "192.168.77.2:8443", "192.168.77.1:22", "198.18.0.1:22", "192.168.77.2:53"} {
		if c, err := n.dial(first, "tcp4", to, soon); err == nil {
			c.Close()
			t.Errorf("%s can be reached", to)
		}
	}
	// DNS answers slots only, from the address that was asked.
	ask := func(from, network, to string, within time.Duration) (*dns.Msg, error) {
		c, err := n.dial(from, network, to, within)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		m := new(dns.Msg).SetQuestion("api.demo.test.", dns.TypeA)
		a, _, err := (&dns.Client{Net: network, Timeout: within}).ExchangeWithConn(m, &dns.Conn{Conn: c})
		return a, err
	}
	for _, network := range []string{"udp", "tcp"} {
		if a, err := ask(first, network, "198.18.0.1:53", testkit.Patience); err != nil || len(a.Answer) != 1 {
			t.Errorf("%s: %v %v", network, a, err)
		}
		if a, err := ask("10.77.0.50", network, "198.18.0.1:53", soon); err == nil {
			t.Errorf("%s: a stranger got %v", network, a)
		}
	}
	if rec, err := p.client.UnregisterRun(ctx, 0, 2, proxyapi.Summary{}); err != nil || rec.Count.Exchanges != 0 {
		t.Errorf("the receipt is %+v, %v", rec, err)
	}
}
