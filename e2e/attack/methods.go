package attack

import (
	"fmt"
	"strings"
)

// methods are attempts to use a restricted method, or a method whose meaning is unknown.
func methods() []Attack {
	const must = "refused, nothing sent"
	var list []Attack
	for _, m := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		list = append(list, Attack{
			Section: "A", Name: "restricted method " + m, Expected: must, Judge: refused("method_restricted"),
			Code: fmt.Sprintf(`await show(fetch("https://strict.test/anything?t=TRIAL", auth("STRICT_TOKEN", { method: %q })));`, m),
		})
	}
	for _, m := range []string{"PURGE", "PROPFIND", "MKCOL", "COPY", "LOCK", "REPORT", "LINK", "post", "DeLeTe", "TRACE", "TRACK", "CONNECT", "POST\\t", "GET/POST"} {
		list = append(list, Attack{
			Section: "A", Name: "restricted API, method " + m, Expected: must, Judge: refused(),
			Code: fmt.Sprintf(`await raw("strict.test", "strict.test", "%s /anything?t=TRIAL HTTP/1.1\r\nHost: strict.test\r\nAuthorization: Bearer STRICT_TOKEN\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");`, m),
		})
	}
	for _, m := range []string{"POST", "OPTIONS", "PURGE", "get"} {
		list = append(list, Attack{
			Section: "A", Name: "API of allowed methods, method " + m, Expected: must, Judge: refusedMethod(m),
			Code: fmt.Sprintf(`await raw("b.wild.test", "b.wild.test", "%s /anything?t=TRIAL HTTP/1.1\r\nHost: b.wild.test\r\nAuthorization: Bearer ALLOWED_TOKEN\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");`, m),
		})
	}
	for _, h := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "x_http_method_override", "X-HTTP-METHOD-OVERRIDE"} {
		list = append(list, Attack{
			Section: "A", Name: "override header " + h, Expected: must, Judge: refused(),
			Code: fmt.Sprintf(`await raw("strict.test", "strict.test", "GET /anything?t=TRIAL HTTP/1.1\r\nHost: strict.test\r\nAuthorization: Bearer STRICT_TOKEN\r\n%s: DELETE\r\nConnection: close\r\n\r\n");`, h),
		})
	}
	const form = `"Content-Type": "application/x-www-form-urlencoded"`
	return append(list,
		Attack{Section: "A", Name: "restricted POST overridden to GET", Expected: must, Judge: refused(), Code: `await show(fetch("https://strict.test/anything?t=TRIAL", auth("STRICT_TOKEN", { method: "POST", headers: { "X-HTTP-Method-Override": "GET" } })));`},
		Attack{Section: "A", Name: "two override headers", Expected: must, Judge: refused(), Code: `await raw("strict.test", "strict.test", "GET /anything?t=TRIAL HTTP/1.1\r\nHost: strict.test\r\nX-HTTP-Method-Override: GET\r\nX-HTTP-Method-Override: DELETE\r\nConnection: close\r\n\r\n");`},
		Attack{Section: "A", Name: "_method in the query", Expected: must, Judge: refused(), Code: `await show(fetch("https://strict.test/anything?t=TRIAL&_method=DELETE", auth("STRICT_TOKEN")));`},
		Attack{Section: "A", Name: "_method in the query, percent-encoded", Expected: must, Judge: refused(), Code: `await show(fetch("https://strict.test/anything?t=TRIAL&%5Fmetho%64=DELETE", auth("STRICT_TOKEN")));`},
		Attack{Section: "A", Name: "_METHOD in the query", Expected: must, Judge: refused(), Code: `await show(fetch("https://strict.test/anything?t=TRIAL&_METHOD=delete", auth("STRICT_TOKEN")));`},
		Attack{Section: "A", Name: "_method behind a semicolon", Expected: must, Judge: refused(), Code: `await show(fetch("https://strict.test/anything?t=TRIAL;_method=DELETE", auth("STRICT_TOKEN")));`},
		Attack{Section: "A", Name: "_method in a form to a host where DELETE alone is restricted", Expected: must, Judge: refused(), Code: `await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN", { method: "POST", headers: { ` + form + ` }, body: "a=b&_method=DELETE" })));`},
		Attack{Section: "A", Name: "_method in a multipart form", Expected: "refused, the override not sent", Judge: overrideUnsent, Code: `const f = new FormData(); f.append("a", "b"); f.append("_method", "DELETE"); await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN", { method: "POST", body: f })));`},
		Attack{Section: "A", Name: "_method in a form labelled in another case", Expected: must, Judge: refused(), Code: `await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN", { method: "POST", headers: { "Content-Type": "Application/X-WWW-Form-Urlencoded ; charset=utf-8" }, body: "_method=DELETE" })));`},
		Attack{Section: "A", Name: "_method in a chunked form", Expected: must, Judge: refused(), Code: `const body = new ReadableStream({ start(c) { for (const ch of "a=b&_method=DELETE") c.enqueue(new TextEncoder().encode(ch)); c.close(); } }); await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN", { method: "POST", headers: { ` + form + ` }, body })));`},
		Attack{Section: "A", Name: "_method in a form after 2 MiB", Expected: must, Judge: refused(), Code: `await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN", { method: "POST", headers: { ` + form + ` }, body: "a=" + "b".repeat(2 << 20) + "&_method=DELETE" })));`},
		Attack{Section: "A", Name: "_method in a gzipped form", Expected: must, Judge: refused(), Code: `const z = new Blob(["_method=DELETE"]).stream().pipeThrough(new CompressionStream("gzip")); await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN", { method: "POST", headers: { ` + form + `, "Content-Encoding": "gzip" }, body: await new Response(z).arrayBuffer() })));`},
		Attack{Section: "A", Name: "_method in JSON, escaped", Expected: "refused, the override not sent", Judge: overrideUnsent, Code: `await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN", { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"_\\u006dethod":"DELETE"}' })));`},
		Attack{Section: "A", Name: "_method in gzipped JSON", Expected: "refused, the override not sent", Judge: overrideUnsent, Code: `const z = new Blob(['{"_method":"DELETE"}']).stream().pipeThrough(new CompressionStream("gzip")); await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN", { method: "POST", headers: { "Content-Type": "application/json", "Content-Encoding": "gzip" }, body: await new Response(z).arrayBuffer() })));`},
		Attack{Section: "A", Name: "_method in a form without a type", Expected: "refused, the override not sent", Judge: overrideUnsent, Code: `await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN", { method: "POST", body: new TextEncoder().encode("a=b&_method=DELETE") })));`},
		Attack{Section: "A", Name: "_HttpMethod in the query", Expected: must, Judge: refused(), Code: `await show(fetch("https://shared.test/anything?t=TRIAL&_HttpMethod=DELETE", auth("SHARED_A_TOKEN", { method: "POST", body: "x" })));`},
		Attack{Section: "A", Name: "override over HTTP/2", Expected: must, Judge: refused(), Code: http2("strict.test", "strict.test", "/anything?t=TRIAL", "GET", `"x-http-method-override": "DELETE"`)},
		Attack{Section: "A", Name: "Upgrade: h2c", Expected: must, Judge: refused(), Code: upgrade("h2c", "GET")},
		Attack{Section: "A", Name: "Upgrade: tls", Expected: must, Judge: refused(), Code: upgrade("TLS/1.0", "GET")},
		Attack{Section: "A", Name: "Upgrade: websocket, h2c", Expected: must, Judge: refused(), Code: upgrade("websocket, h2c", "GET")},
		Attack{Section: "A", Name: "Upgrade: websocket with POST", Expected: must, Judge: refused(), Code: upgrade("websocket", "POST")},
		Attack{Section: "A", Name: "requests behind an unanswered WebSocket upgrade", Expected: "second never arrives", Judge: never("smuggled"), Code: `await raw("strict.test", "strict.test", "GET /anything?t=TRIAL HTTP/1.1\r\nHost: strict.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nDELETE /anything/smuggled?t=TRIAL HTTP/1.1\r\nHost: strict.test\r\nContent-Length: 0\r\n\r\n");`},
		Attack{Section: "A", Name: "control: GET of a restricted API", Expected: "swapped", Judge: swapped("STRICT_TOKEN"), Code: `await show(fetch("https://strict.test/anything?t=TRIAL", auth("STRICT_TOKEN")));`},
	)
}

// refusedMethod: methods are case-sensitive, but a lower-case "get" may be taken as GET.
func refusedMethod(m string) Judge {
	if m == "get" {
		return func(e *Evidence) (string, bool) {
			for _, s := range e.Arrived {
				if s.Method != "GET" && s.Method != m {
					return "arrived as " + s.Method, false
				}
			}
			return e.brief(), len(e.lines()) == 1
		}
	}
	return refused()
}

func upgrade(protocol, method string) string {
	return fmt.Sprintf(`await raw("httpbin.test", "httpbin.test", "%s /x/raw?mode=switch&t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n");`, method, protocol)
}

// overrideUnsent: the proxy refused, and what it may have sent of the request by then was broken off before the override.
func overrideUnsent(e *Evidence) (string, bool) {
	for _, s := range e.Arrived {
		if strings.Contains(string(s.Body), "ethod") {
			return "the override arrived", false
		}
		if !strings.Contains(string(s.Body), "[broken off") {
			return "a whole request arrived", false
		}
	}
	ls := e.lines()
	return e.brief(), len(ls) == 1 && ls[0].Status == 403
}
