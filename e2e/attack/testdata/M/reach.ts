// What the proxy obtains credentials with, and logins with, is out of code's reach.

// expected: denied
// judge: verdicts()

// name: the socket for logins at {path}
// each: path = /run/codeforge/credentials/credentials.sock /dev/shm/logins/credentials.sock /run/credentials.sock
await attempts(
  () => Deno.connect({ transport: "unix", path: "{path}" }),
  () => Deno.readTextFile("{path}"),
  () => Deno.stat("{path}"),
  () => import("node:net").then((n) => new Promise((ok, no) => n.connect("{path}").on("connect", ok).on("error", no))),
);

// name: stored tokens in {path}
// each: path = /var/lib/codeforge/tokens /dev/shm/tokens /tmp/../var/lib/codeforge/tokens
await attempts(
  () => Deno.readDirSync("{path}").next(),
  () => Deno.readTextFile("{path}/HTTPBIN_TOKEN.json"),
  () => import("file://{path}/HTTPBIN_TOKEN.json", { with: { type: "json" } }),
  () => Deno.writeTextFile("{path}/HTTPBIN_TOKEN.json", "{}"),
);

// name: a forged redirect to a login at {address}
// each: address = 127.0.0.1:8765 localhost:8765 127.0.0.1:49152 host.docker.internal:8765
await attempts(
  () => fetch("http://{address}/callback?code=forged&state=TRIAL"),
  () => Deno.connect({ hostname: "{address}".split(":")[0], port: +"{address}".split(":")[1] }),
);

// name: the proxy's own API through {host}
// each: host = proxy mcp.codeforge.internal codeforge.internal
await attempts(
  () => fetch("https://{host}/credentials/v1").then((r) => r.ok ? r.text() : Promise.reject(new Error("" + r.status))),
  () => fetch("http://{host}/credentials/v1").then((r) => r.ok ? r.text() : Promise.reject(new Error("" + r.status))),
);

// name: control: the same path at a host of the catalog
// expected: served
{
  const r = await fetch("https://httpbin.test/anything/credentials/v1?t=TRIAL");
  out({ held: r.ok, seen: "status " + r.status });
}
