package attack

import (
	"fmt"
	"regexp"
	"strings"
)

// imports are attempts to read files by what is no reading: Deno asks for no permission where a module is named in the
// code itself. Each is a program of its own, as one that is refused keeps the program from starting.
func imports() []Attack {
	var all []Attack
	for _, f := range []struct{ name, code string }{
		{"as text", `import t from "PATH" with { type: "text" }; out({ status: 200, text: t });`},
		{"as bytes", `import t from "PATH" with { type: "bytes" }; out({ status: 200, text: new TextDecoder().decode(t) });`},
		{"as JSON", `import t from "PATH" with { type: "json" }; out({ status: 200, text: t });`},
		{"as a module", `import "PATH"; out({ status: 200 });`},
		{"by export from", `export * from "PATH"; out({ status: 200 });`},
		{"as WebAssembly", `import source m from "PATH"; out({ status: 200, text: String(m) });`},
		{"deferred", `import defer * as m from "PATH"; out({ status: 200, text: JSON.stringify(m) });`},
		{"in any other way", `const path = "PATH", url = "file://" + path;
import fs from "node:fs"; import { createRequire } from "node:module"; import process from "node:process";
const nap = (p) => Promise.race([p, new Promise((_, no) => setTimeout(() => no(new Error("silence")), 1500))]);
for (const f of [
  () => import(url, { with: { type: "text" } }), () => import(url, { with: { type: "json" } }), () => import(url), () => import(path), () => import(import.meta.resolve(path)),
  () => import("data:application/javascript," + encodeURIComponent("import t from '" + url + "' with { type: 'text' }; export default t;")),
  () => import("data:application/javascript," + encodeURIComponent("export * from '" + url + "';")),
  () => import(URL.createObjectURL(new Blob(["import t from '" + url + "' with { type: 'text' }; export default t;"], { type: "text/javascript" }))),
  () => nap(new Promise((ok, no) => { const w = new Worker(url, { type: "module" }); w.onmessage = (m) => ok(m.data); w.onerror = (e) => { e.preventDefault(); no(new Error(e.message)); }; })),
  () => nap(new Promise((ok, no) => { const w = new Worker("data:application/javascript," + encodeURIComponent("import t from '" + url + "' with { type: 'text' }; postMessage(t);"), { type: "module" }); w.onmessage = (m) => ok(m.data); w.onerror = (e) => { e.preventDefault(); no(new Error(e.message)); }; })),
  () => fetch(url).then((r) => r.text()), () => fetch(new URL(path, import.meta.url)).then((r) => r.text()), () => new Response(Deno.openSync(path).readable).text(),
  () => createRequire("/tmp/x.js")(path), () => createRequire(import.meta.url)("../.." + path), () => fs.readFileSync(path, "utf8"), () => fs.readFileSync(new URL(url), "utf8"), () => fs.promises.readFile(path, "utf8"),
  () => new Promise((ok, no) => fs.createReadStream(path).on("data", (b) => ok(String(b))).on("error", no)), () => fs.openAsBlob(path).then((b) => b.text()), () => { fs.cpSync(path, "/tmp/TRIAL"); return fs.readFileSync("/tmp/TRIAL", "utf8"); }, () => { fs.linkSync(path, "/tmp/TRIAL"); return fs.readFileSync("/tmp/TRIAL", "utf8"); },
  () => { process.loadEnvFile(path); return JSON.stringify(process.env); }, () => WebAssembly.compileStreaming(fetch(url)), () => import("node:sqlite").then((s) => { const d = new s.DatabaseSync(path, { readOnly: true }); return JSON.stringify(d.prepare("select * from sqlite_master").all()); }),
  () => import("node:worker_threads").then((t) => nap(new Promise((ok, no) => new t.Worker(path).on("message", ok).on("error", no)))), () => import("node:module").then((m) => m.findSourceMap(path) ?? m.default._load(path)), () => { throw eval("new Error('x')\n//# sourceMappingURL=" + url); },
]) { try { const r = await f(); out({ status: 200, text: typeof r === "string" ? r : JSON.stringify(r?.default ?? r) }); } catch (e) { why(e); } }`},
		{"by a source map", `//# sourceMappingURL=file://PATH
const path = "PATH"; try { throw new Error(path); } catch (e) { out({ status: 200, text: e.stack }); } throw new Error("uncaught");
//# sourceMappingURL=PATH`},
		{"by a type reference", `/// <reference types="PATH" />
/// <reference path="PATH" />
// @deno-types="PATH"
import * as x from "PATH";
out({ status: 200, text: JSON.stringify(x) });`},
	} {
		for _, path := range []string{"/proc/1/mountinfo", "/proc/self/environ", "/etc/passwd", "/etc/hosts"} {
			all = append(all, Attack{
				Section: "C", Name: "importing " + path + " " + f.name, Expected: "not found, or denied", Judge: unread,
				Code: strings.ReplaceAll(f.code, "PATH", path),
			})
		}
	}
	return all
}

// facts are what the files that the attacks name hold on any machine.
var facts = regexp.MustCompile(`root:x?:0|\brw,|\bro,|relatime|Linux version|localhost|DENO_DIR=|HOME=|GNU\\u0000|[0-9a-f]{64}`)

// unread: the code was not given what the file holds, and no message about it quotes it. Only that the module was not
// found is no failure.
func unread(e *Evidence) (string, bool) {
	text := e.Result.Out + e.Result.Notes
	if found := facts.FindString(text); found != "" {
		return fmt.Sprintf("it says %q", found), false
	}
	for _, l := range e.lines() {
		if l.Status == 200 && len(l.Text) > 0 && !strings.HasPrefix(l.Text, "Error: /") {
			return "read: " + clip(l.Text, 80), false
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return clip(first, 90), e.Failed == nil && text != ""
}
