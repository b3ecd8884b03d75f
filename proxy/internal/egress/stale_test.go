package egress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
)

// TestStaleConnection: if an upstream has closed an idle connection, a request that is safe to repeat succeeds all the
// same.
func TestStaleConnection(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			r := newRig(t, setup{})
			var conns atomic.Int64
			r.upstreams.raw(func(conn net.Conn) {
				first := conns.Add(1) == 1
				in := bufio.NewReader(conn)
				for served := 0; ; served++ {
					if _, err := http.ReadRequest(in); err != nil || first && served == 1 {
						return // closes the connection: the second request on it gets no answer
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			})
			end := r.begin()
			client := r.client(h2)
			for i := range 3 {
				resp, err := client.Get("https://" + demoHost + "/")
				check(t, err)
				if text := body(t, resp); resp.StatusCode != http.StatusOK || text != "ok" {
					t.Errorf("request %d: %d %s", i, resp.StatusCode, text)
				}
			}
			end()
			if n := conns.Load(); n != 2 {
				t.Errorf("%d connections, want 2: was none used again?", n)
			}
		})
	}
}
