// One host at several ports, each of another API: 443 and 80, 3000, 3001, and 3002 over plain HTTP. Nothing of one port
// may reach another.

// expected: only at its own port

// name: control: {token} at its own port
// each: token | url
//   PORTS_TOKEN | https://ports.test
//   DEVPORT_TOKEN | https://ports.test:3000
//   ALTPORT_TOKEN | https://ports.test:3001
//   PLAINPORT_TOKEN | http://ports.test:3002
// expected: swapped
// judge: swapped("{token}")
await show(fetch("{url}/anything?t=TRIAL", auth("{token}")));

// name: {token} at {url}
// each: token | url
//   DEVPORT_TOKEN | https://ports.test
//   DEVPORT_TOKEN | https://ports.test:3001
//   DEVPORT_TOKEN | http://ports.test:3002
//   PORTS_TOKEN | https://ports.test:3000
//   ALTPORT_TOKEN | https://ports.test:3000
//   PLAINPORT_TOKEN | https://ports.test:3000
//   HTTPBIN_TOKEN | https://ports.test:3000
// judge: unswapped("{token}", true)
await show(fetch("{url}/anything?t=TRIAL", auth("{token}")));

// name: a run of another port's API, at {url}
// each: url = https://ports.test https://ports.test:3001 http://ports.test:3002
// apis: ports-dev
// expected: refused, nothing sent
// judge: refused("api_not_in_run")
await show(fetch("{url}/anything?t=TRIAL", auth("DEVPORT_TOKEN")));

// name: Host on a connection to 3000: {what}
// each: what | line
//   another port | Host: ports.test:3001
//   no port | Host: ports.test
//   the usual port | Host: ports.test:443
//   two ports | Host: ports.test:3001:3000
//   a port with a zero | Host: ports.test:03000
//   two Hosts | Host: ports.test:3000\r\nHost: ports.test:3001
//   another API | Host: httpbin.test:3000
//   an address | Host: 10.99.0.10:3000
// expected: refused, nothing sent
// judge: refused()
await raw(
  "ports.test",
  "ports.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\n{line}\r\nAuthorization: Bearer ALTPORT_TOKEN\r\nConnection: close\r\n\r\n",
  { port: 3000 },
);

// name: Host with the port of another API on a connection to 443
// expected: refused, nothing sent
// judge: refused()
await raw(
  "ports.test",
  "ports.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: ports.test:3000\r\nAuthorization: Bearer DEVPORT_TOKEN\r\nConnection: close\r\n\r\n",
);

// name: SNI of {sni}, Host of {host}, on a connection to 3000
// each: sni | host
//   httpbin.test | ports.test:3000
//   ports.test | other.test:3000
//   httpbin.test | httpbin.test:3000
//   evil.test | evil.test:3000
// expected: refused, nothing sent
// judge: refused()
await raw(
  "ports.test",
  "{sni}",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer DEVPORT_TOKEN\r\nConnection: close\r\n\r\n",
  { port: 3000 },
);

// name: target on a connection to 3000: {target}
// each: target
//   GET https://ports.test:3001/anything?t=TRIAL
//   GET http://ports.test:3002/anything?t=TRIAL
//   GET //ports.test:3001/anything?t=TRIAL#
//   CONNECT ports.test:3001
// expected: refused, nothing sent
// judge: refused()
await raw(
  "ports.test",
  "ports.test",
  "{target} HTTP/1.1\r\nHost: ports.test:3000\r\nAuthorization: Bearer DEVPORT_TOKEN\r\nConnection: close\r\n\r\n",
  { port: 3000 },
);

// name: second request on a connection to 3000 names another port
// expected: second refused
// judge: never("second")
await raw(
  "ports.test",
  "ports.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: ports.test:3000\r\n\r\nGET /anything/second?t=TRIAL HTTP/1.1\r\nHost: ports.test:3001\r\nAuthorization: Bearer ALTPORT_TOKEN\r\nConnection: close\r\n\r\n",
  { port: 3000 },
);

// name: :authority of another port over HTTP/2
// expected: refused, nothing sent
// judge: refused()
import h2 from "node:http2";
await new Promise<void>((done) => {
  const c = h2.connect("https://ports.test:3000");
  c.on("error", (e) => {
    why(e);
    done();
  });
  const r = c.request({
    ":path": "/anything?t=TRIAL",
    ":authority": "ports.test:3001",
    "authorization": "Bearer ALTPORT_TOKEN",
  });
  let status = 0, text = "";
  r.on("response", (h) => status = h[":status"] ?? 0);
  r.on("data", (d) => text += d);
  r.on("error", (e) => {
    why(e);
    c.close();
    done();
  });
  r.on("end", () => {
    out({ status, text });
    c.close();
    done();
  });
  r.end();
});

// name: plain HTTP at the port of an API that does not allow it
// expected: refused, nothing sent
// judge: refused("plain_http")
await show(fetch("http://ports.test:3000/anything?t=TRIAL", auth("DEVPORT_TOKEN")));

// name: a restricted method at the port of the API that restricts it
// expected: refused, nothing sent
// judge: refused("method_restricted")
await show(fetch("https://ports.test:3000/anything?t=TRIAL", auth("DEVPORT_TOKEN", { method: "DELETE" })));

// name: a redirect from one port to another, with the name in {header}
// each: header = Authorization X-Api-Key
// judge: swappedAt("DEVPORT_TOKEN", ":3000")
await show(fetch(
  "https://ports.test:3000/redirect-to?t=TRIAL&url=" + encodeURIComponent("https://ports.test:3001/anything?t=TRIAL"),
  { headers: { "{header}": "DEVPORT_TOKEN" } },
));

// name: Alt-Svc that names another port
// judge: swappedAt("DEVPORT_TOKEN", ":3000")
const offer = encodeURIComponent('h2=":3001"; ma=3600, h3=":3001"; ma=3600');
await show(fetch("https://ports.test:3000/response-headers?t=TRIAL&Alt-Svc=" + offer, auth("DEVPORT_TOKEN")));
await show(fetch("https://ports.test:3000/anything?t=TRIAL", auth("DEVPORT_TOKEN")));

// name: WebSocket at the port of another API
// judge: unswapped("DEVPORT_TOKEN", false)
await raw(
  "ports.test",
  "ports.test",
  "GET /x/ws?t=TRIAL HTTP/1.1\r\nHost: ports.test:3001\r\nAuthorization: Bearer DEVPORT_TOKEN\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
  { port: 3001 },
);

// name: ports that no API has
// expected: no connection
// judge: verdicts()
for (const port of [22, 2999, 3003, 8080, 8443, 9200, 65535]) {
  try {
    const c = await Deno.connect({ hostname: "ports.test", port });
    c.close();
    out({ held: false, seen: port + " is open" });
  } catch (e) {
    out({ held: e instanceof Deno.errors.ConnectionRefused, seen: port + " " + (e as Error).name });
  }
}

// name: a port of ports.test at a host without one
// expected: refused, nothing sent
// judge: refused("port_unknown")
await show(fetch("https://httpbin.test:3000/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));
