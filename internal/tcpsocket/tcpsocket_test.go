package tcpsocket

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0
   1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 12 1 0 20 4 30 10 -1
   2: 0100007F:9C41 0100007F:1F90 06 00000000:00000000 03:00000A00 00000000     0        0 0 3 0
   3: 0100007F:9C42 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   4: 0000000000000000FFFF00000100007F:9C43 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1002 0 14 1 0
   5: 00000000000000000000000001000000:9C44 00000000000000000000000001000000:1F90 01 00000000:00000000 00:00000000 00000000  1003 0 15 1 0
   6: garbage
   7: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1004        0 16 1 0 100 0 0 10 0
`

// TestTables finds a socket in /proc if sock_diag(7) has not found it.
func TestTables(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	defer l.Close()
	at := netip.MustParseAddrPort(l.Addr().String())
	want, err := find(at, at, isListening)
	testkit.Must(t, err)
	for skipped, found := range map[int]bool{0: true, 1: true, 2: false} { // one match is sock_diag's, and one that of /proc
		n := 0
		got, err := find(at, at, func(e entry, local, remote netip.AddrPort) bool {
			if !isListening(e, local, remote) {
				return false
			}
			n++
			return n > skipped
		})
		if found != (err == nil) || found && got != want || !found && !errors.Is(err, errNotFound) {
			t.Errorf("after %d matches: %+v, %v, want %+v", skipped, got, err, want)
		}
	}
}

func TestFindInTable(t *testing.T) {
	for _, c := range []struct {
		name, local, remote string
		match               func(e entry, local, remote netip.AddrPort) bool
		want                int
	}{
		{"IPv4", "127.0.0.1:40000", "127.0.0.1:8080", isConnected, 1001},
		{"a closed socket shows uid 0 and does not count", "127.0.0.1:40001", "127.0.0.1:8080", isConnected, 0},
		{"a socket without an inode does not count", "127.0.0.1:40002", "127.0.0.1:8080", isConnected, 0},
		{"mapped", "127.0.0.1:40003", "127.0.0.1:8080", isConnected, 1002},
		{"IPv6", "[::1]:40004", "[::1]:8080", isConnected, 1003},
		{"a listener is no peer", "127.0.0.1:8080", "0.0.0.0:0", isConnected, 0},
		{"our own end is no peer", "127.0.0.1:8080", "127.0.0.1:40000", isConnected, 0},
		{"unknown", "127.0.0.1:40009", "127.0.0.1:8080", isConnected, 0},
		{"a listener", "127.0.0.1:8080", "127.0.0.1:0", isListening, 1000},
		{"a listener on another address", "127.0.0.2:8080", "127.0.0.2:0", isListening, 0},
		{"a listener on all addresses", "127.0.0.1:8081", "127.0.0.1:0", isListening, 1004},
		{"a connection is no listener", "127.0.0.1:40000", "127.0.0.1:0", isListening, 0},
	} {
		local, remote := netip.MustParseAddrPort(c.local), netip.MustParseAddrPort(c.remote)
		got, err := findInTable(strings.NewReader(table), func(e entry) bool { return c.match(e, local, remote) })
		if got.UID != c.want || (c.want == 0) != errors.Is(err, errNotFound) {
			t.Errorf("%s: %+v, %v, want %d", c.name, got, err, c.want)
		}
	}
}

// connect returns both ends of a connection to a new listener.
func connect(t testing.TB, network, address string) (client, served net.Conn, l net.Listener) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		testkit.SkipBecause(t, err.Error())
	}
	t.Cleanup(func() { _ = l.Close() })
	client, err = net.Dial("tcp", l.Addr().String())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	served, err = l.Accept()
	testkit.Must(t, err)
	t.Cleanup(func() { _ = served.Close() })
	return client, served, l
}

// TestAsk: the kernel's direct answer and the search of its table agree, and the kernel does not return a listener in
// the place of a connection.
func TestAsk(t *testing.T) {
	for _, c := range []struct{ network, address string }{
		{"tcp4", "127.0.0.1:0"}, {"tcp6", "[::1]:0"}, {"tcp", "[::]:0"},
	} {
		client, served, l := connect(t, c.network, c.address)
		us, peer := addrPort(served.LocalAddr()), addrPort(served.RemoteAddr())
		e, ok := ask(peer, us)
		if !ok || e.UID != os.Getuid() || e.Inode == 0 || !isConnected(e, peer, us) {
			t.Errorf("%s: %+v, %t", c.address, e, ok)
		}
		if s, err := FindPeer(served); err != nil || s != e.Socket {
			t.Errorf("%s: %+v, %v, want %+v", c.address, s, err, e.Socket)
		}
		s, err := FindListener(us)
		if err != nil || s.UID != os.Getuid() || s.Inode == 0 || s == e.Socket {
			t.Errorf("%s, the listener: %+v, %v", c.address, s, err)
		}
		testkit.Must(t, client.Close())
		if s, err := FindPeer(served); !errors.Is(err, errNotFound) || s.UID != -1 {
			t.Errorf("%s, closed: %+v, %v", c.address, s, err)
		}
		testkit.Must(t, l.Close())
		if s, err := FindListener(us); !errors.Is(err, errNotFound) {
			t.Errorf("%s, the closed listener: %+v, %v", c.address, s, err)
		}
	}
}

// TestCost: beside 2,000 idle sockets, FindPeer takes a small part of the time that the kernel needs to list them.
func TestCost(t *testing.T) {
	_, served, l := connect(t, "tcp4", "127.0.0.1:0")
	for range 1000 {
		c, err := net.Dial("tcp4", l.Addr().String())
		testkit.Must(t, err)
		defer c.Close()
		s, err := l.Accept()
		testkit.Must(t, err)
		defer s.Close()
	}
	measure := func(f func() error) time.Duration {
		best := time.Hour // other programs only add time
		for range 20 {
			start := time.Now()
			testkit.Must(t, f())
			best = min(best, time.Since(start))
		}
		return best
	}
	took := measure(func() error { _, err := FindPeer(served); return err })
	list := measure(func() error { _, err := os.ReadFile("/proc/self/net/tcp"); return err })
	t.Logf("%s, the list %s", took, list)
	if took > list/4 {
		t.Errorf("finding a peer takes %s, listing all sockets %s", took, list)
	}
}

// TestParseLine accepts a line with fields up to the inode, and refuses one with a damaged field.
func TestParseLine(t *testing.T) {
	const line = "1: 0100007F:9C40 0100007F:1F90 01 0:0 0:0 0 1001 0 12"
	want := entry{Socket{1001, 12}, netip.MustParseAddrPort("127.0.0.1:40000"), netip.MustParseAddrPort("127.0.0.1:8080"), 1}
	if e, ok := parseLine(line); !ok || e != want {
		t.Errorf("%+v, %t", e, ok)
	}
	for at, bad := range map[int][]string{
		1: {"0100007F", "0100007F:x", "0100007F:10000", "010000:9C40", "010000ZZ:9C40", ":9C40", "0100007F0100007F:9C40"},
		2: {"0100007F"}, 3: {"x", "100"}, 7: {"x", "-1", "4294967296"}, 9: {"x", "4294967296"},
	} {
		for _, text := range bad {
			f := strings.Fields(line)
			f[at] = text
			if e, ok := parseLine(strings.Join(f, " ")); ok {
				t.Errorf("%s: %+v", strings.Join(f, " "), e)
			}
		}
	}
	f := strings.Fields(line)
	f[3], f[7], f[9] = "ff", "4294967295", "4294967295"
	if e, ok := parseLine(strings.Join(f, " ")); !ok || e.state != 255 || e.UID != 4294967295 || e.Inode != 4294967295 {
		t.Errorf("the largest numbers: %+v, %t", e, ok)
	}
	if e, ok := parseLine(strings.TrimSuffix(line, " 12")); ok {
		t.Errorf("without an inode: %+v", e)
	}
}

// TestUnreadable: a table that cannot be read is not one without the socket, and only TCP connections have addresses.
func TestUnreadable(t *testing.T) {
	broken := errors.New("broken")
	if _, err := findInTable(iotest.ErrReader(broken), func(entry) bool { return true }); !errors.Is(err, broken) {
		t.Errorf("a broken table: %v", err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if s, err := FindPeer(a); err == nil || s.UID != -1 || errors.Is(err, errNotFound) {
		t.Errorf("a pipe: %+v, %v", s, err)
	}
}
