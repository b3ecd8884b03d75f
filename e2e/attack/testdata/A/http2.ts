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

// name: HTTP/2 by hand: {what}
// expected: an error, or refused
// judge: unsmuggled
// each: what | frames
//   :authority twice                 | [[1, 5, ["get", [":authority", "other.test"]]]]
//   :path behind a header            | [[1, 5, ["get", ["x-a", "b"], [":path", "/anything/smuggled"]]]]
//   an unknown pseudo header         | [[1, 5, ["get", [":x", "y"]]]]
//   a header in capitals             | [[1, 5, ["get", ["X-A", "b"]]]]
//   CONNECT                          | [[1, 5, [[":method", "CONNECT"], [":authority", "other.test:443"]]]]
//   CONNECT with a protocol          | [[1, 5, [[":method", "CONNECT"], [":protocol", "websocket"], [":scheme", "https"], [":path", "/x/ws?t=TRIAL"], [":authority", "httpbin.test"]]]]
//   :path in a trailer               | [[1, 4, ["get"]], [0, 0, "x"], [1, 5, [[":path", "/anything/smuggled"]]]]
//   Authorization in a trailer       | [[1, 4, ["get"]], [0, 0, "x"], [1, 5, [["authorization", "Bearer OTHER_TOKEN"]]]]
//   more data than Content-Length    | [[1, 4, ["get", ["content-length", "1"]]], [0, 1, "xGET /anything/smuggled HTTP/1.1"]]
//   6000 CONTINUATION frames         | [[1, 0, ["get"]], [9, 0, [["x-a", "yyyyyyyyyyyyyyyyyyyyyyyyy"]], 6000]]
//   a header table of gigabytes      | [[1, 5, "?\u00e1\u00ff\u00ff\u007f"]]
//   a push from the client           | [[5, 4, "\u0000\u0000\u0000\u0002"]]
// note: A frame is its type, its flags, its content and how often it is sent. The interpreter's client sends no such frames.
{
  type Field = [string, string];
  type Frame = [number, number, string | ("get" | Field)[], number?];
  const get: Field[] = [
    [":method", "GET"],
    [":scheme", "https"],
    [":authority", "httpbin.test"],
    [":path", "/anything?t=TRIAL"],
    ["authorization", "Bearer HTTPBIN_TOKEN"],
  ];
  const char = String.fromCharCode;
  const field = ([name, value]: Field) => char(0, name.length) + name + char(value.length) + value;
  const frame = ([type, flags, content, times = 1]: Frame) => {
    const text = typeof content === "string"
      ? content
      : content.flatMap((f) => f === "get" ? get : [f]).map(field).join("");
    return (char(0, text.length >> 8, text.length & 255, type, flags, 0, 0, 0, type === 4 ? 0 : 1) + text).repeat(
      times,
    );
  };
  const frames: Frame[] = [[4, 0, ""], ...JSON.parse(String.raw`{frames}`)];
  const all = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames.map(frame).join("");
  const bytes = Uint8Array.from(all, (c) => c.charCodeAt(0));
  try {
    const conn = await Deno.startTls(await Deno.connect({ hostname: "httpbin.test", port: 443 }), {
      hostname: "httpbin.test",
      alpnProtocols: ["h2"],
    });
    const answer = readAll(conn, 2500);
    try {
      for (let at = 0; at < bytes.length;) at += await conn.write(bytes.subarray(at));
    } catch { /* cut */ }
    const got = await answer;
    for (let at = 0, n = 0; at + 9 <= got.length; at += 9 + n) {
      n = got.charCodeAt(at + 1) << 8 | got.charCodeAt(at + 2);
      const text = got.slice(at + 9, at + 9 + n), type = got.charCodeAt(at + 3);
      const code = /"code":"(\w+)"/.exec(text)?.[1] ?? "";
      if (type === 0 && n > 0) out({ status: code ? 400 : 200, code, text });
      if (type === 3 || type === 7) why(new Error("the proxy ended it"));
    }
  } catch (e) {
    why(e);
  }
}
