package egress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestOddResponses: what a server may say in HTTP beside the body of an answer does not show the credential: interim
// answers, the reason, headers that are folded or repeated, names of headers, extensions of chunks, announced and
// unannounced trailers, bytes behind an answer that has no body.
// Promise: scrubbed-responses
func TestOddResponses(t *testing.T) {
	const s = secretValue
	ok := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	for name, c := range map[string]struct {
		method, answer string
		want           int // status
	}{
		"early hints":             {"GET", "HTTP/1.1 103 Early Hints\r\nLink: </" + s + ">; rel=preload\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nhi", 200},
		"many interim answers":    {"GET", strings.Repeat("HTTP/1.1 102 "+s+"\r\nX: "+s+"\r\n\r\n", 3) + ok + "Content-Length: 2\r\n\r\nhi", 200},
		"continue with headers":   {"GET", "HTTP/1.1 100 " + s + "\r\nX: " + s + "\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nhi", 200},
		"a reason":                {"GET", "HTTP/1.1 200 " + s + "\r\nContent-Length: 2\r\n\r\nhi", 200},
		"extensions of chunks":    {"GET", ok + "Transfer-Encoding: chunked\r\n\r\n2;a=" + s + "\r\nhi\r\n0;b=\"" + s + "\"\r\n\r\n", 200},
		"trailers":                {"GET", ok + "Transfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n2\r\nhi\r\n0\r\nX-A: " + s + "\r\nX-B: " + s + "\r\nSet-Cookie: a=" + s + "\r\n" + s + ": x\r\n\r\n", 200},
		"announced names":         {"GET", ok + "Transfer-Encoding: chunked\r\nTrailer: X-" + s + "\r\n\r\n2\r\nhi\r\n0\r\nX-" + s + ": 1\r\n\r\n", 200},
		"a coding in a trailer":   {"GET", ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Type: text/html; charset=utf-16le; x=" + s + "\r\n\r\n", 200},
		"name of a header":        {"GET", ok + "X-" + s + "-Y: 1\r\nContent-Length: 2\r\n\r\nhi", 200},
		"a folded header":         {"GET", ok + "X: a\r\n " + s + "\r\nContent-Length: 2\r\n\r\nhi", 200},
		"connection's headers":    {"GET", ok + "Connection: X-" + s + "\r\nX-" + s + ": " + s + "\r\nKeep-Alive: " + s + "\r\nProxy-Authenticate: " + s + "\r\nUpgrade: " + s + "\r\nContent-Length: 2\r\n\r\nhi", 200},
		"HEAD":                    {"HEAD", ok + "X: " + s + "\r\nETag: \"" + s + "\"\r\nContent-Length: 50\r\n\r\n" + s, 200},
		"HEAD, chunks":            {"HEAD", ok + "Transfer-Encoding: chunked\r\nTrailer: " + s + "\r\n\r\n", 200},
		"HEAD, unknown set":       {"HEAD", "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=" + s + "\r\nContent-Encoding: " + s + "\r\n\r\n", 200},
		"204 with bytes":          {"GET", "HTTP/1.1 204 No\r\nX: " + s + "\r\nContent-Length: 30\r\n\r\n" + s, 204},
		"304 with bytes":          {"GET", "HTTP/1.1 304 No\r\nETag: " + s + "\r\nContent-Length: 30\r\n\r\n" + s, 304},
		"205 with a body":         {"GET", "HTTP/1.1 205 Reset\r\nContent-Length: 25\r\n\r\n" + s, 205},
		"206 of many ranges":      {"GET", "HTTP/1.1 206 Partial\r\nContent-Type: multipart/byteranges; boundary=" + s + "\r\nContent-Range: " + s + "\r\nTransfer-Encoding: chunked\r\n\r\n19\r\n" + s + "\r\n0\r\n\r\n", 206},
		"until the end":           {"GET", ok + "\r\n" + s, 200},
		"HTTP/1.0":                {"GET", "HTTP/1.0 200 OK\r\n\r\n" + s, 200},
		"encodings of nothing":    {"GET", ok + "Content-Encoding: ,identity, ,IDENTITY\r\nContent-Length: 25\r\n\r\n" + s, 200},
		"status 999":              {"GET", "HTTP/1.1 999 " + s + "\r\nContent-Length: 0\r\n\r\n", 999},
		"status 600, set unknown": {"GET", "HTTP/1.1 600 X\r\nContent-Type: text/plain; charset=" + s + "\r\nContent-Length: 25\r\n\r\n" + s, 502},
		"two types":               {"GET", "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Type: text/plain; charset=utf-16le\r\nContent-Length: 50\r\n\r\n" + strings.Join(strings.Split(s, ""), "\x00") + "\x00", 200},
		"a type and a set far on": {"GET", "HTTP/1.1 200 OK\r\nContent-Type: text/plain" + strings.Repeat("; a=b", 500) + "; charset=utf-16le\r\nContent-Length: 50\r\n\r\n" + strings.Join(strings.Split(s, ""), "\x00") + "\x00", 200},
		"events":                  {"GET", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ndata: s\r\n18\r\n" + s[1:] + "\r\n2\r\n\n\n\r\n0\r\n\r\n", 200},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/h2=%t", name, h2), func(t *testing.T) {
				r := newRig(t, setup{})
				r.upstreams.raw(func(conn net.Conn) {
					if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
						_, _ = io.WriteString(conn, c.answer)
					}
				})
				end := r.begin()
				var seen strings.Builder
				req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
						fmt.Fprint(&seen, code, h)
						return nil
					},
				}), c.method, "https://"+demoHost+"/", nil)
				check(t, err)
				req.Header.Set("Authorization", "Bearer "+tokenName)
				resp, err := r.client(h2).Do(req)
				check(t, err)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				fmt.Fprint(&seen, resp.Status, resp.Header, string(body), resp.Trailer, err)
				rec := end()
				fmt.Fprint(&seen, rec)
				all := strings.ReplaceAll(seen.String()+r.logs.String(), "\x00", "")
				if strings.Contains(strings.ToLower(all), s) || strings.Contains(strings.ToLower(all), s[3:]) {
					t.Errorf("it came back: %s", all)
				}
				if resp.StatusCode != c.want {
					t.Errorf("status %d, want %d: %s", resp.StatusCode, c.want, all)
				}
			})
		}
		t.Run(name+"/bytes", func(t *testing.T) {
			r := newRig(t, setup{})
			r.upstreams.raw(func(conn net.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, c.answer)
				}
			})
			defer r.begin()()
			in, conn := r.raw(demoHost, c.method+" / HTTP/1.1\r\nHost: "+demoHost+"\r\nAuthorization: Bearer "+tokenName+"\r\nConnection: close\r\n\r\n")
			check(t, conn.SetDeadline(time.Now().Add(testkit.Patience)))
			wire, _ := io.ReadAll(in)
			if text := strings.ToLower(strings.ReplaceAll(string(wire), "\x00", "")); strings.Contains(text, s[3:]) || !strings.Contains(text, "http/1.1 ") {
				t.Errorf("on the wire: %s", text)
			}
		})
	}
}
