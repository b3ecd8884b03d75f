package slotnet

import (
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
		testkit.Skip(t, "needs root for a network namespace")
	}
	slots, err := Make(slot.IDs(1, 0))
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
