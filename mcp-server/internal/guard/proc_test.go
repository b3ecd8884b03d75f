package guard

import (
	"net/netip"
	"strings"
	"testing"
)

const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0
   1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 12 1 0 20 4 30 10 -1
   2: 0100007F:9C41 0100007F:1F90 06 00000000:00000000 03:00000A00 00000000     0        0 0 3 0
   3: 0100007F:9C42 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   4: 0000000000000000FFFF00000100007F:9C43 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1002 0 14 1 0
   5: 00000000000000000000000001000000:9C44 00000000000000000000000001000000:1F90 01 00000000:00000000 00:00000000 00000000  1003 0 15 1 0
   6: garbage
`

func TestFindUID(t *testing.T) {
	for _, c := range []struct {
		name, peer, us string
		want           int
	}{
		{"IPv4", "127.0.0.1:40000", "127.0.0.1:8080", 1001},
		{"a closed socket shows uid 0 and does not count", "127.0.0.1:40001", "127.0.0.1:8080", -1},
		{"a socket without an inode does not count", "127.0.0.1:40002", "127.0.0.1:8080", -1},
		{"mapped", "127.0.0.1:40003", "127.0.0.1:8080", 1002},
		{"IPv6", "[::1]:40004", "[::1]:8080", 1003},
		{"a listener is no peer", "127.0.0.1:8080", "0.0.0.0:0", -1},
		{"our own end is no peer", "127.0.0.1:8080", "127.0.0.1:40000", -1},
		{"unknown", "127.0.0.1:40009", "127.0.0.1:8080", -1},
	} {
		got, err := findUID(strings.NewReader(table), netip.MustParseAddrPort(c.peer), netip.MustParseAddrPort(c.us))
		if err != nil || got != c.want {
			t.Errorf("%s: %d, %v, want %d", c.name, got, err, c.want)
		}
	}
}
