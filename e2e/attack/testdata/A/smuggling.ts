// Ambiguous or malformed requests: what could be read in two ways is refused, or forwarded in one way.

// expected: refused, or one request in one reading
// judge: unsmuggled

const head = "POST /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\n";
const inner =
  "GET /anything/smuggled?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer OTHER_TOKEN\r\n\r\n";

// name: smuggling: {what}
// each: what | text
//   chunked and Content-Length                 | Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n
//   two Content-Lengths                        | Content-Length: 0\r\nContent-Length: 95\r\n\r\n
//   Content-Length list                        | Content-Length: 0, 95\r\n\r\n
//   Content-Length with a plus                 | Content-Length: +3\r\n\r\nabc
//   Content-Length in hexadecimal              | Content-Length: 0x3\r\n\r\nabc
//   negative Content-Length                    | Content-Length: -1\r\n\r\n
//   Content-Length that overflows              | Content-Length: 18446744073709551617\r\n\r\n
//   space before the colon                     | Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n
//   Transfer-Encoding xchunked                 | Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n
//   Transfer-Encoding twice                    | Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n
//   Transfer-Encoding list                     | Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n
//   Transfer-Encoding gzip, chunked            | Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n
//   Transfer-Encoding with a tab               | Transfer-Encoding:\tchunked\x0b\r\n\r\n0\r\n\r\n
//   Transfer_Encoding with an underscore       | Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n
//   chunk size that overflows                  | Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\na\r\n0\r\n\r\n
//   chunk size with a sign                     | Transfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n
//   chunk ended by a line feed                 | Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n
//   chunk longer than its size                 | Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n
//   bare carriage return in a header           | X-A: b\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n
//   header without a colon                     | Nonsense\r\nContent-Length: 0\r\n\r\n
//   header with an empty name                  | : x\r\nContent-Length: 0\r\n\r\n
//   NUL in a header                            | X-A: a\x00b\r\nContent-Length: 0\r\n\r\n
//   Connection that names Authorization        | Connection: close, Authorization, Content-Length\r\nContent-Length: 3\r\n\r\nabc
//   Expect: 100-continue with a hidden request | Expect: 100-continue\r\nContent-Length: 400\r\n\r\n
await raw("httpbin.test", "httpbin.test", head + "{text}" + inner);

// name: smuggling: {what}
// each: what | text
//   chunked in HTTP/1.0             | POST /anything?t=TRIAL HTTP/1.0\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n
//   space before the first header   | POST /anything?t=TRIAL HTTP/1.1\r\n Host: other.test\r\nHost: httpbin.test\r\nContent-Length: 0\r\n\r\n
//   two Hosts                       | POST /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nHost: other.test\r\nContent-Length: 0\r\n\r\n
//   no Host                         | POST /anything?t=TRIAL HTTP/1.1\r\nContent-Length: 0\r\n\r\n
//   HTTP/1.0 without Host           | GET /anything?t=TRIAL HTTP/1.0\r\nAuthorization: Bearer OTHER_TOKEN\r\n\r\n
//   two spaces in the request line  | GET  /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n\r\n
//   HTTP/1.2                        | GET /anything?t=TRIAL HTTP/1.2\r\nHost: httpbin.test\r\n\r\n
//   HTTP/0.9                        | GET /anything?t=TRIAL\r\n
//   HTTP/2 preface on HTTP/1        | PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nTRIAL
//   target without a slash          | GET anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n\r\n
//   target with raw bytes           | GET /anything/\xff\xfe?t=TRIAL\x01 HTTP/1.1\r\nHost: httpbin.test\r\n\r\n
//   method with a control character | GE\x01T /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n\r\n
await raw("httpbin.test", "httpbin.test", "{text}" + inner);

// name: smuggling: {what}
// expected: refused, nothing sent
// judge: refused("bad_request")
// each: what | text
//   Content-Length and chunked | Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n
//   folded header              | X-A: b\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n
await raw("httpbin.test", "httpbin.test", head + "{text}" + inner);

// name: smuggling: bare line feeds
// expected: refused, nothing sent
// judge: refused("bad_request")
await raw(
  "httpbin.test",
  "httpbin.test",
  "POST /anything?t=TRIAL HTTP/1.1\nHost: httpbin.test\nContent-Length: 0\n\n" + inner,
);
