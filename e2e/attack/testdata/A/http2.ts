// Requests over HTTP/2, whose pseudo headers say more than HTTP/1 can.

// expected: refused, or one request in one reading
// judge: unsmuggled

import h2 from "node:http2";

/** over2 sends one request to host, with these headers besides or instead of ordinary ones. */
async function over2(host, headers) {
  await new Promise<void>((done) => {
    const c = h2.connect("https://" + host);
    c.on("error", (e) => {
      why(e);
      done();
    });
    const r = c.request({
      ":method": "GET",
      ":authority": host,
      ":path": "/anything?t=TRIAL",
      ":scheme": "https",
      "authorization": "Bearer OTHER_TOKEN",
      ...headers,
    });
    let s = 0, t = "";
    r.on("response", (h) => s = h[":status"]);
    r.on("data", (d) => t += d);
    r.on("error", (e) => {
      why(e);
      c.close();
      done();
    });
    r.on("end", () => {
      let code = "";
      try {
        code = JSON.parse(t).code ?? "";
      } catch { /* none */ }
      out({ status: s, code, text: t });
      c.close();
      done();
    });
    r.end();
    setTimeout(() => {
      c.destroy();
      done();
    }, 4000);
  });
}

// name: :authority of another API over HTTP/2
// expected: refused, nothing sent
// judge: refused()
await over2("httpbin.test", { ":authority": "other.test" });

// name: :authority and host differ over HTTP/2
// expected: refused, nothing sent
// judge: refused()
await over2("httpbin.test", { "host": "other.test" });

// name: :path with an absolute URL over HTTP/2
// expected: never another host
// judge: unswapped("OTHER_TOKEN", false)
await over2("httpbin.test", { ":path": "https://other.test/anything?t=TRIAL" });

// name: smuggling: CR LF in a header over HTTP/2
await over2("httpbin.test", { "x-a": "b\r\nTransfer-Encoding: chunked" });

// name: smuggling: Transfer-Encoding over HTTP/2
await over2("httpbin.test", { ":method": "POST", "transfer-encoding": "chunked" });

// name: smuggling: space in :path over HTTP/2
await over2("httpbin.test", { ":path": "/anything?t=TRIAL HTTP/1.1\\r\\nX: y" });

// name: smuggling: false content-length over HTTP/2
await over2("httpbin.test", { ":method": "POST", "content-length": "400" });

// name: override over HTTP/2
// expected: refused, nothing sent
// judge: refused()
await over2("strict.test", { "x-http-method-override": "DELETE" });
