package dialguard

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"
)

// Promise: no-private-address
func TestCheck(t *testing.T) {
	rfc1918 := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fc00::/7")}
	site := []netip.Prefix{netip.MustParsePrefix("fd12:3456::/48")}
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	documentation := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"),
		netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("3fff::/20")}
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	for _, c := range []struct {
		addr  string
		allow []netip.Prefix
		open  bool
	}{
		{"8.8.8.8", nil, true},
		{"2606:4700::1111", nil, true},
		{"::ffff:8.8.8.8", nil, true},
		{"64:ff9b::808:808", nil, true},
		{"2002:808:808::1", nil, true},
		{"10.1.2.3", rfc1918, true},
		{"::ffff:10.1.2.3", rfc1918, true},
		{"fd12:3456::1", site, true},
		{"fd12:3456::1", []netip.Prefix{netip.MustParsePrefix("fd12:3456::1/128")}, true},
		{"127.0.0.1", loopback, true},
		{"::1", loopback, true},
		{"100.64.1.1", everything, true},
		{"192.0.2.1", documentation, true},
		{"198.51.100.1", documentation, true},
		{"203.0.113.1", documentation, true},
		{"2001:db8::1", documentation, true},
		{"3fff::1", documentation, true},

		// A wide range opens no unique local address, whichever cloud has its metadata service there.
		{"fd00:c1::a9fe:a9fe", everything, false}, // Oracle Cloud
		{"fd00:42::42", everything, false},        // Scaleway
		{"fd00:a9fe:a9fe::1", everything, false},  // Akamai
		{"fd00:42::42", rfc1918, false},
		{"fd00:42::42", []netip.Prefix{netip.MustParsePrefix("fd00::/47")}, false},
		{"fd00:42::42", site, false},
		{"fd12:3456::1", rfc1918, false},
		{"10.1.2.3", nil, false},
		{"172.16.0.1", nil, false},
		{"172.31.255.255", nil, false},
		{"192.168.1.1", nil, false},
		{"192.168.1.1", rfc1918, false}, // not one of the listed ranges
		{"100.64.1.1", nil, false},
		{"127.0.0.1", nil, false},
		{"127.0.0.1", rfc1918, false},
		{"::1", rfc1918, false},
		{"fd12:3456::1", nil, false},
		{"::ffff:127.0.0.1", nil, false},
		{"::ffff:10.0.0.1", nil, false},
		{"64:ff9b::a00:1", nil, false},
		{"64:ff9b::7f00:1", nil, false},
		{"64:ff9b:1::a00:1", everything, false},
		{"2002:a00:1::1", nil, false},
		{"2002:7f00:1::1", nil, false},
		{"::10.0.0.1", everything, false}, // IPv4-compatible
		{"2001:0:a00:1::1", everything, false},
		{"0.0.0.0", everything, false},
		{"0.1.2.3", everything, false},
		{"::", everything, false},
		{"169.254.169.254", everything, false},
		{"169.254.1.1", everything, false},
		{"fe80::1", everything, false},
		{"fe80::1%eth0", everything, false},
		{"2606:4700::1111%eth0", everything, false},
		{"fec0::1", everything, false},
		{"fd00:ec2::254", everything, false},
		{"fd20:ce::254", everything, false},
		{"100.100.100.200", everything, false},
		{"168.63.129.16", everything, false},
		{"192.0.0.192", everything, false},
		{"198.18.0.1", everything, false},
		{"198.19.255.255", everything, false},
		{"::ffff:169.254.169.254", everything, false},
		{"64:ff9b::a9fe:a9fe", everything, false},
		{"2002:a9fe:a9fe::1", everything, false},
		{"224.0.0.1", everything, false},
		{"239.255.255.250", everything, false},
		{"255.255.255.255", everything, false},
		{"240.0.0.1", everything, false},
		{"ff02::1", everything, false},
		{"2001:db8::1", rfc1918, false},
		{"3fff::1", rfc1918, false},
		{"192.0.2.1", rfc1918, false},
		{"198.51.100.1", nil, false},
		{"203.0.113.1", loopback, false},
		{"198.18.0.1", documentation, false},
		{"::ffff:203.0.113.1", nil, false},
		{"64:ff9b::cb00:7101", nil, false},
		{"4000::1", everything, false},
	} {
		err := Guard{AllowPrivate: c.allow}.CheckAddr(netip.MustParseAddr(c.addr))
		if (err == nil) != c.open {
			t.Errorf("%s with %v: %v", c.addr, c.allow, err)
		}
		if err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v is not ErrRefused", c.addr, err)
		}
	}
	if (Guard{AllowPrivate: everything}).CheckAddr(netip.Addr{}) == nil {
		t.Error("the zero address is open")
	}
}

// TestOwn: no configuration opens this machine's own addresses, except loopback.
// Promise: no-private-address
func TestOwn(t *testing.T) {
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		p := netip.MustParsePrefix(a.String())
		if p.Addr().IsLoopback() {
			continue
		}
		if err := (Guard{AllowPrivate: everything}).CheckAddr(p.Addr()); err == nil {
			t.Errorf("%s is open", p.Addr())
		}
	}
}

// TestReadAddrs: a list that is incomplete is an error, which closes every address.
func TestReadAddrs(t *testing.T) {
	good := &net.IPNet{IP: net.IPv4(10, 0, 0, 7), Mask: net.CIDRMask(24, 32)}
	if got, err := readAddrs([]net.Addr{good}, nil); err != nil || !got[netip.MustParseAddr("10.0.0.7")] || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	for name, all := range map[string][]net.Addr{"bad": {good, &net.UnixAddr{Name: "x"}}, "none": nil} {
		err := errors.New("none")
		if name == "bad" {
			err = nil
		}
		if got, err := readAddrs(all, err); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
	defer func() { machineAddrs = addrCache{} }()
	machineAddrs = addrCache{until: time.Now().Add(time.Hour), err: errors.New("none")}
	if !isOwnAddr(netip.MustParseAddr("8.8.8.8")) || isOwnAddr(netip.MustParseAddr("127.0.0.1")) {
		t.Error("without a list, an address other than loopback is open")
	}
}

// TestSandbox: the sandbox's own network is closed, whatever an API opens; where there is none, it is a range like others.
func TestSandbox(t *testing.T) {
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	inside := netip.MustParseAddr("10.78.0.100")
	closed := Guard{AllowPrivate: everything, Sandbox: netip.MustParsePrefix("10.78.0.0/24")}
	if err := closed.CheckAddr(inside); !errors.Is(err, ErrRefused) {
		t.Errorf("in the sandbox's network: %v", err)
	}
	if err := closed.CheckAddr(netip.MustParseAddr("::ffff:10.78.0.100")); !errors.Is(err, ErrRefused) {
		t.Errorf("in the sandbox's network, mapped: %v", err)
	}
	if err := closed.CheckAddr(netip.MustParseAddr("10.78.1.100")); err != nil {
		t.Errorf("beside it: %v", err)
	}
	if err := (Guard{AllowPrivate: everything}).CheckAddr(inside); err != nil {
		t.Errorf("without a sandbox's network: %v", err)
	}
}

// TestControl: the check holds on the socket about to connect, whoever dials.
// TestEndpoint: the port of CodeForge's own endpoint is closed on loopback, in every spelling, whatever is allowed.
// Promise: no-private-address
func TestEndpoint(t *testing.T) {
	g := Guard{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, Endpoint: 8080}
	for addr, open := range map[string]bool{
		"127.0.0.1:8080": false, "127.9.9.9:8080": false, "[::1]:8080": false, "[::ffff:127.0.0.1]:8080": false, "[64:ff9b::7f00:1]:8080": false,
		"127.0.0.1:8081": true, "[::1]:80": true, "8.8.8.8:8080": true, "10.0.0.1:8081": false,
	} {
		to := netip.MustParseAddrPort(addr)
		if err := g.CheckPort(to); (err == nil) != open || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", addr, err)
		}
		if err := g.Control("tcp4", addr, nil); (err == nil) != open {
			t.Errorf("%s on a socket: %v", addr, err)
		}
	}
	if err := (Guard{AllowPrivate: g.AllowPrivate}).CheckPort(netip.MustParseAddrPort("127.0.0.1:8080")); err != nil {
		t.Errorf("where the endpoint is elsewhere: %v", err)
	}
}

// TestDatabase: the database's address is closed at its port, in every spelling, even if a rule allows it. It stays
// closed if a later run names another address, or no address.
// Promise: no-private-address
func TestDatabase(t *testing.T) {
	g := guardOfAll()
	to := netip.MustParseAddrPort("10.0.0.7:5432")
	if err := g.CheckPort(to); err != nil {
		t.Fatalf("it is closed without a database: the rows below prove nothing: %v", err)
	}
	defer openDatabases()
	CloseDatabase([]netip.AddrPort{to, netip.MustParseAddrPort("[::1]:5433")})
	CloseDatabase(nil)
	for n := range 2 * maxDatabaseAddrs { // of another mcp-server, whose database moves
		CloseDatabase([]netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), uint16(n+1))})
		CloseDatabase([]netip.AddrPort{to, netip.MustParseAddrPort("[::1]:5433")})
	}
	if n := len(closedDatabase.addrs); n != maxDatabaseAddrs {
		t.Errorf("%d addresses are kept", n)
	}
	CloseDatabase([]netip.AddrPort{netip.MustParseAddrPort("10.9.0.2:5432")})
	for addr, open := range map[string]bool{
		"10.0.0.7:5432": false, "[::ffff:10.0.0.7]:5432": false, "[64:ff9b::a00:7]:5432": false, "127.0.0.1:5433": false, "127.9.9.9:5433": false,
		"10.9.0.2:5432": false, "10.0.0.7:443": true, "10.0.0.8:5432": true, "127.0.0.1:5432": true,
	} {
		to := netip.MustParseAddrPort(addr)
		if err := g.CheckPort(to); (err == nil) != open || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", addr, err)
		}
		if err := g.Control("tcp4", addr, nil); (err == nil) != open {
			t.Errorf("%s on a socket: %v", addr, err)
		}
	}
}

func openDatabases() { closedDatabase.addrs = nil }

// guardOfAll permits every private address of the tests.
func guardOfAll() Guard {
	return Guard{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}}
}

func TestControl(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := net.Dialer{Control: Guard{}.Control}
	if c, err := d.Dial("tcp", l.Addr().String()); !errors.Is(err, ErrRefused) {
		t.Errorf("got %v, %v", c, err)
	}
	for _, network := range []string{"udp4", "unix", "ip4:icmp", ""} {
		if err := (Guard{}).Control(network, "8.8.8.8:53", nil); !errors.Is(err, ErrRefused) {
			t.Errorf("network %q: %v", network, err)
		}
	}
	if err := (Guard{}).Control("tcp4", "not an address", nil); !errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte{169, 254, 169, 254})
	f.Add(netip.MustParseAddr("64:ff9b::a9fe:a9fe").AsSlice())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok || (Guard{}).CheckAddr(a) != nil {
			return
		}
		// What is open by default must be an ordinary address to the standard library too.
		u := a.Unmap()
		if !u.IsGlobalUnicast() || u.IsPrivate() || u.IsLoopback() || u.IsLinkLocalUnicast() || u.IsMulticast() || u.IsUnspecified() {
			t.Errorf("%s is open", a)
		}
	})
}
