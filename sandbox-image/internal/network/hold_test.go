package network

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

var update = flag.Bool("update", false, "write golden files")

func TestRulesGolden(t *testing.T) {
	var b strings.Builder
	for _, r := range filterRules(Size{Runs: 2, Servers: 1}, "eth0") {
		fmt.Fprintf(&b, "-A %s %s\n", r.chain, strings.Join(r.spec, " "))
	}
	const file = "testdata/rules.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || b.String() != string(want) {
		t.Errorf("rules (%v):\n%s", err, b.String())
	}
}

// wire is the network namespaces of the container and the proxy, connected like sandbox-net.
type wire struct{ sandbox, proxy netns.NsHandle }

func newWire(t *testing.T) *wire {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root")
	}
	if _, err := exec.LookPath("iptables"); err != nil {
		testkit.SkipBecause(t, "no iptables")
	}
	w := &wire{}
	w.proxy = w.namespace(t, func() error { return nil })
	w.sandbox = w.namespace(t, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth1", PeerNamespace: netlink.NsFd(w.proxy)}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return errors.Join(up("lo", ""), up("eth0", "10.77.0.3/24"))
	})
	w.in(t, w.proxy, 0, func() error {
		if err := errors.Join(up("lo", "198.18.0.1/32"), up("eth1", "10.77.0.2/24")); err != nil {
			return err
		}
		out, err := exec.Command("iptables", "-t", "nat", "-A", "PREROUTING", "-i", "eth1", "-p", "tcp", "-m", "multiport",
			"--dports", "80,443", "-j", "REDIRECT", "--to-ports", "8000").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return w
}

func up(name, addr string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if addr != "" {
		a, err := netlink.ParseAddr(addr)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

func (w *wire) namespace(t *testing.T, f func() error) netns.NsHandle {
	t.Helper()
	type made struct {
		ns  netns.NsHandle
		err error
	}
	result := make(chan made)
	go func() {
		runtime.LockOSThread()
		ns, err := netns.New()
		if err == nil {
			_ = os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0)
			_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
			err = f()
		}
		result <- made{ns, err}
	}()
	m := <-result
	if m.err != nil {
		t.Fatal(m.err)
	}
	t.Cleanup(func() { _ = m.ns.Close() })
	return m.ns
}

// in calls f in a namespace as a user, on a thread of its own.
func (w *wire) in(t *testing.T, ns netns.NsHandle, uid int, f func() error) {
	t.Helper()
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(ns)
		if err == nil && uid != 0 {
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				err = errno
			}
		}
		if err == nil {
			err = f()
		}
		result <- err
	}()
	if err := <-result; err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// serve accepts connections at the proxy and reports their source addresses.
func (w *wire) serve(t *testing.T) (from chan netip.AddrPort) {
	from = make(chan netip.AddrPort, 16)
	w.tcp(t, w.proxy, "0.0.0.0:8000", func(c net.Conn) {
		from <- c.RemoteAddr().(*net.TCPAddr).AddrPort()
		_, _ = io.Copy(c, c)
	})
	w.udp(t, w.proxy, "198.18.0.1:53", func(p []byte, a net.Addr) []byte { return []byte(a.String() + " " + string(p)) })
	return from
}

// tcp listens in a namespace until the test ends. It calls serve for each connection and then closes it.
func (w *wire) tcp(t *testing.T, ns netns.NsHandle, addr string, serve func(net.Conn)) {
	t.Helper()
	w.in(t, ns, 0, func() error {
		l, err := net.Listen("tcp4", addr)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					serve(c)
				}()
			}
		}()
		return nil
	})
}

// udp listens in a namespace until the test ends. It calls respond for each datagram, and sends what that returns.
func (w *wire) udp(t *testing.T, ns netns.NsHandle, addr string, respond func(p []byte, from net.Addr) []byte) {
	t.Helper()
	w.in(t, ns, 0, func() error {
		u, err := net.ListenPacket("udp4", addr)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = u.Close() })
		go func() {
			b := make([]byte, 100)
			for {
				n, a, err := u.ReadFrom(b)
				if err != nil {
					return
				}
				if out := respond(b[:n], a); out != nil {
					_, _ = u.WriteTo(out, a)
				}
			}
		}()
		return nil
	})
}

// patience is how long a test waits for an answer that must come. What is refused is refused at once.
const patience = testkit.Patience

func dial(network, local, remote string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience}
	if local != "" {
		a := netip.MustParseAddrPort(local)
		d.LocalAddr = net.TCPAddrFromAddrPort(a)
		if network == "udp4" {
			d.LocalAddr = net.UDPAddrFromAddrPort(a)
		}
		d.Control = func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		}
	}
	return d.Dial(network, remote)
}

// Promise: one-run-one-identity, server-confinement
func TestSlotsReachOnlyTheProxyAsThemselves(t *testing.T) {
	w := newWire(t)
	from := w.serve(t)
	w.in(t, w.sandbox, 0, func() error { return SetUp(Size{Runs: 3, Servers: 2}) })
	w.in(t, w.sandbox, 0, func() error { return SetUp(Size{Runs: 3, Servers: 2}) }) // idempotent

	for _, id := range slot.IDs(3, 2) {
		n := int(id)
		w.in(t, w.sandbox, id.UID(), func() error {
			for _, remote := range []string{"198.18.0.1:443", "1.2.3.4:80", "10.77.0.2:443"} {
				c, err := dial("tcp4", "", remote)
				if err != nil {
					return fmt.Errorf("slot %d to %s: %w", n, remote, err)
				}
				b := make([]byte, 4)
				_, _ = c.Write([]byte("ping"))
				_ = c.SetReadDeadline(time.Now().Add(patience))
				if _, err := io.ReadFull(c, b); err != nil || string(b) != "ping" {
					return fmt.Errorf("slot %d to %s: %q %w", n, remote, b, err)
				}
				_ = c.Close()
				if got := (<-from).Addr(); got != (slot.Network{}).SlotAddr(id) {
					return fmt.Errorf("slot %d seen as %s", n, got)
				}
			}
			c, err := dial("udp4", "", "198.18.0.1:53")
			if err != nil {
				return err
			}
			defer c.Close()
			_, _ = c.Write([]byte("query"))
			_ = c.SetReadDeadline(time.Now().Add(patience))
			b := make([]byte, 100)
			k, err := c.Read(b)
			if err != nil || !strings.HasPrefix(string(b[:k]), (slot.Network{}).SlotAddr(id).String()+":") {
				return fmt.Errorf("slot %d resolver: %q %w", n, b[:k], err)
			}
			return nil
		})
	}
}

// Neither a run nor an MCP server reaches a slot of either kind, or acts as one.
// Promise: no-other-way-out, server-confinement
func TestSlotsAreRefusedEverythingElse(t *testing.T) {
	for _, id := range []slot.ID{1, slot.Max + 1} {
		t.Run(fmt.Sprint("slot ", id), func(t *testing.T) { refusedEverythingElse(t, id) })
	}
}

func refusedEverythingElse(t *testing.T, id slot.ID) {
	w := newWire(t)
	from := w.serve(t)
	w.in(t, w.sandbox, 0, func() error { return SetUp(Size{Runs: 2, Servers: 2}) })
	// Listeners of another slot, of root and on loopback, none of which may be reachable.
	w.in(t, w.sandbox, 20000, func() error {
		for _, a := range []string{"0.0.0.0:8080", "0.0.0.0:4430"} {
			l, err := net.Listen("tcp4", a)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = l.Close() })
		}
		return nil
	})
	w.in(t, w.sandbox, 0, func() error {
		l, err := net.Listen("tcp4", "127.0.0.1:443")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		return nil
	})
	for _, c := range []struct{ network, local, remote string }{
		{"tcp4", "", "10.77.0.2:22"}, {"tcp4", "", "1.2.3.4:8443"}, // which the proxy's kernel refuses
		{"tcp4", "", "10.77.0.100:8080"}, {"tcp4", "", "10.77.0.101:8080"}, {"tcp4", "", "127.0.0.1:443"},
		{"tcp4", "", "127.0.0.1:8080"}, {"tcp4", "", "10.77.0.3:443"}, {"tcp4", "", "127.0.0.11:53"}, {"tcp4", "", "1.1.1.1:53"},
		{"tcp4", "10.77.0.100:0", "1.2.3.4:443"}, {"tcp4", "10.77.0.3:0", "1.2.3.4:443"}, {"tcp4", "127.0.0.1:0", "1.2.3.4:443"},
		{"udp4", "", "1.1.1.1:53"}, {"udp4", "", "10.77.0.2:443"}, {"udp4", "", "127.0.0.11:53"}, {"udp4", "", "10.77.0.100:53"},
		{"udp4", "10.77.0.100:0", "198.18.0.1:53"}, {"tcp4", "10.77.0.200:0", "1.2.3.4:443"}, {"tcp4", "", "10.77.0.200:8080"}, {"udp4", "", "169.254.169.254:80"}, {"tcp4", "", "169.254.169.254:8080"},
	} {
		t.Run(c.network+" "+c.local+" to "+c.remote, func(t *testing.T) {
			w.in(t, w.sandbox, id.UID(), func() error {
				conn, err := dial(c.network, c.local, c.remote)
				if err == nil && c.network == "udp4" {
					defer conn.Close()
					_, err = conn.Write([]byte("x"))
					if err == nil {
						_ = conn.SetReadDeadline(time.Now().Add(patience))
						_, err = conn.Read(make([]byte, 1))
					}
				}
				if err == nil {
					return fmt.Errorf("reached %s", c.remote)
				}
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("it is not refused, but waits: %v", err)
				}
				return nil
			})
		})
	}
	select {
	case a := <-from:
		t.Errorf("the proxy got a connection from %s", a)
	default:
	}
}

// Reusing a source port that another slot has just used does not give that slot's identity.
// Promise: one-run-one-identity
func TestReusedSourcePort(t *testing.T) {
	w := newWire(t)
	from := w.serve(t)
	w.in(t, w.sandbox, 0, func() error { return SetUp(Size{Runs: 2}) })
	for round := range 3 {
		port := 40000 + round
		w.in(t, w.sandbox, slot.ID(0).UID(), func() error {
			c, err := dial("tcp4", fmt.Sprintf("10.77.0.100:%d", port), "1.2.3.4:443")
			if err != nil {
				return err
			}
			_ = c.(*net.TCPConn).SetLinger(0) // a reset
			return c.Close()
		})
		if got := <-from; got.Addr() != (slot.Network{}).SlotAddr(slot.ID(0)) {
			t.Fatalf("slot 0 seen as %s", got)
		}
		w.in(t, w.sandbox, slot.ID(1).UID(), func() error {
			if c, err := dial("tcp4", fmt.Sprintf("10.77.0.100:%d", port), "1.2.3.4:443"); err == nil {
				_ = c.Close()
				return errors.New("slot 1 connected as slot 0")
			}
			c, err := dial("tcp4", fmt.Sprintf("10.77.0.101:%d", port), "1.2.3.4:443")
			if err != nil {
				return err
			}
			return c.Close()
		})
		if got := <-from; got.Addr() != (slot.Network{}).SlotAddr(slot.ID(1)) {
			t.Fatalf("slot 1 seen as %s", got)
		}
	}
}

// The same for datagrams, where no connection has to be torn down first.
func TestReusedDatagramPort(t *testing.T) {
	w := newWire(t)
	w.serve(t)
	w.in(t, w.sandbox, 0, func() error { return SetUp(Size{Runs: 2}) })
	// ask sends a query from the address and returns the source address that the resolver saw.
	ask := func(from string) (string, error) {
		c, err := dial("udp4", from, "198.18.0.1:53")
		if err != nil {
			return "", err
		}
		defer c.Close()
		if _, err := c.Write([]byte("query")); err != nil {
			return "", err
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		b := make([]byte, 100)
		n, err := c.Read(b)
		return string(b[:n]), err
	}
	for round := range 3 {
		port := 41000 + round
		for n := range 2 {
			w.in(t, w.sandbox, slot.ID(n).UID(), func() error {
				for owner := range 2 {
					from := fmt.Sprintf("%s:%d", (slot.Network{}).SlotAddr(slot.ID(owner)), port)
					seen, err := ask(from)
					if own := owner == n; own != (err == nil) || own && !strings.HasPrefix(seen, from) {
						return fmt.Errorf("slot %d asking from %s: seen as %q, %w", n, from, seen, err)
					}
				}
				return nil
			})
		}
	}
}

func TestVerifyFindsWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func() error
	}{
		{"rule flushed", func() error { return exec.Command("iptables", "-D", chainOut, "1").Run() }},
		{"rule added", func() error { return exec.Command("iptables", "-I", "OUTPUT", "-j", "ACCEPT").Run() }},
		{"policy open", func() error { return exec.Command("iptables", "-P", "OUTPUT", "ACCEPT").Run() }},
		{"address gone", func() error {
			l, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.AddrDel(l, &netlink.Addr{IPNet: hostNet((slot.Network{}).SlotAddr(slot.ID(1)))})
		}},
		{"routing rule gone", func() error {
			r := netlink.NewRule()
			r.Priority, r.Family = basePriority+1, netlink.FAMILY_V4
			return netlink.RuleDel(r)
		}},
		{"IPv6 address", func() error {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("0"), 0); err != nil {
				return nil // no IPv6 on this machine: nothing to find
			}
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(t)
			w.in(t, w.sandbox, 0, func() error {
				if err := SetUp(Size{Runs: 2}); err != nil {
					return err
				}
				if err := c.spoil(); err != nil {
					return err
				}
				err := VerifyKernel(Size{Runs: 2})
				if quick := VerifyQuick(Size{Runs: 2}); (quick == nil) != (err == nil) {
					return fmt.Errorf("Verify says %w, VerifyQuick %w", err, quick)
				}
				if err == nil && c.name == "IPv6 address" {
					if list, _ := netlink.AddrList(nil, netlink.FAMILY_V6); len(list) == 0 {
						return nil
					}
				}
				if err == nil {
					return errors.New("Verify saw nothing")
				}
				t.Log(err)
				return nil
			})
		})
	}
}

func TestNotOnSandboxNet(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root")
	}
	w := &wire{}
	ns := w.namespace(t, func() error { return nil })
	w.in(t, ns, 0, func() error {
		if err := SetUp(Size{Runs: 1}); err == nil || !strings.Contains(err.Error(), "no interface has the address 10.77.0.3") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}
