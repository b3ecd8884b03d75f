// The console's own page in Deno, with as much of a document as Preact needs, against a server that holds requests and a
// plan, and has runs. It prints what was decided, by the name of each case, and what is wrong otherwise.
class Node {
  childNodes = []; attributes = []; dataset = {}; style = { setProperty() {} }; on = {}; parentNode = null;
  constructor(name, text = "") { this.localName = name; this.nodeType = name === "#text" ? 3 : 1; this.data = text; }
  get firstChild() { return this.childNodes[0] ?? null; }
  get nextSibling() { const all = this.parentNode?.childNodes ?? []; return all[all.indexOf(this) + 1] ?? null; }
  get text() { return this.data + this.childNodes.map((c) => c.text).join(""); }
  get all() { return [this, ...this.childNodes.flatMap((c) => c.all)]; }
  insertBefore(child, before) { child.remove(); const at = this.childNodes.indexOf(before); this.childNodes.splice(at < 0 ? this.childNodes.length : at, 0, child); child.parentNode = this; return child; }
  appendChild(child) { return this.insertBefore(child, null); }
  removeChild(child) { this.childNodes = this.childNodes.filter((c) => c !== child); child.parentNode = null; return child; }
  remove() { this.parentNode?.removeChild(this); }
  replaceChildren() { this.childNodes = []; }
  setAttribute(name, value) { this[name] = value; }
  removeAttribute(name) { delete this[name]; }
  addEventListener(kind, f) { this.on[kind.toLowerCase()] = (e) => f.call(this, e); }
  removeEventListener(kind) { delete this.on[kind.toLowerCase()]; }
  scrollTo() {}
}
const root = new Node("div"), keys = [];
const global = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
global("document", { documentElement: new Node("html"), hidden: false, addEventListener() {}, removeEventListener() {}, getElementById: () => root, querySelector: () => null, createElement: (n) => new Node(n), createElementNS: (_, n) => new Node(n), createTextNode: (t) => new Node("#text", t) });
global("addEventListener", (kind, f) => { if (kind === "keydown") keys.push(f); });
global("innerWidth", 1200);
global("matchMedia", () => ({ matches: true, addEventListener() {} }));
global("location", { hash: "#/held/A", pathname: "/console" });
global("history", { replaceState: (_, __, to) => { location.hash = to; } });
for (const name of ["localStorage", "sessionStorage"]) global(name, { getItem: () => "x", setItem() {}, removeItem() {} });
global("ResizeObserver", class { observe() {} disconnect() {} });
global("BroadcastChannel", class { addEventListener() {} postMessage() {} });

const soon = new Date(Date.now() + 9e5), request = (id) => ({ id, run: "r1", api: "bank", rule: "approve POST", method: "POST", url: "https://bank.test/" + id, waiting: true, since: new Date(), until: soon });
const plan = { id: "P", digest: "d", state: "open", until: soon, since: new Date(), run: "r2", writes: 1, reads: 0, picture: ["", " POST"], steps: [{ n: 1, method: "POST", url: "https://bank.test/P" }] };
const run = (n) => ({ run: "run" + n, number: n, state: "running", began: new Date(), title: "run number " + n, language: "typescript", wall_ms: 1, waited_ms: 0 });
let held = [], plans = [], runs = [], decided = [], live;
const hear = (news) => live.enqueue(new TextEncoder().encode(JSON.stringify(news) + "\n"));
global("fetch", async (path, init) => {
  const [, kind, id, what] = /^\/console\/api\/(\w+)\/?(\w*)(\/stop)?(?:\?.*)?$/.exec(path) ?? [];
  let body = {};
  if (what) { decided.push("stop " + id); return { ok: true, status: 200, json: async () => body }; }
  if (init.method === "POST" && id) { decided.push((JSON.parse(init.body).approve ? "+" : "-") + id); held = held.filter((h) => h.id !== id); body = { waiting: true }; }
  else if (kind === "held") body = { held, plans, decided: [] };
  else if (kind === "plans") body = plan;
  else if (kind === "runs") body = id ? runs.find((r) => r.run === id) : { runs };
  else if (kind === "live") return { ok: true, status: 200, body: new ReadableStream({ start: (c) => { live = c; } }) };
  return { ok: true, status: 200, json: async () => body };
});

const { updateApp, parseRoute } = await import(Deno.args[0] + "/state.js"), { loadHeld } = await import(Deno.args[0] + "/held.js"), { list } = await import(Deno.args[0] + "/runs.js");
await import(Deno.args[0] + "/app.js");
const wait = (ms) => new Promise((done) => setTimeout(done, ms)), target = { matches: () => false };
const press = (key, repeat = false) => { for (const f of keys) f({ key, repeat, target, timeStamp: performance.now(), preventDefault() {} }); };
const button = (words) => root.all.find((n) => n.localName === "button" && n.text.includes(words));
const click = (words) => { const b = button(words); if (b && !b.disabled) b.on.click({ type: "Click" }); };
const shows = (text) => { if (!root.text.includes(text)) console.log("the page does not show", text); };
async function show(hash, list, planned = []) {
  held = list.map(request); plans = planned;
  location.hash = hash;
  updateApp({ route: parseRoute(hash) });
  await loadHeld();
  await wait(100);
}
async function say(name) { await wait(100); console.log(name + ":", decided.join(" ") || "nothing"); decided = []; }

await wait(300); // until the page is drawn
await show("#/held/A", ["A", "B"]);
shows("bank.test/A");
press("a");
click("Approve once");
await say("at once");
await wait(1100);
press("a", true);
press("d", true);
press("D", true);
await say("a key that is still held down");
press("a");
await wait(200);
for (let i = 0; i < 3; i++) press("a");
click("Deny");
await say("A, and what then is in its place");
shows("bank.test/B");
await wait(1100);
click("Approve once");
await say("B after a second");

await show("#/held/A", ["A", "B"]);
await wait(1100);
held = [request("B"), request("A2")];
await loadHeld();
press("a");
await wait(1200);
press("a");
click("Approve once");
await say("A is gone, and its address is still there");

await show("#/held", ["A", "B"]);
await wait(1100);
const old = button("Approve once");
held = [request("B")];
await loadHeld();
press("a");
await wait(100);
shows("bank.test/B");
if (root.all.includes(old)) console.log("the button is that of A: what was pressed before is released on it");
press("a");
click("Approve once");
await say("without an address, A is gone");

await show("#/held/P", [], [plan]);
await wait(200);
shows("bank.test/P");
press("a");
click("Approve it");
await say("a plan at once");
await wait(1100);
press("a", true);
await say("a plan, with a key that is still held down");
press("a");
await say("a plan after a second");

runs = [run(1)];
await show("#/runs", []);
await wait(1200);
shows("run number 1");
runs = [run(2), run(1)];
hear({ runs: [run(2)] });
await wait(100);
shows("run number 2");
press("x");
click("Stop");
await say("without an address, a run has taken the place of another");
await wait(1100);
press("x");
await say("that run after a second");

await show("#/runs/run2?status%3Aactive", []);
if (list.runs.length !== 2) console.log("the list has", list.runs.length);
runs = [run(2)];
hear({ runs: [{ ...run(1), state: "ok" }] });
await wait(2000);
if (list.runs.some((r) => r.run === "run1")) console.log("a run that has ended is among those that are active");
Deno.exit(0);
