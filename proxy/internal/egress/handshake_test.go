package egress_test

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // the handshake of RFC 6455 is defined with it
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// oneSession is a cache of TLS sessions that offers the last one to every server.
type oneSession struct{ last *tls.ClientSessionState }

func (o *oneSession) Get(string) (*tls.ClientSessionState, bool) { return o.last, o.last != nil }
func (o *oneSession) Put(_ string, s *tls.ClientSessionState) {
	if s != nil {
		o.last = s
	}
}

// TestResumedName: a resumed session does not call GetCertificate. Its server name is checked all the same, and a
// missing one is refused.
// Promise: one-host-one-port
func TestResumedName(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	sessions := &oneSession{}
	ask := func(serverName, host string) (status int, resumed bool) {
		c, err := tls.Dial("tcp", r.https[0], &tls.Config{
			RootCAs: r.roots(), ServerName: serverName, ClientSessionCache: sessions,
			InsecureSkipVerify: true, //nolint:gosec // the server must refuse
		})
		if err != nil {
			return 0, false
		}
		defer c.Close()
		check(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0, c.ConnectionState().DidResume
		}
		resp.Body.Close()
		return resp.StatusCode, c.ConnectionState().DidResume
	}
	if status, _ := ask(demoHost, demoHost); status != 200 || sessions.last == nil {
		t.Fatalf("the first handshake: %d, a session: %t", status, sessions.last != nil)
	}
	if status, resumed := ask(demoHost, demoHost); status != 200 || !resumed {
		t.Fatalf("the same again: %d, resumed %t", status, resumed)
	}
	before := up.count()
	for _, c := range []struct {
		serverName, host string
		status           int
	}{{"", demoHost, 0}, {"127.0.0.1", demoHost, 0}, {"other.test", demoHost, 421}, {"other.test", "other.test", 403}} {
		if status, resumed := ask(c.serverName, c.host); status != c.status {
			t.Errorf("server name %q, Host %q, resumed %t: got %d, want %d", c.serverName, c.host, resumed, status, c.status)
		}
	}
	if up.count() != before {
		t.Error("the upstream was reached")
	}
}

const wsKey = "dGhlIHNhbXBsZSBub25jZQ=="

// wsHandshake is a WebSocket handshake in which these lines replace those of the same name; "more" follows them, "body"
// follows the head.
func wsHandshake(line string, change map[string]string) string {
	text := line + " HTTP/1.1\r\nHost: " + demoHost + "\r\n"
	for _, f := range []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + wsKey} {
		name, _, _ := strings.Cut(f, ":")
		if other, ok := change[name]; ok {
			f = other
		}
		if f != "" {
			text += f + "\r\n"
		}
	}
	return text + change["more"] + "\r\n" + change["body"]
}

// TestWebSocketHandshake: a handshake with one thing wrong is refused, and the upstream is not reached.
// Promise: restricted-methods
func TestWebSocketHandshake(t *testing.T) {
	for name, c := range map[string]struct {
		line   string
		change map[string]string
	}{
		"h2c":                       {"GET /", map[string]string{"Upgrade": "Upgrade: h2c"}},
		"two protocols":             {"GET /", map[string]string{"Upgrade": "Upgrade: websocket, h2c"}},
		"two protocols, reversed":   {"GET /", map[string]string{"Upgrade": "Upgrade: h2c, websocket"}},
		"two lines":                 {"GET /", map[string]string{"Upgrade": "Upgrade: websocket\r\nUpgrade: h2c"}},
		"a version":                 {"GET /", map[string]string{"Upgrade": "Upgrade: websocket/13"}},
		"a word like it":            {"GET /", map[string]string{"Upgrade": "Upgrade: websocketx"}},
		"TLS":                       {"GET /", map[string]string{"Upgrade": "Upgrade: TLS/1.2"}},
		"HTTP2-Settings alone":      {"GET /", map[string]string{"Connection": "", "Upgrade": "", "more": "HTTP2-Settings: AAMAAABkAAQAAP__\r\n"}},
		"unnamed":                   {"GET /", map[string]string{"Upgrade": ""}},
		"POST":                      {"POST /", map[string]string{"more": "Content-Length: 0\r\n"}},
		"HEAD":                      {"HEAD /", nil},
		"with a body":               {"GET /", map[string]string{"more": "Content-Length: 3\r\n", "body": "abc"}},
		"with a chunked body":       {"GET /", map[string]string{"more": "Transfer-Encoding: chunked\r\n", "body": "3\r\nabc\r\n0\r\n\r\n"}},
		"no key":                    {"GET /", map[string]string{"Sec-WebSocket-Key": ""}},
		"a key that is too short":   {"GET /", map[string]string{"Sec-WebSocket-Key": "Sec-WebSocket-Key: AAAA"}},
		"a key that is no base64":   {"GET /", map[string]string{"Sec-WebSocket-Key": "Sec-WebSocket-Key: ?hlIHNhbXBsZSBub25jZQ=="}},
		"no version":                {"GET /", map[string]string{"Sec-WebSocket-Version": ""}},
		"another version":           {"GET /", map[string]string{"Sec-WebSocket-Version": "Sec-WebSocket-Version: 8"}},
		"a method override besides": {"GET /?_method=POST", map[string]string{"Upgrade": "Upgrade: h2c"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			var up seen
			r.upstreams.https(up.echo())
			end := r.begin()
			in, _ := r.raw(demoHost, wsHandshake(c.line, c.change))
			req, _ := http.NewRequest(strings.Fields(c.line)[0], "https://"+demoHost, nil)
			resp, err := http.ReadResponse(in, req)
			check(t, err)
			if resp.StatusCode < 400 {
				t.Errorf("got %d", resp.StatusCode)
			}
			if up.count() != 0 || r.upstreams.dialled() != 0 {
				t.Error("the upstream was reached")
			}
			if rec := end(); rec.Count.Denied != 1 || rec.Exchanges[0].Code != "upgrade_refused" {
				t.Errorf("the receipt says %+v", rec)
			}
		})
	}
}

// TestWebSocketExtensions: no extension is offered to an upstream, and one that it uses all the same ends the exchange.
// Promise: scrubbed-responses
func TestWebSocketExtensions(t *testing.T) {
	for name, c := range map[string]struct {
		answer string // what the upstream adds to a valid 101
		status string
	}{
		"none":               {"", "101"},
		"permessage-deflate": {"Sec-WebSocket-Extensions: permessage-deflate\r\n", "502"},
		"with its context":   {"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n", "502"},
		"an unknown one":     {"sec-websocket-extensions: x-hidden\r\n", "502"},
		"an empty one":       {"Sec-WebSocket-Extensions:\r\n", "502"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			asked := make(chan http.Header, 1)
			r.upstreams.raw(func(conn net.Conn) {
				in := bufio.NewReader(conn)
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				asked <- req.Header
				sum := sha1.Sum([]byte(req.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // see the import
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n%s\r\n\x81\x02hi",
					base64.StdEncoding.EncodeToString(sum[:]), c.answer)
				_, _ = in.ReadByte() // until the relay closes
			})
			r.begin()
			in, _ := r.raw(demoHost, wsHandshake("GET /", map[string]string{
				"more": "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nSec-WebSocket-Extensions: x-hidden\r\n",
			}))
			line, err := in.ReadString('\n')
			check(t, err)
			if !strings.HasPrefix(line, "HTTP/1.1 "+c.status) {
				t.Errorf("the client got %q", line)
			}
			select {
			case h := <-asked:
				if got := h.Values("Sec-Websocket-Extensions"); len(got) != 0 {
					t.Errorf("the upstream was offered %q", got)
				}
			case <-time.After(testkit.Patience):
				t.Error("the upstream was not reached")
			}
		})
	}
}

// TestPlainShared: over plain HTTP a name is swapped only if every API of the host allows plain HTTP.
// Promise: declared-places-only
func TestPlainShared(t *testing.T) {
	other := `{"description": "other", "domains": ["` + demoHost + `"], "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"]`
	for name, c := range map[string]struct {
		other string
		want  string
	}{
		"alone":                {"", "Bearer " + secretValue},
		"with one that allows": {other + `, "allow_http": true}`, "Bearer " + secretValue},
		"with one that does not, and has nothing to protect": {other + `}`, "Bearer " + tokenName},
	} {
		t.Run(name, func(t *testing.T) {
			apis := map[string]string{"demo": demoAPI(`, "allow_http": true`)}
			if c.other != "" {
				apis["other"] = c.other
			}
			r := newRig(t, setup{apis: apis})
			var up seen
			r.upstreams.plain(up.echo())
			r.begin()
			req, _ := http.NewRequest("GET", "http://"+demoHost+"/", nil)
			req.Header.Set("Authorization", "Bearer "+tokenName)
			resp, err := r.client(false).Do(req)
			check(t, err)
			body(t, resp)
			if got := up.last(t).Header.Get("Authorization"); got != c.want {
				t.Errorf("the upstream saw %q, want %q", got, c.want)
			}
		})
	}
}
