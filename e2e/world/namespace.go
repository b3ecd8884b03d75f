package world

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// prepare sets up the new namespaces: a private mount tree, /proc of the new pid namespace, a resolv.conf that names
// the test's DNS server, a tmpfs for files of tests, and a second network namespace for the upstream, because the proxy
// never dials an address of its own machine.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", shared, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mounting the tests' tmpfs: %w", err)
	}
	if err := os.Mkdir(filepath.Join(shared, "w"), 0o755); err != nil { //nolint:gosec // other users' worlds lie below
		return err
	}
	if err := os.Chmod(filepath.Join(shared, "w"), 0o777|os.ModeSticky); err != nil { //nolint:gosec // as /tmp
		return err
	}
	if err := showTools(); err != nil {
		return err
	}
	resolv := filepath.Join(shared, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 127.0.0.1\noptions attempts:3 timeout:2\n"), 0o644); err != nil { //nolint:gosec // world-readable as the real one
		return err
	}
	if err := bind(resolv, "/etc/resolv.conf"); err != nil {
		return err
	}
	return network()
}

// showTools bind-mounts the binaries and Deno where every user can read them, wherever the source tree is.
func showTools() error {
	if err := os.Mkdir(filepath.Join(shared, "bin"), 0o755); err != nil { //nolint:gosec // see above
		return err
	}
	if err := bind(os.Getenv(binVar), filepath.Join(shared, "bin")); err != nil {
		return err
	}
	if typescript, err := testkit.FindTypeScript(os.Getenv(rootVar)); err == nil { // beside the folder of the binaries
		to := filepath.Join(shared, ".tools", "typescript")
		if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // see above
			return err
		}
		if err := bind(typescript, to); err != nil {
			return err
		}
	}
	uv, to := filepath.Join(os.Getenv(rootVar), ".tools", "uv"), filepath.Join(shared, ".tools", "uv")
	if _, err := os.Stat(uv); err == nil {
		err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, nil, 0o755)) //nolint:gosec // see above
		if err = errors.Join(err, bind(uv, to)); err != nil {
			return err
		}
	}
	deno, _ := testkit.FindDeno(os.Getenv(rootVar)) // empty where there is none
	if deno == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(shared, "deno"), nil, 0o755); err != nil { //nolint:gosec // see above
		return err
	}
	return bind(deno, filepath.Join(shared, "deno"))
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s to %s: %w", from, to, err)
	}
	return nil
}

// beyond is the path of the upstream's network namespace.
const beyond = shared + "/beyond"

// wire is the device that leads there, with its address here.
const (
	wire     = "e2e0"
	wirePeer = "e2e1"
	wireAddr = "10.99.0.1/24"
)

// network brings loopback up and makes another namespace with the upstream's addresses, including a public one.
func network() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bringing lo up: %w", err)
	}
	if err := os.WriteFile(beyond, nil, 0o600); err != nil {
		return err
	}
	if err := apart(func() error {
		return bind("/proc/thread-self/ns/net", beyond)
	}); err != nil {
		return fmt.Errorf("making the upstream's network namespace: %w", err)
	}
	other, err := os.Open(beyond)
	if err != nil {
		return err
	}
	defer other.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: wire}, PeerName: wirePeer, PeerNamespace: netlink.NsFd(other.Fd())}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("adding a veth pair: %w", err)
	}
	if err := address(wire, wireAddr); err != nil {
		return err
	}
	if err := route(wire, upstream.Embedded.Public.String()+"/32"); err != nil {
		return err
	}
	return inside(int(other.Fd()), func() error {
		if err := address("lo"); err != nil {
			return err
		}
		return address(wirePeer, upstream.Embedded.Private.String()+"/24", upstream.Embedded.Public.String()+"/32")
	})
}

// address gives a device these addresses and brings it up.
func address(device string, cidrs ...string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("finding %s: %w", device, err)
	}
	for _, c := range cidrs {
		addr, err := netlink.ParseAddr(c)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("adding %s to %s: %w", c, device, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing %s up: %w", device, err)
	}
	return nil
}

// route routes a range to a device.
func route(device, cidr string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK})
}

// apart runs f on a throw-away thread in a new network namespace.
func apart(f func() error) error {
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// inside runs f on a throw-away thread in the network namespace of fd.
func inside(fd int, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the upstream's network namespace: %w", err)
		}
		return f()
	})
}

func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			// The first thread never ends, and /proc/self shows it: another thread must do this while this one is locked.
			done <- onThread(f)
			runtime.UnlockOSThread()
			return
		}
		done <- f()
	}()
	return <-done
}

// listenBeyond listens in the upstream's namespace, or here for loopback addresses.
func listenBeyond(addr string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	if at.Addr().IsLoopback() {
		return net.Listen("tcp", addr) //nolint:noctx // lives as long as the upstream
	}
	other, err := os.Open(beyond)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	var l net.Listener
	err = inside(int(other.Fd()), func() (err error) {
		l, err = net.Listen("tcp", addr) //nolint:noctx // see above
		return err
	})
	return l, err
}
