// Code against the host at which it calls tools of MCP servers: other runs' servers, other identities, other ways in. The
// servers quiet and vault are programs that do not exist: nothing here may get as far as a process.

// expected: refused, nothing called
// apis: quiet httpbin

const home = "mcp.codeforge.internal";
const call = (path: string, more: RequestInit = {}) =>
  show(fetch("https://mcp.codeforge.internal" + path, { method: "POST", body: "{}", ...more }));
const request = (line: string, at = home, more = "") =>
  `${line} HTTP/1.1\r\nHost: ${at}\r\nContent-Type: application/json\r\n${more}Content-Length: 2\r\nConnection: close\r\n\r\n{}`;

// name: control: what code keeps is its own
// expected: kept, names as names
// judge: verdicts()
{
  await call("/$stash/set", { body: JSON.stringify({ key: "TRIAL", value: "Bearer HTTPBIN_TOKEN" }) });
  const text = await call("/$stash/get", { body: JSON.stringify({ key: "TRIAL" }) });
  out({ held: JSON.parse(text).value === "Bearer HTTPBIN_TOKEN", seen: text });
}

// name: a server outside the run's apis: {path}
// judge: refused("server_not_found")
// each: path = /vault /vault/read /vault/$resources /vault/%24read /httpbin/anything /off/x /other/x /VAULT/read /$registry/read
await call("{path}");

// name: a path of {what}
// judge: refused("bad_call", "bad_request")
// each: what | path
//   an empty server               | //vault/read
//   a server above                | /../vault/read
//   a server above, of the run's  | /quiet/../vault
//   dots, escaped                 | /quiet/%2e%2e/vault
//   two segments after the server | /quiet/../vault/read
//   a slash, escaped              | /quiet%2f../vault
//   a slash in the server's name  | /quiet%2fread
//   a NUL after the server's name | /vault%00/read
//   a backslash                   | /quiet\\..\\vault
//   a CR and LF                   | /quiet/x%0d%0aCodeforge-Run:%20x
//   bytes that are not UTF-8      | /quiet/%ff%fe
//   a query                       | /quiet/x?server=vault
//   an empty query                | /quiet/x?
//   a semicolon                   | /quiet/x/;vault
//   nothing                       | /
//   nothing after the server      | /quiet/
//   a name of 300 characters      | /quiet/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
await raw(home, home, request("POST {path}"));

// name: the method {method}
// judge: refused("bad_call", "bad_request")
// each: method = PUT PATCH DELETE OPTIONS TRACE CONNECT MOVE
await raw(home, home, request("{method} /quiet/x"));

// name: another run's identity by the header {header}
// expected: its own stash, not another's
// judge: verdicts()
// each: header = Codeforge-Run codeforge-run CODEFORGE_RUN Codeforge-Slot Codeforge-Generation
{
  const got = await raw(
    home,
    home,
    request("POST /$stash/keys", home, "{header}: another\r\n{header}: 7\r\nCodeforge-Session: another\r\n"),
  );
  out({ held: /^HTTP\/1\.1 200 /.test(got) && !got.includes("another"), seen: got.slice(0, 80) });
}

// name: an upgrade to {protocol}
// judge: refused("upgrade_refused")
// each: protocol = websocket h2c codeforge-broker
await raw(
  home,
  home,
  `GET /quiet HTTP/1.1\r\nHost: ${home}\r\nConnection: Upgrade, close\r\nUpgrade: {protocol}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`,
);

// name: the control API through the host: {path}
// judge: refused()
// each: path = /v1/broker /v1/catalog /v1/slots/100 /metrics
await raw(home, home, request("PUT {path}"));

// name: plain HTTP
// judge: refused("plain_http")
await raw(home, null, request("POST /quiet/x"), { port: 80 });

// name: {what}
// judge: refused("host_mismatch", "host_invalid", "bad_request")
// each: what | sni | host
//   Host of the tools on an API's connection  | httpbin.test           | mcp.codeforge.internal
//   Host of an API on the tools' connection   | mcp.codeforge.internal | httpbin.test
//   Host with another port                    | mcp.codeforge.internal | mcp.codeforge.internal:8443
//   Host with a user                          | mcp.codeforge.internal | quiet@mcp.codeforge.internal
//   two Hosts                                 | mcp.codeforge.internal | mcp.codeforge.internal\r\nHost: httpbin.test
await raw("httpbin.test", "{sni}", request("POST /quiet/x", "{host}"));

// name: an absolute target
// judge: refused("bad_request")
await raw(home, home, request("POST https://mcp.codeforge.internal/quiet/x"));

// name: a host beside the tools': {host}
// judge: refused()
// each: host = codeforge.internal x.codeforge.internal x.mcp.codeforge.internal broker.codeforge.internal
await raw("httpbin.test", "{host}", request("POST /quiet/x", "{host}"));

// name: with YOLO_MODE, a host beside the tools': {host}
// judge: refused()
// yolo: yes
// each: host = codeforge.internal x.codeforge.internal x.mcp.codeforge.internal
await raw("httpbin.test", "{host}", request("POST /quiet/x", "{host}"));

// name: with YOLO_MODE, a server outside the run's apis
// judge: refused("server_not_found")
// yolo: yes
await call("/vault/read");

// name: arguments beyond the bound
// judge: refused("arguments_too_large")
await call("/quiet/x", { body: new Uint8Array(16 * 1024 * 1024 + 1) });

// name: arguments with a content encoding
// judge: refused("arguments_encoded")
await call("/quiet/x", { headers: { "Content-Encoding": "gzip" } });

// name: smuggling: {what}
// judge: refused("bad_request")
// each: what | fields
//   two lengths        | Content-Length: 3\r\n
//   length and chunks  | Transfer-Encoding: chunked\r\n
//   a folded header    | X-A: b\r\n Codeforge-Run: another\r\n
//   a bare line feed   | X-A: b\nCodeforge-Run: another\r\n
await raw(home, home, request("POST /quiet/x", home, "{fields}"));

// name: a WebSocket to the tools
// judge: refused()
await new Promise<void>((done) => {
  const socket = new WebSocket("wss://mcp.codeforge.internal/quiet");
  socket.onopen = () => out({ status: 101 });
  socket.onerror = () => out({ error: "refused" });
  socket.onclose = () => done();
});

// name: over HTTP/2, :authority {authority} on the connection of {connection}
// judge: refused("host_mismatch", "host_unknown")
// each: authority | connection
//   httpbin.test           | mcp.codeforge.internal
//   mcp.codeforge.internal | httpbin.test
//   x.codeforge.internal   | httpbin.test
{
  const http2 = await import("node:http2");
  const session = http2.connect("https://{connection}");
  await new Promise<void>((done) => {
    const stream = session.request({ ":method": "POST", ":path": "/quiet/x", ":authority": "{authority}" });
    let status = 0, text = "";
    stream.on("response", (h) => status = Number(h[":status"]));
    stream.on("data", (d) => text += d);
    stream.on("error", (e) => (why(e), done()));
    stream.on("end", () => {
      let code = "";
      try {
        code = JSON.parse(text).code;
      } catch { /* no JSON */ }
      out({ status, code, text });
      done();
    });
    stream.end("{}");
  });
  session.close();
}

// name: the global mcp: {what}
// expected: only the run's servers
// judge: verdicts()
// each: what | expression
//   its keys                          | Object.keys(mcp).join() === "quiet"
//   a server outside the run's apis   | !("vault" in mcp)
//   an API that is no server          | !("httpbin" in mcp)
{
  const held = eval(`{expression}`);
  out({ held, seen: String(held) });
}

// name: a credential in a call's arguments as {form}
// judge: refused("credential_in_request")
// each: form | expression
//   it is          | value
//   base64         | btoa("x" + value)
//   hex            | [...value].map((c) => c.charCodeAt(0).toString(16)).join("")
//   JSON escapes   | JSON.stringify(JSON.stringify({ value })).replaceAll("_", "\\\\u005f")
//   percent        | [...value].map((c) => "%" + c.charCodeAt(0).toString(16)).join("")
//   JSON in JSON   | JSON.stringify({ key: JSON.stringify({ value }) })
{
  const value = [..."REVERSED_HTTPBIN_TOKEN"].reverse().join("");
  const form: string = eval(`{expression}`);
  await call("/$stash/set", { body: JSON.stringify({ key: "TRIAL", value: form }) });
  await call("/quiet/x", { body: JSON.stringify({ text: form }) });
  await call("/quiet/x", { body: new Blob([" ".repeat(700000) + JSON.stringify({ text: form })]).stream() });
}

// name: a credential as a tool's name
// judge: refused("credential_in_request")
{
  const value = [..."REVERSED_HTTPBIN_TOKEN"].reverse().join("");
  await call("/quiet/" + value);
}

// name: 200 calls at once
// expected: an error for each
// judge: verdicts()
{
  const calls = Array.from(
    { length: 200 },
    (_, i) =>
      fetch(`https://mcp.codeforge.internal/quiet/x${i}`, { method: "POST", body: "{}" }).then(async (
        r,
      ) => [r.status, (await r.json()).code]),
  );
  const all = await Promise.allSettled(calls);
  const clear = all.filter((a) => a.status === "fulfilled" && a.value[0] >= 400 && /^[a-z_]+$/.test(a.value[1])).length;
  out({ held: clear === 200, seen: clear + " of 200 with a code" });
}

// name: a call whose arguments never end
// expected: ended with the run, nothing called
// judge: refused()
// seconds: 5
await Promise.race([
  call("/quiet/x", {
    body: new ReadableStream({
      pull: (c) => new Promise((go) => setTimeout(() => (c.enqueue(new Uint8Array([32])), go()), 50)),
    }),
  }),
  new Promise<void>((done) => setTimeout(() => (out({ error: "still waiting" }), done()), 2000)),
]);
