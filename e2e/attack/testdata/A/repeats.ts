// Several uses of one name: one swap per name and surface, so that a second, published place stays literal.

// name: declared and chat parameter in one query
// expected: only the declared one
// judge: once("HTTPBIN_QUERY")
await show(fetch("https://httpbin.test/anything?t=TRIAL&key=HTTPBIN_QUERY&text=HTTPBIN_QUERY"));

// name: the declared parameter twice
// expected: refused, nothing sent
// judge: refused("ambiguous_request")
await show(fetch("https://httpbin.test/anything?t=TRIAL&key=HTTPBIN_QUERY&key=HTTPBIN_QUERY"));

// name: any-parameter credential twice
// expected: one swap
// judge: once("HTTPBIN_ANYQUERY")
await show(fetch("https://httpbin.test/anything?t=TRIAL&a=HTTPBIN_ANYQUERY&b=HTTPBIN_ANYQUERY"));

// name: header credential in two headers
// expected: one swap
// judge: once("HTTPBIN_TOKEN")
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN", { headers: { "X-Publish": "HTTPBIN_TOKEN" } })),
);

// name: body credential twice in a form
// expected: refused, nothing sent
// judge: refused("ambiguous_request")
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", {
    method: "POST",
    headers: { "Content-Type": "application/x-www-form-urlencoded" },
    body: "client_secret=HTTPBIN_BODY&client_secret=HTTPBIN_BODY",
  }),
);

// name: anywhere-in-the-body credential twice
// expected: one swap
// judge: once("HTTPBIN_ANYBODY")
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ a: "HTTPBIN_ANYBODY", b: "HTTPBIN_ANYBODY" }),
  }),
);

// name: control: Basic password
// expected: swapped
// judge: basic
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", { headers: { Authorization: "Basic " + btoa("user:HTTPBIN_TOKEN") } }),
);

// name: control: declared query parameter
// expected: swapped
// judge: swapped("HTTPBIN_QUERY")
await show(fetch("https://httpbin.test/anything?t=TRIAL&key=HTTPBIN_QUERY"));

// name: control: declared body field
// expected: swapped
// judge: swapped("HTTPBIN_BODY")
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ client_secret: "HTTPBIN_BODY" }),
  }),
);

// name: control: declared header
// expected: swapped
// judge: swapped("HTTPBIN_NAMED")
await show(fetch("https://httpbin.test/anything?t=TRIAL", { headers: { "X-Api-Key": "HTTPBIN_NAMED" } }));

// name: control: path segment
// expected: swapped
// judge: swapped("HTTPBIN_PATH")
await show(fetch("https://httpbin.test/anything/HTTPBIN_PATH/x?t=TRIAL"));
