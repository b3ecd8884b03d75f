// Names in places that publish, or that were not declared: nothing may be swapped there.

// expected: not swapped

// name: name in the header {header}
// judge: unswapped("HTTPBIN_TOKEN", false)
// each: header = Cookie Referer Origin User-Agent X-Forwarded-For X-Forwarded-Host Forwarded Via From Link Title X-Amz-Tagging X-Bz-Info-Note X-Archive-Meta00-Title Upload-Metadata Ce-Subject Click X-Amz-Meta-Note X-Goog-Meta-Note X-Object-Meta-Note Content-Disposition Content-Type Content-Language If-Match If-None-Match Idempotency-Key Traceparent Tracestate X-Request-Id X-Correlation-Id X-Real-Ip User_Agent User.Agent X_Forwarded_For content_Disposition If!Match
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n{header}: HTTPBIN_TOKEN\r\nConnection: close\r\n\r\n",
);

// name: name within the text of a header
// judge: unswapped("HTTPBIN_TOKEN", true)
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", { headers: { "X-Note": "please use HTTPBIN_TOKEN for this" } }),
);

// name: name as a part of a word
// judge: unswapped("HTTPBIN_TOKEN", false)
await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("xHTTPBIN_TOKENx")));

// name: name in chat text of a query
// judge: unswapped("HTTPBIN_TOKEN", true)
await show(fetch("https://httpbin.test/anything?t=TRIAL&text=HTTPBIN_TOKEN"));

// name: name as a query parameter's name
// judge: unswapped("HTTPBIN_QUERY", true)
await show(fetch("https://httpbin.test/anything?t=TRIAL&HTTPBIN_QUERY=1"));

// name: name in another query parameter than declared
// judge: unswapped("HTTPBIN_QUERY", true)
await show(fetch("https://httpbin.test/anything?t=TRIAL&text=HTTPBIN_QUERY"));

// name: name in a query parameter whose case differs
// judge: unswapped("HTTPBIN_QUERY", true)
await show(fetch("https://httpbin.test/anything?t=TRIAL&KEY=HTTPBIN_QUERY"));

// name: name of a query credential in a header
// judge: unswapped("HTTPBIN_QUERY", true)
await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_QUERY")));

// name: name in another header than declared
// judge: unswapped("HTTPBIN_NAMED", true)
await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_NAMED")));

// name: name in another cookie than declared
// judge: unswapped("HTTPBIN_NAMED", true)
await show(fetch("https://httpbin.test/anything?t=TRIAL", { headers: { Cookie: "note=HTTPBIN_NAMED" } }));

// name: name of a header credential in a cookie
// judge: unswapped("HTTPBIN_TOKEN", true)
await show(fetch("https://httpbin.test/anything?t=TRIAL", { headers: { Cookie: "a=b; session=HTTPBIN_TOKEN" } }));

// name: name within a cookie's value
// judge: unswapped("HTTPBIN_NAMED", true)
await show(fetch("https://httpbin.test/anything?t=TRIAL", { headers: { Cookie: "session=s:HTTPBIN_NAMED" } }));

// name: control: name in the declared cookie
// expected: swapped
// judge: swapped("HTTPBIN_NAMED")
await show(fetch("https://httpbin.test/anything?t=TRIAL", { headers: { Cookie: "a=b; session=HTTPBIN_NAMED" } }));

// name: name of a header credential in the path
// judge: unswapped("HTTPBIN_TOKEN", true)
await show(fetch("https://httpbin.test/anything/HTTPBIN_TOKEN?t=TRIAL"));

// name: name within a path segment
// judge: unswapped("HTTPBIN_PATH", true)
await show(fetch("https://httpbin.test/anything/file-HTTPBIN_PATH.txt?t=TRIAL"));

// name: name of a header credential in a JSON body
// judge: unswapped("HTTPBIN_TOKEN", true)
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ issue: "HTTPBIN_TOKEN" }),
  }),
);

// name: name in another body field than declared
// judge: unswapped("HTTPBIN_BODY", true)
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", {
    method: "POST",
    headers: { "Content-Type": "application/x-www-form-urlencoded" },
    body: "comment=HTTPBIN_BODY",
  }),
);

// name: name within the text of the declared body field
// judge: unswapped("HTTPBIN_BODY", false)
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ client_secret: "it is HTTPBIN_BODY, see" }),
  }),
);

// name: declared body field deep inside
// judge: unswapped("HTTPBIN_BODY", false)
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ comments: [{ text: { client_secret: ["HTTPBIN_BODY"] } }] }),
  }),
);

// name: declared body field in a file's text
// judge: unswapped("HTTPBIN_BODY", false)
await show(fetch("https://httpbin.test/anything?t=TRIAL", {
  method: "POST",
  body: (() => {
    const f = new FormData();
    f.append("file", new Blob(["client_secret=HTTPBIN_BODY"]), "note.txt");
    return f;
  })(),
}));

// name: declared body field in plain text
// judge: unswapped("HTTPBIN_BODY", false)
await show(
  fetch("https://httpbin.test/anything?t=TRIAL", {
    method: "POST",
    headers: { "Content-Type": "text/plain" },
    body: "client_secret=HTTPBIN_BODY",
  }),
);

// name: name in a file name
// judge: unswapped("HTTPBIN_BODY", false)
await show(fetch("https://httpbin.test/anything?t=TRIAL", {
  method: "POST",
  body: (() => {
    const f = new FormData();
    f.append("client_secret", new Blob(["x"]), "HTTPBIN_BODY");
    return f;
  })(),
}));

// name: name of a header credential as Basic in a URL's query
// judge: unswapped("HTTPBIN_TOKEN", false)
await show(fetch("https://httpbin.test/anything?t=TRIAL&a=" + btoa("user:HTTPBIN_TOKEN")));

// name: name in percent-encoding in the query
// judge: unswapped("HTTPBIN_TOKEN", false)
await show(fetch("https://httpbin.test/anything?t=TRIAL&a=%48TTPBIN_TOKEN"));

// name: name in percent-encoding in a header
// judge: unswapped("HTTPBIN_TOKEN", false)
await show(fetch("https://httpbin.test/anything?t=TRIAL", { headers: { "X-A": "%48TTPBIN_TOKEN" } }));

// name: name in a WebSocket subprotocol
// judge: unswapped("HTTPBIN_TOKEN", false)
await show((async () => {
  const s = new WebSocket("wss://httpbin.test/x/ws?t=TRIAL", ["HTTPBIN_TOKEN"]);
  await new Promise<void>((d) => {
    s.onclose = () => d();
    s.onerror = () => d();
    setTimeout(() => {
      s.close();
      d();
    }, 1500);
  });
  return new Response("done");
})());

// name: name in a WebSocket message
// judge: unswapped("HTTPBIN_TOKEN", false)
await show((async () => {
  const s = new WebSocket("wss://httpbin.test/x/ws?t=TRIAL");
  let got = "";
  await new Promise<void>((d) => {
    s.onopen = () => s.send("HTTPBIN_TOKEN");
    s.onmessage = (m) => {
      got += m.data + "|";
      if (got.includes("HTTPBIN")) s.close();
    };
    s.onclose = () => d();
    s.onerror = () => d();
    setTimeout(() => {
      s.close();
      d();
    }, 2500);
  });
  return new Response(got);
})());
