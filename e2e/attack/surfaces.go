package attack

import (
	"fmt"
	"strings"
)

// surfaces are names in places that publish, or that were not declared: nothing may be swapped there.
func surfaces() []Attack {
	const must = "not swapped"
	var list []Attack
	for _, name := range []string{
		"Cookie", "Referer", "Origin", "User-Agent", "X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Via", "From", "Link", "Title", "X-Amz-Tagging", "X-Bz-Info-Note", "X-Archive-Meta00-Title", "Upload-Metadata", "Ce-Subject", "Click",
		"X-Amz-Meta-Note", "X-Goog-Meta-Note", "X-Object-Meta-Note", "Content-Disposition", "Content-Type", "Content-Language", "If-Match", "If-None-Match", "Idempotency-Key",
		"Traceparent", "Tracestate", "X-Request-Id", "X-Correlation-Id", "X-Real-Ip",
	} {
		list = append(list, Attack{
			Section: "A", Name: "name in the header " + name, Expected: must, Judge: unswapped("HTTPBIN_TOKEN", false),
			Code: fmt.Sprintf(`await raw("httpbin.test", "httpbin.test", "GET /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n%s: HTTPBIN_TOKEN\r\nConnection: close\r\n\r\n");`, name),
		})
	}
	rows := []struct {
		name, token, code string
		hint              bool
	}{
		{"name within the text of a header", "HTTPBIN_TOKEN", `fetch("https://httpbin.test/anything?t=TRIAL", { headers: { "X-Note": "please use HTTPBIN_TOKEN for this" } })`, true},
		{"name as a part of a word", "HTTPBIN_TOKEN", `fetch("https://httpbin.test/anything?t=TRIAL", auth("xHTTPBIN_TOKENx"))`, false},
		{"name in chat text of a query", "HTTPBIN_TOKEN", `fetch("https://httpbin.test/anything?t=TRIAL&text=HTTPBIN_TOKEN")`, true},
		{"name as a query parameter's name", "HTTPBIN_QUERY", `fetch("https://httpbin.test/anything?t=TRIAL&HTTPBIN_QUERY=1")`, true},
		{"name in another query parameter than declared", "HTTPBIN_QUERY", `fetch("https://httpbin.test/anything?t=TRIAL&text=HTTPBIN_QUERY")`, true},
		{"name in a query parameter whose case differs", "HTTPBIN_QUERY", `fetch("https://httpbin.test/anything?t=TRIAL&KEY=HTTPBIN_QUERY")`, true},
		{"name of a query credential in a header", "HTTPBIN_QUERY", `fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_QUERY"))`, true},
		{"name in another header than declared", "HTTPBIN_NAMED", `fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_NAMED"))`, true},
		{"name of a header credential in the path", "HTTPBIN_TOKEN", `fetch("https://httpbin.test/anything/HTTPBIN_TOKEN?t=TRIAL")`, true},
		{"name within a path segment", "HTTPBIN_PATH", `fetch("https://httpbin.test/anything/file-HTTPBIN_PATH.txt?t=TRIAL")`, true},
		{"name of a header credential in a JSON body", "HTTPBIN_TOKEN", `fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ issue: "HTTPBIN_TOKEN" }) })`, true},
		{"name in another body field than declared", "HTTPBIN_BODY", `fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": "application/x-www-form-urlencoded" }, body: "comment=HTTPBIN_BODY" })`, true},
		{"name within the text of the declared body field", "HTTPBIN_BODY", `fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ client_secret: "it is HTTPBIN_BODY, see" }) })`, false},
		{"declared body field deep inside", "HTTPBIN_BODY", `fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ comments: [{ text: { client_secret: ["HTTPBIN_BODY"] } }] }) })`, false},
		{"declared body field in a file's text", "HTTPBIN_BODY", `fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", body: (() => { const f = new FormData(); f.append("file", new Blob(["client_secret=HTTPBIN_BODY"]), "note.txt"); return f; })() })`, false},
		{"declared body field in plain text", "HTTPBIN_BODY", `fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": "text/plain" }, body: "client_secret=HTTPBIN_BODY" })`, false},
		{"name in a file name", "HTTPBIN_BODY", `fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", body: (() => { const f = new FormData(); f.append("client_secret", new Blob(["x"]), "HTTPBIN_BODY"); return f; })() })`, false},
		{"name of a header credential as Basic in a URL's query", "HTTPBIN_TOKEN", `fetch("https://httpbin.test/anything?t=TRIAL&a=" + btoa("user:HTTPBIN_TOKEN"))`, false},
		{"name in percent-encoding in the query", "HTTPBIN_TOKEN", `fetch("https://httpbin.test/anything?t=TRIAL&a=%48TTPBIN_TOKEN")`, false},
		{"name in percent-encoding in a header", "HTTPBIN_TOKEN", `fetch("https://httpbin.test/anything?t=TRIAL", { headers: { "X-A": "%48TTPBIN_TOKEN" } })`, false},
		{"name in a WebSocket subprotocol", "HTTPBIN_TOKEN", `(async () => { const s = new WebSocket("wss://httpbin.test/x/ws?t=TRIAL", ["HTTPBIN_TOKEN"]); await new Promise((d) => { s.onclose = d; s.onerror = d; setTimeout(() => { s.close(); d(); }, 1500); }); return new Response("done"); })()`, false},
		{"name in a WebSocket message", "HTTPBIN_TOKEN", `(async () => { const s = new WebSocket("wss://httpbin.test/x/ws?t=TRIAL"); let got = ""; await new Promise((d) => { s.onopen = () => s.send("HTTPBIN_TOKEN"); s.onmessage = (m) => { got += m.data + "|"; if (got.includes("HTTPBIN")) s.close(); }; s.onclose = d; s.onerror = d; setTimeout(() => { s.close(); d(); }, 2500); }); return new Response(got); })()`, false},
	}
	for _, r := range rows {
		list = append(list, Attack{Section: "A", Name: r.name, Expected: must, Judge: unswapped(r.token, r.hint), Code: "await show(" + r.code + ");"})
	}
	return append(list, repeats()...)
}

// repeats are several uses of one name: one swap per name and surface, so that a second, published place stays literal.
func repeats() []Attack {
	return []Attack{
		{Section: "A", Name: "declared and chat parameter in one query", Expected: "only the declared one", Judge: once("HTTPBIN_QUERY"),
			Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL&key=HTTPBIN_QUERY&text=HTTPBIN_QUERY"));`},
		{Section: "A", Name: "the declared parameter twice", Expected: "refused, nothing sent", Judge: refused(unclear),
			Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL&key=HTTPBIN_QUERY&key=HTTPBIN_QUERY"));`},
		{Section: "A", Name: "any-parameter credential twice", Expected: "one swap", Judge: once("HTTPBIN_ANYQUERY"),
			Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL&a=HTTPBIN_ANYQUERY&b=HTTPBIN_ANYQUERY"));`},
		{Section: "A", Name: "header credential in two headers", Expected: "one swap", Judge: once("HTTPBIN_TOKEN"),
			Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN", { headers: { "X-Publish": "HTTPBIN_TOKEN" } })));`},
		{Section: "A", Name: "body credential twice in a form", Expected: "refused, nothing sent", Judge: refused(unclear),
			Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": "application/x-www-form-urlencoded" }, body: "client_secret=HTTPBIN_BODY&client_secret=HTTPBIN_BODY" }));`},
		{Section: "A", Name: "anywhere-in-the-body credential twice", Expected: "one swap", Judge: once("HTTPBIN_ANYBODY"),
			Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ a: "HTTPBIN_ANYBODY", b: "HTTPBIN_ANYBODY" }) }));`},
		{Section: "A", Name: "control: Basic password", Expected: "swapped", Judge: func(e *Evidence) (string, bool) {
			for _, s := range e.Arrived {
				if _, ok := strings.CutPrefix(s.Header.Get("Authorization"), "Basic "); ok && e.got("HTTPBIN_TOKEN") {
					return "swapped inside Basic", true
				}
			}
			return e.brief(), false
		}, Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL", { headers: { Authorization: "Basic " + btoa("user:HTTPBIN_TOKEN") } }));`},
		{Section: "A", Name: "control: declared query parameter", Expected: "swapped", Judge: swapped("HTTPBIN_QUERY"), Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL&key=HTTPBIN_QUERY"));`},
		{Section: "A", Name: "control: declared body field", Expected: "swapped", Judge: swapped("HTTPBIN_BODY"), Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ client_secret: "HTTPBIN_BODY" }) }));`},
		{Section: "A", Name: "control: declared header", Expected: "swapped", Judge: swapped("HTTPBIN_NAMED"), Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL", { headers: { "X-Api-Key": "HTTPBIN_NAMED" } }));`},
		{Section: "A", Name: "control: path segment", Expected: "swapped", Judge: swapped("HTTPBIN_PATH"), Code: `await show(fetch("https://httpbin.test/anything/HTTPBIN_PATH/x?t=TRIAL"));`},
	}
}

// once: the credential arrived exactly once in each request.
func once(token string) Judge {
	return func(e *Evidence) (string, bool) {
		if len(e.Arrived) == 0 {
			return "did not arrive: " + e.brief(), false
		}
		for _, s := range e.Arrived {
			n := strings.Count(s.Target, e.World.Canaries[token].Value()) + strings.Count(string(s.Body), e.World.Canaries[token].Value())
			for _, values := range s.Header {
				n += strings.Count(strings.Join(values, "\n"), e.World.Canaries[token].Value())
			}
			if n != 1 {
				return fmt.Sprintf("arrived %d times", n), false
			}
		}
		return "arrived once", true
	}
}
