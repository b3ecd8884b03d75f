// The frame around each page: sign-in, the rail with all pages, and the keyboard shortcuts.
import { html, render, useEffect } from "./preact.js";
import { Icon, Mark } from "./draw.js";
import { plural, shown } from "./text.js";
import { api, enter, onFound, onOver } from "./session.js";
import { address, app, go, needs, parse, restart, set, useApp } from "./state.js";
import { Help, PAGES, Palette } from "./palette.js";
import { SignIn } from "./signin.js";
import { Runs, step, list as runs } from "./runs.js";
import { runKeys } from "./run.js";
import { Held, heldKeys, read as readHeld } from "./held.js";
import { Ledger, exported } from "./ledger.js";
import { APIs, apiKeys } from "./apis.js";
import { Servers, serverKeys } from "./servers.js";
import { Skills, skillKeys } from "./skills.js";
import { Alerts, count, seen } from "./alerts.js";
import { Settings } from "./settings.js";

const SHOWN = { runs: Runs, held: Held, ledger: Ledger, apis: APIs, servers: Servers, skills: Skills, alerts: Alerts, settings: Settings };
const moving = { apis: apiKeys, servers: serverKeys, skills: skillKeys };

function flip() {
  const r = document.documentElement, dark = r.dataset.theme ? r.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  r.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("codeforge-theme", r.dataset.theme); } catch { /* without storage the theme lasts until a reload */ }
}
try { const t = localStorage.getItem("codeforge-theme"); if (t === "light" || t === "dark") document.documentElement.dataset.theme = t; } catch { /* without storage the system decides */ }

let chord = 0;
addEventListener("keydown", (e) => {
  if (!app.in || e.isComposing) return;
  if ((e.ctrlKey || e.metaKey) && e.key === "k") { e.preventDefault(); return set({ dialog: "palette" }); }
  if (e.ctrlKey || e.metaKey || e.altKey || app.dialog || e.target.matches?.("input, textarea, select")) return;
  if (e.repeat && e.key !== "j" && e.key !== "k") return; // a key held down must not decide about the next request too
  const { page, id } = app.route, key = e.key, after = chord && e.timeStamp - chord < 2000;
  chord = 0;
  if (after) { const p = PAGES.find((x) => x?.[3] === key); if (p) { e.preventDefault(); go(p[0]); } return; }
  if (key === "g") { chord = e.timeStamp; return; }
  if (key === "?") return set({ dialog: "help" });
  if (key === "/") { const f = document.querySelector("input[type=search]"); if (f) { e.preventDefault(); f.focus(); f.select(); } return; }
  if (key === " " && !e.target.matches?.("button, a, summary, [role=row]")) { e.preventDefault(); return set({ frozen: !app.frozen }); }
  if (key === "n") { const h = needs()[0]; return h ? go("held", h.id) : go("alerts"); }
  if (key === "t" && page !== "apis") return flip();
  if (page === "runs") {
    if (key === "j" || key === "k") return step(key === "j" ? 1 : -1);
    const run = id || runs.runs[0]?.run;
    if (run) runKeys(key, run);
  }
  if (page === "held") heldKeys(e);
  if (moving[page] && (key === "j" || key === "k" || (key === "t" && page === "apis"))) moving[page](key);
  if (page === "ledger" && key === "e") exported();
  if (page === "alerts" && key === "S") seen();
});
addEventListener("hashchange", () => { if (!location.hash.startsWith("#code=")) { set({ route: parse(location.hash) }); document.querySelector(".page")?.scrollTo(0, 0); } else begin(); });

function Rail() {
  const { load, down } = app.versions, held = needs().length, page = app.route.page;
  const badges = { held: held && html`<span class="badge hot" title=${held + " to decide"}>${held}</span>`, alerts: app.alertCount && html`<span class="badge" title="not seen yet">${app.alertCount > 99 ? "99+" : app.alertCount}</span>`, apis: app.problems && html`<span class="badge err" title=${plural(app.problems, "API") + " broken"}>${app.problems}</span>`, servers: down ? html`<span class="badge err" title=${plural(down, "server") + " down"}>${down}</span>` : 0 };
  return html`<nav class="rail" aria-label="Console"><a class="brand" href="#/runs"><${Mark} /><span>CodeForge</span><small class="num">${shown(app.about?.version ?? "")}</small></a>
    ${PAGES.map((p) => p === null ? html`<hr />` : html`<a class="nav" href=${address(p[0])} aria-current=${p[0] === page ? "page" : null} title=${p[1]}><${Icon} name=${p[2]} /><span class="lbl">${p[1]}</span>${badges[p[0]] || null}<span class="keys">g ${p[3]}</span></a>`)}
    <div class="foot"><div class="row"><span class=${"dot " + (app.frozen ? "held" : app.connected ? "pulse" : "bad")}></span><span class="lbl grow">${app.frozen ? "Frozen" : app.connected ? "Ready" : "Not connected"}${app.about ? " · " + app.about.mode : ""}</span><button type="button" class="btn quiet small" aria-label="Light or dark" title="Light or dark (t)" onClick=${flip}><${Icon} name="sun" /></button></div>
      ${load.slots ? html`<div class="lbl"><div class="slots" role="img" aria-label=${`${load.busy} of ${load.slots} slots in use`}>${Array.from({ length: Math.min(load.slots, 24) }, (_, i) => html`<i class=${i < load.busy ? "on" : ""}></i>`)}</div><div class="faint num small load">${load.busy} of ${load.slots} slots · ${load.waiting ? plural(load.waiting, "run") + " waits" : "no run waits"}</div></div>` : null}</div></nav>`;
}

/** Welcome tells a person once in each browser which data CodeForge stores. */
function Welcome() {
  const kept = app.kept;
  if (!kept || app.welcomed || kept.mode !== "full") return null;
  const done = () => { try { localStorage.setItem("codeforge-welcomed", "1"); } catch { /* without storage the text returns after a reload */ } set({ welcomed: true }); };
  return html`<div class="toast welcome" role="status"><b>Stored data</b><p>CodeForge keeps the code and output of runs for ${kept.content_days} days, and their requests for ${kept.receipt_days} days, on this machine only. The proxy replaces each key in it with its name. <span class="mono">HISTORY=receipts</span> in .env keeps no code and no output.</p><div class="row"><button type="button" class="btn small" onClick=${done}>Understood</button><a class="btn small quiet" href="#/settings" onClick=${done}>Details</a></div></div>`;
}

function App() {
  useApp();
  useEffect(() => { const n = needs().length, p = PAGES.find((x) => x?.[0] === app.route.page); document.title = (n ? `(${n}) ` : "") + (p ? p[1] + " · " : "") + "CodeForge"; });
  useEffect(() => { if (app.in) readHeld(); }, [app.in, app.versions.held]);
  useEffect(() => { if (app.in) count(); }, [app.in, app.alerts]);
  useEffect(() => { if (app.in) api("apis").then((d) => set({ problems: new Set((d.problems ?? []).filter((p) => p.severity === "error").map((p) => p.api || p.file)).size }), () => {}); }, [app.in, app.versions.apis]);
  if (!app.in) return html`<${SignIn} key=${app.why} why=${app.why} entered=${entered} />`;
  const Page = SHOWN[app.route.page] ?? Runs;
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.querySelector("#main .page, #main .scroll")?.focus(); }}>To the content</a><${Rail} /><${Page} key=${app.route.page} />
    ${app.dialog === "palette" && html`<${Palette} />`}${app.dialog === "help" && html`<${Help} />`}
    <div class="says" role="status">${app.toast && html`<div class="toast">${shown(app.toast)}</div>`}</div><${Welcome} />`;
}

function entered() {
  set({ in: true, why: "", route: parse(location.hash) });
  restart();
  api("status").then((about) => set({ about }), () => {});
  api("kept").then((kept) => { let welcomed = false; try { welcomed = localStorage.getItem("codeforge-welcomed") === "1"; } catch { /* without storage each visit is the first */ } set({ kept, welcomed }); }, () => {});
}
onFound(() => { if (!app.in) entered(); });
onOver((why) => { set({ in: false, why, connected: false }); restart(); });

async function begin() {
  try { if (await enter()) return app.in || entered(); set({ in: false, why: "" }); } catch (e) { set({ in: false, why: e.message }); }
}
const root = document.getElementById("app");
const first = begin();
Promise.race([first, new Promise((done) => setTimeout(done, 200))]).then(() => { root.replaceChildren(); render(html`<${App} />`, root); });
