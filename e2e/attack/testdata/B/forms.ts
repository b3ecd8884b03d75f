// The credential echoed in every form an upstream may write it in: those of canary.Forms.

// expected: scrubbed

// name: echo as raw of {token}
// judge: scrubbed("{token}", true)
// each: token = HTTPBIN_TOKEN HTTPBIN_HARD
await show(fetch("https://httpbin.test/x/echo?t=TRIAL&form=raw", auth("{token}", { redirect: "manual" })));

// name: echo as {form} of {token}
// judge: scrubbed("{token}", false)
// each: form = percent percent-path percent-all percent-all-lower json json-slash json-u json-u-upper json-html-safe html html-named html-decimal html-hex base64 base64-1 base64-2 base64-raw base64url base64url-1 base64url-2 basic-user basic-password hex hex-upper
// each: token = HTTPBIN_TOKEN HTTPBIN_HARD
await show(fetch("https://httpbin.test/x/echo?t=TRIAL&form={form}", auth("{token}", { redirect: "manual" })));

// name: echo of rendered Basic as it was sent
// judge: scrubbed("HTTPBIN_TOKEN", false)
await show(
  fetch("https://httpbin.test/x/echo?t=TRIAL&what=header:Authorization", {
    headers: { Authorization: "Basic " + btoa("someone:HTTPBIN_TOKEN") },
  }),
);

// name: echo of a Basic user
// judge: scrubbed("HTTPBIN_TOKEN", true)
await show(
  fetch("https://httpbin.test/x/echo?t=TRIAL&what=user", {
    headers: { Authorization: "Basic " + btoa("HTTPBIN_TOKEN:") },
  }),
);

// name: echo of the whole request head
// judge: scrubbed("HTTPBIN_TOKEN", true)
await show(fetch("https://httpbin.test/x/echo?t=TRIAL&what=head", auth("HTTPBIN_TOKEN", { redirect: "manual" })));

// name: echo of a query credential with its URL
// judge: scrubbed("HTTPBIN_QUERY", true)
await show(fetch("https://httpbin.test/x/echo?t=TRIAL&what=head&key=HTTPBIN_QUERY"));

// name: echo of a path credential
// judge: scrubbed("HTTPBIN_PATH", true)
await show(fetch("https://httpbin.test/anything/HTTPBIN_PATH?t=TRIAL"));

// name: echo of a body credential
// judge: scrubbed("HTTPBIN_BODY", true)
await show(
  fetch("https://httpbin.test/x/echo?t=TRIAL&what=body", {
    method: "POST",
    headers: { "Content-Type": "application/x-www-form-urlencoded" },
    body: "client_secret=HTTPBIN_BODY",
  }),
);

// name: echo of a cookie's value, {form} and in the place {place}
// judge: scrubbed("HTTPBIN_NAMED", false)
// each: form = decoded decoded-base64
// each: place = body cookie location header
await show(
  fetch("https://httpbin.test/x/echo?t=TRIAL&what=cookie:session&form={form}&place={place}", {
    headers: { Cookie: "session=HTTPBIN_NAMED" },
    redirect: "manual",
  }),
);

// name: go-httpbin /headers
// judge: scrubbed("HTTPBIN_HARD", true)
await show(fetch("https://httpbin.test/headers?t=TRIAL", auth("HTTPBIN_HARD")));

// name: go-httpbin /bearer
// judge: scrubbed("HTTPBIN_TOKEN", true)
await show(fetch("https://httpbin.test/bearer?t=TRIAL", auth("HTTPBIN_TOKEN")));

// name: two credentials side by side
// judge: scrubbed("HTTPBIN_NAMED", true)
await show(
  fetch(
    "https://httpbin.test/x/echo?t=TRIAL&what=head&key=HTTPBIN_QUERY",
    auth("HTTPBIN_TOKEN", { headers: { "X-Api-Key": "HTTPBIN_NAMED" } }),
  ),
);
