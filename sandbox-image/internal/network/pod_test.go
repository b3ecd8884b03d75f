package network

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
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

// TestPodRulesGolden shows the rules as they are passed to iptables.
func TestPodRulesGolden(t *testing.T) {
	var b strings.Builder
	for _, spec := range natRules(slot.Network{}) {
		fmt.Fprintf(&b, "-t nat -A %s %s\n", chainNAT, strings.Join(spec, " "))
	}
	for _, r := range podRules(aPod) {
		fmt.Fprintf(&b, "-A %s %s\n", r.chain, strings.Join(r.spec, " "))
	}
	const file = "testdata/pod.golden"
	if *update {
		testkit.Must(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	if err != nil || b.String() != string(want) {
		t.Errorf("rules (%v):\n%s", err, b.String())
	}
}

// aPod has two slots for runs and one for a server, and the ports of the control APIs.
var aPod = Pod{Size: Size{Runs: 2, Servers: 1}, ProxyGID: slot.ServiceUID, Ports: []uint16{8443, 8444}}

// The addresses of the pod and of the world outside in newPod.
const podIP, worldIP = "192.168.77.2", "192.168.77.1"

// newPod makes a pod's namespace, w.sandbox, and the world around it, w.proxy, in which every address answers. The
// listeners in the pod say what they are.
func newPod(t *testing.T) *wire {
	t.Helper()
	newWire(t) // skips where it cannot be tried
	w := &wire{}
	w.proxy = w.namespace(t, func() error { return nil })
	w.sandbox = w.namespace(t, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth1", PeerNamespace: netlink.NsFd(w.proxy)}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		if err := errors.Join(up("lo", ""), up("eth0", podIP+"/24")); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(worldIP)})
	})
	w.in(t, w.proxy, 0, func() error { return errors.Join(up("lo", ""), up("eth1", worldIP+"/24")) })
	w.in(t, w.proxy, 0, func() error {
		out, err := exec.Command("iptables", strings.Fields("-t nat -A PREROUTING -i eth1 -p tcp -j REDIRECT --to-ports 8000")...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	say := func(ns netns.NsHandle, at, text string) {
		w.tcp(t, ns, at, func(c net.Conn) { _, _ = io.WriteString(c, text+" "+c.RemoteAddr().String()) })
	}
	say(w.proxy, "0.0.0.0:8000", "world")
	w.in(t, w.sandbox, 0, func() error { return SetUpPod(aPod) })
	w.in(t, w.sandbox, 0, func() error { return SetUpPod(aPod) }) // idempotent
	w.asGroup(t, slot.ServiceUID, func() {
		say(w.sandbox, "10.77.0.2:443", "proxy")
		say(w.sandbox, podIP+":8444", "control")
		w.udp(t, w.sandbox, "10.77.0.2:53", func(_ []byte, from net.Addr) []byte { return []byte("resolver " + from.String()) })
	})
	say(w.sandbox, podIP+":8443", "sandboxd")
	say(w.sandbox, "127.0.0.1:9000", "debug")
	w.slotListener(t, 1, "0.0.0.0:5000")
	return w
}

// asGroup lets listeners be made by processes of a group. It changes all threads, so tests of this package are not parallel.
func (w *wire) asGroup(t *testing.T, gid int, f func()) {
	t.Helper()
	old := syscall.Getegid()
	testkit.Must(t, syscall.Setegid(gid))
	defer func() { testkit.Must(t, syscall.Setegid(old)) }()
	f()
}

// slotListener is code of a slot that listens.
func (w *wire) slotListener(t *testing.T, id slot.ID, at string) {
	t.Helper()
	w.in(t, w.sandbox, id.UID(), func() error {
		l, err := net.Listen("tcp4", at)
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
				_, _ = io.WriteString(c, "slot "+c.RemoteAddr().String())
				_ = c.Close()
			}
		}()
		return nil
	})
}

// hear connects as a user and returns what the other end says, without the port it was called from.
func (w *wire) hear(t *testing.T, ns netns.NsHandle, uid int, network, local, remote string, within time.Duration) (text string) {
	t.Helper()
	w.in(t, ns, uid, func() error {
		text = hear(network, local, remote, within)
		return nil
	})
	return text
}

func hear(network, local, remote string, within time.Duration) string {
	d := net.Dialer{Timeout: within}
	if local != "" {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(local))
		d.Control = func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		}
	}
	c, err := d.Dial(network, remote)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(within))
	if network == "udp4" {
		_, _ = io.WriteString(c, "query")
	}
	b := make([]byte, 100)
	n, _ := c.Read(b)
	text, _, _ := strings.Cut(string(b[:n]), ":")
	return text
}

// TestPodSlotsReachOnlyTheProxyAsThemselves: whatever a slot connects to, it is the proxy's listener at that port, which
// sees the slot's own address.
// Promise: pod-slots
func TestPodSlotsReachOnlyTheProxyAsThemselves(t *testing.T) {
	w := newPod(t)
	for _, id := range slot.IDs(2, 1) {
		own := (slot.Network{}).SlotAddr(id).String()
		for remote, want := range map[string]string{
			"198.18.0.1:443": "proxy " + own, "1.2.3.4:443": "proxy " + own, worldIP + ":443": "proxy " + own,
			"169.254.169.254:80": "", "1.2.3.4:8080": "", "1.2.3.4:53": "",
			// The control APIs, by any address.
			podIP + ":8443": "", podIP + ":8444": "", "10.77.0.2:8443": "", "1.2.3.4:8443": "", "127.0.0.1:8443": "",
			// Other processes of the pod, and other slots.
			"127.0.0.1:9000": "", "1.2.3.4:9000": "", "127.0.0.1:5000": "", "10.77.0.101:5000": "", podIP + ":5000": "",
		} {
			if got := w.hear(t, w.sandbox, id.UID(), "tcp4", "", remote, soon); got != want {
				t.Errorf("slot %d at %s hears %q, want %q", id, remote, got, want)
			}
		}
		if got, want := w.hear(t, w.sandbox, id.UID(), "udp4", "", "198.18.0.1:53", patience), "resolver "+own; got != want {
			t.Errorf("slot %d: %q, want %q", id, got, want)
		}
		if got := w.hear(t, w.sandbox, id.UID(), "udp4", "", worldIP+":53", soon); got != "" {
			t.Errorf("slot %d reaches another resolver: %q", id, got)
		}
	}
	// With the filter open, the other slot's listener and the control API answer: the rules are what keeps them away.
	one := slot.ID(0).UID()
	w.in(t, w.sandbox, 0, func() error {
		var errs []error
		for _, args := range []string{"-P OUTPUT ACCEPT", "-P INPUT ACCEPT", "-F " + chainIn, "-F " + chainOut, "-t nat -F " + chainNAT} {
			out, err := exec.Command("iptables", strings.Fields(args)...).CombinedOutput() //nolint:gosec // constants
			if err != nil {
				errs = append(errs, fmt.Errorf("%w: %s", err, out))
			}
		}
		return errors.Join(errs...)
	})
	for remote, want := range map[string]string{podIP + ":8443": "sandboxd", "127.0.0.1:9000": "debug", "10.77.0.101:5000": "slot"} {
		if got := w.hear(t, w.sandbox, one, "tcp4", "", remote, patience); !strings.HasPrefix(got, want) {
			t.Errorf("without the rules %s says %q: nothing was shown", remote, got)
		}
	}
}

// TestPodOthers: the proxy reaches the world and sandboxd does not; the world reaches the control APIs, and nothing
// that code listens on.
// Promise: pod-slots
func TestPodOthers(t *testing.T) {
	w := newPod(t)
	if got := w.hear(t, w.sandbox, 0, "tcp4", "", "1.2.3.4:443", soon); got != "" {
		t.Errorf("sandboxd hears %q", got)
	}
	w.asGroup(t, slot.ServiceUID, func() {
		if got := w.hear(t, w.sandbox, 0, "tcp4", "", "1.2.3.4:443", patience); !strings.HasPrefix(got, "world") {
			t.Errorf("the proxy hears %q", got)
		}
	})
	for at, want := range map[string]string{podIP + ":8443": "sandboxd " + worldIP, podIP + ":8444": "control " + worldIP, podIP + ":5000": ""} {
		if got := w.hear(t, w.proxy, 0, "tcp4", "", at, soon); got != want {
			t.Errorf("the world at %s hears %q, want %q", at, got, want)
		}
	}
}

// TestPodPortIsNoIdentity: a slot that takes over the port of another one's reset connection, whose entry in the NAT
// table is left, is itself; and under the other one's address it is refused.
// Promise: pod-slots
func TestPodPortIsNoIdentity(t *testing.T) {
	w := newPod(t)
	zero, one := slot.ID(0).UID(), slot.ID(1).UID()
	own := (slot.Network{}).SlotAddr(1).String()
	w.in(t, w.sandbox, zero, func() error {
		c, err := dial("tcp4", "10.77.0.100:6000", "1.2.3.4:443")
		if err != nil {
			return err
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		return c.Close()
	})
	if got, want := w.hear(t, w.sandbox, one, "tcp4", own+":6000", "1.2.3.4:443", patience), "proxy "+own; got != want {
		t.Errorf("on the same port: %q, want %q", got, want)
	}
	if got := w.hear(t, w.sandbox, one, "tcp4", "10.77.0.100:6000", "1.2.3.4:443", soon); got != "" {
		t.Errorf("under the other one's address: %q", got)
	}
	if got := w.hear(t, w.sandbox, one, "tcp4", podIP+":6000", "1.2.3.4:443", soon); got != "" {
		t.Errorf("under the pod's address: %q", got)
	}
}
