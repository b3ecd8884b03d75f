// Answers that no honest server gives.

// name: answer: {mode}
// expected: no leak
// judge: scrubbed("HTTPBIN_TOKEN", false)
// seconds: 25
// each: mode = status-text status-text-500 cl-short cl-double cl-te cl-negative te-unknown chunk-extension until-eof http09 bad-version bad-status bad-header bad-header-name header-fold header-nul two-answers early-hints switch switch-ws close
await show(
  fetch(
    "https://httpbin.test/x/raw?t=TRIAL&mode={mode}",
    auth("HTTPBIN_TOKEN", { redirect: "manual", signal: AbortSignal.timeout(12000) }),
  ),
);

// name: answer: {mode}
// expected: no leak, never a complete answer
// judge: broken
// seconds: 25
// each: mode = cl-long chunk-bad reset stall
await show(
  fetch(
    "https://httpbin.test/x/raw?t=TRIAL&mode={mode}",
    auth("HTTPBIN_TOKEN", { redirect: "manual", signal: AbortSignal.timeout(12000) }),
  ),
);

// name: answer: {mode}
// expected: bounded, an error
// judge: broken
// seconds: 25
// each: mode = endless-headers endless-status endless-trailers informational-flood mute
await show(
  fetch(
    "https://httpbin.test/x/raw?t=TRIAL&mode={mode}",
    auth("HTTPBIN_TOKEN", { redirect: "manual", signal: AbortSignal.timeout(12000) }),
  ),
);

// name: answer to the next request on a connection
// expected: no mix-up
// judge: both(scrubbed("HTTPBIN_TOKEN", false), verdicts())
{
  await show(fetch("https://httpbin.test/x/raw?t=TRIAL&mode=two-answers", auth("HTTPBIN_TOKEN")));
  const text = await (await fetch("https://httpbin.test/x/ok?t=TRIAL")).text();
  out({ status: 200, text, held: text === "ok" });
}

// name: abort in the middle, seen raw
// expected: cut, not ended
// judge: verdicts()
{
  const got = await raw(
    "httpbin.test",
    "httpbin.test",
    "GET /x/raw?t=TRIAL&mode=reset HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\n\r\n",
    { ms: 4000 },
  );
  const [head, body = ""] = got.split("\r\n\r\n");
  const len = /content-length: (\d+)/i.exec(head)?.[1];
  const bad = head.startsWith("HTTP/1.1 502");
  const complete = len !== undefined
    ? body.length >= Number(len)
    : /\r\n0\r\n/.test("\r\n" + body) || body.endsWith("0\r\n\r\n");
  out({ held: bad || !complete, seen: bad ? "502" : complete ? "complete: " + got.slice(-80) : "cut" });
}

// name: an upstream's words in the log
// expected: no credential
// judge: logged
await show(fetch("https://httpbin.test/x/raw?t=TRIAL&mode=bad-status", auth("HTTPBIN_TOKEN")));
