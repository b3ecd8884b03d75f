// Attempts to use a restricted method, or a method whose meaning is unknown.

// expected: refused, nothing sent
// judge: refused()

// name: restricted method {method}
// judge: refused("method_restricted")
// each: method = POST PUT PATCH DELETE
await show(fetch("https://strict.test/anything?t=TRIAL", auth("STRICT_TOKEN", { method: "{method}" })));

// name: restricted API, method {method}
// each: method = PURGE PROPFIND MKCOL COPY LOCK REPORT LINK post DeLeTe TRACE TRACK CONNECT POST\t GET/POST
await raw(
  "strict.test",
  "strict.test",
  "{method} /anything?t=TRIAL HTTP/1.1\r\nHost: strict.test\r\nAuthorization: Bearer STRICT_TOKEN\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
);

// name: API of allowed methods, method {method}
// each: method = POST OPTIONS PURGE
await raw(
  "b.wild.test",
  "b.wild.test",
  "{method} /anything?t=TRIAL HTTP/1.1\r\nHost: b.wild.test\r\nAuthorization: Bearer ALLOWED_TOKEN\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
);

// name: API of allowed methods, method get
// judge: asGet
await raw(
  "b.wild.test",
  "b.wild.test",
  "get /anything?t=TRIAL HTTP/1.1\r\nHost: b.wild.test\r\nAuthorization: Bearer ALLOWED_TOKEN\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
);

// name: override header {header}
// each: header = X-HTTP-Method-Override X-HTTP-Method X-Method-Override x_http_method_override X-HTTP-METHOD-OVERRIDE
await raw(
  "strict.test",
  "strict.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: strict.test\r\nAuthorization: Bearer STRICT_TOKEN\r\n{header}: DELETE\r\nConnection: close\r\n\r\n",
);

// name: restricted POST overridden to GET
await show(
  fetch(
    "https://strict.test/anything?t=TRIAL",
    auth("STRICT_TOKEN", { method: "POST", headers: { "X-HTTP-Method-Override": "GET" } }),
  ),
);

// name: two override headers
await raw(
  "strict.test",
  "strict.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: strict.test\r\nX-HTTP-Method-Override: GET\r\nX-HTTP-Method-Override: DELETE\r\nConnection: close\r\n\r\n",
);

// name: _method in the query
await show(fetch("https://strict.test/anything?t=TRIAL&_method=DELETE", auth("STRICT_TOKEN")));

// name: _method in the query, percent-encoded
await show(fetch("https://strict.test/anything?t=TRIAL&%5Fmetho%64=DELETE", auth("STRICT_TOKEN")));

// name: _METHOD in the query
await show(fetch("https://strict.test/anything?t=TRIAL&_METHOD=delete", auth("STRICT_TOKEN")));

// name: _method behind a semicolon
await show(fetch("https://strict.test/anything?t=TRIAL;_method=DELETE", auth("STRICT_TOKEN")));

// name: _method in a form to a host where DELETE alone is restricted
await show(
  fetch(
    "https://shared.test/anything?t=TRIAL",
    auth("SHARED_A_TOKEN", {
      method: "POST",
      headers: { "Content-Type": "application/x-www-form-urlencoded" },
      body: "a=b&_method=DELETE",
    }),
  ),
);

// name: _method in a multipart form
// expected: refused, the override not sent
// judge: overrideUnsent
{
  const f = new FormData();
  f.append("a", "b");
  f.append("_method", "DELETE");
  await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN", { method: "POST", body: f })));
}

// name: _method in a form labelled in another case
await show(
  fetch(
    "https://shared.test/anything?t=TRIAL",
    auth("SHARED_A_TOKEN", {
      method: "POST",
      headers: { "Content-Type": "Application/X-WWW-Form-Urlencoded ; charset=utf-8" },
      body: "_method=DELETE",
    }),
  ),
);

// name: _method in a chunked form
{
  const body = new ReadableStream({
    start(c) {
      for (const ch of "a=b&_method=DELETE") c.enqueue(new TextEncoder().encode(ch));
      c.close();
    },
  });
  await show(
    fetch(
      "https://shared.test/anything?t=TRIAL",
      auth("SHARED_A_TOKEN", {
        method: "POST",
        headers: { "Content-Type": "application/x-www-form-urlencoded" },
        body,
      }),
    ),
  );
}

// name: _method in a form after 2 MiB
await show(
  fetch(
    "https://shared.test/anything?t=TRIAL",
    auth("SHARED_A_TOKEN", {
      method: "POST",
      headers: { "Content-Type": "application/x-www-form-urlencoded" },
      body: "a=" + "b".repeat(2 << 20) + "&_method=DELETE",
    }),
  ),
);

// name: _method in a gzipped form
{
  const z = new Blob(["_method=DELETE"]).stream().pipeThrough(new CompressionStream("gzip"));
  await show(
    fetch(
      "https://shared.test/anything?t=TRIAL",
      auth("SHARED_A_TOKEN", {
        method: "POST",
        headers: { "Content-Type": "application/x-www-form-urlencoded", "Content-Encoding": "gzip" },
        body: await new Response(z).arrayBuffer(),
      }),
    ),
  );
}

// name: _method in JSON, escaped
// expected: refused, the override not sent
// judge: overrideUnsent
await show(
  fetch(
    "https://shared.test/anything?t=TRIAL",
    auth("SHARED_A_TOKEN", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: '{"_\\u006dethod":"DELETE"}',
    }),
  ),
);

// name: _method in gzipped JSON
// expected: refused, the override not sent
// judge: overrideUnsent
{
  const z = new Blob(['{"_method":"DELETE"}']).stream().pipeThrough(new CompressionStream("gzip"));
  await show(
    fetch(
      "https://shared.test/anything?t=TRIAL",
      auth("SHARED_A_TOKEN", {
        method: "POST",
        headers: { "Content-Type": "application/json", "Content-Encoding": "gzip" },
        body: await new Response(z).arrayBuffer(),
      }),
    ),
  );
}

// name: _method in a form without a type
// expected: refused, the override not sent
// judge: overrideUnsent
await show(
  fetch(
    "https://shared.test/anything?t=TRIAL",
    auth("SHARED_A_TOKEN", { method: "POST", body: new TextEncoder().encode("a=b&_method=DELETE") }),
  ),
);

// name: _HttpMethod in the query
await show(
  fetch(
    "https://shared.test/anything?t=TRIAL&_HttpMethod=DELETE",
    auth("SHARED_A_TOKEN", { method: "POST", body: "x" }),
  ),
);

// name: Upgrade: {what}
// each: what | method | protocol
//   h2c                 | GET  | h2c
//   tls                 | GET  | TLS/1.0
//   websocket, h2c      | GET  | websocket, h2c
//   websocket with POST | POST | websocket
await raw(
  "httpbin.test",
  "httpbin.test",
  "{method} /x/raw?mode=switch&t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
);

// name: a WebSocket if {what}
// each: what | host | path
//   POST is restricted | strict.test | /x/ws
//   GET and HEAD are allowed | b.wild.test | /x/ws
//   a rule permits GET | d.wild.test | /anything/ws
//   the operation is a GET | c.wild.test | /anything/refunds/1
// note: Its messages can write: Kubernetes executes programs, Home Assistant opens doors.
await raw(
  "{host}",
  "{host}",
  "GET {path}?t=TRIAL HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
);

// name: requests behind an unanswered WebSocket upgrade
// expected: second never arrives
// judge: never("smuggled")
await raw(
  "shared.test",
  "shared.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: shared.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nDELETE /anything/smuggled?t=TRIAL HTTP/1.1\r\nHost: shared.test\r\nContent-Length: 0\r\n\r\n",
);

// name: control: GET of a restricted API
// expected: swapped
// judge: swapped("STRICT_TOKEN")
await show(fetch("https://strict.test/anything?t=TRIAL", auth("STRICT_TOKEN")));
