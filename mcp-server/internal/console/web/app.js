// The frame around each page: sign-in, the rail with all pages, and the keyboard shortcuts.
import { html, render, useEffect } from "./preact.js";
import { Icon, Mark } from "./draw.js";
import { formatCount, escapeNodes } from "./text.js";
import { requestJSON, startSession, onSessionFound, onSessionEnd } from "./session.js";
import { makeAddress, app, openPage, listWaiting, parseRoute, restartStream, updateApp, useApp } from "./state.js";
import { Help, PAGES, Palette } from "./palette.js";
import { SignIn } from "./signin.js";
import { Runs, openNext, list as runs } from "./runs.js";
import { handleKeyOnRun } from "./run.js";
import { Held, handleKeyOnHeld, loadHeld } from "./held.js";
import { Ledger, saveSums } from "./ledger.js";
import { APIs, handleKeyOnAPIs } from "./apis.js";
import { Servers, handleKeyOnServers } from "./servers.js";
import { Skills, handleKeyOnSkills } from "./skills.js";
import { Alerts, loadUnseenCount, markSeen } from "./alerts.js";
import { Settings } from "./settings.js";

const PAGE_COMPONENTS = { runs: Runs, held: Held, ledger: Ledger, apis: APIs, servers: Servers, skills: Skills, alerts: Alerts, settings: Settings };
const keyHandlers = { apis: handleKeyOnAPIs, servers: handleKeyOnServers, skills: handleKeyOnSkills };

function switchTheme() {
  const r = document.documentElement, dark = r.dataset.theme ? r.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  r.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("codeforge-theme", r.dataset.theme); } catch { /* without storage the theme lasts until a reload */ }
}
try { const t = localStorage.getItem("codeforge-theme"); if (t === "light" || t === "dark") document.documentElement.dataset.theme = t; } catch { /* without storage the system decides */ }

let chordStart = 0;
addEventListener("keydown", (e) => {
  if (!app.in || e.isComposing) return;
  if ((e.ctrlKey || e.metaKey) && e.key === "k") { e.preventDefault(); return updateApp({ dialog: "palette" }); }
  if (e.ctrlKey || e.metaKey || e.altKey || app.dialog || e.target.matches?.("input, textarea, select")) return;
  if (e.repeat && e.key !== "j" && e.key !== "k") return; // a key held down must not decide about the next request too
  const { page, id } = app.route, key = e.key, after = chordStart && e.timeStamp - chordStart < 2000;
  chordStart = 0;
  if (after) { const p = PAGES.find((x) => x?.[3] === key); if (p) { e.preventDefault(); openPage(p[0]); } return; }
  if (key === "g") { chordStart = e.timeStamp; return; }
  if (key === "?") return updateApp({ dialog: "help" });
  if (key === "/") { const f = document.querySelector("input[type=search]"); if (f) { e.preventDefault(); f.focus(); f.select(); } return; }
  if (key === " " && !e.target.matches?.("button, a, summary, [role=row]")) { e.preventDefault(); return updateApp({ frozen: !app.frozen }); }
  if (key === "n") { const h = listWaiting()[0]; return h ? openPage("held", h.id) : openPage("alerts"); }
  if (key === "t" && page !== "apis") return switchTheme();
  if (page === "runs") {
    if (key === "j" || key === "k") return openNext(key === "j" ? 1 : -1);
    const run = id || runs.runs[0]?.run;
    if (run) handleKeyOnRun(key, run);
  }
  if (page === "held") handleKeyOnHeld(e);
  if (keyHandlers[page] && (key === "j" || key === "k" || (key === "t" && page === "apis"))) keyHandlers[page](key);
  if (page === "ledger" && key === "e") saveSums();
  if (page === "alerts" && key === "S") markSeen();
});
addEventListener("hashchange", () => { if (!location.hash.startsWith("#code=")) { updateApp({ route: parseRoute(location.hash) }); document.querySelector(".page")?.scrollTo(0, 0); } else openOrSignIn(); });

function Rail() {
  const { load, down } = app.versions, held = listWaiting().length, page = app.route.page;
  const badges = { held: held && html`<span class="badge hot" title=${held + " to decide"}>${held}</span>`, alerts: app.alertCount && html`<span class="badge" title="not seen yet">${app.alertCount > 99 ? "99+" : app.alertCount}</span>`, apis: app.problems && html`<span class="badge err" title=${formatCount(app.problems, "API") + " broken"}>${app.problems}</span>`, servers: down ? html`<span class="badge err" title=${formatCount(down, "server") + " down"}>${down}</span>` : 0 };
  return html`<nav class="rail" aria-label="Console"><a class="brand" href="#/runs"><${Mark} /><span>CodeForge</span><small class="num">${escapeNodes(app.about?.version ?? "")}</small></a>
    ${PAGES.map((p) => p === null ? html`<hr />` : html`<a class="nav" href=${makeAddress(p[0])} aria-current=${p[0] === page ? "page" : null} title=${p[1]}><${Icon} name=${p[2]} /><span class="lbl">${p[1]}</span>${badges[p[0]] || null}<span class="keys">g ${p[3]}</span></a>`)}
    <div class="foot"><div class="row"><span class=${"dot " + (app.frozen ? "held" : app.connected ? "pulse" : "bad")}></span><span class="lbl grow">${app.frozen ? "Frozen" : app.connected ? "Ready" : "Not connected"}${app.about ? " · " + app.about.mode : ""}</span><button type="button" class="btn quiet small" aria-label="Light or dark" title="Light or dark (t)" onClick=${switchTheme}><${Icon} name="sun" /></button></div>
      ${load.slots ? html`<div class="lbl"><div class="slots" role="img" aria-label=${`${load.busy} of ${load.slots} slots in use`}>${Array.from({ length: Math.min(load.slots, 24) }, (_, i) => html`<i class=${i < load.busy ? "on" : ""}></i>`)}</div><div class="faint num small load">${load.busy} of ${load.slots} slots · ${load.waiting ? formatCount(load.waiting, "run") + " waits" : "no run waits"}</div></div>` : null}</div></nav>`;
}

/** Welcome tells a person once in each browser which data CodeForge stores. */
function Welcome() {
  const kept = app.kept;
  if (!kept || app.welcomed || kept.mode !== "full") return null;
  const dismiss = () => { try { localStorage.setItem("codeforge-welcomed", "1"); } catch { /* without storage the text returns after a reload */ } updateApp({ welcomed: true }); };
  return html`<div class="toast welcome" role="status"><b>Stored data</b><p>CodeForge keeps the code and output of runs for ${kept.content_days} days, and their requests for ${kept.receipt_days} days, on this machine only. The proxy replaces each key in it with its name. <span class="mono">HISTORY=receipts</span> in .env keeps no code and no output.</p><div class="row"><button type="button" class="btn small" onClick=${dismiss}>Understood</button><a class="btn small quiet" href="#/settings" onClick=${dismiss}>Details</a></div></div>`;
}

function App() {
  useApp();
  useEffect(() => { const n = listWaiting().length, p = PAGES.find((x) => x?.[0] === app.route.page); document.title = (n ? `(${n}) ` : "") + (p ? p[1] + " · " : "") + "CodeForge"; });
  useEffect(() => { if (app.in) loadHeld(); }, [app.in, app.versions.held]);
  useEffect(() => { if (app.in) loadUnseenCount(); }, [app.in, app.alerts]);
  useEffect(() => { if (app.in) requestJSON("apis").then((d) => updateApp({ problems: new Set((d.problems ?? []).filter((p) => p.severity === "error").map((p) => p.api || p.file)).size }), () => {}); }, [app.in, app.versions.apis]);
  if (!app.in) return html`<${SignIn} key=${app.why} why=${app.why} entered=${openConsole} />`;
  const Page = PAGE_COMPONENTS[app.route.page] ?? Runs;
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.querySelector("#main .page, #main .scroll")?.focus(); }}>To the content</a><${Rail} /><${Page} key=${app.route.page} />
    ${app.dialog === "palette" && html`<${Palette} />`}${app.dialog === "help" && html`<${Help} />`}
    <div class="says" role="status">${app.toast && html`<div class="toast">${escapeNodes(app.toast)}</div>`}</div><${Welcome} />`;
}

function openConsole() {
  updateApp({ in: true, why: "", route: parseRoute(location.hash) });
  restartStream();
  requestJSON("status").then((about) => updateApp({ about }), () => {});
  requestJSON("kept").then((kept) => { let welcomed = false; try { welcomed = localStorage.getItem("codeforge-welcomed") === "1"; } catch { /* without storage each visit is the first */ } updateApp({ kept, welcomed }); }, () => {});
}
onSessionFound(() => { if (!app.in) openConsole(); });
onSessionEnd((why) => { updateApp({ in: false, why, connected: false }); restartStream(); });

async function openOrSignIn() {
  try { if (await startSession()) return app.in || openConsole(); updateApp({ in: false, why: "" }); } catch (e) { updateApp({ in: false, why: e.message }); }
}
const root = document.getElementById("app");
const first = openOrSignIn();
Promise.race([first, new Promise((done) => setTimeout(done, 200))]).then(() => { root.replaceChildren(); render(html`<${App} />`, root); });
