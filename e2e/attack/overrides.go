package attack

import (
	"fmt"
	"slices"
	"strings"
)

// overrides are names that some server takes for the method, in each place where one looks for it. Each program tries
// many, and none may arrive. shared.test restricts DELETE.
func overrides() []Attack {
	const must = "refused, nothing sent whole"
	// As PHP, Rack, qs, ASP.NET, Salesforce, OData, Google's APIs, Flask, Catalyst and Alfresco read them.
	const names = `const names = ["_method", ".method", "_method\0", "_method\0x", "_method[", "_method[x", "_method[]", "[_method]", "_method]", " _method", "  .method", "data[_method]",
  "_METHOD", "__method", "$method", "_HttpMethod", "$httpMethod", "_http[method", "X-HTTP-Method-Override", "x_http_method_override", "X.HTTP Method-Override", "XHttpMethodOverride",
  "X-HTTP-Method", "X-Method-Override", "X-HTTP-MethodOverride", "__METHOD_OVERRIDE__", "x-tunneled-method", "alf_method", "method", "METHOD", "httpMethod", "http_method", "[method]"];
const url = "https://shared.test/anything?t=TRIAL";
const percent = (s) => [...new TextEncoder().encode(s)].map((b) => "%" + b.toString(16).padStart(2, "0")).join("");
const post = (type, body) => show(fetch(url, auth("SHARED_A_TOKEN", { method: "POST", headers: type ? { "Content-Type": type } : {}, body })));
`
	row := func(name, code string, codes ...string) Attack {
		return Attack{Section: "A", Name: "overrides " + name, Expected: must, Judge: nothingWhole(codes...), Code: names + code, Seconds: 60}
	}
	const multi = `"multipart/form-data; boundary=bbbb"`
	return []Attack{
		row("in the query", `for (const n of names) await show(fetch(url + "&" + encodeURIComponent(n) + "=DELETE", auth("SHARED_A_TOKEN", { method: "POST", body: "x" })));`, "method_restricted"),
		row("in the query, every letter escaped", `for (const n of names) await show(fetch(url + "&" + percent(n) + "=DELETE", auth("SHARED_A_TOKEN", { method: "POST", body: "x" })));`, "method_restricted"),
		row("in the query, twice escaped", `for (const n of names) await show(fetch(url + "&" + encodeURIComponent(percent(n)) + "=DELETE", auth("SHARED_A_TOKEN", { method: "POST", body: "x" })));`, "method_restricted"),
		row("in a header", `for (const n of names.filter((n) => /^[-\w.$]+$/.test(n))) await raw("shared.test", "shared.test", "POST /anything?t=TRIAL HTTP/1.1\r\nHost: shared.test\r\nAuthorization: Bearer SHARED_A_TOKEN\r\n" + n + ": DELETE\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");`, "method_restricted"),
		row("in a form", `for (const n of names) await post("application/x-www-form-urlencoded", "a=b&" + percent(n) + "=DELETE");`, "method_restricted"),
		row("in a form without a type", `for (const n of names) await post("", new TextEncoder().encode("a=b&" + percent(n) + "=DELETE"));`, "override_unseen"),
		row("in JSON", `for (const n of names) await post("application/json", JSON.stringify({ a: 1, [n]: "DELETE" }));`, "override_unseen"),
		row("in what JSON5 takes for JSON", `for (const b of ["{_method: 'DELETE'}", "{'_method': 'DELETE'}", '{"a": /*1, "_method": */ "DELETE"}', '{"\\x5fmethod": "DELETE"}', '{"a": 1, // \n"_method": 1}', '\uFEFF{_method:1}']) await post("application/json", b);`, unclear),
		row("in a form of another type", `for (const t of ["text/plain", "application/octet-stream", "*/*"]) for (const b of ["_method=DELETE", "a=b&%5fmethod=DELETE"]) await post(t, b); await post("application/json", JSON.stringify({ a: "&_method=DELETE&" }));`, "override_unseen"),
		row("in the query of another address", `for (const h of ["X-Original-URL", "X-Rewrite-URL"]) await show(fetch(url, auth("SHARED_A_TOKEN", { method: "POST", headers: { [h]: "/x?_method=DELETE" }, body: "x" })));`, "method_restricted"),
		row("in JSON as text", `for (const n of names.slice(0, 27)) await post("text/plain", JSON.stringify({ [n]: "DELETE" }));`, "override_unseen"),
		row("in a form with parts", `for (const n of names.filter((n) => !n.includes("\0"))) { const f = new FormData(); f.append("a", "b"); f.append(n, "DELETE"); await post("", f); }`, "override_unseen", unclear),
		row("in another multipart type", `for (const h of ['Content-Disposition: form-data; name="_method"', "Content-ID: <_method>", 'Content-Disposition: attachment; filename="_method"'])
  for (const t of ["mixed", "related"]) await post("multipart/" + t + "; boundary=bbbb", "--bbbb\r\n" + h + "\r\n\r\nDELETE\r\n--bbbb--\r\n");`, "override_unseen"),
		row("in parts with two readings", `for (const h of ['name="a"; name*=utf-8\'\'_method', 'name*0="_me"; name*1="thod"', 'name="a"\r\nContent-Disposition: form-data; name="_method"', 'name="_m\\ethod"', 'name="_method\0x"',
  'name="a";\r\n name="_method"', 'name="a"; filename="x; name=_method"', "name='_method", 'name="_method"\r\nContent-Transfer-Encoding: base64'])
  await post(`+multi+`, "--bbbb\r\nContent-Disposition: form-data; " + h + "\r\n\r\nDELETE\r\n--bbbb--\r\n");
for (const e of ["\n", "\r"]) await post(`+multi+`, '--bbbb\r\nContent-Disposition: form-data; name="a"\r\n\r\nx' + e + '--bbbb\r\nContent-Disposition: form-data; name="_method"\r\n\r\nDELETE\r\n--bbbb--\r\n');`, unclear),
		row("in parts of what only seems another type", `for (const t of ['text/plain; x="multipart/form-data; boundary=bbbb"', "text/x-multipart; boundary=bbbb"])
  await post(t, '--bbbb\r\nContent-Disposition: form-data; name="_method"\r\n\r\nDELETE\r\n--bbbb--\r\n');`, unclear),
		row("in a charset of its own", `await post("application/x-www-form-urlencoded; charset=cp037", "%6D%94%85%A3%88%96%84=DELETE"); await post("application/x-www-form-urlencoded; charset=utf-7", "+AF8-method=DELETE"); await post("application/json; charset=utf-16", "{}");`, unclear),
		// Rack takes a boundary in the middle of a line for one.
		{
			Section: "A", Name: "overrides behind a boundary within a line", Expected: "another boundary", Judge: unknownBoundary(""),
			Code: names + `await post(` + multi + `, '--bbbb\r\nContent-Disposition: form-data; name="a"\r\n\r\nx--bbbb\r\nContent-Disposition: form-data; name="_method"\r\n\r\nDELETE\r\n--bbbb--\r\n');`,
		},
		{
			Section: "A", Name: "control: fields named method whose values are none", Expected: "arrives", Judge: arrived(4),
			Code: names + `await post("application/json", '{"jsonrpc":"2.0","method":"tools/call","params":{"code":"fetch(u, {method: \\"DELETE\\"})"}}');
await post("application/x-www-form-urlencoded", "method=flickr.photos.search&payment_method=DELETE");
const f = new FormData(); f.append("method", "bank transfer"); f.append("file", new Blob(["_method=DELETE"]), "a.txt"); await post("", f);
await post("multipart/related; boundary=bbbb", "--bbbb\r\nContent-Type: application/json\r\n\r\n{}\r\n--bbbb\r\nContent-Type: text/plain\r\n\r\nx\r\n--bbbb--\r\n");`,
		},
	}
}

// nothingWhole: every attempt was refused with one of the codes, and what had left by then was broken off before the
// override was whole.
func nothingWhole(codes ...string) Judge {
	return func(e *Evidence) (string, bool) {
		for _, s := range e.Arrived {
			if !strings.Contains(string(s.Body), "[broken off") || strings.Contains(string(s.Body), "DELETE") {
				return "an override arrived: " + e.brief(), false
			}
		}
		ls := e.lines()
		return e.brief(), len(ls) > 0 && !slices.ContainsFunc(ls, func(l line) bool { return !slices.Contains(codes, l.Code) })
	}
}

// arrived: so many requests arrived, and were answered.
func arrived(n int) Judge {
	return func(e *Evidence) (string, bool) {
		return fmt.Sprintf("%d arrived: %s", len(e.Arrived), e.brief()), len(e.Arrived) == n && !e.failed()
	}
}
