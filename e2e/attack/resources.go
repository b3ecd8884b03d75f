package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// resources are attempts to use up the machine. Behind each the next run must work.
func resources() []Attack {
	f := func(name, expected string, seconds int, code string, words ...string) Attack {
		return Attack{Section: "F", Name: name, Expected: expected, Seconds: seconds, Code: code, Judge: ends(seconds, words...)}
	}
	// turned away: nothing of it reached the upstream, and the code was told.
	turned := func(name, expected string, seconds int, code string) Attack {
		a := f(name, expected, seconds, code)
		a.Judge = both(refused(), a.Judge)
		return a
	}
	alone := func(a Attack) Attack { a.Alone = true; return a }
	return []Attack{
		f("endless loop", "ends at its time", 2, `for (;;);`, "time"),
		f("endless waiting", "ends at its time", 2, `await new Promise((d) => setTimeout(d, 1e9));`, "time"),
		f("catastrophic regular expression", "ends at its time", 2, `/^(a+)+$/.test("a".repeat(60) + "b");`, "time"),
		f("a run that will not end at SIGTERM", "ends at its time", 2, `Deno.addSignalListener("SIGTERM", () => {}); Deno.addSignalListener("SIGINT", () => {}); globalThis.addEventListener("beforeunload", (e) => { e.preventDefault(); setTimeout(() => {}, 1e9); }); globalThis.addEventListener("unload", () => { for (;;); });`, "time"),
		f("timers that keep it alive", "ends at its time", 2, `setInterval(() => {}, 1); globalThis.onunhandledrejection = (e) => e.preventDefault(); Promise.reject(1);`, "time"),
		alone(f("workers without end", "ends at its time or limit", 4, `for (let i = 0; i < 500; i++) new Worker("data:application/javascript,for(;;);", { type: "module" }); await new Promise(() => setTimeout(() => {}, 1e9));`)),
		alone(f("heap bomb", "ends at its limit", 20, `const a = []; for (;;) a.push(new Array(1e6).fill(Math.random()));`, "memory", "heap")),
		alone(f("string bomb", "ends at its limit", 20, `let s = "x"; const keep = []; for (;;) { s += s; if (s.length > 2e8) { keep.push(s.split("")); s = "y"; } }`)),
		alone(f("buffer bomb outside the heap", "ends at its limit", 20, `const a = []; for (;;) { const b = new Uint8Array(64 << 20); for (let i = 0; i < b.length; i += 4096) b[i] = 1; a.push(b); }`, "memory")),
		alone(f("buffers of 1.5 GiB", "ends at its limit", 20, `const a = []; for (let n = 0; n < 24; n++) { const b = new Uint8Array(64 << 20); for (let i = 0; i < b.length; i += 4096) b[i] = 1; a.push(b); } out({ seen: "took them all: " + a.length });`, "memory")),
		f("stack overflow", "an error", 20, `const g = () => g() + 1; g();`, "RangeError"),
		f("output flood", "ended at its limit", 20, `const s = "x".repeat(1 << 16); for (;;) console.log(s);`, "printed more"),
		f("output flood on stderr", "cut or ended", 20, `const s = "x".repeat(1 << 16); for (;;) console.error(s);`),
		f("output without a line feed", "cut or ended", 10, `const b = new TextEncoder().encode("x".repeat(1 << 16)); for (;;) await Deno.stdout.write(b);`),
		f("output that is not UTF-8", "replaced", 10, `const b = new Uint8Array(100000).map((_, i) => i); await Deno.stdout.write(b);`),
		f("control characters in the output", "harmless", 10, `console.log("\x1b]0;title\x07\x1b[2J\x00\x08");`),
		alone(f("file flood in /tmp", "bounded", 20, `try { for (let i = 0; ; i++) Deno.writeFileSync("/tmp/TRIAL-" + i, new Uint8Array(8 << 20)); } catch (e) { why(e); } for (const f of Deno.readDirSync("/tmp")) if (f.name.startsWith("TRIAL")) Deno.removeSync("/tmp/" + f.name);`)),
		alone(f("many small files in /tmp", "bounded", 20, `let n = 0; try { for (; n < 300000; n++) Deno.writeTextFileSync("/tmp/TRIAL-" + n, ""); } catch (e) { why(e); } out({ seen: n + " files" }); for (let i = 0; i < n; i++) Deno.removeSync("/tmp/TRIAL-" + i);`)),
		alone(f("a huge file in /skills", "bounded", 20, `try { const f = Deno.openSync("/skills/TRIAL.ts", { write: true, create: true }); for (let i = 0; i < 2048; i++) f.writeSync(new Uint8Array(1 << 20)); out({ seen: "2 GiB written" }); } catch (e) { why(e); } finally { try { Deno.removeSync("/skills/TRIAL.ts"); } catch { /* none */ } }`)),
		f("a sparse file in /tmp", "bounded", 10, `try { Deno.writeTextFileSync("/tmp/TRIAL", "x"); Deno.truncateSync("/tmp/TRIAL", 1 << 40); out({ seen: "a terabyte long" }); } catch (e) { why(e); } Deno.removeSync("/tmp/TRIAL");`),
		f("thousands of sockets", "bounded", 20, `const all = []; for (let i = 0; i < 3000; i++) all.push(Deno.connect({ hostname: "httpbin.test", port: 443 }).then((c) => c, (e) => e)); const got = await Promise.all(all); out({ seen: got.filter((x) => !(x instanceof Error)).length + " opened" });`),
		f("slowloris against the proxy", "bounded", 20, `const all = await Promise.all([...Array(300)].map(() => Deno.connect({ hostname: "httpbin.test", port: 443 }).catch(() => null))); for (let r = 0; r < 5; r++) { await Promise.all(all.map((c) => c?.write(new Uint8Array([22])).catch(() => {}))); await new Promise((d) => setTimeout(d, 500)); } out({ seen: all.filter(Boolean).length + " held" });`),
		f("10,000 refused fetches", "bounded", 40, `let n = 0; for (let i = 0; i < 100; i++) { await Promise.all([...Array(100)].map(async () => { try { const r = await fetch("https://strict.test/x/ok?t=TRIAL", { method: "DELETE" }); await r.body?.cancel(); n++; } catch { /* refused harder */ } })); } out({ seen: n + " answers" });`),
		f("2,000 fetches at once", "bounded", 40, `const got = await Promise.all([...Array(2000)].map(async () => { try { const r = await fetch("https://httpbin.test/x/ok?t=TRIAL"); await r.body?.cancel(); return r.status; } catch { return 0; } })); const n = {}; for (const s of got) n[s] = (n[s] ?? 0) + 1; out({ seen: JSON.stringify(n) });`),
		f("a slow upstream", "ends at its time", 3, `await show(fetch("https://httpbin.test/x/slow?t=TRIAL&ms=60000"));`, "time"),
		f("a slow body", "ends at its time", 3, `await show(fetch("https://httpbin.test/x/slow?t=TRIAL&ms=60000&body=1"));`, "time"),
		f("an endless upload", "ends at its time", 3, `await show(fetch("https://httpbin.test/x/sink?t=TRIAL", { method: "POST", body: new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(65536)); } }) }));`),
		turned("headers of 10 MB", "refused", 10, `await show(fetch("https://httpbin.test/x/ok?t=TRIAL", { headers: { "X-Big": "x".repeat(10 << 20) } }));`),
		turned("a URL of 5 MB", "refused", 10, `await raw("httpbin.test", "httpbin.test", "GET /x/ok?t=TRIAL&a=" + "x".repeat(5 << 20) + " HTTP/1.1\r\nHost: httpbin.test\r\n\r\n");`),
		turned("100,000 headers", "refused", 10, `await raw("httpbin.test", "httpbin.test", "GET /x/ok?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n" + "X-A: b\r\n".repeat(100000) + "\r\n");`),
		f("HTTP/2 rapid reset", "bounded", 10, `import h2 from "node:http2"; let n = 0; await new Promise((d) => { const c = h2.connect("https://httpbin.test"); c.on("error", () => d()); c.on("close", () => d()); c.on("connect", () => { const t = setInterval(() => { for (let i = 0; i < 100; i++) { try { const r = c.request({ ":path": "/x/ok?t=TRIAL" }); r.on("error", () => {}); r.close(8); n++; } catch { /* closed */ } } if (n > 20000) { clearInterval(t); c.destroy(); d(); } }, 1); setTimeout(() => { clearInterval(t); c.destroy(); d(); }, 5000); }); }); out({ seen: n + " streams" });`),
		f("code of 5 MB", "refused or run", 10, `/*`+strings.Repeat("x", 5<<20)+`*/ console.log("big");`),
		{Section: "F", Name: "more runs than slots", Expected: "queued or a clear busy", Alone: true, Do: crowd},
		{Section: "F", Name: "a client that leaves in the middle", Expected: "the run ends", Alone: true, Do: leave},
	}
}

// ends: the run answered within its time and a few seconds, said one of the words, and the next run works.
func ends(seconds int, words ...string) Judge {
	return func(e *Evidence) (string, bool) {
		if wall := e.wall(); wall > time.Duration(seconds+8)*time.Second {
			return "took " + wall.Round(time.Second).String(), false
		}
		text := strings.ToLower(e.Result.Out + e.Result.Notes)
		said := len(words) == 0
		for _, w := range words {
			said = said || strings.Contains(text, strings.ToLower(w))
		}
		if !said {
			return "does not say why: " + clip(strings.ReplaceAll(e.Result.Out+e.Result.Notes, "\n", " "), 100), false
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		next, err := e.World.Execute(ctx, `console.log((await fetch("https://httpbin.test/x/ok")).status, [...Deno.readDirSync("/tmp")].filter((f) => f.name.startsWith("`+e.Trial+`")).length)`)
		if err != nil || !strings.HasPrefix(next.Out, "200 ") {
			return fmt.Sprintf("the next run gave %q %v", clip(next.Out, 80), err), false
		}
		why := e.brief()
		if strings.HasPrefix(why, "nothing printed") {
			why = clip(strings.ReplaceAll(strings.TrimSpace(e.Result.Out), "\n", " "), 60)
		}
		return why + fmt.Sprintf(" (%s), the next run works", e.Took.Round(100*time.Millisecond)), true
	}
}

// crowd starts three times as many runs as there are slots.
func crowd(ctx context.Context, w *world.World) (string, bool) {
	const runs = 24
	type answer struct {
		r   world.Result
		err error
	}
	answers := make(chan answer)
	for range runs {
		go func() {
			r, err := w.Execute(ctx, "await new Promise((d) => setTimeout(d, 300)); console.log('ran')")
			answers <- answer{r, err}
		}()
	}
	ran, busy := 0, 0
	for range runs {
		a := <-answers
		switch {
		case a.err == nil && a.r.Out == "ran\n":
			ran++
		case a.err == nil && strings.Contains(strings.ToLower(a.r.Out), "busy"):
			busy++
		}
	}
	return fmt.Sprintf("%d ran, %d busy", ran, busy), ran+busy == runs && ran >= runs/3
}

// leave cancels a call and expects the slot back.
func leave(ctx context.Context, w *world.World) (string, bool) {
	s, err := w.Connect(ctx)
	if err != nil {
		return err.Error(), false
	}
	defer s.Close()
	for range 12 {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		_, _ = s.CallTool(short, &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "for(;;);", "timeout": 60}})
		cancel()
	}
	start := time.Now()
	soon, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	r, err := w.Execute(soon, "console.log('free')")
	return fmt.Sprintf("twelve left, then %q after %s", strings.TrimSpace(r.Out), time.Since(start).Round(100*time.Millisecond)), err == nil && r.Out == "free\n"
}
