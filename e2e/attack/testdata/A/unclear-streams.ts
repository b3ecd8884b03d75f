// Bodies that turn out to be ambiguous when their beginning has been swapped into.

// expected: refused, never whole
// judge: neverWhole(false)

/** stream sends first, filler and last one after the other. */
function stream(type: string, first: string, last: string, filler: number) {
  const text = new TextEncoder();
  const parts = [first, "z".repeat(filler), last];
  const body = new ReadableStream({
    async pull(c) {
      const p = parts.shift();
      if (p === undefined) {
        c.close();
        return;
      }
      c.enqueue(text.encode(p));
      await new Promise((d) => setTimeout(d, 50));
    },
  });
  return show(
    fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": type }, body }),
  );
}

// name: JSON: the declared key again, late in a stream
// expected: refused, nothing sent of it
// judge: neverWhole(true)
await stream("application/json", '{"client_secret":"HTTPBIN_BODY","x":"', '","client_secret":"x"}', 1000);

// name: JSON: the declared key again, after 600 KiB
await stream("application/json", '{"client_secret":"HTTPBIN_BODY","x":"', '","client_secret":"x"}', 600 << 10);

// name: form: the declared field again, after 600 KiB
await stream("application/x-www-form-urlencoded", "client_secret=HTTPBIN_BODY&x=", "&client_secret=x", 600 << 10);

// name: WebSocket: JSON with a comment around the declared key
// expected: not sent
// judge: closed
{
  const s = new WebSocket("wss://httpbin.test/x/ws?t=TRIAL");
  let got = "";
  await new Promise<void>((d) => {
    s.onopen = () => s.send('{"comment":/*1,"client_secret":*/"HTTPBIN_BODY"}');
    s.onmessage = (m) => {
      got += m.data;
      if (got.includes("comment")) s.close();
    };
    s.onclose = () => d();
    s.onerror = () => d();
    setTimeout(d, 4000);
  });
  out({ seen: "closed " + got });
}
