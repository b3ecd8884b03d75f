// Attempts to read files by what is no reading; those whose program would not even start are in imports.go.

// name: importing {file} in any other way
// expected: not found, or denied
// judge: unread
// each: file = /proc/1/mountinfo /proc/self/environ /etc/passwd /etc/hosts
import fs from "node:fs";
import { createRequire } from "node:module";
import process from "node:process";
const path = "{file}", url = "file://" + path;
const nap = (p) => Promise.race([p, new Promise((_, no) => setTimeout(() => no(new Error("silence")), 1500))]);
for (
  const f of [
    () => import(url, { with: { type: "text" } }),
    () => import(url, { with: { type: "json" } }),
    () => import(url),
    () => import(path),
    () => import(import.meta.resolve(path)),
    () =>
      import(
        "data:application/javascript," +
          encodeURIComponent("import t from '" + url + "' with { type: 'text' }; export default t;")
      ),
    () => import("data:application/javascript," + encodeURIComponent("export * from '" + url + "';")),
    () =>
      import(
        URL.createObjectURL(
          new Blob(["import t from '" + url + "' with { type: 'text' }; export default t;"], {
            type: "text/javascript",
          }),
        )
      ),
    () =>
      nap(
        new Promise((ok, no) => {
          const w = new Worker(url, { type: "module" });
          w.onmessage = (m) => ok(m.data);
          w.onerror = (e) => {
            e.preventDefault();
            no(new Error(e.message));
          };
        }),
      ),
    () =>
      nap(
        new Promise((ok, no) => {
          const w = new Worker(
            "data:application/javascript," +
              encodeURIComponent("import t from '" + url + "' with { type: 'text' }; postMessage(t);"),
            { type: "module" },
          );
          w.onmessage = (m) => ok(m.data);
          w.onerror = (e) => {
            e.preventDefault();
            no(new Error(e.message));
          };
        }),
      ),
    () => fetch(url).then((r) => r.text()),
    () => fetch(new URL(path, import.meta.url)).then((r) => r.text()),
    () => new Response(Deno.openSync(path).readable).text(),
    () => createRequire("/tmp/x.js")(path),
    () => createRequire(import.meta.url)("../.." + path),
    () => fs.readFileSync(path, "utf8"),
    () => fs.readFileSync(new URL(url), "utf8"),
    () => fs.promises.readFile(path, "utf8"),
    () => new Promise((ok, no) => fs.createReadStream(path).on("data", (b) => ok(String(b))).on("error", no)),
    () => fs.openAsBlob(path).then((b) => b.text()),
    () => {
      fs.cpSync(path, "/tmp/TRIAL");
      return fs.readFileSync("/tmp/TRIAL", "utf8");
    },
    () => {
      fs.linkSync(path, "/tmp/TRIAL");
      return fs.readFileSync("/tmp/TRIAL", "utf8");
    },
    () => {
      process.loadEnvFile(path);
      return JSON.stringify(process.env);
    },
    () => WebAssembly.compileStreaming(fetch(url)),
    () =>
      import("node:sqlite").then((s) => {
        const d = new s.DatabaseSync(path, { readOnly: true });
        return JSON.stringify(d.prepare("select * from sqlite_master").all());
      }),
    () =>
      import("node:worker_threads").then((t) =>
        nap(new Promise((ok, no) => new t.Worker(path).on("message", ok).on("error", no)))
      ),
    () => import("node:module").then((m) => m.findSourceMap(path) ?? (m.default as any)._load(path)),
    () => {
      throw eval("new Error('x')\n//# sourceMappingURL=" + url);
    },
  ]
) {
  try {
    const r = await f();
    out({ status: 200, text: typeof r === "string" ? r : JSON.stringify(r?.default ?? r) });
  } catch (e) {
    why(e);
  }
}
