// Bodies that a server does not read and takes for the next request, headers that are taken off behind the policy's
// back, and requests that are answered without it.

// name: {method} with a body that a server takes for the next request
// expected: nothing behind it
// judge: lastOfItsWire("X-Body: unread-{method}")
// each: method = GET HEAD OPTIONS DELETE POST PUT PATCH PURGE
await raw(
  "other.test",
  "other.test",
  "{method} /anything?t=TRIAL HTTP/1.1\r\nHost: other.test\r\nX-Body: unread-{method}\r\nContent-Length: 41\r\nConnection: close\r\n\r\nGET /anything/smuggled HTTP/1.1\r\nX-A: bcd",
);
for (let i = 0; i < 4; i++) await show(fetch("https://other.test/x/ok?t=TRIAL"));

// name: the credential in the body of a request inside a {method}
// expected: every request arrives as it was sent
// judge: unswallowed
// each: method = DELETE POST
{
  const inner = "POST /x/store?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nContent-Length: 90\r\n\r\n";
  await show(fetch("https://httpbin.test/x/deaf?t=TRIAL", { method: "{method}", body: inner }));
  await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));
}

// name: Connection: {header}, on a form that overrides the method
// expected: refused, nothing sent
// judge: refused("bad_request")
// each: header
//   close, Content-Type
//   Content-Type
//   keep-alive,\tcontent-type
//   close\r\nConnection: Content-Type
await raw(
  "shared.test",
  "shared.test",
  "POST /anything?t=TRIAL HTTP/1.1\r\nHost: shared.test\r\nAuthorization: Bearer SHARED_A_TOKEN\r\nConnection: {header}\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nmethod=DELETE",
  { ms: 2500 },
);

// name: OPTIONS *, before a request that is refused
// expected: refused, on the record
// judge: counted(2)
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: httpbin.test\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
);

// name: login of a connection, for whoever uses it next
// expected: used by nobody
// judge: lastOfItsWire("Negotiate YII")
await show(fetch("https://other.test/anything?t=TRIAL", { headers: { Authorization: "Negotiate YII" } }));
for (let i = 0; i < 4; i++) await show(fetch("https://other.test/x/ok?t=TRIAL"));
