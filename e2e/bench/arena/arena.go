// Package arena is where the proxies are measured: network namespaces for a client, two proxies and an origin. As in
// production, each proxy gets its traffic through an iptables REDIRECT of what the client sends to the internet.
//
//	client ── 10.77.0.0/24 ── codeforge ── 10.81.0.0/24 ──┐
//	   ├───── 10.78.0.0/24 ── mitmproxy ── 10.80.0.0/24 ──┼── origin
//	   └───── 10.79.0.0/24 ────────────────────────────────┘
//
// All of it is in its own namespaces: the machine's network, mounts and firewall are not touched, and everything in the
// arena ends with the process that made it.
package arena

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The addresses that the client connects to, by route.
const (
	Direct    = "10.79.0.2"
	Mitmproxy = "10.80.0.2"  // the origin's own: a transparent mitmproxy connects where the client wanted to
	CodeForge = "198.18.0.1" // what CodeForge's resolver answers; the proxy dials the name
	// Origin is the origin as CodeForge's proxy sees it.
	Origin = "10.81.0.2"
)

// The places.
const (
	AtOrigin    = "origin"
	AtCodeForge = "codeforge"
	AtMitmproxy = "mitmproxy"
)

// Dir is a tmpfs of the arena for files.
const Dir = "/mnt"

// stageVar is the environment variable that selects the stage of a process.
const stageVar = "CODEFORGE_BENCH_STAGE"

// Stage is "arena" in the first process of the arena, "enter" in one that is about to exec a command in one of its
// places, and empty outside.
func Stage() string { return os.Getenv(stageVar) }

// Command is this program again, as the first process of a new arena. The caller starts it.
func Command(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...) //nolint:gosec,noctx // ourselves; ends with us
	cmd.Env = append(os.Environ(), stageVar+"=arena")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	return cmd
}

// Enter execs the command in os.Args[2:] in the place os.Args[1]. It returns only on an error.
func Enter() error {
	if len(os.Args) < 3 {
		return errors.New("enter: want a place and a command")
	}
	runtime.LockOSThread()
	f, err := os.Open(place(os.Args[1]))
	if err != nil {
		return err
	}
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering %s: %w", os.Args[1], err)
	}
	path, err := exec.LookPath(os.Args[2])
	if err != nil {
		return err
	}
	if err := os.Unsetenv(stageVar); err != nil {
		return err
	}
	return syscall.Exec(path, os.Args[2:], os.Environ())
}

// In is a command that runs in a place.
func In(where string, argv ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append([]string{where}, argv...)...) //nolint:gosec,noctx // the benchmark's own commands
	cmd.Env = append(os.Environ(), stageVar+"=enter")
	return cmd
}

func place(name string) string { return filepath.Join(Dir, "net-"+name) }

// Make makes the namespaces and connects them. Call it once, in the stage "arena".
func Make() error {
	if err := mounts(); err != nil {
		return err
	}
	if err := up("lo"); err != nil {
		return err
	}
	for _, name := range []string{AtOrigin, AtCodeForge, AtMitmproxy} {
		if err := namespace(name); err != nil {
			return fmt.Errorf("making the namespace %s: %w", name, err)
		}
	}
	type end struct{ place, device, cidr string }
	wires := [][2]end{
		{{"", "cf0", "10.77.0.100/24"}, {AtCodeForge, "in0", "10.77.0.2/24"}},
		{{"", "mp0", "10.78.0.1/24"}, {AtMitmproxy, "in0", "10.78.0.2/24"}},
		{{"", "or0", "10.79.0.1/24"}, {AtOrigin, "or0", "10.79.0.2/24"}},
		{{AtCodeForge, "out0", "10.81.0.1/24"}, {AtOrigin, "cf0", "10.81.0.2/24"}},
		{{AtMitmproxy, "out0", "10.80.0.1/24"}, {AtOrigin, "mp0", "10.80.0.2/24"}},
	}
	for i, w := range wires {
		names := [2]string{fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)}
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: names[0]}, PeerName: names[1]}); err != nil {
			return fmt.Errorf("adding a veth pair: %w", err)
		}
		for j, e := range w {
			if err := plug(names[j], e.place, e.device, e.cidr); err != nil {
				return err
			}
		}
	}
	return routes()
}

// mounts makes the mount tree private, /proc that of the new pid namespace, and gives a tmpfs and a resolv.conf.
func mounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, dir := range []string{Dir, "/run"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mounting a tmpfs on %s: %w", dir, err)
		}
	}
	resolv := filepath.Join(Dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+Origin+"\noptions attempts:1 timeout:2\n"), 0o600); err != nil {
		return err
	}
	return unix.Mount(resolv, "/etc/resolv.conf", "", unix.MS_BIND, "")
}

// namespace makes a network namespace and keeps it at its place.
func namespace(name string) error {
	if err := os.WriteFile(place(name), nil, 0o600); err != nil {
		return err
	}
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := up("lo"); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", place(name), "", unix.MS_BIND, "")
	})
}

// inside runs f in a place; "" is the client's.
func inside(where string, f func() error) error {
	if where == "" {
		return f()
	}
	ns, err := os.Open(place(where))
	if err != nil {
		return err
	}
	defer ns.Close()
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// plug moves a device to a place, names it, gives it an address and brings it up.
func plug(name, where, device, cidr string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	if where != "" {
		ns, err := os.Open(place(where))
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := netlink.LinkSetNsFd(link, int(ns.Fd())); err != nil {
			return fmt.Errorf("moving %s: %w", name, err)
		}
	}
	return inside(where, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetName(link, device); err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(cidr)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

func up(device string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("finding %s: %w", device, err)
	}
	return netlink.LinkSetUp(link)
}

// routes sends the client's traffic through the proxies, and theirs to the origin.
func routes() error {
	for _, r := range []struct{ place, to, via string }{
		{"", CodeForge + "/32", "10.77.0.2"},
		{"", Mitmproxy + "/32", "10.78.0.2"},
		{AtCodeForge, "0.0.0.0/0", Origin},
		{AtMitmproxy, Origin + "/32", Mitmproxy}, // iron-proxy dials the name too
	} {
		_, dst, err := net.ParseCIDR(r.to)
		if err != nil {
			return err
		}
		if err := inside(r.place, func() error {
			return netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(r.via)})
		}); err != nil {
			return fmt.Errorf("routing %s via %s: %w", r.to, r.via, err)
		}
	}
	return nil
}

// ReachOrigin routes the client directly to the origin's name and address as CodeForge's proxy knows them.
func ReachOrigin() error {
	_, dst, err := net.ParseCIDR(Origin + "/32")
	if err != nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(Direct)}); err != nil {
		return fmt.Errorf("routing %s via %s: %w", dst, Direct, err)
	}
	return nil
}

// onThread runs f on a thread that ends afterwards.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			done <- onThread(f) // the first thread never ends
			runtime.UnlockOSThread()
			return
		}
		done <- f()
	}()
	return <-done
}
