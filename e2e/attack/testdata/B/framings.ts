// The credential cut by framing, at chunk borders and in big bodies.

// expected: scrubbed
// judge: scrubbed("HTTPBIN_TOKEN", true)

// name: echo framed by {frame}
// each: frame = length chunked chunk1 chunk7 sse ndjson
await show(fetch("https://httpbin.test/x/echo?t=TRIAL&frame={frame}", auth("HTTPBIN_TOKEN", { redirect: "manual" })));

// name: echo framed by {frame} as JSON escapes
// judge: scrubbed("HTTPBIN_TOKEN", false)
// each: frame = length chunked chunk1 chunk7 sse ndjson
await show(
  fetch("https://httpbin.test/x/echo?t=TRIAL&form=json-u&frame={frame}", auth("HTTPBIN_TOKEN", { redirect: "manual" })),
);

// name: echo cut once after {bytes} bytes
// each: bytes = 1 5 18 36
await show(
  fetch("https://httpbin.test/x/echo?t=TRIAL&frame=split:{bytes}", auth("HTTPBIN_TOKEN", { redirect: "manual" })),
);

// name: echo cut once at every byte
// seconds: 40
{
  const texts = await Promise.all(
    [...Array(37).keys()].map(async (i) =>
      (await fetch("https://httpbin.test/x/echo?t=TRIAL&frame=split:" + (i + 1), auth("HTTPBIN_TOKEN"))).text()
    ),
  );
  out({ status: 200, text: texts.join("|") });
}

// name: echo as base64 cut at every byte
// judge: scrubbed("HTTPBIN_TOKEN", false)
// seconds: 40
{
  const texts = await Promise.all(
    [...Array(52).keys()].map(async (i) =>
      (await fetch("https://httpbin.test/x/echo?t=TRIAL&form=base64-1&frame=split:" + (i + 1), auth("HTTPBIN_TOKEN")))
        .text()
    ),
  );
  out({ status: 200, text: texts.join("|") });
}

// name: echo across the border at {size}
// seconds: 40
// each: size = 4096 16384 32768 65536 262144
// note: The usual buffer sizes of readers, and the bound up to which a body is held whole.
{
  const size = Number("{size}");
  let found = "";
  for (const back of [0, 1, 2, 10, 18, 35, 36, 37, 38]) {
    const r = await fetch(
      "https://httpbin.test/x/echo?t=TRIAL&post={size}&pre=" + (size - back),
      auth("HTTPBIN_TOKEN"),
    );
    const text = await r.text();
    found += text.slice(size - 60).replaceAll("..", "") + "|";
  }
  out({ status: 200, text: found.slice(0, 9000) });
}

// name: echo behind {mib} MiB
// expected: scrubbed, streamed
// seconds: 60
// each: mib | pre | post
//   6  | 6291456  | 100
//   64 | 67108864 | 0
{
  const r = await fetch("https://httpbin.test/x/echo?t=TRIAL&pre={pre}&post={post}", auth("HTTPBIN_TOKEN"));
  let tail = "", n = 0;
  const d = new TextDecoder();
  for await (const c of r.body) {
    n += c.length;
    tail = (tail + d.decode(c)).slice(-400);
  }
  out({ status: r.status, text: tail, length: n });
}

// name: the hold-back as an oracle
// expected: a true and a false prefix leave alike
// judge: verdicts()
// seconds: 30
{
  async function before(guess, pre) {
    const r = await fetch(
      "https://httpbin.test/x/oracle?t=TRIAL&pause=5000&guess=" + guess + "&pre=" + pre,
      auth("HTTPBIN_TOKEN"),
    );
    const start = performance.now();
    const reader = r.body.getReader();
    let n = 0;
    for (;;) {
      const timer = new Promise<"late">((d) =>
        setTimeout(() => d("late"), Math.max(0, 250 - (performance.now() - start)))
      );
      const got = await Promise.race([reader.read(), timer]);
      if (got === "late" || got.done) break;
      n += got.value.length;
    }
    await reader.cancel().catch(() => {});
    return n;
  }
  let bad = "";
  await Promise.all([0, 10, 700].map(async (pre) => {
    for (const n of [1, 2, 5, 6, 12, 20, 36]) {
      // A machine that is busy tells two alike apart, but not every time.
      let a, b, tries = 0;
      do [a, b] = await Promise.all([before("secret:" + n, pre), before("false:" + n, pre)]); while (
        a !== b && ++tries < 8
      );
      if (a !== b) bad += " prefix " + n + " behind " + pre + ": " + a + " against " + b;
    }
  }));
  out({ held: bad === "", seen: bad === "" ? "21 pairs alike" : bad });
}

// name: events leave at once
// expected: each within a second
// judge: verdicts()
// seconds: 30
{
  async function slowest() {
    const r = await fetch("https://httpbin.test/x/ticks?t=TRIAL&n=3&ms=2000", auth("HTTPBIN_TOKEN"));
    let worst = 0, n = 0, buf = "";
    const d = new TextDecoder();
    for await (const c of r.body) {
      buf += d.decode(c);
      let at;
      while ((at = buf.indexOf("\n\n")) >= 0) {
        const sent = Number(buf.slice(0, at).split(" ")[2]);
        worst = Math.max(worst, Date.now() - sent);
        n++;
        buf = buf.slice(at + 2);
      }
    }
    return n === 3 ? worst : Infinity;
  }
  let worst = Infinity; // an event that is held comes with the next one, 2 s later, every time
  for (let i = 0; i < 3 && worst >= 1000; i++) worst = await slowest();
  out({ held: worst < 1000, seen: worst < 1000 ? "3 events, in time" : "the slowest after " + worst + " ms" });
}
