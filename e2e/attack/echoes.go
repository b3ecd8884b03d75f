package attack

import (
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
)

// echo is code that fetches /x/echo with these parameters, sending the token name in Authorization.
func echo(token, query string) string {
	return fmt.Sprintf(`await show(fetch("https://httpbin.test/x/echo?t=TRIAL&%s", auth(%q, { redirect: "manual" })));`, query, token)
}

// forms are the credential echoed in every form an upstream may write it in.
func forms() []Attack {
	var list []Attack
	for _, f := range canary.Forms() {
		for _, token := range []string{"HTTPBIN_TOKEN", "HTTPBIN_HARD"} {
			list = append(list, Attack{
				Section: "B", Name: fmt.Sprintf("echo as %s of %s", f.Name, token), Expected: "scrubbed", Judge: scrubbed(token, f.Name == "raw"),
				Code: echo(token, "form="+f.Name),
			})
		}
	}
	return append(list,
		Attack{Section: "B", Name: "echo of rendered Basic as it was sent", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", false),
			Code: `await show(fetch("https://httpbin.test/x/echo?t=TRIAL&what=header:Authorization", { headers: { Authorization: "Basic " + btoa("someone:HTTPBIN_TOKEN") } }));`},
		Attack{Section: "B", Name: "echo of a Basic user", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", true),
			Code: `await show(fetch("https://httpbin.test/x/echo?t=TRIAL&what=user", { headers: { Authorization: "Basic " + btoa("HTTPBIN_TOKEN:") } }));`},
		Attack{Section: "B", Name: "echo of the whole request head", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", true), Code: echo("HTTPBIN_TOKEN", "what=head")},
		Attack{Section: "B", Name: "echo of a query credential with its URL", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_QUERY", true),
			Code: `await show(fetch("https://httpbin.test/x/echo?t=TRIAL&what=head&key=HTTPBIN_QUERY"));`},
		Attack{Section: "B", Name: "echo of a path credential", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_PATH", true), Code: `await show(fetch("https://httpbin.test/anything/HTTPBIN_PATH?t=TRIAL"));`},
		Attack{Section: "B", Name: "echo of a body credential", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_BODY", true),
			Code: `await show(fetch("https://httpbin.test/x/echo?t=TRIAL&what=body", { method: "POST", headers: { "Content-Type": "application/x-www-form-urlencoded" }, body: "client_secret=HTTPBIN_BODY" }));`},
		Attack{Section: "B", Name: "go-httpbin /headers", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_HARD", true), Code: `await show(fetch("https://httpbin.test/headers?t=TRIAL", auth("HTTPBIN_HARD")));`},
		Attack{Section: "B", Name: "go-httpbin /bearer", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", true), Code: `await show(fetch("https://httpbin.test/bearer?t=TRIAL", auth("HTTPBIN_TOKEN")));`},
		Attack{Section: "B", Name: "two credentials side by side", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_NAMED", true),
			Code: `await show(fetch("https://httpbin.test/x/echo?t=TRIAL&what=head&key=HTTPBIN_QUERY", auth("HTTPBIN_TOKEN", { headers: { "X-Api-Key": "HTTPBIN_NAMED" } })));`},
	)
}

// places are the credential echoed in every part of an answer.
func places() []Attack {
	var list []Attack
	add := func(name, query string, named bool) {
		list = append(list, Attack{Section: "B", Name: "echo in " + name, Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", named), Code: echo("HTTPBIN_TOKEN", query)})
	}
	for _, p := range []string{"location", "location-raw", "cookie", "link", "header", "headers-many", "type", "challenge", "disposition", "refresh"} {
		add("the place "+p, "place="+p, p != "cookie")
	}
	add("a header's name", "place=header-name", false)
	add("a digest and an ETag", "place=digest", false)
	add("a trailer", "place=trailer", false)
	add("an undeclared trailer", "place=trailer-undeclared", false)
	for _, status := range []int{301, 302, 400, 401, 403, 404, 407, 429, 500, 502, 503} {
		add(fmt.Sprintf("a body of status %d", status), fmt.Sprintf("status=%d", status), true)
	}
	add("a Location of status 302", "place=location&status=302", true)
	add("a header as base64", "place=header&form=base64-1", false)
	add("a cookie, percent-encoded", "place=cookie&form=percent-all", false)
	add("a JSON type", "type=application/json&form=json-u", false)
	add("an octet stream", "type=application/octet-stream", true)
	add("an image type", "type=image/png", true)
	return append(list,
		Attack{Section: "B", Name: "trailers read raw", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", false),
			Code: `await raw("httpbin.test", "httpbin.test", "GET /x/echo?t=TRIAL&place=trailer HTTP/1.1\r\nHost: httpbin.test\r\nTE: trailers\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\nConnection: close\r\n\r\n");`},
		Attack{Section: "B", Name: "status text read raw", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", false),
			Code: `await raw("httpbin.test", "httpbin.test", "GET /x/raw?t=TRIAL&mode=status-text HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\nConnection: close\r\n\r\n");`},
		Attack{Section: "B", Name: "slices by Range", Expected: "Range dropped", Judge: scrubbed("HTTPBIN_TOKEN", false),
			Code: `let all = ""; for (let i = 0; i < 90; i++) { const r = await fetch("https://httpbin.test/x/ranges?t=TRIAL", auth("HTTPBIN_TOKEN", { headers: { Range: "bytes=" + i + "-" + i } })); const text = await r.text(); if (r.status === 206) all += text; else { if (i === 0) all = text; break; } } out({ status: 200, text: all });`},
		Attack{Section: "B", Name: "many Ranges at once", Expected: "Range dropped", Judge: scrubbed("HTTPBIN_TOKEN", false),
			Code: `await show(fetch("https://httpbin.test/x/ranges?t=TRIAL", auth("HTTPBIN_TOKEN", { headers: { Range: "bytes=0-3,4-7,8-11,12-15,16-19,20-23" } })));`},
		Attack{Section: "B", Name: "If-Range and Range", Expected: "Range dropped", Judge: scrubbed("HTTPBIN_TOKEN", false),
			Code: `await show(fetch("https://httpbin.test/x/ranges?t=TRIAL", auth("HTTPBIN_TOKEN", { headers: { Range: "bytes=2-20", "If-Range": "Tue, 14 Nov 2023 22:13:20 GMT" } })));`},
		Attack{Section: "B", Name: "HEAD of an echo", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", true), Code: `await show(fetch("https://httpbin.test/x/echo?t=TRIAL&place=header", auth("HTTPBIN_TOKEN", { method: "HEAD" })));`},
		Attack{Section: "B", Name: "echo over HTTP/2 from the upstream", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", true), Code: `await show(fetch("https://h2.test/x/echo?t=TRIAL&what=auth", auth("HTTPBIN_TOKEN")));`},
		Attack{Section: "B", Name: "trailer over HTTP/2 from the upstream", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", false), Code: `await show(fetch("https://h2.test/x/echo?t=TRIAL&place=trailer", auth("HTTPBIN_TOKEN")));`},
		Attack{Section: "B", Name: "header over HTTP/2 from the upstream", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", true), Code: `await show(fetch("https://h2.test/x/echo?t=TRIAL&place=header", auth("HTTPBIN_TOKEN")));`},
	)
}

// codings are the credential under content codings.
func codings() []Attack {
	var list []Attack
	add := func(enc string, named bool, more string) {
		list = append(list, Attack{
			Section: "B", Name: strings.TrimSpace("echo under " + enc + " " + more), Expected: "decoded and scrubbed, or refused", Judge: scrubbed("HTTPBIN_HARD", named),
			Code: echo("HTTPBIN_HARD", "enc="+enc+"&pre=50&post=50&"+more),
		})
	}
	for _, enc := range []string{"gzip", "deflate", "deflate-raw", "br", "zstd", "gzip,br", "br,gzip", "zstd,gzip", "gzip,gzip", "gzip-members", "gzip-upper", "x-gzip", "identity", "identity,gzip"} {
		add(enc, enc != "identity,gzip" && enc != "gzip-upper" && enc != "x-gzip" && enc != "identity", "")
		add(enc, false, "frame=chunk1&form=base64url-1")
	}
	for _, enc := range []string{"gzip,gzip,gzip", "br,gzip,deflate", "unknown", "unknown,gzip", "gzip,unknown", "labelled-gzip", "unlabelled-gzip", "none,gzip"} {
		add(enc, false, "")
	}
	for _, mode := range []string{"gzip-cut", "gzip-junk"} {
		list = append(list, Attack{Section: "B", Name: "answer " + mode, Expected: "no leak, no complete answer", Judge: scrubbed("HTTPBIN_TOKEN", false),
			Code: `await show(fetch("https://httpbin.test/x/raw?t=TRIAL&mode=` + mode + `", auth("HTTPBIN_TOKEN")));`})
	}
	return append(list,
		Attack{Section: "B", Name: "Accept-Encoding of unknown codings", Expected: "scrubbed or refused", Judge: scrubbed("HTTPBIN_TOKEN", false),
			Code: `await show(fetch("https://httpbin.test/x/echo?t=TRIAL&enc=unknown", auth("HTTPBIN_TOKEN", { headers: { "Accept-Encoding": "x-hidden, *;q=1" } })));`},
		Attack{Section: "B", Name: "gzip bomb of 2 GiB", Expected: "bounded, refused or streamed", Seconds: 40, Judge: survives, Code: bombs("gzip", 2048)},
		Attack{Section: "B", Name: "brotli bomb of 2 GiB", Expected: "bounded, refused or streamed", Seconds: 40, Judge: survives, Code: bombs("br", 2048)},
		Attack{Section: "B", Name: "zstd bomb of 2 GiB", Expected: "bounded, refused or streamed", Seconds: 40, Judge: survives, Code: bombs("zstd", 2048)},
		Attack{Section: "B", Name: "gzip bomb in a gzip bomb", Expected: "bounded, refused or streamed", Seconds: 40, Judge: survives, Code: bombs("gzip,gzip", 2048)},
	)
}

// bombs is code that reads a bomb without keeping it.
func bombs(enc string, mb int) string {
	return fmt.Sprintf(`try { const r = await fetch("https://httpbin.test/x/bomb?t=TRIAL&enc=%s&mb=%d", auth("HTTPBIN_TOKEN")); let n = 0; for await (const c of r.body) { n += c.length; if (n > 200e6) break; } out({ status: r.status, seen: n + " bytes read", held: true }); } catch (e) { why(e); }`, enc, mb)
}

// survives: whatever came out, the run answered; the suite's later attacks show that the proxy lives.
func survives(e *Evidence) (string, bool) {
	return e.brief(), e.Failed == nil && len(e.Arrived) > 0
}

// framings are the credential cut by framing, at chunk borders and in big bodies.
func framings() []Attack {
	var list []Attack
	add := func(name, query string, named bool) {
		list = append(list, Attack{Section: "B", Name: "echo " + name, Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", named), Code: echo("HTTPBIN_TOKEN", query)})
	}
	for _, f := range []string{"length", "chunked", "chunk1", "chunk7", "sse", "ndjson"} {
		add("framed by "+f, "frame="+f, true)
		add("framed by "+f+" as JSON escapes", "form=json-u&frame="+f, false)
	}
	for _, cut := range []int{1, 5, 18, 36} {
		add(fmt.Sprintf("cut once after %d bytes", cut), fmt.Sprintf("frame=split:%d", cut), true)
	}
	list = append(list, Attack{
		Section: "B", Name: "echo cut once at every byte", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", true), Seconds: 40,
		Code: `const texts = await Promise.all([...Array(37).keys()].map(async (i) => (await fetch("https://httpbin.test/x/echo?t=TRIAL&frame=split:" + (i + 1), auth("HTTPBIN_TOKEN"))).text())); out({ status: 200, text: texts.join("|") });`,
	}, Attack{
		Section: "B", Name: "echo as base64 cut at every byte", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", false), Seconds: 40,
		Code: `const texts = await Promise.all([...Array(52).keys()].map(async (i) => (await fetch("https://httpbin.test/x/echo?t=TRIAL&form=base64-1&frame=split:" + (i + 1), auth("HTTPBIN_TOKEN"))).text())); out({ status: 200, text: texts.join("|") });`,
	})
	// Around the usual buffer sizes of readers, and of the bound up to which a body is held whole.
	for _, size := range []int{4096, 16384, 32768, 65536, 262144} {
		list = append(list, Attack{
			Section: "B", Name: fmt.Sprintf("echo across the border at %d", size), Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", true), Seconds: 40,
			Code: fmt.Sprintf(`let found = ""; for (const back of [0, 1, 2, 10, 18, 35, 36, 37, 38]) { const r = await fetch("https://httpbin.test/x/echo?t=TRIAL&post=%d&pre=" + (%d - back), auth("HTTPBIN_TOKEN")); const text = await r.text(); found += text.slice(%d - 60).replaceAll("..", "") + "|"; } out({ status: 200, text: found.slice(0, 9000) });`, size, size, size),
		})
	}
	for _, row := range []struct{ mib, post int }{{6, 100}, {64, 0}} {
		list = append(list, Attack{
			Section: "B", Name: fmt.Sprintf("echo behind %d MiB", row.mib), Expected: "scrubbed, streamed", Judge: scrubbed("HTTPBIN_TOKEN", true), Seconds: 60,
			Code: fmt.Sprintf(`const r = await fetch("https://httpbin.test/x/echo?t=TRIAL&pre=%d&post=%d", auth("HTTPBIN_TOKEN")); let tail = "", n = 0; const d = new TextDecoder(); for await (const c of r.body) { n += c.length; tail = (tail + d.decode(c)).slice(-400); } out({ status: r.status, text: tail, length: n });`, row.mib<<20, row.post),
		})
	}
	return append(list,
		Attack{Section: "B", Name: "the hold-back as an oracle", Expected: "a true and a false prefix leave alike", Seconds: 30, Judge: verdicts(), Code: oracles},
		Attack{Section: "B", Name: "events leave at once", Expected: "each within 250 ms", Seconds: 30, Judge: verdicts(), Code: `
async function slowest() {
  const r = await fetch("https://httpbin.test/x/ticks?t=TRIAL&n=6&ms=400", auth("HTTPBIN_TOKEN")); let worst = 0, n = 0, buf = ""; const d = new TextDecoder();
  for await (const c of r.body) { buf += d.decode(c); let at; while ((at = buf.indexOf("\n\n")) >= 0) { const sent = Number(buf.slice(0, at).split(" ")[2]); worst = Math.max(worst, Date.now() - sent); n++; buf = buf.slice(at + 2); } }
  return n === 6 ? worst : Infinity;
}
let worst = Infinity; // an event that is held comes with the next one, 400 ms later, every time
for (let i = 0; i < 5 && worst >= 250; i++) worst = await slowest();
out({ held: worst < 250, seen: worst < 250 ? "6 events, in time" : "the slowest after " + worst + " ms" });`},
	)
}

// oracles compares, for prefixes of several lengths, how many bytes come through before the pause.
const oracles = `
async function before(guess, pre) {
  const r = await fetch("https://httpbin.test/x/oracle?t=TRIAL&pause=5000&guess=" + guess + "&pre=" + pre, auth("HTTPBIN_TOKEN"));
  const start = performance.now(); const reader = r.body.getReader(); let n = 0;
  for (;;) { const timer = new Promise((d) => setTimeout(() => d("late"), Math.max(0, 250 - (performance.now() - start)))); const got = await Promise.race([reader.read(), timer]); if (got === "late" || got.done) break; n += got.value.length; }
  await reader.cancel().catch(() => {});
  return n;
}
let bad = "";
await Promise.all([0, 10, 700].map(async (pre) => {
  for (const n of [1, 2, 5, 6, 12, 20, 36]) {
    // A machine that is busy tells two alike apart, but not every time.
    let a, b, tries = 0;
    do [a, b] = await Promise.all([before("secret:" + n, pre), before("false:" + n, pre)]); while (a !== b && ++tries < 4);
    if (a !== b) bad += " prefix " + n + " behind " + pre + ": " + a + " against " + b;
  }
}));
out({ held: bad === "", seen: bad === "" ? "21 pairs alike" : bad });`
