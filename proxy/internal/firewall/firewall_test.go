package firewall

import (
	"errors"
	"flag"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

var update = flag.Bool("update", false, "write the golden files")

// TestPlans shows the rules as they are passed to iptables.
func TestPlans(t *testing.T) {
	for name, p := range map[string]RuleSet{"plan4.txt": NewIPv4Plan("eth1", slot.Network{}), "plan6.txt": NewIPv6Plan("eth1")} {
		var b strings.Builder
		for _, r := range append(p.Rules, p.Jumps...) {
			b.WriteString("-t " + r.Table + " " + r.Chain + " " + strings.Join(r.Spec, " ") + "\n")
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s (-file +code):\n%s", name, diff)
		}
	}
}

// inNamespace gives the test a network namespace of its own, on a thread that ends with it. With outside, there is a
// second network with the default route.
func inNamespace(t *testing.T, outside bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root for a network namespace")
	}
	if _, err := exec.LookPath("iptables"); err != nil {
		testkit.SkipBecause(t, "needs iptables")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test's goroutine
	ns, err := netns.New()
	if err != nil {
		testkit.SkipBecause(t, "cannot make a network namespace: "+err.Error())
	}
	t.Cleanup(func() { ns.Close() })
	link(t, "in0", (slot.Network{}).Proxy().String()+"/24")
	if outside {
		link(t, "out0", "192.168.77.2/24")
		out, err := netlink.LinkByName("out0")
		testkit.Must(t, err)
		gw, err := netlink.ParseIPNet("192.168.77.1/32")
		testkit.Must(t, err)
		testkit.Must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: out.Attrs().Index, Gw: gw.IP}))
	}
}

func link(t *testing.T, name, addr string) {
	t.Helper()
	testkit.Must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}))
	peer, err := netlink.LinkByName(name + "p")
	testkit.Must(t, err)
	testkit.Must(t, netlink.LinkSetUp(peer))
	l, err := netlink.LinkByName(name)
	testkit.Must(t, err)
	a, err := netlink.ParseAddr(addr)
	testkit.Must(t, err)
	testkit.Must(t, netlink.AddrAdd(l, a))
	testkit.Must(t, netlink.LinkSetUp(l))
}

func rules(t *testing.T, table string) string {
	t.Helper()
	out, err := exec.Command("iptables", "-t", table, "-S").CombinedOutput()
	if err != nil {
		t.Fatalf("iptables -S: %v %s", err, out)
	}
	return string(out)
}

// TestInstall is idempotent, and repairs what somebody else inserted before the rules or removed.
func TestInstall(t *testing.T) {
	inNamespace(t, true)
	inside, err := Install(slot.Network{})
	testkit.Must(t, err)
	if inside != "in0" {
		t.Errorf("the inside is %q", inside)
	}
	in, err := netlink.LinkByName("in0")
	testkit.Must(t, err)
	routes, err := netlink.RouteList(in, netlink.FAMILY_V4)
	testkit.Must(t, err)
	if len(routes) != 1 || routes[0].Dst.String() != "10.77.0.0/24" || routes[0].QuickACK != 1 || routes[0].Scope != netlink.SCOPE_LINK {
		t.Errorf("routes into the sandbox's network: %v", routes)
	}
	nat, filter := rules(t, "nat"), rules(t, "filter")
	if want := "! --dport 53 -j REDIRECT"; !strings.Contains(nat, want) {
		t.Errorf("nat has no %q:\n%s", want, nat)
	}
	_, err = Install(slot.Network{})
	testkit.Must(t, err)
	if got := rules(t, "nat") + rules(t, "filter"); got != nat+filter {
		t.Errorf("a second Install changed the rules:\n%s", got)
	}
	for _, args := range [][]string{
		{"-I", "INPUT", "1", "-j", "ACCEPT"},
		{"-D", chainInput, "1"},
		{"-F", chainForward},
	} {
		if out, err := exec.Command("iptables", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", args, out)
		}
	}
	_, err = Install(slot.Network{})
	testkit.Must(t, err)
	got := rules(t, "filter")
	first := strings.Index(got, "-A INPUT ")
	if !strings.HasPrefix(got[first:], "-A INPUT -j "+chainInput) || strings.Count(got, chainInput+" ") != strings.Count(filter, chainInput+" ") {
		t.Errorf("Install did not put the rules right:\n%s", got)
	}
}

// TestOpenPorts: from the sandbox's network, a connection to whatever address reaches the listener that the proxy's own
// address has at that port. Where there is none it is refused, whatever listens at other addresses of the container.
// Promise: no-other-way-out
func TestOpenPorts(t *testing.T) {
	inNamespace(t, true)
	proxy, err := netns.Get()
	testkit.Must(t, err)
	defer proxy.Close()
	inside, err := netns.New()
	testkit.Must(t, err)
	defer inside.Close()
	testkit.Must(t, netns.Set(proxy))
	peer, err := netlink.LinkByName("in0p")
	testkit.Must(t, err)
	testkit.Must(t, netlink.LinkSetNsFd(peer, int(inside)))
	testkit.Must(t, netns.Set(inside))
	link, err := netlink.LinkByName("in0p")
	testkit.Must(t, err)
	addr, err := netlink.ParseAddr("10.77.0.100/24")
	testkit.Must(t, err)
	testkit.Must(t, netlink.AddrAdd(link, addr))
	testkit.Must(t, netlink.LinkSetUp(link))
	testkit.Must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IP(slot.Network{}.Proxy().AsSlice())}))
	testkit.Must(t, netns.Set(proxy))
	_, err = Install(slot.Network{})
	testkit.Must(t, err)
	lo, err := netlink.LinkByName("lo")
	testkit.Must(t, err)
	testkit.Must(t, netlink.LinkSetUp(lo))
	for _, at := range []string{"10.77.0.2:443", "10.77.0.2:3000", "10.77.0.2:8080", "192.168.77.2:22", "192.168.77.2:3001", "127.0.0.1:3002"} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", at)
		testkit.Must(t, err)
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, at)
				_ = c.Close()
			}
		}()
	}
	testkit.Must(t, netns.Set(inside))
	for remote, want := range map[string]string{
		"198.18.0.1:443": "10.77.0.2:443", "1.2.3.4:3000": "10.77.0.2:3000", "10.77.0.2:3000": "10.77.0.2:3000", "198.18.0.1:8080": "10.77.0.2:8080",
		"192.168.77.2:3000": "10.77.0.2:3000", "192.168.77.2:443": "10.77.0.2:443",
		"198.18.0.1:22": "", "192.168.77.2:22": "", "192.168.77.2:3001": "", "198.18.0.1:3001": "", "198.18.0.1:3002": "", "10.77.0.2:8443": "", "1.1.1.1:9999": "",
	} {
		got, err := ask(remote)
		if got != want || want == "" && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: reached %q, %v; want %q", remote, got, err, want)
		}
	}
}

// ask connects from the calling thread's namespace and returns what the other end says.
func ask(remote string) (string, error) {
	to := netip.MustParseAddrPort(remote)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return "", err
	}
	text := make([]byte, 100)
	n, err := unix.Read(fd, text)
	return string(text[:max(n, 0)]), err
}

// TestRefusesToStart: without a way out, the proxy does not start.
func TestRefusesToStart(t *testing.T) {
	t.Run("no way out", func(t *testing.T) {
		inNamespace(t, false)
		if _, err := Install(slot.Network{}); err == nil || !strings.Contains(err.Error(), "no default route") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the way out leads in", func(t *testing.T) {
		inNamespace(t, false)
		in, err := netlink.LinkByName("in0")
		testkit.Must(t, err)
		gw, err := netlink.ParseIPNet("10.77.0.1/32")
		testkit.Must(t, err)
		testkit.Must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: in.Attrs().Index, Gw: gw.IP}))
		if _, err := Install(slot.Network{}); err == nil || !strings.Contains(err.Error(), "leads into the sandbox") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no such network", func(t *testing.T) {
		if os.Geteuid() != 0 {
			testkit.SkipBecause(t, "needs root for a network namespace")
		}
		runtime.LockOSThread()
		ns, err := netns.New()
		testkit.Must(t, err)
		defer ns.Close()
		if _, err := Install(slot.Network{}); err == nil || !strings.Contains(err.Error(), "10.77.0.2") {
			t.Errorf("got %v", err)
		}
	})
}

// TestIPTablesFails: each command that fails, fails Install with its error. A rule that is missing after it was set is an
// error too.
func TestIPTablesFails(t *testing.T) {
	inNamespace(t, true)
	dir, path := t.TempDir(), os.Getenv("PATH")
	for _, name := range []string{"iptables", "ip6tables"} {
		real, err := exec.LookPath(name)
		testkit.Must(t, err)
		script := "#!/bin/sh\ncase \"$* \" in ${LIES:--}) exit 0;; ${FAILS:--}) echo broken >&2; exit 4;; esac\nexec " + real + " \"$@\"\n"
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
	}
	t.Setenv("PATH", dir+":"+path)
	_, err := Install(slot.Network{}) // the chains and jumps exist, so that all commands run
	testkit.Must(t, err)
	for _, c := range []struct{ variable, args, want string }{
		{"FAILS", "*--version*", "exit status 4"},
		{"FAILS", "*-N*", "broken"},
		{"FAILS", "*-A*", "broken"},
		{"FAILS", "*-D*", "broken"},
		{"FAILS", "*-I*", "broken"},
		{"FAILS", "*-C " + chainForward + "*", "broken"},
		{"LIES", "*-A " + chainForward + "*", "is missing after it was set"},
		{"LIES", "*-I*", "is not the first rule"},
		{"FAILS", "*-S*INPUT*", "is not the first rule"},
	} {
		for _, args := range [][]string{{"-F", "INPUT"}, {"-I", "INPUT", "1", "-j", chainInput}, {"-I", "INPUT", "1", "-j", "ACCEPT"}} {
			if out, err := exec.Command("iptables", args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", args, out)
			}
		}
		t.Setenv(c.variable, c.args)
		_, err := Install(slot.Network{})
		t.Setenv(c.variable, "")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.variable, c.args, err, c.want)
		}
	}
}

// TestAddResolver: lo has the address once, however often AddResolver is called.
func TestAddResolver(t *testing.T) {
	inNamespace(t, false)
	for range 2 {
		testkit.Must(t, AddResolver())
	}
	lo, err := netlink.LinkByName("lo")
	testkit.Must(t, err)
	list, err := netlink.AddrList(lo, netlink.FAMILY_V4)
	testkit.Must(t, err)
	if len(list) != 1 || list[0].IPNet.String() != slot.SyntheticAddr.String()+"/32" {
		t.Errorf("lo has %v", list)
	}
}
