package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// portAPIs are three APIs on one host: one at 3000, one at 443 and 80, and one for plain HTTP at 3001.
func portAPIs() map[string]string {
	named := func(host, token, value, extra string) string {
		return strings.NewReplacer(demoHost, host, tokenName, token, secretValue, value).Replace(demoAPI(extra))
	}
	return map[string]string{
		"dev":   demoAPI3000(""),
		"web":   named(demoHost, "WEB_TOKEN", "web-secret-value-1", `, "restricted_methods": ["DELETE"]`),
		"plain": named(demoHost+":3001", "PLAIN_TOKEN", "plain-secret-value-1", `, "allow_http": true`),
	}
}

func demoAPI3000(extra string) string {
	return strings.Replace(demoAPI(extra), demoHost, demoHost+":3000", 1)
}

// origins serves at 443, 3000 and 3001, with TLS or without, and notes what arrives at each.
func (u *upstreams) origins(over bool) map[string]*seen {
	out := map[string]*seen{}
	for _, port := range []uint16{443, 80, 3000, 3001} {
		s := &seen{}
		out[strconv.Itoa(int(port))] = s
		srv := httptest.NewUnstartedServer(s.echo())
		srv.TLS = &tls.Config{GetCertificate: func(hi *tls.ClientHelloInfo) (*tls.Certificate, error) { return u.ca.leaf(hi.ServerName), nil }}
		if over && port != 80 {
			srv.EnableHTTP2 = port == 3000
			srv.StartTLS()
		} else {
			srv.Start()
		}
		u.t.Cleanup(srv.Close)
		u.lead(port, srv.Listener.Addr().String())
	}
	return out
}

// TestPorts: a credential goes to the host at its API's port, and to no other port of that host.
// Promise: one-host-one-port
func TestPorts(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", h2), func(t *testing.T) {
			r := newRig(t, setup{apis: portAPIs()})
			at := r.upstreams.origins(true)
			end := r.begin()
			client := r.client(h2)
			for _, c := range []struct{ port, token, want string }{
				{"3000", tokenName, secretValue}, {"3000", "WEB_TOKEN", "WEB_TOKEN"}, {"3000", "PLAIN_TOKEN", "PLAIN_TOKEN"},
				{"443", "WEB_TOKEN", "web-secret-value-1"}, {"443", tokenName, tokenName},
				{"3001", "PLAIN_TOKEN", "plain-secret-value-1"}, {"3001", tokenName, tokenName}, {"3001", "WEB_TOKEN", "WEB_TOKEN"},
			} {
				host := demoHost + ":" + c.port
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/x?y=1", nil)
				check(t, err)
				req.Header.Set("Authorization", "Bearer "+c.token)
				resp, err := client.Do(req)
				check(t, err)
				if text := body(t, resp); resp.StatusCode != 200 || strings.Contains(text, "secret-value") || strings.Contains(text, secretValue) {
					t.Errorf("%+v: %d %s", c, resp.StatusCode, text)
				}
				got := at[c.port].last(t)
				if got.Header.Get("Authorization") != "Bearer "+c.want || got.Host != strings.TrimSuffix(host, ":443") {
					t.Errorf("%+v: at %s arrived %q for %q", c, c.port, got.Header.Get("Authorization"), got.Host)
				}
			}
			rec := end()
			if u := rec.Exchanges[0].URL; u != "https://"+demoHost+":3000/x?y" || rec.Exchanges[0].Host != demoHost+":3000" || strings.Join(rec.Exchanges[0].APIs, " ") != "dev" {
				t.Errorf("the receipt says %+v", rec.Exchanges[0])
			}
			if h := fmt.Sprint(rec.Hints); !strings.Contains(h, demoHost+":3000") {
				t.Errorf("no hint says where %s belongs: %s", tokenName, h)
			}
		})
	}
}

// TestPortsRefused: what names another port than that of the connection, or one that no API has, reaches no upstream.
// Promise: one-host-one-port
func TestPortsRefused(t *testing.T) {
	for _, c := range []struct {
		name, port, request, code string
		plain, yolo               bool
	}{
		{name: "no port", port: "3000", request: "GET / HTTP/1.1\r\nHost: " + demoHost, code: "host_mismatch"},
		{name: "another port", port: "3000", request: "GET / HTTP/1.1\r\nHost: " + demoHost + ":3001", code: "host_invalid"},
		{name: "the usual port", port: "3000", request: "GET / HTTP/1.1\r\nHost: " + demoHost + ":443", code: "host_invalid"},
		{name: "the API's port elsewhere", port: "443", request: "GET / HTTP/1.1\r\nHost: " + demoHost + ":3000", code: "host_invalid"},
		{name: "the port twice", port: "3000", request: "GET / HTTP/1.1\r\nHost: " + demoHost + ":3000:3000", code: "host_invalid"},
		{name: "a port with zeros", port: "3000", request: "GET / HTTP/1.1\r\nHost: " + demoHost + ":03000", code: "host_invalid"},
		{name: "two hosts", port: "3000", request: "GET / HTTP/1.1\r\nHost: " + demoHost + ":3000\r\nHost: " + demoHost + ":3001", code: "bad_request"},
		{name: "absolute", port: "3000", request: "GET https://" + demoHost + ":3001/ HTTP/1.1\r\nHost: " + demoHost + ":3000", code: "bad_request"},
		{name: "CONNECT", port: "3000", request: "CONNECT " + demoHost + ":3001 HTTP/1.1\r\nHost: " + demoHost + ":3001", code: "bad_request"},
		{name: "an address", port: "3000", request: "GET / HTTP/1.1\r\nHost: 127.0.0.1:3000", code: "host_invalid"},
		{name: "a host of no port", port: "3000", request: "GET / HTTP/1.1\r\nHost: other.test:3000", code: "host_mismatch"},
		{name: "plain, where it is not allowed", port: "3000", plain: true, request: "GET / HTTP/1.1\r\nHost: " + demoHost + ":3000", code: "plain_http"},
		{name: "plain, no port", port: "3001", plain: true, request: "GET / HTTP/1.1\r\nHost: " + demoHost, code: "host_mismatch"},
		{name: "plain, another API's port", port: "3001", plain: true, request: "GET / HTTP/1.1\r\nHost: " + demoHost + ":3000", code: "host_invalid"},
		{name: "plain, no such host", port: "3001", plain: true, request: "GET / HTTP/1.1\r\nHost: evil.test:3001", code: "host_unknown"},
		{name: "no such host, open", port: "3001", plain: true, yolo: true, request: "GET / HTTP/1.1\r\nHost: evil.test:3001", code: "host_unknown"},
		{name: "a port of another host", port: "3001", plain: true, yolo: true, request: "GET / HTTP/1.1\r\nHost: only.test:3001", code: "port_unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			apis := portAPIs()
			apis["only"] = strings.NewReplacer(demoHost, "only.test:3000", tokenName, "ONLY_TOKEN", secretValue, "only-secret-value").Replace(demoAPI(""))
			r := newRig(t, setup{apis: apis, yolo: c.yolo})
			at := r.upstreams.origins(!c.plain)
			end := r.begin()
			to := r.ports[c.port]
			if c.port == "443" {
				to = r.https[0]
			}
			conn, err := net.Dial("tcp", to)
			check(t, err)
			defer conn.Close()
			check(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			if !c.plain {
				conn = tls.Client(conn, &tls.Config{RootCAs: r.roots(), ServerName: demoHost})
			}
			_, err = io.WriteString(conn, c.request+"\r\nAuthorization: "+tokenName+"\r\n\r\n")
			check(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			check(t, err)
			if got := refusal(t, resp); got.Code != c.code || got.Hint == "" {
				t.Errorf("%d %+v", resp.StatusCode, got)
			}
			for port, s := range at {
				if s.count() != 0 {
					t.Errorf("the upstream at %s was reached", port)
				}
			}
			if rec := end(); r.upstreams.dialled() != 0 || rec.Count.Denied != 1 {
				t.Errorf("%d connections were made; the receipt says %+v", r.upstreams.dialled(), rec)
			}
		})
	}
}

// TestPortsPlain: over plain HTTP, at the port of an API that allows it, names are swapped.
// Promise: one-host-one-port
func TestPortsPlain(t *testing.T) {
	r := newRig(t, setup{apis: portAPIs()})
	at := r.upstreams.origins(false)
	r.begin()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+demoHost+":3001/", nil)
	check(t, err)
	req.Header.Set("Authorization", "Bearer PLAIN_TOKEN")
	resp, err := r.client(false).Do(req)
	check(t, err)
	defer resp.Body.Close()
	if got := at["3001"].last(t); got.Header.Get("Authorization") != "Bearer plain-secret-value-1" || got.Host != demoHost+":3001" {
		t.Errorf("%q arrived for %q", got.Header.Get("Authorization"), got.Host)
	}
}

// TestPortsWebSocket: the handshake swaps at the API's port alone, and messages are scrubbed.
// Promise: one-host-one-port
func TestPortsWebSocket(t *testing.T) {
	r := newRig(t, setup{apis: portAPIs()})
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c, err := websocket.Accept(w, req, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		_ = c.Write(req.Context(), websocket.MessageText, []byte(req.Host+" "+req.Header.Get("X-Seen")+" "+strconv.Itoa(len(req.Header.Get("Authorization")))))
	}))
	r.upstreams.lead(3000, r.upstreams.ports[443])
	r.upstreams.lead(3001, r.upstreams.ports[443])
	r.begin()
	for port, length := range map[string]int{"3000": len("Bearer " + secretValue), "3001": len("Bearer " + tokenName)} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		client := r.client(false)
		client.Timeout = 0
		c, _, err := websocket.Dial(ctx, "wss://"+demoHost+":"+port+"/ws", &websocket.DialOptions{
			HTTPClient: client, HTTPHeader: http.Header{"Authorization": {"Bearer " + tokenName}},
		})
		check(t, err)
		_, data, err := c.Read(ctx)
		check(t, err)
		if want := fmt.Sprintf("%s:%s  %d", demoHost, port, length); string(data) != want {
			t.Errorf("the server saw %q, want %q", data, want)
		}
		_ = c.CloseNow()
		cancel()
	}
}

// TestPortsReload: an API that loses its port loses its credential there.
// Promise: one-host-one-port
func TestPortsReload(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"dev": demoAPI3000("")}})
	at := r.upstreams.origins(true)
	r.begin()
	get := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+demoHost+":3000/", nil)
		check(t, err)
		req.Header.Set("Authorization", "Bearer "+tokenName)
		resp, err := r.client(false).Do(req)
		check(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := get(); got != 200 || at["3000"].last(t).Header.Get("Authorization") != "Bearer "+secretValue {
		t.Fatalf("%d", got)
	}
	r.writeAPI("dev", strings.Replace(demoAPI(""), demoHost, demoHost+":3001", 1))
	r.reloader.Load()
	if got := get(); got != 403 || at["3000"].count() != 1 {
		t.Errorf("%d; %d requests arrived", got, at["3000"].count())
	}
}
