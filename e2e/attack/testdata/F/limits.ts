// Attempts to use up the machine. Behind each the next run must work.

// name: endless loop
// expected: ends at its time
// judge: ends("time")
// seconds: 2
for (;;);

// name: endless waiting
// expected: ends at its time
// judge: ends("time")
// seconds: 2
await new Promise((d) => setTimeout(d, 1e9));

// name: catastrophic regular expression
// expected: ends at its time
// judge: ends("time")
// seconds: 2
/^(a+)+$/.test("a".repeat(60) + "b");

// name: a run that will not end at SIGTERM
// expected: ends at its time
// judge: ends("time")
// seconds: 2
Deno.addSignalListener("SIGTERM", () => {});
Deno.addSignalListener("SIGINT", () => {});
globalThis.addEventListener("beforeunload", (e) => {
  e.preventDefault();
  setTimeout(() => {}, 1e9);
});
globalThis.addEventListener("unload", () => {
  for (;;);
});

// name: timers that keep it alive
// expected: ends at its time
// judge: ends("time")
// seconds: 2
setInterval(() => {}, 1);
globalThis.onunhandledrejection = (e) => e.preventDefault();
Promise.reject(1);

// name: workers without end
// expected: ends at its time or limit
// judge: ends()
// seconds: 4
// alone: yes
// forks: yes
for (let i = 0; i < 500; i++) new Worker("data:application/javascript,for(;;);", { type: "module" });
await new Promise(() => setTimeout(() => {}, 1e9));

// name: heap bomb
// expected: ends at its limit
// judge: ends("memory", "heap")
// seconds: 90
// alone: yes
{
  const a = [];
  for (;;) a.push(new Array(1e6).fill(Math.random()));
}

// name: string bomb
// expected: ends at its limit
// judge: ends()
// seconds: 90
// alone: yes
{
  let s = "x";
  const keep = [];
  for (;;) {
    s += s;
    if (s.length > 2e8) {
      keep.push(s.split(""));
      s = "y";
    }
  }
}

// name: buffer bomb outside the heap
// expected: ends at its limit
// judge: ends("memory")
// seconds: 90
// alone: yes
{
  const a = [];
  for (;;) {
    const b = new Uint8Array(64 << 20);
    for (let i = 0; i < b.length; i += 4096) b[i] = 1;
    a.push(b);
  }
}

// name: buffers of 1.5 GiB
// expected: ends at its limit
// judge: ends("memory")
// seconds: 90
// alone: yes
{
  const a = [];
  for (let n = 0; n < 24; n++) {
    const b = new Uint8Array(64 << 20);
    for (let i = 0; i < b.length; i += 4096) b[i] = 1;
    a.push(b);
  }
  await new Promise((d) => setTimeout(d, 1500));
  out({ seen: "took them all: " + a.length });
}

// name: stack overflow
// expected: an error
// judge: ends("RangeError")
// seconds: 20
{
  const g = () => g() + 1;
  g();
}

// name: output flood
// expected: ended at its limit
// judge: ends("printed more")
// seconds: 60
{
  const s = "x".repeat(1 << 16);
  for (;;) console.log(s);
}

// name: output flood on stderr
// expected: cut or ended
// judge: ends()
// seconds: 60
{
  const s = "x".repeat(1 << 16);
  for (;;) console.error(s);
}

// name: output without a line feed
// expected: cut or ended
// judge: ends()
// seconds: 10
{
  const b = new TextEncoder().encode("x".repeat(1 << 16));
  for (;;) await Deno.stdout.write(b);
}

// name: output that is not UTF-8
// expected: replaced
// judge: ends()
// seconds: 10
{
  const b = new Uint8Array(100000).map((_, i) => i);
  await Deno.stdout.write(b);
}

// name: control characters in the output
// expected: harmless
// judge: ends()
// seconds: 10
console.log("\x1b]0;title\x07\x1b[2J\x00\x08");

// name: file flood in /tmp
// expected: bounded
// judge: ends()
// seconds: 20
// alone: yes
try {
  for (let i = 0;; i++) Deno.writeFileSync("/tmp/TRIAL-" + i, new Uint8Array(8 << 20));
} catch (e) {
  why(e);
}
for (const f of Deno.readDirSync("/tmp")) if (f.name.startsWith("TRIAL")) Deno.removeSync("/tmp/" + f.name);

// name: many small files in /tmp
// expected: bounded
// judge: ends()
// seconds: 20
// alone: yes
{
  let n = 0;
  try {
    for (; n < 300000; n++) Deno.writeTextFileSync("/tmp/TRIAL-" + n, "");
  } catch (e) {
    why(e);
  }
  out({ seen: n + " files" });
  for (let i = 0; i < n; i++) Deno.removeSync("/tmp/TRIAL-" + i);
}

// name: a huge file in /skills
// expected: bounded
// judge: ends()
// seconds: 20
// alone: yes
try {
  const f = Deno.openSync("/skills/TRIAL.ts", { write: true, create: true });
  for (let i = 0; i < 2048; i++) f.writeSync(new Uint8Array(1 << 20));
  out({ seen: "2 GiB written" });
} catch (e) {
  why(e);
} finally {
  try {
    Deno.removeSync("/skills/TRIAL.ts");
  } catch { /* none */ }
}

// name: a sparse file in /tmp
// expected: bounded
// judge: ends()
// seconds: 10
try {
  Deno.writeTextFileSync("/tmp/TRIAL", "x");
  Deno.truncateSync("/tmp/TRIAL", 1 << 40);
  out({ seen: "a terabyte long" });
} catch (e) {
  why(e);
}
Deno.removeSync("/tmp/TRIAL");

// name: thousands of sockets
// expected: bounded
// judge: ends()
// seconds: 20
{
  const all = [];
  for (let i = 0; i < 3000; i++) {
    all.push(Deno.connect({ hostname: "httpbin.test", port: 443 }).then((c) => c, (e) => e));
  }
  const got = await Promise.all(all);
  out({ seen: got.filter((x) => !(x instanceof Error)).length + " opened" });
}

// name: slowloris against the proxy
// expected: bounded
// judge: ends()
// seconds: 20
{
  const all = await Promise.all(
    [...Array(300)].map(() => Deno.connect({ hostname: "httpbin.test", port: 443 }).catch(() => null)),
  );
  for (let r = 0; r < 5; r++) {
    await Promise.all(all.map((c) => c?.write(new Uint8Array([22])).catch(() => {})));
    await new Promise((d) => setTimeout(d, 500));
  }
  out({ seen: all.filter(Boolean).length + " held" });
}

// name: 10,000 refused fetches
// expected: bounded
// judge: ends()
// seconds: 40
{
  let n = 0;
  for (let i = 0; i < 100; i++) {
    await Promise.all([...Array(100)].map(async () => {
      try {
        const r = await fetch("https://strict.test/x/ok?t=TRIAL", { method: "DELETE" });
        await r.body?.cancel();
        n++;
      } catch { /* refused harder */ }
    }));
  }
  out({ seen: n + " answers" });
}

// name: 2,000 fetches at once
// expected: bounded
// judge: ends()
// seconds: 40
{
  const got = await Promise.all([...Array(2000)].map(async () => {
    try {
      const r = await fetch("https://httpbin.test/x/ok?t=TRIAL");
      await r.body?.cancel();
      return r.status;
    } catch {
      return 0;
    }
  }));
  const n = {};
  for (const s of got) n[s] = (n[s] ?? 0) + 1;
  out({ seen: JSON.stringify(n) });
}

// name: a slow upstream
// expected: ends at its time
// judge: ends("time")
// seconds: 3
await show(fetch("https://httpbin.test/x/slow?t=TRIAL&ms=60000"));

// name: a slow body
// expected: ends at its time
// judge: ends("time")
// seconds: 3
await show(fetch("https://httpbin.test/x/slow?t=TRIAL&ms=60000&body=1"));

// name: an endless upload
// expected: ends at its time
// judge: ends()
// seconds: 3
await show(fetch("https://httpbin.test/x/sink?t=TRIAL", {
  method: "POST",
  body: new ReadableStream({
    pull(c) {
      c.enqueue(new Uint8Array(65536));
    },
  }),
}));

// name: headers of 10 MB
// expected: refused
// judge: both(refused(), ends())
// seconds: 30
await show(fetch("https://httpbin.test/x/ok?t=TRIAL", { headers: { "X-Big": "x".repeat(10 << 20) } }));

// name: a URL of 5 MB
// expected: refused
// judge: both(refused(), ends())
// seconds: 30
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET /x/ok?t=TRIAL&a=" + "x".repeat(5 << 20) + " HTTP/1.1\r\nHost: httpbin.test\r\n\r\n",
);

// name: 100,000 headers
// expected: refused
// judge: both(refused(), ends())
// seconds: 30
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET /x/ok?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n" + "X-A: b\r\n".repeat(100000) + "\r\n",
);

// name: HTTP/2 rapid reset
// expected: bounded
// judge: ends()
// seconds: 10
import h2 from "node:http2";
{
  let n = 0;
  await new Promise<void>((d) => {
    const c = h2.connect("https://httpbin.test");
    c.on("error", () => d());
    c.on("close", () => d());
    c.on("connect", () => {
      const t = setInterval(() => {
        for (let i = 0; i < 100; i++) {
          try {
            const r = c.request({ ":path": "/x/ok?t=TRIAL" });
            r.on("error", () => {});
            r.close(8);
            n++;
          } catch { /* closed */ }
        }
        if (n > 20000) {
          clearInterval(t);
          c.destroy();
          d();
        }
      }, 1);
      setTimeout(() => {
        clearInterval(t);
        c.destroy();
        d();
      }, 5000);
    });
  });
  out({ seen: n + " streams" });
}
