package embedded

import (
	"errors"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestRoute: in a slot every address is local, and TCP acknowledges at once.
func TestRoute(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root for a network namespace")
	}
	slots, err := makeSlotNets(slot.IDs(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer slots[0].Close()
	runtime.LockOSThread() // never unlocked: the thread ends with the test's goroutine
	if err := netns.Set(netns.NsHandle(slots[0].NetNS.Fd())); err != nil {
		t.Fatal(err)
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Dst == nil || r.Dst.String() == "0.0.0.0/0" {
			if r.Type != unix.RTN_LOCAL || r.QuickACK != 1 {
				t.Errorf("%+v", r)
			}
			return
		}
	}
	t.Errorf("no route for every address: %v", routes)
}

// TestListen: a further listener is reached from within its slot, at every address, and from no other slot.
// Promise: no-other-way-out
func TestListen(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root for a network namespace")
	}
	slots, err := makeSlotNets(slot.IDs(2, 0))
	testkit.Must(t, err)
	defer slots[0].Close()
	defer slots[1].Close()
	f, err := slots[1].Listen(3000)
	testkit.Must(t, err)
	defer f.Close()
	l, err := net.FileListener(f)
	testkit.Must(t, err)
	defer l.Close()
	if _, err := slots[1].Listen(3000); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}
	runtime.LockOSThread() // as above
	for i, want := range []error{unix.ECONNREFUSED, nil} {
		testkit.Must(t, netns.Set(netns.NsHandle(slots[i].NetNS.Fd())))
		for _, addr := range [][4]byte{{198, 18, 0, 1}, {127, 0, 0, 1}, {1, 2, 3, 4}} {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			testkit.Must(t, err)
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 3000, Addr: addr}); !errors.Is(err, want) {
				t.Errorf("slot %d to %v: %v, want %v", i, addr, err, want)
			}
			_ = unix.Close(fd)
		}
	}
}
