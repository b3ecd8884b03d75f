package egress_test

import (
	"bufio"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// raw sends bytes to slot 0 over TLS with this server name ("": plain TCP to port 80) and returns the answers.
func (r *rig) raw(serverName, text string) (*bufio.Reader, net.Conn) {
	r.t.Helper()
	var c net.Conn
	var err error
	if serverName == "" {
		c, err = net.Dial("tcp", r.http[0])
	} else {
		c, err = tls.Dial("tcp", r.https[0], &tls.Config{RootCAs: r.roots(), ServerName: serverName})
	}
	check(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	check(r.t, c.SetDeadline(time.Now().Add(testkit.Patience)))
	_, err = io.WriteString(c, text)
	check(r.t, err)
	return bufio.NewReader(c), c
}

// TestSmuggling sends what two parsers may read differently. None of it may reach the upstream; each is refused with
// 400 and has a receipt entry.
// Promise: one-reading
func TestSmuggling(t *testing.T) {
	const ok = "Host: " + demoHost + "\r\n"
	for name, text := range map[string]string{
		"length and chunked":       "POST / HTTP/1.1\r\n" + ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked and length":       "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"two equal lengths":        "POST / HTTP/1.1\r\n" + ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
		"two lengths":              "POST / HTTP/1.1\r\n" + ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
		"list of lengths":          "POST / HTTP/1.1\r\n" + ok + "Content-Length: 2, 2\r\n\r\nab",
		"signed length":            "POST / HTTP/1.1\r\n" + ok + "Content-Length: +2\r\n\r\nab",
		"other coding":             "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"coding with a tab":        "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"two codings":              "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"space before the colon":   "POST / HTTP/1.1\r\n" + ok + "Content-Length : 2\r\n\r\nab",
		"bare LF":                  "GET / HTTP/1.1\n" + "Host: " + demoHost + "\n\r\n\r\n",
		"bare LF in a field":       "GET / HTTP/1.1\r\n" + ok + "A: b\nC: d\r\n\r\n",
		"bare CR in a field":       "GET / HTTP/1.1\r\n" + ok + "A: b\rC: d\r\n\r\n",
		"folded line":              "GET / HTTP/1.1\r\n" + ok + "A: b\r\n c\r\n\r\n",
		"folded first line":        "GET / HTTP/1.1\r\n A: b\r\n" + ok + "\r\n",
		"NUL in a field":           "GET / HTTP/1.1\r\n" + ok + "A: b\x00\r\n\r\n",
		"absolute target":          "GET https://" + demoHost + "/ HTTP/1.1\r\n" + ok + "\r\n",
		"absolute target, other":   "GET https://other.test/ HTTP/1.1\r\n" + ok + "\r\n",
		"target without slash":     "GET x HTTP/1.1\r\n" + ok + "\r\n",
		"authority target":         "CONNECT " + demoHost + ":443 HTTP/1.1\r\n" + ok + "\r\n",
		"fragment":                 "GET /#a HTTP/1.1\r\n" + ok + "\r\n",
		"two hosts":                "GET / HTTP/1.1\r\n" + ok + ok + "\r\n",
		"two hosts, other case":    "GET / HTTP/1.1\r\n" + ok + "HOST: other.test\r\n\r\n",
		"no host":                  "GET / HTTP/1.1\r\nA: b\r\n\r\n",
		"HTTP/1.2":                 "GET / HTTP/1.2\r\n" + ok + "\r\n",
		"HTTP/0.9":                 "GET /\r\n\r\n",
		"HTTP/1.0 with chunked":    "POST / HTTP/1.0\r\n" + ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two spaces":               "GET  / HTTP/1.1\r\n" + ok + "\r\n",
		"empty line first":         "\r\nGET / HTTP/1.1\r\n" + ok + "\r\n",
		"expectation":              "GET / HTTP/1.1\r\n" + ok + "Expect: 200-ok\r\n\r\n",
		"h2c preface":              "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"a head without end":       "GET / HTTP/1.1\r\n" + ok + "A: " + strings.Repeat("a", 70<<10) + "\r\n\r\n",
		"a thousand header fields": "GET / HTTP/1.1\r\n" + ok + strings.Repeat("A: b\r\n", 1000) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			var up seen
			r.upstreams.https(up.echo())
			end := r.begin()
			in, c := r.raw(demoHost, text)
			resp, err := http.ReadResponse(in, nil)
			check(t, err)
			if got := refusal(t, resp); resp.StatusCode != 400 || got.Code != "bad_request" {
				t.Errorf("got %d %+v", resp.StatusCode, got)
			}
			if _, err := in.ReadByte(); err != io.EOF {
				t.Errorf("the connection is still open: %v", err)
			}
			c.Close()
			if n := up.count() + r.upstreams.dialled(); n != 0 {
				t.Errorf("the upstream was reached")
			}
			if rec := end(); rec.Count.Denied != 1 || len(rec.Exchanges) != 1 {
				t.Errorf("the receipt says %+v", rec)
			}
		})
	}
}

// TestMalformedChunks: a body turns malformed in the middle; the upstream must not see a complete request.
// Promise: one-reading
func TestMalformedChunks(t *testing.T) {
	for name, chunks := range map[string]string{
		"extension":          "3;a=b\r\nabc\r\n0\r\n\r\n",
		"bare LF":            "3\nabc\r\n0\r\n\r\n",
		"no CRLF":            "3\r\nabcd\r\n0\r\n\r\n",
		"not hex":            "0x3\r\nabc\r\n0\r\n\r\n",
		"sign":               "+3\r\nabc\r\n0\r\n\r\n",
		"overflow":           "ffffffffffffffff1\r\nabc\r\n0\r\n\r\n",
		"trailer that frame": "3\r\nabc\r\n0\r\nContent-Length: 1\r\n\r\n",
		"folded trailer":     "3\r\nabc\r\n0\r\nA: b\r\n c\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			complete := make(chan bool, 1)
			r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				_, err := io.ReadAll(req.Body)
				complete <- err == nil
			}))
			r.begin()
			r.raw(demoHost, "POST / HTTP/1.1\r\nHost: "+demoHost+"\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks)
			select {
			case whole := <-complete:
				if whole {
					t.Error("the upstream saw a complete request")
				}
			case <-time.After(300 * time.Millisecond): // it was never reached
			}
		})
	}
}

// TestPipelining: a refused request after a good one is answered second.
func TestPipelining(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	end := r.begin()
	good := "POST /1 HTTP/1.1\r\nHost: " + demoHost + "\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
	in, _ := r.raw(demoHost, good+"GET /2 HTTP/1.1\r\nHost: "+demoHost+"\r\n\r\n"+"GET /3 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"+good)
	for i, want := range []int{200, 200, 400} {
		resp, err := http.ReadResponse(in, nil)
		check(t, err)
		body(t, resp)
		if resp.StatusCode != want {
			t.Errorf("answer %d is %d, want %d", i+1, resp.StatusCode, want)
		}
	}
	if n := up.count(); n != 2 {
		t.Errorf("the upstream saw %d requests", n)
	}
	if rec := end(); rec.Count.Exchanges != 3 || rec.Count.Denied != 1 {
		t.Errorf("the receipt says %+v", rec.Count)
	}
}

// TestHosts: the handshake and the request must name the same host, and the run must be allowed to use it.
// Promise: default-deny, one-host-one-port
func TestHosts(t *testing.T) {
	two := map[string]string{
		"demo":  demoAPI(`, "active": true`),
		"other": strings.NewReplacer(demoHost, "other.test", tokenName, "OTHER_TOKEN", secretValue, "other-secret-value").Replace(demoAPI("")),
		"off":   strings.NewReplacer(demoHost, "off.test", tokenName, "OFF_TOKEN", secretValue, "off-secret-value").Replace(demoAPI(`, "active": false`)),
	}
	for _, c := range []struct {
		name, sni, host string
		yolo            bool
		apis            []string
		status          int
		code            string
	}{
		{name: "same", sni: demoHost, host: demoHost, status: 200},
		{name: "with its port", sni: demoHost, host: demoHost + ":443", status: 200},
		{name: "upper case", sni: demoHost, host: strings.ToUpper(demoHost), status: 200},
		{name: "trailing dot", sni: demoHost, host: demoHost + ".", status: 200},
		{name: "another API's host", sni: demoHost, host: "other.test", status: 421, code: "host_mismatch"},
		{name: "another port", sni: demoHost, host: demoHost + ":8443", status: 403, code: "host_invalid"},
		{name: "plain port", sni: demoHost, host: demoHost + ":80", status: 403, code: "host_invalid"},
		{name: "user", sni: demoHost, host: "a@" + demoHost, status: 400, code: "bad_request"},
		{name: "percent", sni: demoHost, host: "api.demo%2etest", status: 403, code: "host_invalid"},
		{name: "address", sni: demoHost, host: "127.0.0.1", status: 403, code: "host_invalid"},
		{name: "unknown host", sni: "evil.test", host: "evil.test", status: 403, code: "host_unknown"},
		{name: "unknown host, open", sni: "evil.test", host: "evil.test", yolo: true, status: 502, code: "address_refused"},
		{name: "inactive API", sni: "off.test", host: "off.test", status: 403, code: "api_inactive"},
		{name: "inactive API, open", sni: "off.test", host: "off.test", yolo: true, status: 403, code: "api_inactive"},
		{name: "not the run's API", sni: "other.test", host: "other.test", apis: []string{"demo"}, status: 403, code: "api_not_in_run"},
		{name: "not the run's API, open", sni: "other.test", host: "other.test", yolo: true, apis: []string{"demo"}, status: 403, code: "api_not_in_run"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, setup{apis: two, yolo: c.yolo})
			var up seen
			r.upstreams.https(up.echo())
			end := r.begin(c.apis...)
			in, _ := r.raw(c.sni, "GET / HTTP/1.1\r\nHost: "+c.host+"\r\nAuthorization: "+tokenName+"\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			check(t, err)
			if resp.StatusCode != c.status {
				t.Fatalf("got %d %s", resp.StatusCode, body(t, resp))
			}
			if c.status == 200 {
				if got := up.last(t).Host; got != demoHost {
					t.Errorf("the upstream saw Host %q", got)
				}
				return
			}
			if got := refusal(t, resp); got.Code != c.code || got.Hint == "" {
				t.Errorf("got %+v", got)
			}
			if up.count() != 0 || r.upstreams.dialled() != 0 {
				t.Error("the upstream was reached")
			}
			if rec := end(); rec.Count.Denied != 1 || len(rec.Hints) == 0 {
				t.Errorf("the receipt says %+v", rec)
			}
		})
	}
}

// TestNoServerName: a handshake without a host, or for an address, is refused and recorded.
// Promise: one-host-one-port
func TestNoServerName(t *testing.T) {
	r := newRig(t, setup{yolo: true})
	end := r.begin()
	for _, name := range []string{"", "127.0.0.1"} {
		c, err := tls.Dial("tcp", r.https[0], &tls.Config{RootCAs: r.roots(), ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // the server must refuse
		if err == nil {
			c.Close()
			t.Errorf("server name %q was accepted", name)
		}
	}
	eventually(t, func() bool { return strings.Count(r.logs.String(), "code=host_invalid") == 2 })
	if rec := end(); rec.Count.Denied != 2 || rec.Exchanges[0].Code != "host_invalid" {
		t.Errorf("the receipt says %+v", rec)
	}
}

// TestMethods: the method of the request line and every override must be allowed.
// Promise: restricted-methods
func TestMethods(t *testing.T) {
	restricted := map[string]string{"demo": demoAPI(`, "restricted_methods": ["DELETE", "PUT"]`)}
	allowed := map[string]string{"demo": demoAPI(`, "allowed_methods": ["GET", "POST"]`)}
	form, multi, js := "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "application/json"
	for _, c := range []struct {
		name   string
		apis   map[string]string
		line   string // method and target
		header string
		kind   string
		body   string
		code   string // empty: passes
	}{
		{"get", restricted, "GET /", "", "", "", ""},
		{"delete", restricted, "DELETE /", "", "", "", "method_restricted"},
		{"lower case", restricted, "delete /", "", "", "", "method_restricted"},
		{"put", restricted, "PUT /", "", "", "x", "method_restricted"},
		{"patch is not named", restricted, "PATCH /", "", "", "x", ""},
		{"not a standard method", restricted, "PURGE /", "", "", "", "method_unknown"},
		{"not a standard method, nothing restricted", nil, "PURGE /", "", "", "", ""},
		{"trace", nil, "TRACE /", "", "", "", "method_refused"},
		{"track", nil, "TRACK /", "", "", "", "method_refused"},
		{"not allowed", allowed, "PATCH /", "", "", "x", "method_restricted"},
		{"head is not get", allowed, "HEAD /", "", "", "", "method_restricted"},
		{"override", restricted, "POST /", "X-HTTP-Method-Override: DELETE", "", "x", "method_restricted"},
		{"override, other name", restricted, "POST /", "X-Method-Override: delete", "", "x", "method_restricted"},
		{"override, third name", restricted, "GET /", "x-http-method: PUT", "", "", "method_restricted"},
		{"override, underscores", restricted, "GET /", "X_HTTP_Method_Override: PUT", "", "", "method_restricted"},
		{"override to trace", nil, "POST /", "X-HTTP-Method-Override: TRACE", "", "x", "method_refused"},
		{"override to get", restricted, "POST /", "X-HTTP-Method-Override: GET", "", "x", ""},
		{"restricted overridden to get", restricted, "DELETE /", "X-HTTP-Method-Override: GET", "", "", "method_restricted"},
		{"query", restricted, "POST /?a=b&_method=DELETE", "", "", "x", "method_restricted"},
		{"query, escaped", restricted, "POST /?%5Fmethod=%44ELETE", "", "", "x", "method_restricted"},
		{"query, upper case", restricted, "POST /?_METHOD=DELETE", "", "", "x", "method_restricted"},
		{"query, semicolon", restricted, "POST /?a=b;_method=DELETE", "", "", "x", "method_restricted"},
		{"query, other parameter", restricted, "POST /?payment_method=DELETE", "", "", "x", ""},
		{"form", restricted, "POST /", "", form, "a=b&_method=DELETE", "method_restricted"},
		{"form, other field", restricted, "POST /", "", form, "payment_method=PUT", ""},
		{"form, no restriction", nil, "POST /", "", form, "_method=DELETE", ""},
		{"form, compressed", restricted, "POST /", "Content-Encoding: gzip", form, string(gzipped("_method=DELETE")), "method_restricted"},
		{"form, too long", restricted, "POST /", "", form, strings.Repeat("a", 1<<20+1), "override_unseen"},
		{"multipart", restricted, "POST /", "", multi, "--b\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--b--\r\n", "override_unseen"},
		{"json", restricted, "POST /", "", js, `{"a": 1, "_method": "DELETE"}`, "override_unseen"},
		{"json, other field", restricted, "POST /", "", js, `{"payment_method": "DELETE"}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, setup{apis: c.apis})
			var up seen
			r.upstreams.https(up.echo())
			end := r.begin()
			text := c.line + " HTTP/1.1\r\nHost: " + demoHost + "\r\n"
			if c.header != "" {
				text += c.header + "\r\n"
			}
			if c.kind != "" {
				text += "Content-Type: " + c.kind + "\r\n"
			}
			if c.body != "" {
				text += fmt.Sprintf("Content-Length: %d\r\n", len(c.body))
			}
			in, _ := r.raw(demoHost, text+"\r\n"+c.body)
			method, _, _ := strings.Cut(c.line, " ")
			req, _ := http.NewRequest(method, "https://"+demoHost, nil)
			resp, err := http.ReadResponse(in, req)
			check(t, err)
			if c.code == "" {
				if resp.StatusCode != 200 || up.count() != 1 {
					t.Fatalf("got %d %s", resp.StatusCode, body(t, resp))
				}
				if c.body != "" && up.bodies[0] != c.body {
					t.Errorf("the upstream saw the body %q", up.bodies[0])
				}
				return
			}
			if resp.StatusCode != 403 {
				t.Fatalf("got %d", resp.StatusCode)
			}
			if method != "HEAD" && method != "head" {
				if got := refusal(t, resp); got.Code != c.code {
					t.Errorf("got %+v", got)
				}
			}
			rec := end()
			if len(rec.Exchanges) != 1 || rec.Exchanges[0].Code != c.code || rec.Count.Denied != 1 {
				t.Errorf("the receipt says %+v", rec)
			}
		})
	}
}

// TestOverrideHints: the hint on a body that may override the method is about that body: it speaks of forms and their length
// to who sent a long form.
func TestOverrideHints(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "restricted_methods": ["DELETE"]`)}})
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	const form, js = "application/x-www-form-urlencoded", "application/json"
	for name, row := range map[string]struct{ kind, coding, body, want, not string }{
		"method in JSON":  {js, "", `{"method": "DELETE", "id": 7}`, `"method" or "_method" in JSON`, "MiB"},
		"_method in JSON": {js, "", `{"_method": "GET"}`, "Leave that field out, or give it another name", "MiB"},
		"a part":          {"multipart/form-data; boundary=b", "", "--b\r\nContent-Disposition: form-data; name=\"method\"\r\n\r\nDELETE\r\n--b--\r\n", "a part", "MiB"},
		"a long form":     {form, "", strings.Repeat("a", 1<<20+1), "Send a form of at most 1 MiB", "field"},
		"an encoding":     {js, "odd", "{}", "without Content-Encoding", "field"},
		"two encodings":   {"image/png", "gzip, odd", "x", "without Content-Encoding", "field"},
	} {
		req, err := http.NewRequest(http.MethodPost, "https://"+demoHost+"/", strings.NewReader(row.body))
		check(t, err)
		req.Header.Set("Content-Type", row.kind)
		if row.coding != "" {
			req.Header.Set("Content-Encoding", row.coding)
		}
		resp, err := r.client(false).Do(req)
		check(t, err)
		if got := refusal(t, resp); got.Code != "override_unseen" || !strings.Contains(got.Hint, row.want) || strings.Contains(got.Hint, row.not) || !strings.Contains(got.Hint, "The API demo") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestUpgrades: no upgrade but WebSocket.
// Promise: restricted-methods
func TestUpgrades(t *testing.T) {
	for name, header := range map[string]string{
		"h2c":                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
		"settings alone":     "HTTP2-Settings: AAMAAABkAAQAAP__\r\n",
		"unnamed":            "Connection: upgrade\r\n",
		"two":                "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
		"tunnel":             "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n",
		"websocket, no key":  "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
		"websocket, version": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 8\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			var up seen
			r.upstreams.https(up.echo())
			r.begin()
			in, _ := r.raw(demoHost, "GET / HTTP/1.1\r\nHost: "+demoHost+"\r\n"+header+"\r\n")
			resp, err := http.ReadResponse(in, nil)
			check(t, err)
			if got := refusal(t, resp); got.Code != "upgrade_refused" {
				t.Errorf("got %+v", got)
			}
			if up.count() != 0 {
				t.Error("the upstream was reached")
			}
		})
	}
}

// TestPlainHTTP: credentials go over TLS only, unless the API says otherwise.
// Promise: declared-places-only
func TestPlainHTTP(t *testing.T) {
	for name, c := range map[string]struct {
		extra  string
		status int
	}{
		"with credentials": {"", 403},
		"allow_http":       {`, "allow_http": true`, 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(c.extra)}})
			var up seen
			r.upstreams.plain(up.echo())
			end := r.begin()
			req, _ := http.NewRequest("GET", "http://"+demoHost+"/", nil)
			req.Header.Set("Authorization", "Bearer "+tokenName)
			resp, err := r.client(false).Do(req)
			check(t, err)
			text := body(t, resp)
			if resp.StatusCode != c.status {
				t.Fatalf("got %d %s", resp.StatusCode, text)
			}
			if c.status == 200 && up.last(t).Header.Get("Authorization") != "Bearer "+secretValue {
				t.Error("the credential was not swapped in")
			}
			if c.status == 403 && (up.count() > 0 || end().Exchanges[0].Code != "plain_http") {
				t.Error("want a refusal before anything was sent")
			}
		})
	}
}

// TestPlainHTTPOpen: under YOLO_MODE plain HTTP to a host in no API passes, with the name as it was written.
func TestPlainHTTPOpen(t *testing.T) {
	r := newRig(t, setup{yolo: true})
	r.begin()
	in, _ := r.raw("", "GET / HTTP/1.1\r\nHost: some.test\r\n\r\n")
	resp, err := http.ReadResponse(in, nil)
	check(t, err)
	if got := refusal(t, resp); got.Code != "address_refused" { // its address is loopback here: the request got as far as the dial
		t.Errorf("got %+v", got)
	}
}

// TestCredentialSent: a request that carries the value itself is refused.
// Promise: leaked-values-stop-here
func TestCredentialSent(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"header": func(r *http.Request) { r.Header.Set("X-A", secretValue) },
		"query":  func(r *http.Request) { r.URL.RawQuery = "a=" + secretValue },
		"body": func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader("x " + secretValue + " y"))
			r.ContentLength = -1
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			var up seen
			r.upstreams.https(up.echo())
			end := r.begin()
			req, _ := http.NewRequest("POST", "https://"+demoHost+"/", nil)
			change(req)
			resp, err := r.client(false).Do(req)
			check(t, err)
			if got := refusal(t, resp); resp.StatusCode != 403 || got.Code != "credential_in_request" {
				t.Errorf("got %d %+v", resp.StatusCode, got)
			}
			rec := end()
			if rec.Count.Denied != 1 || strings.Contains(fmt.Sprint(rec)+r.logs.String(), secretValue) {
				t.Errorf("the receipt says %+v", rec)
			}
			up.mu.Lock() // a refused body may still be on its way to the handler
			defer up.mu.Unlock()
			for _, b := range up.bodies {
				if strings.Contains(b, secretValue) {
					t.Error("the upstream saw the value")
				}
			}
		})
	}
}

// TestChosenHost: the part of a host name that code chooses carries no credential and no redacted string, not even to a
// DNS server. The part that an API names may contain the string.
// Promise: leaked-values-stop-here
func TestChosenHost(t *testing.T) {
	wild := `{"description": "wild", "domains": ["*.project-x.test", "project-x.named.test"], "credentials": {"WILD_TOKEN": "wild-value-0123456789"}, "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"], "allow_http": true}`
	for host, code := range map[string]string{
		hex.EncodeToString([]byte(secretValue)) + ".some.test":      "credential_in_request",
		"a." + hex.EncodeToString([]byte(secretValue)) + ".test":    "credential_in_request",
		hex.EncodeToString([]byte(secretValue)) + ".project-x.test": "credential_in_request",
		"wild-value-0123456789.project-x.test":                      "credential_in_request",
		"project-x.some.test":                                       "redacted_host",
		"a-PROJECT-X-b.project-x.test":                              "redacted_host",
		"a.project-x.test":                                          "",
		"project-x.named.test":                                      "",
	} {
		t.Run("want "+code, func(t *testing.T) {
			r := newRig(t, setup{yolo: true, redact: []string{"Project-X"}, apis: map[string]string{"demo": demoAPI(""), "wild": wild}})
			var up seen
			r.upstreams.plain(up.echo())
			end := r.begin()
			in, _ := r.raw("", "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			check(t, err)
			if code == "" {
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%d", resp.StatusCode)
				}
				return
			}
			if got := refusal(t, resp); got.Code != code {
				t.Errorf("got %+v", got)
			}
			told := strings.ToLower(fmt.Sprint(end()) + r.logs.String())
			if name, _, _ := strings.Cut(strings.ToLower(host), "."); up.count() > 0 || len(name) > 1 && strings.Contains(told, name) {
				t.Errorf("%d arrived, and it was told: %s", up.count(), told)
			}
		})
	}
}

// eventually waits for something that another goroutine does.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within a minute")
		}
	}
}
