package slot

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestNetwork(t *testing.T) {
	other, ok := ParseNetwork("192.168.177")
	if !ok {
		t.Fatal("192.168.177 is no network")
	}
	for want, n := range map[string]Network{"10.77.0": {}, "192.168.177": other} {
		if got := fmt.Sprint(n.Subnet(), n.Proxy(), n.SandboxAddr(), n.SlotAddr(0), n.SlotAddr(99), n.SlotAddr(Total-1)); got != strings.ReplaceAll("N.0/24 N.2 N.3 N.100 N.199 N.231", "N", want) {
			t.Errorf("%s: %s", want, got)
		}
		seen := map[netip.Addr]bool{n.Proxy(): true, n.SandboxAddr(): true}
		for id := ID(0); id < Total; id++ {
			a := n.SlotAddr(id)
			if !id.IsValid() || seen[a] || !n.Subnet().Contains(a) || id.UID() != 20000+int(id) {
				t.Errorf("slot %d: address %v, uid %d", id, a, id.UID())
			}
			seen[a] = true
			if got, ok := n.SlotOf(a); !ok || got != id {
				t.Errorf("Slot(%v) = %d, %v", a, got, ok)
			}
			if got, ok := n.SlotOf(netip.AddrFrom16(a.As16())); !ok || got != id {
				t.Errorf("Slot of the v4-mapped %v = %d, %v", a, got, ok)
			}
			if got, ok := (Network{}).SlotOf(a); ok != (want == "10.77.0") {
				t.Errorf("the default network has slot %d at %v", got, a)
			}
		}
	}
}

func TestParseNetwork(t *testing.T) {
	for text, want := range map[string]bool{
		"10.77.0": true, "10.0.0": true, "172.16.0": true, "172.31.255": true, "192.168.1": true,
		"": false, "10": false, "10.77": false, "10.77.0.0": false, "10.77.0.0/24": false, "10.77.256": false, "10.077.0": false,
		" 10.77.0": false, "8.8.8": false, "127.0.0": false, "198.18.0": false, "169.254.1": false, "172.32.0": false, "fd00:": false, "::ffff:10.77.0": false,
	} {
		if n, ok := ParseNetwork(text); ok != want {
			t.Errorf("%q: %v, %v", text, n.Subnet(), ok)
		}
	}
}

func TestNoSlot(t *testing.T) {
	for _, s := range []string{"10.77.0.0", "10.77.0.1", "10.77.0.2", "10.77.0.3", "10.77.0.99", "10.77.0.232", "10.77.0.255", "10.77.1.100", "10.76.0.100", "127.0.0.1", "::1", "fe80::a4d:64", "0.0.0.0"} {
		if id, ok := (Network{}).SlotOf(netip.MustParseAddr(s)); ok {
			t.Errorf("Slot(%s) = %d; want no slot", s, id)
		}
	}
	if id, ok := (Network{}).SlotOf(netip.Addr{}); ok {
		t.Errorf("Slot of no address = %d", id)
	}
	for _, id := range []ID{-1, Total, 1 << 20} {
		if id.IsValid() {
			t.Errorf("slot %d is valid", id)
		}
	}
}

func TestFileName(t *testing.T) {
	for _, id := range []ID{0, 7, 99, 100, 131} {
		for _, k := range []Kind{HTTP, HTTPS, DNSUDP, DNSTCP, NetNS} {
			gotID, gotKind, err := ParseFileName(FileName(id, k))
			if err != nil || gotID != id || gotKind != k {
				t.Errorf("%s parses as %d, %s, %v", FileName(id, k), gotID, gotKind, err)
			}
		}
	}
	for _, s := range []string{"", "slot", "slot3", "slot3-", "slot-http", "slot03-http", "slot+3-http", "slot-1-http", "slot132-http", "slot3-HTTP", "slot3-ftp", "Slot3-http", "slot3-http ", " slot3-http", "slot3-http-x", "slot0x3-http", "3-http"} {
		if id, k, err := ParseFileName(s); err == nil {
			t.Errorf("ParseFileName(%q) = %d, %s; want it refused", s, id, k)
		}
	}
}

func environ(list []string) func(string) string {
	return func(name string) string {
		for _, e := range list {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				return v
			}
		}
		return ""
	}
}

func TestInherited(t *testing.T) {
	if files, err := InheritedFiles(environ(nil)); err != nil || files != nil {
		t.Errorf("without the variables: %v, %v", files, err)
	}
	for _, bad := range [][]string{
		{"LISTEN_FDS=1"}, {"LISTEN_FDNAMES=slot0-http"}, {"LISTEN_FDS=2", "LISTEN_FDNAMES=slot0-http"},
		{"LISTEN_FDS=x", "LISTEN_FDNAMES=slot0-http"}, {"LISTEN_FDS=-1", "LISTEN_FDNAMES=slot0-http"},
		{"LISTEN_FDS=1", "LISTEN_FDNAMES=stdin"}, {"LISTEN_FDS=0", "LISTEN_FDNAMES="},
	} {
		if files, err := InheritedFiles(environ(bad)); err == nil && files != nil {
			t.Errorf("%v gives %v; want an error", bad, files)
		}
	}
}

// Whether a slot is a server's follows from its number, whatever the sizes of the two pools.
func TestServerSlots(t *testing.T) {
	ids := IDs(2, 3)
	if want := []ID{0, 1, 100, 101, 102}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
	for _, id := range []ID{-1, 0, Max - 1, Total} {
		if id.IsServer() {
			t.Errorf("%d is a server slot", id)
		}
	}
	for _, id := range []ID{Max, Total - 1} {
		if !id.IsServer() {
			t.Errorf("%d is no server slot", id)
		}
	}
}
