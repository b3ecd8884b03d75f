package egress_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestUntilTheEnd: an answer that ends with its connection is whole when the server says that it closes, and broken
// when the connection is just gone: whoever cuts it would choose where the answer ends.
// Promise: no-truncated-response
func TestUntilTheEnd(t *testing.T) {
	big := strings.Repeat("line of an answer\n", 1000)
	for name, abrupt := range map[string]bool{"closed": false, "cut": true} {
		for _, h2 := range []bool{false, true} {
			for _, head := range []string{"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n"} {
				r := newRig(t, setup{})
				r.upstreams.raw(func(conn net.Conn) {
					if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
						_, _ = io.WriteString(conn, head+big)
						if abrupt {
							_ = conn.(*tls.Conn).NetConn().(*net.TCPConn).CloseWrite()
						}
					}
				})
				end := r.begin()
				resp, err := r.client(h2).Get("https://" + demoHost + "/")
				check(t, err)
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if abrupt && err == nil || !abrupt && (err != nil || string(text) != big) {
					t.Errorf("%s, %.8s, h2=%t: %d bytes, %v", name, head, h2, len(text), err)
				}
				if rec := end(); (rec.Count.Failed == 1) != abrupt {
					t.Errorf("%s: the receipt says %+v", name, rec.Count)
				}
			}
		}
	}
}
