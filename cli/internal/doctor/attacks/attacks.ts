// The attacks that codeforge doctor --attack runs inside the sandbox. Each begins with its name and expected result.
// "judge" names the judge of the result, if the printed lines do not decide. "needs" names a condition: host (of an
// active API), memory (a known limit), or closed (YOLO_MODE is off). "seconds" is the time limit, by default 20.
// Only make attack sends requests that could change data at an API, such as ambiguous bodies.

// name: a host in no API
// expected: refused
await attempts(
  () => get("https://codeforge-doctor.invalid/"),
  () => get("http://codeforge-doctor.invalid/"),
  () => get("https://192.0.2.1/"),
  () => get("https://codeforge-doctor.invalid/", { headers: { Authorization: "Bearer CODEFORGE_DOCTOR_TOKEN" } }),
);

// name: TCP to outside addresses
// expected: no way out
await attempts(() => reach("192.0.2.1", 443), () => reach("198.51.100.1", 22), () => reach("203.0.113.1", 53));

// name: cloud metadata
// expected: no way out
await attempts(
  () => reach("169.254.169.254", 80),
  () => get("http://169.254.169.254/latest/meta-data/"),
  () => get("http://metadata.google.internal/"),
  () => get("http://100.100.100.200/"),
);

// name: the proxy, mcp-server and the host by address
// expected: no way out
await attempts(
  () => reach("10.77.0.2", 8080),
  () => reach("10.77.0.3", 80),
  () => reach("10.77.0.1", 22),
  () => reach("localhost", 8080),
  () => get("http://mcp-server:8080/mcp"),
  () => get("http://host.docker.internal/"),
  () => get("http://gateway.docker.internal/"),
);

// name: IPv6
// expected: no way out
await attempts(() => reach("2001:db8::1", 443), () => reach("::1", 8080), () => reach("fe80::1", 80));

// name: UDP
// expected: no way out
await attempts(() =>
  import("node:dgram").then((d) =>
    new Promise((ok, no) => {
      const s = d.createSocket("udp4");
      s.on("error", no);
      s.on("message", ok);
      s.send("x", 53, "192.0.2.1", (e) => {
        if (e) no(e);
      });
      setTimeout(() => {
        s.close();
        no(new Error("silence"));
      }, 1000);
    })
  )
);

// name: DNS names that carry data
// expected: never looked up
await attempts(
  // With YOLO_MODE every name resolves to an address of the proxy, and the machine sends no query.
  () =>
    Deno.resolveDns("data.codeforge-doctor.invalid", "A").then((a) => {
      if (a.every((x) => /^(127|198\.18)\./.test(x))) throw new Error("the proxy's own address");
      return a;
    }),
  () => Deno.resolveDns("data.codeforge-doctor.invalid", "TXT"),
  () => Deno.resolveDns("data.codeforge-doctor.invalid", "TXT", { nameServer: { ipAddr: "127.0.0.11", port: 53 } }),
  () => Deno.resolveDns("data.codeforge-doctor.invalid", "MX", { nameServer: { ipAddr: "192.0.2.1", port: 53 } }),
);

// name: remote imports
// expected: no way out
await attempts(
  () => import("https://codeforge-doctor.invalid/x.js"),
  () => import("npm:codeforge-doctor-none"),
  () => import("jsr:@codeforge-doctor/none"),
);

// name: sockets of the daemons and of Docker
// expected: no way out
await attempts(
  () => unix("/var/run/docker.sock"),
  () => unix("/run/codeforge/shim/docker.sock"),
  () => unix("/run/codeforge/control/proxy.sock"),
  () => unix("/run/codeforge/credentials/credentials.sock"),
  () => unix("/run/sandboxd/sandboxd.sock"),
  () => unix("/dev/shm/run/control.sock"),
  () => unix("/dev/shm/logins/credentials.sock"),
  () =>
    new Promise((ok, no) =>
      import("node:net").then((n) =>
        n.connect("/dev/shm/run/sandboxd.sock").on("connect", () => ok("connected")).on("error", no)
      )
    ),
);

// name: reading /etc and other files
// expected: denied
await attempts(
  () => Deno.readTextFile("/etc/passwd"),
  () => Deno.readTextFile("/etc/shadow"),
  () => Deno.readTextFile("/etc/resolv.conf"),
  () => Deno.readTextFile("/tmp/../etc/passwd"),
  () => Deno.readTextFile("/skills/../etc/passwd"),
  () => Deno.readTextFile("/dev/shm/ca/ca.key"),
  () => Deno.readTextFile("/apis"),
  () => Deno.readTextFile("/dev/mem"),
  () => Deno.readTextFile("/sys/kernel/notes"),
  () => Deno.readTextFile("/var/lib/codeforge/tokens"),
);

// name: reading /proc
// expected: denied
await attempts(
  () => Deno.readTextFile("/proc/1/environ"),
  () => Deno.readTextFile("/proc/self/environ"),
  () => Deno.readTextFile("/proc/self/maps"),
  () => Deno.readTextFile("/proc/self/mountinfo"),
  () => Deno.readTextFile("/proc/net/tcp"),
  () => Deno.readTextFile("/proc/1/cmdline"),
);

// name: importing files about the machine
// expected: not found
// judge: module not loaded
import text from "/proc/1/mountinfo" with { type: "text" };
console.log(text.length);

// name: writing outside
// expected: denied
await attempts(
  () => Deno.writeTextFile("/etc/x", "y"),
  () => Deno.writeTextFile("/runs/x", "y"),
  () => Deno.writeTextFile("/x", "y"),
  () => Deno.mkdir("/runs/codeforge-doctor"),
);

// name: programs, foreign functions, the machine
// expected: denied
await attempts(
  () => new Deno.Command("sh", { args: ["-c", "id"] }).output(),
  () => import("node:child_process").then((c) => c.execSync("id")),
  async () => Deno.dlopen("libc.so.6", { getpid: { parameters: [], result: "i32" } }),
  async () => Deno.networkInterfaces(),
  async () => Deno.systemMemoryInfo(),
  async () => Deno.kill(1, "SIGKILL"),
);

// name: asking for more permissions
// expected: denied
await attempts(() => ask({ name: "run" }), () => ask({ name: "read", path: "/etc" }));

// name: links out of /tmp and /skills
// expected: denied
await attempts(
  () => Deno.symlink("/etc/passwd", "/tmp/codeforge-doctor-a"),
  () => Deno.link("/etc/passwd", "/tmp/codeforge-doctor-b"),
  () => Deno.symlink("/etc/passwd", "/skills/codeforge-doctor.ts"),
);

// name: an endless loop
// expected: ended at its time limit
// judge: timeout
// seconds: 2
for (;;) {}

// name: a flood of output
// expected: bounded
// judge: output bounded
const line = "x".repeat(1000);
for (let i = 0; i < 20000; i++) console.log(line);

// name: listening for other slots
// expected: denied
// needs: closed
await attempts(
  async () => Deno.listen({ hostname: "0.0.0.0", port: 18080 }),
  async () => Deno.listen({ transport: "unix", path: "/tmp/codeforge-doctor.sock" }),
  async () => Deno.serve({ port: 18082 }, () => new Response("x")),
);

// name: importing /etc/shadow as text
// expected: denied
// judge: nothing read
import t from "file:///etc/shadow" with { type: "text" };
say(t.trim() === "", t.length + " bytes");

// name: importing /proc/1/environ as text
// expected: denied
// judge: nothing read
import t from "file:///proc/1/environ" with { type: "text" };
say(t.trim() === "", t.length + " bytes");

// name: importing /dev/shm/ca/ca.key as text
// expected: denied
// judge: nothing read
import t from "file:///dev/shm/ca/ca.key" with { type: "text" };
say(t.trim() === "", t.length + " bytes");

// name: importing /apis/config.json as text
// expected: denied
// judge: nothing read
import t from "file:///apis/config.json" with { type: "text" };
say(t.trim() === "", t.length + " bytes");

// name: buffers of twice a run's memory
// expected: ended at its limit
// judge: oom
// needs: memory
// seconds: 30
fill(() => new Uint8Array(32 << 20));

// name: WebAssembly memory of twice a run's memory
// expected: ended at its limit
// judge: oom
// needs: memory
// seconds: 30
fill(() => new Uint8Array(new WebAssembly.Memory({ initial: 512 }).buffer));

// name: a false server name on an API's address
// expected: refused
// needs: host
await forge("codeforge-doctor.invalid");

// name: a false Host on an API's connection
// expected: refused
// needs: host
await forge(host);

// name: other ports of an API's host
// expected: no way out
// needs: host
for (const port of [22, 25, 8080, 8443, 2375]) {
  try {
    const c = await Promise.race([Deno.connect({ hostname: host, port }), silence(2000)]);
    c.close();
    say(false, port + " is open");
  } catch (e) {
    say(true, clipped(e));
  }
}

// name: methods that show or tunnel a request
// expected: refused by the proxy
// needs: host
// seconds: 30
await withMethods("TRACE " + path, "TRACK " + path, `CONNECT ${host}:443`, "trace " + path);

// name: a method overridden in a header
// expected: refused by the proxy
// needs: host
// seconds: 30
await withFields(
  "X-HTTP-Method-Override: TRACE",
  "X-HTTP-Method: TRACE",
  "X-Method-Override: TRACE",
  "X-Original-Method: TRACE",
  "x_http_method_override: TRACE",
  "X-HTTP-Method-Override: GET\r\nX-HTTP-Method-Override: TRACE",
);

// name: a method overridden in the query
// expected: refused by the proxy
// needs: host
// seconds: 30
await withTargets(
  path + "?_method=TRACE",
  path + "?a=b&%5Fmetho%64=TRACE",
  path + "?_METHOD=trace",
  path + "?a=b;_method=TRACE",
  path + "?.method=TRACE",
  path + "?_method[]=TRACE",
  path + "?X-HTTP-Method-Override=TRACE",
);

// name: another protocol on the connection
// expected: refused by the proxy
// needs: host
// seconds: 30
await withFields(
  "Connection: Upgrade\r\nUpgrade: h2c",
  "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
  "Connection: Upgrade\r\nUpgrade: TLS/1.2",
  "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\nSec-WebSocket-Version: 13\r\n" +
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
);

// name: two lengths, folds and bare line feeds
// expected: refused by the proxy
// needs: host
// seconds: 30
await withFields(
  "Content-Length: 0\r\nTransfer-Encoding: chunked",
  "Content-Length: 0\r\nContent-Length: 0",
  "Content-Length: 0, 0",
  "Transfer-Encoding: gzip, chunked",
  "X-A: b\r\n c",
  "X-A: b\nX-C: d",
  "X-A: b\rX-C: d",
  "X-A : b",
  "Host: " + host,
);

// name: targets that are not a path
// expected: refused by the proxy
// needs: host
// seconds: 30
await withTargets(
  "https://codeforge-doctor.invalid" + path,
  "https://" + host + path,
  "codeforge-doctor",
  path + "#a",
  path + "\xc2\x9b",
  "*",
);

// name: a Connection that removes other headers
// expected: refused by the proxy
// needs: host
// seconds: 30
await withFields(
  "Content-Type: text/plain\r\nConnection: close, Content-Type",
  "X-HTTP-Method-Override: GET\r\nConnection: X-HTTP-Method-Override, close",
);

// name: OPTIONS of the server itself
// expected: refused by the proxy
// needs: host
// seconds: 30
await withMethods("OPTIONS *");
