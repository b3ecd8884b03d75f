package egress_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
	"github.com/codeforge-mcp/codeforge/proxy/internal/control"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const callHost = proxyapi.ServersHost

// serverAPI is a config.json of an MCP server with a host of its own.
func serverAPI(host, token, extra string) string {
	return `{"description": "server", "domains": ["` + host + `"], "credentials": {"` + token + `": "` + secretValue + token + `"},
		"ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"], "mcp": {"command": ["program"]}` + extra + `}`
}

// mcpServers are two MCP servers and an API that is none.
func mcpServers() map[string]string {
	return map[string]string{
		"demo": demoAPI(""), "my-files": serverAPI("files.demo.test", "FILES_AUTH_TOKEN", `, "allowed_methods": ["GET"]`),
		"notes": serverAPI("notes.demo.test", "NOTES_AUTH_TOKEN", ""), "off": serverAPI("off.demo.test", "OFF_AUTH_TOKEN", `, "active": false`),
	}
}

// connectBroker makes a handler the broker of the rig, through a real control API.
func (r *rig) connectBroker(h http.HandlerFunc) {
	r.t.Helper()
	c := control.New(control.Config{
		Leases: r.book, Journal: r.journal, Current: r.reloader.Current, Broker: r.broker, Ready: func() error { return nil },
	})
	path := r.t.TempDir() + "/control"
	l, err := unixsocket.Listen(r.t.Context(), path, 0o600)
	check(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- c.Serve(ctx, l) }()
	client := proxyapi.NewClient(path)
	go func() { done <- client.ServeBroker(ctx, h) }()
	r.t.Cleanup(func() { cancel(); <-done; <-done })
	for !r.broker.IsConnected() {
		time.Sleep(5 * time.Millisecond)
	}
}

// beginServer registers a server, or an installation, in the slot for servers.
func (r *rig) beginServer(reg proxyapi.Registration) (end func() proxyapi.Receipt) {
	r.t.Helper()
	reg.Generation, reg.Run, reg.Deadline = 1, "server", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := r.book.BeginLease(serverSlot, reg)
	check(r.t, err)
	return func() proxyapi.Receipt {
		rec, err := r.book.EndLease(serverSlot, 1)
		check(r.t, err)
		return rec
	}
}

func post(t testing.TB, c *http.Client, address, text string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, address, strings.NewReader(text))
	check(t, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	check(t, err)
	return resp
}

// TestCall: a call reaches the broker with the run's identity, names stay names, and the answer is scrubbed.
// Promise: one-way-to-a-server, names-on-the-way-to-a-server
func TestCall(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			r := newRig(t, setup{apis: mcpServers(), redact: []string{"Jane Roe"}})
			var got seen
			r.connectBroker(func(w http.ResponseWriter, req *http.Request) {
				text := got.note(req)
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set(proxyapi.HeaderCode, "server_error")
				fmt.Fprintf(w, `{"echo": %q, "other": %q}`, text, secretValue+"NOTES_AUTH_TOKEN")
			})
			end := r.begin("my-files")
			resp := post(t, r.client(h2), "https://"+callHost+"/my_files/read%2Fall", `{"by": "Jane Roe", "key": "FILES_AUTH_TOKEN"}`,
				"Codeforge-Run", "another", "codeforge_slot", "7", "Codeforge-Generation", "99", "Codeforge-Extra", "x",
				"Codeforge-Timeout-Ms", "1500", "X-Http-Method-Override", "DELETE", "Authorization", "Bearer FILES_AUTH_TOKEN", "Cookie", "a=b")
			text := body(t, resp)
			in := got.last(t)
			if in.Method != "POST" || in.RequestURI != "/my-files/read%2Fall" || in.Host != callHost {
				t.Errorf("the broker got %s %s%s", in.Method, in.Host, in.RequestURI)
			}
			want := http.Header{
				"Codeforge-Run": {"run-" + t.Name()}, "Codeforge-Slot": {"0"}, "Codeforge-Generation": {"1"},
				"Codeforge-Timeout-Ms": {"1500"}, "Content-Type": {"application/json"},
			}
			in.Header.Del("User-Agent")
			in.Header.Del("Content-Length")
			if fmt.Sprint(in.Header) != fmt.Sprint(want) {
				t.Errorf("the broker got the headers %v, want %v", in.Header, want)
			}
			if got.bodies[0] != `{"by": "REDACTED", "key": "FILES_AUTH_TOKEN"}` {
				t.Errorf("the broker got %q", got.bodies[0])
			}
			if resp.StatusCode != 200 || !strings.Contains(text, `"other": "NOTES_AUTH_TOKEN"`) || strings.Contains(text, secretValue) {
				t.Errorf("code got %d %q", resp.StatusCode, text)
			}
			if resp.Header.Get(proxyapi.HeaderCode) != "" {
				t.Error("code sees the header for the receipt")
			}
			rec := end()
			if len(rec.Exchanges) != 1 || r.upstreams.dialled() != 0 {
				t.Fatalf("%d exchanges, %d dials", len(rec.Exchanges), r.upstreams.dialled())
			}
			e := rec.Exchanges[0]
			if fmt.Sprint(e.APIs) != "[my-files]" || e.URL != "https://"+callHost+"/my_files/read%2Fall" || e.Code != "server_error" ||
				e.Sanitized != 1 || e.Redacted != 1 || len(e.Swapped) != 0 || e.Outcome != proxyapi.OutcomeServed || e.BytesUp == 0 {
				t.Errorf("the receipt says %+v", e)
			}
		})
	}
}

// TestCallPaths: only paths that everybody reads the same way, with a server of the run, reach the broker.
// Promise: one-way-to-a-server
func TestCallPaths(t *testing.T) {
	r := newRig(t, setup{apis: mcpServers(), yolo: true})
	var got seen
	r.connectBroker(func(_ http.ResponseWriter, req *http.Request) { got.note(req) })
	end := r.begin("my-files", "demo")
	c := r.client(true)
	for _, row := range []struct {
		path, code string
		status     int
		arrives    string
	}{
		{"/my-files/read", "", 200, "/my-files/read"},
		{"/my-files", "", 200, "/my-files"},
		{"/my-files/$read", "", 200, "/my-files/$read"},
		{"/my-files/a%2F..%2Fb", "", 200, "/my-files/a%2F..%2Fb"},
		{"/my-files/%72ead", "", 200, "/my-files/read"},
		{"/my-files/a%20b%3Fc%23", "", 200, "/my-files/a%20b%3Fc%23"},
		{"/my-files/%C3%BC", "", 200, "/my-files/%C3%BC"},
		{"/$stash/get", "", 200, "/$stash/get"},
		{"/notes/read", policy.CodeServerNotFound, 404, ""},
		{"/demo/read", policy.CodeServerNotFound, 404, ""},
		{"/off/read", policy.CodeServerNotFound, 404, ""},
		{"/my-filse/read", policy.CodeServerNotFound, 404, ""},
		{"/$registry/read", policy.CodeServerNotFound, 404, ""},
		{"/MY-FILES/read", policy.CodeServerNotFound, 404, ""},
		{"/", policy.CodeBadCall, 400, ""},
		{"//my-files/read", policy.CodeBadCall, 400, ""},
		{"/my-files/", policy.CodeBadCall, 400, ""},
		{"/my-files//read", policy.CodeBadCall, 400, ""},
		{"/my-files/a/b", policy.CodeBadCall, 400, ""},
		{"/my-files/..", policy.CodeBadCall, 400, ""},
		{"/my-files/%2e%2E", policy.CodeBadCall, 400, ""},
		{"/my-files/.", policy.CodeBadCall, 400, ""},
		{"/../notes/read", policy.CodeBadCall, 400, ""},
		{"/my-files/../notes", policy.CodeBadCall, 400, ""},
		{"/my-files%2f..", policy.CodeBadCall, 400, ""},
		{"/my-files%2fread", policy.CodeBadCall, 400, ""},
		{"/notes%00/read", policy.CodeBadCall, 400, ""},
		{"/my-files/a%00b", policy.CodeBadCall, 400, ""},
		{"/my-files/a%0d%0aCodeforge-Run:%20x", policy.CodeBadCall, 400, ""},
		{"/my-files/%FF", policy.CodeBadCall, 400, ""},
		{"/my-files/read?x=1", policy.CodeBadCall, 400, ""},
		{"/my-files/read?", policy.CodeBadCall, 400, ""},
		{"/my-files/" + strings.Repeat("x", 300), policy.CodeBadCall, 400, ""},
	} {
		before := got.count()
		req, err := http.NewRequest(http.MethodPost, "https://"+callHost+"/", strings.NewReader("{}"))
		check(t, err)
		path, query, asked := strings.Cut(row.path, "?")
		plain, err := url.PathUnescape(path)
		check(t, err)
		req.URL = &url.URL{Scheme: "https", Host: callHost, Path: plain, RawPath: path, RawQuery: query, ForceQuery: asked}
		resp, err := c.Do(req)
		check(t, err)
		if row.code == "" {
			text := body(t, resp)
			if resp.StatusCode != 200 || got.count() != before+1 || got.last(t).RequestURI != row.arrives {
				t.Errorf("%s: %d %s", row.path, resp.StatusCode, text)
			}
			continue
		}
		if refused := refusal(t, resp); resp.StatusCode != row.status || refused.Code != row.code || refused.Hint == "" || got.count() != before {
			t.Errorf("%s: %d %+v, %d arrived", row.path, resp.StatusCode, refused, got.count()-before)
		}
	}
	for path, hint := range map[string]string{
		"/notes/read": "Name notes in the apis", "/demo/x": "no MCP server: call its hosts", "/off/x": "not active",
		"/my-filse/x": "nearest name is my-files", "/zzzzzzzzz/x": "list_apis",
	} {
		if refused := refusal(t, post(t, c, "https://"+callHost+path, "{}")); !strings.Contains(refused.Hint, hint) {
			t.Errorf("%s: %q", path, refused.Hint)
		}
	}
	if rec := end(); rec.Count.Denied == 0 || r.upstreams.dialled() != 0 {
		t.Errorf("%+v, %d dials", rec.Count, r.upstreams.dialled())
	}
}

// TestCallMethods: methods other than GET and POST, upgrades and plain HTTP do not reach the broker, whatever the
// restrictions of the server's API are.
// Promise: one-way-to-a-server
func TestCallMethods(t *testing.T) {
	r := newRig(t, setup{apis: mcpServers()})
	var got seen
	r.connectBroker(func(_ http.ResponseWriter, req *http.Request) { got.note(req) })
	defer r.begin()()
	for method, status := range map[string]int{"GET": 200, "POST": 200, "PUT": 400, "DELETE": 400, "OPTIONS": 400, "TRACE": 400, "BREW": 400} {
		req, err := http.NewRequest(method, "https://"+callHost+"/my-files/read", nil)
		check(t, err)
		resp, err := r.client(false).Do(req)
		check(t, err)
		if _ = body(t, resp); resp.StatusCode != status {
			t.Errorf("%s: %d", method, resp.StatusCode)
		}
	}
	count := got.count()
	resp := post(t, r.client(false), "http://"+callHost+"/my-files/read", "{}")
	if refused := refusal(t, resp); resp.StatusCode != 403 || refused.Code != policy.CodePlainHTTP {
		t.Errorf("plain http: %d %+v", resp.StatusCode, refused)
	}
	for _, protocol := range []string{"websocket", "h2c", proxyapi.BrokerProtocol} {
		req, err := http.NewRequest(http.MethodGet, "https://"+callHost+"/my-files", nil)
		check(t, err)
		req.Header = http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {protocol}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
		}
		resp, err := r.client(false).Do(req)
		check(t, err)
		if refused := refusal(t, resp); refused.Code != policy.CodeUpgradeRefused {
			t.Errorf("an upgrade to %s: %d %+v", protocol, resp.StatusCode, refused)
		}
	}
	if got.count() != count {
		t.Errorf("%d requests arrived", got.count()-count)
	}
}

// TestCallHosts: only the reserved host leads to the broker, agreed on by the handshake and the request, and it leads
// nowhere else.
// Promise: one-way-to-a-server
func TestCallHosts(t *testing.T) {
	r := newRig(t, setup{apis: mcpServers(), yolo: true})
	var got, up seen
	r.connectBroker(func(_ http.ResponseWriter, req *http.Request) { got.note(req) })
	r.upstreams.https(up.echo())
	r.upstreams.plain(up.echo())
	defer r.begin()()
	for _, row := range []struct{ sni, host, proto string }{
		{demoHost, callHost, "http/1.1"}, {callHost, demoHost, "http/1.1"}, {callHost, callHost + ".", "http/1.1"},
		{callHost, callHost + ":8443", "http/1.1"}, {callHost, "user@" + callHost, "http/1.1"}, {demoHost, callHost + ":443", "http/1.1"},
		{"codeforge.internal", "codeforge.internal", "http/1.1"}, {"x." + callHost, "x." + callHost, "http/1.1"},
		{"other.codeforge.internal", "other.codeforge.internal", "http/1.1"}, {"", callHost, "plain"}, {"", "x.codeforge.internal", "plain"},
	} {
		var c net.Conn
		var err error
		if row.proto == "plain" {
			c, err = net.Dial("tcp", r.http[0])
		} else {
			c, err = tls.Dial("tcp", r.https[0], &tls.Config{RootCAs: r.roots(), ServerName: row.sni, NextProtos: []string{row.proto}})
		}
		check(t, err)
		_, err = fmt.Fprintf(c, "POST /my-files/read HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", row.host)
		check(t, err)
		answer, _ := io.ReadAll(c)
		_ = c.Close()
		arrives := row.host == callHost+"." // a trailing dot is the same name
		if ok := strings.HasPrefix(string(answer), "HTTP/1.1 200"); ok != arrives {
			t.Errorf("%v: %.200s", row, answer)
		}
	}
	for _, target := range []string{"https://" + callHost + "/my-files/read", "http://" + callHost + "/my-files/read"} {
		c := raw(t, r, callHost)
		_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", target, callHost)
		check(t, err)
		if answer, _ := io.ReadAll(c); !strings.HasPrefix(string(answer), "HTTP/1.1 400") {
			t.Errorf("%s: %.200s", target, answer)
		}
	}
	for address, host := range map[string]string{"https://" + demoHost + "/my-files/read": callHost, "https://" + callHost + "/my-files/read": demoHost} {
		req, err := http.NewRequest(http.MethodPost, address, strings.NewReader("{}"))
		check(t, err)
		req.Host = host
		resp, err := r.client(true).Do(req)
		check(t, err)
		if refused := refusal(t, resp); refused.Code != policy.CodeHostMismatch {
			t.Errorf(":authority %s at %s: %+v", host, address, refused)
		}
	}
	if got.count() != 1 || up.count() != 0 || r.upstreams.dialled() != 0 {
		t.Errorf("%d calls, %d requests to upstreams, %d dials", got.count(), up.count(), r.upstreams.dialled())
	}
}

func raw(t *testing.T, r *rig, host string) net.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", r.https[0], &tls.Config{RootCAs: r.roots(), ServerName: host, NextProtos: []string{"http/1.1"}})
	check(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestServerReaches: a server reaches the hosts of its own API, with the credentials of that API; no tools, no other
// API's host and no host of YOLO_MODE.
// Promise: servers-reach-less, names-on-the-way-to-a-server
func TestServerReaches(t *testing.T) {
	r := newRig(t, setup{apis: mcpServers(), yolo: true, registry: "registry.demo.test"})
	var got, up seen
	r.connectBroker(func(_ http.ResponseWriter, req *http.Request) { got.note(req) })
	r.upstreams.https(up.echo())
	end := r.beginServer(proxyapi.Registration{APIs: []string{"notes"}})
	c := r.clientIn(serverSlot, true)
	resp := post(t, c, "https://notes.demo.test/", "{}", "Authorization", "Bearer NOTES_AUTH_TOKEN")
	if text := body(t, resp); resp.StatusCode != 200 || up.last(t).Header.Get("Authorization") != "Bearer "+secretValue+"NOTES_AUTH_TOKEN" ||
		strings.Contains(text, secretValue) {
		t.Errorf("its own host: %d %s", resp.StatusCode, text)
	}
	for host, code := range map[string]string{
		callHost: policy.CodeCallsClosed, "files.demo.test": policy.CodeHostNotServers, demoHost: policy.CodeHostNotServers,
		"off.demo.test": policy.CodeHostNotServers, "elsewhere.test": policy.CodeHostNotServers, "registry.demo.test": policy.CodeHostNotServers,
		"x.codeforge.internal": policy.CodeHostUnknown,
	} {
		for _, path := range []string{"/", "/notes/read", "/$stash/get"} {
			resp := post(t, c, "https://"+host+path, "{}", "Authorization", "Bearer FILES_AUTH_TOKEN")
			if refused := refusal(t, resp); refused.Code != code {
				t.Errorf("%s%s: %d %+v", host, path, resp.StatusCode, refused)
			}
		}
	}
	resp = post(t, c, "https://notes.demo.test/", "{}", "Authorization", "Bearer FILES_AUTH_TOKEN")
	if _ = body(t, resp); up.last(t).Header.Get("Authorization") != "Bearer FILES_AUTH_TOKEN" {
		t.Error("another API's name was swapped")
	}
	if got.count() != 0 || up.count() != 2 {
		t.Errorf("%d calls, %d requests arrived", got.count(), up.count())
	}
	rec, err := r.book.DrainReceipt(serverSlot, 1, "")
	check(t, err)
	if again, err := r.book.DrainReceipt(serverSlot, 1, ""); err != nil || rec.Count.Exchanges != 23 || again.Count.Exchanges != 0 || again.Run != "server" {
		t.Errorf("drained: %+v, then %+v, %v", rec.Count, again, err)
	}
	_ = body(t, post(t, c, "https://notes.demo.test/", "{}"))
	if last := end(); last.Count.Exchanges != 1 {
		t.Errorf("after that: %+v", last.Count)
	}
}

// TestInstallReaches: an installation reads from the registry, and has no credential even where an API holds the same
// host.
// Promise: servers-reach-less
func TestInstallReaches(t *testing.T) {
	apis := mcpServers()
	apis["private"] = serverAPI("registry.demo.test", "REGISTRY_AUTH_TOKEN", "")
	r := newRig(t, setup{apis: apis, yolo: true, registry: "registry.demo.test"})
	var got, up seen
	r.connectBroker(func(_ http.ResponseWriter, req *http.Request) { got.note(req) })
	r.upstreams.https(up.echo())
	r.upstreams.plain(up.echo())
	end := r.beginServer(proxyapi.Registration{Install: true})
	c := r.clientIn(serverSlot, true)
	req, err := http.NewRequest(http.MethodGet, "https://registry.demo.test/@scope%2fname", nil)
	check(t, err)
	req.Header.Set("Authorization", "Bearer REGISTRY_AUTH_TOKEN")
	resp, err := c.Do(req)
	check(t, err)
	if _ = body(t, resp); resp.StatusCode != 200 || up.last(t).Header.Get("Authorization") != "Bearer REGISTRY_AUTH_TOKEN" ||
		up.last(t).RequestURI != "/@scope%2fname" {
		t.Errorf("%d, the registry saw %v", resp.StatusCode, up.last(t).Header)
	}
	for _, row := range []struct{ method, address, code string }{
		{"POST", "https://registry.demo.test/", policy.CodeMethodRestricted},
		{"PUT", "https://registry.demo.test/name", policy.CodeMethodRestricted},
		{"GET", "http://registry.demo.test/", policy.CodeHostNotRegistry},
		{"GET", "https://notes.demo.test/", policy.CodeHostNotRegistry},
		{"GET", "https://elsewhere.test/", policy.CodeHostNotRegistry},
		{"GET", "https://x.registry.demo.test/", policy.CodeHostNotRegistry},
		{"GET", "https://" + callHost + "/notes", policy.CodeCallsClosed},
	} {
		req, err := http.NewRequest(row.method, row.address, nil)
		check(t, err)
		resp, err := c.Do(req)
		check(t, err)
		if refused := refusal(t, resp); refused.Code != row.code {
			t.Errorf("%s %s: %+v", row.method, row.address, refused)
		}
	}
	if rec := end(); got.count() != 0 || up.count() != 1 || rec.Exchanges[0].APIs[0] != policy.RegistryName {
		t.Errorf("%d calls, %d requests, %+v", got.count(), up.count(), rec.Exchanges[0])
	}
}

// TestInstallHints: when the registry cannot be reached, the receipt says which setting helps. Its address is for a
// person alone.
// Promise: no-private-address
func TestInstallHints(t *testing.T) {
	for addr, says := range map[string][2]string{
		"203.0.113.80":    {"PACKAGE_REGISTRY_PRIVATE in .env opens its range", "=203.0.113.80/32 in .env opens it"},
		"169.254.169.254": {"an address that no setting opens", "No setting opens it."},
	} {
		r := newRig(t, setup{registry: "registry.demo.test"})
		r.upstreams.addrs["registry.demo.test"] = []netip.Addr{netip.MustParseAddr(addr)}
		end := r.beginServer(proxyapi.Registration{Install: true})
		resp, err := r.clientIn(serverSlot, true).Get("https://registry.demo.test/name")
		check(t, err)
		_ = body(t, resp)
		rec := end()
		if len(rec.Hints) != 1 || rec.Hints[0].Code != "address_refused" || strings.Contains(rec.Hints[0].Text, addr) ||
			!strings.Contains(rec.Hints[0].Text, says[0]) || !strings.Contains(rec.Hints[0].Person, addr) ||
			!strings.Contains(rec.Hints[0].Person, says[1]) {
			t.Errorf("%s: %+v", addr, rec.Hints)
		}
	}
}

// TestRegistrations: what may be in which slot.
// Promise: servers-reach-less
func TestRegistrations(t *testing.T) {
	r := newRig(t, setup{apis: mcpServers()})
	for _, row := range []struct {
		id      slot.ID
		apis    []string
		install bool
		ok      bool
	}{
		{0, nil, false, true}, {0, []string{"notes", "demo"}, false, true}, {0, nil, true, false}, {0, []string{"notes"}, true, false},
		{serverSlot, []string{"notes"}, false, true}, {serverSlot, nil, true, true}, {serverSlot, nil, false, false},
		{serverSlot, []string{"notes"}, true, false}, {serverSlot, []string{"notes", "my-files"}, false, false}, {slot.Total, nil, true, false},
	} {
		_, err := r.book.BeginLease(row.id, proxyapi.Registration{
			Generation: uint64(time.Now().UnixNano()), Run: "x", APIs: row.apis, Install: row.install, Deadline: time.Now().Add(time.Hour),
		})
		if (err == nil) != row.ok || err != nil && !errors.Is(err, proxyapi.ErrBadRegistration) {
			t.Errorf("%+v: %v", row, err)
		}
	}
}

// TestCallBodies: arguments beyond the bound are refused, however they are sent; slow ones are passed on as they come.
// Promise: calls-end-with-their-run
func TestCallBodies(t *testing.T) {
	r := newRig(t, setup{apis: mcpServers()})
	lengths := make(chan int64, 10)
	r.connectBroker(func(_ http.ResponseWriter, req *http.Request) {
		n, err := io.Copy(io.Discard, req.Body)
		if err != nil {
			n = -1
		}
		lengths <- n
	})
	defer r.begin()()
	for _, h2 := range []bool{false, true} {
		for _, row := range []struct {
			size, status int
			chunked      bool
		}{
			{proxyapi.MaxArguments, 200, false}, {proxyapi.MaxArguments, 200, true},
			{proxyapi.MaxArguments + 1, 413, false}, {proxyapi.MaxArguments + 1, 413, true},
		} {
			var in io.Reader = bytes.NewReader(make([]byte, row.size))
			if row.chunked {
				in = struct{ io.Reader }{in}
			}
			resp, err := r.client(h2).Post("https://"+callHost+"/notes/x", "application/json", in)
			check(t, err)
			text := body(t, resp)
			if resp.StatusCode != row.status || row.status == 413 && !strings.Contains(text, policy.CodeArgumentsTooLarge) {
				t.Errorf("h2=%t %+v: %d %s", h2, row, resp.StatusCode, text)
			}
			if row.status == 200 || row.chunked {
				if n := <-lengths; row.status == 200 && n != int64(row.size) || row.status != 200 && n != -1 {
					t.Errorf("h2=%t %+v: the broker read %d", h2, row, n)
				}
			}
		}
		resp := post(t, r.client(h2), "https://"+callHost+"/notes/x", "{}", "Content-Encoding", "gzip")
		if refused := refusal(t, resp); refused.Code != policy.CodeArgumentsEncoded {
			t.Errorf("encoded: %+v", refused)
		}
		pipe, w := io.Pipe()
		go func() {
			for range 5 {
				_, _ = io.WriteString(w, " ")
				time.Sleep(20 * time.Millisecond)
			}
			_ = w.Close()
		}()
		resp, err := r.client(h2).Post("https://"+callHost+"/notes/x", "application/json", pipe)
		check(t, err)
		if _ = body(t, resp); resp.StatusCode != 200 || <-lengths != 5 {
			t.Errorf("a slow body: %d", resp.StatusCode)
		}
	}
}

// TestCallCarries: a call that carries a credential itself, of whatever API, is refused, wherever in it that is; a name is
// not.
// Promise: names-on-the-way-to-a-server
func TestCallCarries(t *testing.T) {
	r := newRig(t, setup{apis: mcpServers()})
	var got seen
	r.connectBroker(func(_ http.ResponseWriter, req *http.Request) { got.note(req) })
	const value = secretValue + "OFF_AUTH_TOKEN"
	generation := uint64(0)
	long := strings.Repeat(" ", 600<<10)
	for name, row := range map[string]struct{ path, text, header string }{
		"plain": {"/notes/x", `{"a": "` + value + `"}`, ""}, "late": {"/notes/x", long + value, ""},
		"base64": {"/notes/x", base64.StdEncoding.EncodeToString([]byte("ab" + value)), ""},
		"path":   {"/notes/" + value, "{}", ""}, "header": {"/notes/x", "{}", value}, "stash": {"/$stash/set", `{"value": "` + value + `"}`, ""},
	} {
		for _, h2 := range []bool{false, true} {
			generation++
			end := r.beginIn(0, generation, "notes")
			resp := post(t, r.client(h2), "https://"+callHost+row.path, row.text, "X-Note", row.header)
			if refused := refusal(t, resp); refused.Code != policy.CodeCredentialSent || resp.StatusCode != 403 {
				t.Errorf("%s: %d %+v", name, resp.StatusCode, refused)
			}
			rec := end()
			if rec.Count.Denied != 1 || len(rec.Hints) != 1 || rec.Alarm == nil || strings.Contains(fmt.Sprint(rec), value) {
				t.Errorf("%s: %+v", name, rec)
			}
		}
	}
	for _, text := range got.texts() {
		if strings.Contains(text, value[:8]) {
			t.Errorf("the broker got %.60q", text)
		}
	}
	if strings.Contains(r.logs.String(), value) {
		t.Error("the log has the value")
	}
}

// TestCallUnavailable: without a broker, and with one that goes away, code gets an error that says whether the call was
// made.
// Promise: calls-end-with-their-run
func TestCallUnavailable(t *testing.T) {
	r := newRig(t, setup{apis: mcpServers()})
	end := r.begin()
	resp := post(t, r.client(true), "https://"+callHost+"/notes/x", "{}")
	if refused := refusal(t, resp); resp.StatusCode != 503 || refused.Code != policy.CodeServerUnavailable || !refused.Retryable || refused.Server != "notes" {
		t.Errorf("%d %+v", resp.StatusCode, refused)
	}
	r.connectBroker(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	resp = post(t, r.client(true), "https://"+callHost+"/notes/x", "{}")
	if refused := refusal(t, resp); resp.StatusCode != 502 || refused.Code != policy.CodeCallBroken || refused.Retryable {
		t.Errorf("%d %+v", resp.StatusCode, refused)
	}
	if rec := end(); rec.Count.Failed != 2 {
		t.Errorf("%+v", rec.Count)
	}
}

// TestCallCancelled: the broker's request ends when code aborts the call, when the run ends, and when the server is
// switched off.
// Promise: calls-end-with-their-run
func TestCallCancelled(t *testing.T) {
	for name, h2 := range map[string]bool{"http1": false, "http2": true} {
		for _, how := range []string{"abort", "run", "reload"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				r := newRig(t, setup{apis: mcpServers()})
				began, ended := make(chan bool, 1), make(chan bool, 1)
				r.connectBroker(func(_ http.ResponseWriter, req *http.Request) {
					_, _ = io.ReadAll(req.Body)
					began <- true
					<-req.Context().Done()
					ended <- true
				})
				end := r.begin()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+callHost+"/notes/x", strings.NewReader("{}"))
				check(t, err)
				done := make(chan bool)
				go func() {
					defer close(done)
					if resp, err := r.client(h2).Do(req); err == nil {
						_ = resp.Body.Close()
						t.Errorf("the call was answered: %d", resp.StatusCode)
					}
				}()
				<-began
				var rec proxyapi.Receipt
				switch how {
				case "abort":
					cancel()
				case "run":
					rec = end()
				case "reload":
					r.writeAPI("notes", serverAPI("notes.demo.test", "NOTES_AUTH_TOKEN", `, "active": false`))
					r.reloader.Load()
				}
				select {
				case <-ended:
				case <-time.After(testkit.Patience):
					t.Fatal("the broker's request goes on")
				}
				<-done
				if how != "run" {
					for r.handler.InFlight() > 0 {
						time.Sleep(time.Millisecond)
					}
					rec = end()
				}
				if len(rec.Exchanges) != 1 || rec.Exchanges[0].Outcome != proxyapi.OutcomeAborted {
					t.Errorf("the receipt says %+v", rec.Exchanges)
				}
			})
		}
	}
}

// TestCallAnswers: a credential in an answer is scrubbed in every framing, of whatever API it is.
// Promise: names-on-the-way-to-a-server
func TestCallAnswers(t *testing.T) {
	const value = secretValue + "OFF_AUTH_TOKEN"
	split := len(value) / 2
	for name, write := range map[string]func(w http.ResponseWriter){
		"text": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"content":[{"type":"text","text":"`+value+`"}]}`)
		},
		"base64": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, base64.StdEncoding.EncodeToString([]byte("x"+value+"y")))
		},
		"hex": func(w http.ResponseWriter) { _, _ = io.WriteString(w, hex.EncodeToString([]byte(value))) },
		"json escapes": func(w http.ResponseWriter) {
			for _, b := range []byte(value) {
				fmt.Fprintf(w, `\u%04x`, b)
			}
		},
		"twice escaped": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"text":"{\"key\":\"`+value+`\"}"}`)
		},
		"two pieces": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, value[:split])
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Millisecond)
			_, _ = io.WriteString(w, value[split:])
		},
		"header": func(w http.ResponseWriter) { w.Header().Set("X-Note", value) },
		"status": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/plain; x="+value)
			w.WriteHeader(502)
		},
		"trailer": func(w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-End")
			_, _ = io.WriteString(w, "x")
			w.Header().Set("X-End", value)
		},
		"code": func(w http.ResponseWriter) { w.Header().Set(proxyapi.HeaderCode, value) },
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/h2=%t", name, h2), func(t *testing.T) {
				r := newRig(t, setup{apis: mcpServers()})
				r.connectBroker(func(w http.ResponseWriter, _ *http.Request) { write(w) })
				end := r.begin("notes")
				resp := post(t, r.client(h2), "https://"+callHost+"/notes/x", "{}")
				text := body(t, resp)
				all := text + fmt.Sprint(resp.Header, resp.Trailer, end()) + r.logs.String()
				for _, form := range []string{value, value[2:], base64.StdEncoding.EncodeToString([]byte("x" + value + "y"))[:24],
					hex.EncodeToString([]byte(value)), `\u0073\u006b\u005f`} {
					if strings.Contains(all, form) {
						t.Errorf("%q got out:\n%s", form, all)
					}
				}
			})
		}
	}
}
