// The credential echoed in every part of an answer.

// expected: scrubbed

// name: echo in the place {place}
// judge: scrubbed("HTTPBIN_TOKEN", true)
// each: place = location location-raw link header headers-many type challenge disposition refresh
await show(fetch("https://httpbin.test/x/echo?t=TRIAL&place={place}", auth("HTTPBIN_TOKEN", { redirect: "manual" })));

// name: echo in a body of status {status}
// judge: scrubbed("HTTPBIN_TOKEN", true)
// each: status = 301 302 400 401 403 404 407 429 500 502 503
await show(fetch("https://httpbin.test/x/echo?t=TRIAL&status={status}", auth("HTTPBIN_TOKEN", { redirect: "manual" })));

// name: echo in {what}
// judge: scrubbed("HTTPBIN_TOKEN", {named})
// each: what | query | named
//   the place cookie          | place=cookie                      | false
//   a header's name           | place=header-name                 | false
//   a digest and an ETag      | place=digest                      | false
//   a trailer                 | place=trailer                     | false
//   an undeclared trailer     | place=trailer-undeclared          | false
//   a Location of status 302  | place=location&status=302         | true
//   a header as base64        | place=header&form=base64-1        | false
//   a cookie, percent-encoded | place=cookie&form=percent-all     | false
//   a JSON type               | type=application/json&form=json-u | false
//   an octet stream           | type=application/octet-stream     | true
//   an image type             | type=image/png                    | true
await show(fetch("https://httpbin.test/x/echo?t=TRIAL&{query}", auth("HTTPBIN_TOKEN", { redirect: "manual" })));

// name: trailers read raw
// judge: scrubbed("HTTPBIN_TOKEN", false)
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET /x/echo?t=TRIAL&place=trailer HTTP/1.1\r\nHost: httpbin.test\r\nTE: trailers\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\nConnection: close\r\n\r\n",
);

// name: status text read raw
// judge: scrubbed("HTTPBIN_TOKEN", false)
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET /x/raw?t=TRIAL&mode=status-text HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\nConnection: close\r\n\r\n",
);

// name: slices by Range
// expected: Range dropped
// judge: scrubbed("HTTPBIN_TOKEN", false)
{
  let all = "";
  for (let i = 0; i < 90; i++) {
    const r = await fetch(
      "https://httpbin.test/x/ranges?t=TRIAL",
      auth("HTTPBIN_TOKEN", { headers: { Range: "bytes=" + i + "-" + i } }),
    );
    const text = await r.text();
    if (r.status === 206) all += text;
    else {
      if (i === 0) all = text;
      break;
    }
  }
  out({ status: 200, text: all });
}

// name: many Ranges at once
// expected: Range dropped
// judge: scrubbed("HTTPBIN_TOKEN", false)
await show(
  fetch(
    "https://httpbin.test/x/ranges?t=TRIAL",
    auth("HTTPBIN_TOKEN", { headers: { Range: "bytes=0-3,4-7,8-11,12-15,16-19,20-23" } }),
  ),
);

// name: If-Range and Range
// expected: Range dropped
// judge: scrubbed("HTTPBIN_TOKEN", false)
await show(
  fetch(
    "https://httpbin.test/x/ranges?t=TRIAL",
    auth("HTTPBIN_TOKEN", { headers: { Range: "bytes=2-20", "If-Range": "Tue, 14 Nov 2023 22:13:20 GMT" } }),
  ),
);

// name: HEAD of an echo
// judge: scrubbed("HTTPBIN_TOKEN", true)
await show(fetch("https://httpbin.test/x/echo?t=TRIAL&place=header", auth("HTTPBIN_TOKEN", { method: "HEAD" })));

// name: echo over HTTP/2 from the upstream
// judge: scrubbed("HTTPBIN_TOKEN", true)
await show(fetch("https://h2.test/x/echo?t=TRIAL&what=auth", auth("HTTPBIN_TOKEN")));

// name: trailer over HTTP/2 from the upstream
// judge: scrubbed("HTTPBIN_TOKEN", false)
await show(fetch("https://h2.test/x/echo?t=TRIAL&place=trailer", auth("HTTPBIN_TOKEN")));

// name: header over HTTP/2 from the upstream
// judge: scrubbed("HTTPBIN_TOKEN", true)
await show(fetch("https://h2.test/x/echo?t=TRIAL&place=header", auth("HTTPBIN_TOKEN")));

// name: slices by Request-Range
// expected: dropped with the credential
// judge: rangeless("Request-Range")
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN", { headers: { "Request-Range": "bytes=0-3" } })),
);

// name: slices by X-Ms-Range
// expected: dropped with the credential
// judge: rangeless("X-Ms-Range")
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN", { headers: { "x-ms-range": "bytes=0-3" } })),
);
