// Requests that are no operation of the document, to an API that permits its operations only: GET and POST of
// /anything/refunds, and GET of /anything/refunds/{id}.

// expected: refused, nothing sent
// judge: refused()

// name: no operation of the document: {why}
// each: request | why
//   DELETE /anything/refunds | a method that the path does not have
//   OPTIONS /anything/refunds | a method that says which there are
//   GET /anything/admin | a path that is none
//   GET /anything/REFUNDS | another case
//   GET /anything/refunds/re_1/lines | a segment more
//   GET /anything//refunds | an empty segment
//   GET /anything/refunds/../admin | a step to the parent
//   GET /anything/refunds/%2e%2e | the same, escaped
//   GET /anything/refunds/%252e%252e | escaped twice
//   GET /anything/refunds/..;x | with a parameter, which some servers leave out
//   GET /anything/refunds/a%2f..%2f..%2fadmin | separators, escaped
//   GET /anything/refunds/a%5c..%5cadmin | the other separator
//   GET /anything/refunds/a%00 | the end of a string
//   GET /anything/refunds/a%0d%0aX:y | the end of a line
await raw(
  "c.wild.test",
  "c.wild.test",
  "{request}?t=TRIAL HTTP/1.1\r\nHost: c.wild.test\r\nAuthorization: Bearer DOCUMENTED_TOKEN\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
);

// name: no operation of the document: an override to DELETE
await show(
  fetch(
    "https://c.wild.test/anything/refunds?t=TRIAL",
    auth("DOCUMENTED_TOKEN", { method: "POST", headers: { "X-HTTP-Method-Override": "DELETE" } }),
  ),
);

// name: no operation of the document: an override to DELETE in a form
// expected: refused, nothing sent whole
await show(
  fetch(
    "https://c.wild.test/anything/refunds?t=TRIAL",
    auth("DOCUMENTED_TOKEN", { method: "POST", body: new URLSearchParams({ _method: "DELETE" }) }),
  ),
);

// name: no operation of the document: a path in X-Original-URL
await show(
  fetch(
    "https://c.wild.test/anything/refunds?t=TRIAL",
    auth("DOCUMENTED_TOKEN", { headers: { "X-Original-URL": "/anything/admin" } }),
  ),
);

// name: control: an operation of the document, {request}
// each: request = GET:refunds POST:refunds GET:refunds/re_1
// expected: swapped
// judge: swapped("DOCUMENTED_TOKEN")
const [method, path] = "{request}".split(":");
await show(fetch("https://c.wild.test/anything/" + path + "?t=TRIAL", auth("DOCUMENTED_TOKEN", { method })));
