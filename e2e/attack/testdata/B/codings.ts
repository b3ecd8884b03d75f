// The credential under content codings.

// expected: decoded and scrubbed, or refused

// name: echo under {coding}
// judge: scrubbed("HTTPBIN_HARD", true)
// each: coding = gzip deflate deflate-raw br zstd gzip,br br,gzip zstd,gzip gzip,gzip gzip-members
await show(
  fetch(
    "https://httpbin.test/x/echo?t=TRIAL&enc={coding}&pre=50&post=50&",
    auth("HTTPBIN_HARD", { redirect: "manual" }),
  ),
);

// name: echo under {coding}
// judge: scrubbed("HTTPBIN_HARD", false)
// each: coding = gzip-upper x-gzip identity identity,gzip gzip,gzip,gzip br,gzip,deflate unknown unknown,gzip gzip,unknown labelled-gzip unlabelled-gzip none,gzip
await show(
  fetch(
    "https://httpbin.test/x/echo?t=TRIAL&enc={coding}&pre=50&post=50&",
    auth("HTTPBIN_HARD", { redirect: "manual" }),
  ),
);

// name: echo under {coding} frame=chunk1&form=base64url-1
// judge: scrubbed("HTTPBIN_HARD", false)
// each: coding = gzip deflate deflate-raw br zstd gzip,br br,gzip zstd,gzip gzip,gzip gzip-members gzip-upper x-gzip identity identity,gzip
await show(
  fetch(
    "https://httpbin.test/x/echo?t=TRIAL&enc={coding}&pre=50&post=50&frame=chunk1&form=base64url-1",
    auth("HTTPBIN_HARD", { redirect: "manual" }),
  ),
);

// name: answer {mode}
// expected: no leak, no complete answer
// judge: scrubbed("HTTPBIN_TOKEN", false)
// each: mode = gzip-cut gzip-junk
await show(fetch("https://httpbin.test/x/raw?t=TRIAL&mode={mode}", auth("HTTPBIN_TOKEN")));

// name: Accept-Encoding of unknown codings
// expected: scrubbed or refused
// judge: scrubbed("HTTPBIN_TOKEN", false)
await show(
  fetch(
    "https://httpbin.test/x/echo?t=TRIAL&enc=unknown",
    auth("HTTPBIN_TOKEN", { headers: { "Accept-Encoding": "x-hidden, *;q=1" } }),
  ),
);

// name: {what}
// expected: bounded, refused or streamed
// judge: survives
// seconds: 40
// each: what | coding
//   gzip bomb of 2 GiB       | gzip
//   brotli bomb of 2 GiB     | br
//   zstd bomb of 2 GiB       | zstd
//   gzip bomb in a gzip bomb | gzip,gzip
try {
  const r = await fetch("https://httpbin.test/x/bomb?t=TRIAL&enc={coding}&mb=2048", auth("HTTPBIN_TOKEN"));
  let n = 0;
  for await (const c of r.body) {
    n += c.length;
    if (n > 200e6) break;
  }
  out({ status: r.status, seen: n + " bytes read", held: true });
} catch (e) {
  why(e);
}
