// The page of APIs, as the proxy has loaded them.
import { html, useEffect, useState } from "./preact.js";
import { Card, Chip, CopyButton, Name, Note, DataState } from "./parts.js";
import { formatDuration, escapeText, formatCount, escapeNodes, formatNumber } from "./text.js";
import { requestJSON } from "./session.js";
import { makeAddress, app, openPage, showToast, updateApp, useData, useNow } from "./state.js";
import { Icon, BarChart } from "./draw.js";

const KINDS = { ok: ["ok", "ok", "Active"], stale: ["clock", "held", "Stale"], warn: ["warn", "held", "Active, failing"], bad: ["no", "bad", "Closed"], off: ["stop", "faint", "Off"] };

/** buildEntries returns an entry for each loaded API, and for each API or file with a problem, sorted by name. An
 * entry has the problems, the state (kind), and the hourly traffic of the last 24 hours. */
function buildEntries(d, now) {
  const byName = new Map((d.apis ?? []).map((a) => [a.name, { ...a, problems: [] }]));
  for (const p of d.problems ?? []) {
    const k = p.api || p.file;
    if (!byName.has(k)) byName.set(k, { name: k, domains: [], credentials: [], active: false, broken: true, problems: [] });
    byName.get(k).problems.push(p);
  }
  for (const a of byName.values()) {
    a.calls = new Array(24).fill(0); a.wrong = new Array(24).fill(0);
    for (const h of d.hours ?? []) if (h.api === a.name) { const i = 23 - Math.min(23, Math.max(0, Math.floor((now - new Date(h.at)) / 3600e3))); a.calls[i] += h.requests - h.denied - h.failed; a.wrong[i] += h.denied + h.failed; }
    a.total = a.calls.reduce((x, y) => x + y, 0) + a.wrong.reduce((x, y) => x + y, 0);
    const failing = a.wrong.slice(-2).reduce((x, y) => x + y, 0) > Math.max(4, a.calls.slice(-2).reduce((x, y) => x + y, 0));
    a.kind = a.stale ? "stale" : a.broken || (!a.active && a.problems.some((p) => p.severity === "error")) ? "bad" : !a.active ? "off" : failing ? "warn" : "ok";
  }
  return [...byName.values()].sort((a, b) => a.name < b.name ? -1 : 1);
}

function Methods({ a }) {
  if (a.rules?.length) return html`<span class="meth">${a.rules.slice(0, 8).map((r) => html`<i class=${/approve/.test(r) ? "ask" : /refuse/.test(r) ? "no" : ""} title=${escapeText(r)}>${escapeNodes(r.length > 34 ? r.slice(0, 33) + "…" : r)}</i>`)}${a.rules.length > 8 ? html`<i class="plain">+${a.rules.length - 8}</i>` : null}</span>`;
  if (a.broken) return html`<span></span>`;
  const list = a.allowed_methods?.length ? a.allowed_methods.map((m) => [m, ""]) : [["any method", ""]];
  return html`<span class="meth">${[...list, ...(a.restricted_methods ?? []).map((m) => [m, "no"])].map(([m, cls]) => html`<i class=${cls} title=${cls ? "refused" : "passes"}>${escapeNodes(m)}</i>`)}</span>`;
}

function APIEntry({ a, chosen, tested, test }) {
  const [icon, cls, text] = KINDS[a.kind];
  return html`<article id=${"api-" + a.name} aria-label=${a.name} aria-current=${chosen ? "true" : null} class="one"><div class="api">
    <span class=${cls} title=${text}><${Icon} name=${icon} /></span>
    <div class="clip"><div class="row"><h3><a href=${makeAddress("apis", a.name)}>${escapeNodes(a.name)}</a></h3>${a.kind !== "ok" && html`<${Chip} cls=${cls === "faint" ? "" : cls}>${text}</${Chip}>`}${a.mcp && html`<${Chip}>MCP server</${Chip}>`}</div><div class="faint clip small" title=${escapeText(a.description)}>${a.description ? escapeNodes(a.description) : a.kind === "bad" ? "" : "no description: a model cannot tell its purpose"}</div></div>
    <div class="clip"><div class="mono clip" title=${escapeText(a.domains?.join("  "))}>${escapeNodes((a.domains ?? []).join("  "))}</div><div class="row wrap names">${(a.credentials ?? []).map((c) => html`<${Name} name=${c.name} /><span class="faint small">${escapeNodes(c.in.join(", "))}</span>`)}</div></div>
    <${Methods} a=${a} />
    <div><${BarChart} values=${a.calls} bad=${a.wrong} label=${`${a.total} requests in 24 hours`} /><div class="faint num small">${a.total ? formatNumber(a.total) + " in 24 h" : "not used in 24 h"}</div></div>
    <button type="button" class="btn small" disabled=${a.kind === "bad" || a.kind === "off"} onClick=${() => test(a.name)}><${Icon} name="bolt" />Test${chosen && html` <kbd>t</kbd>`}</button></div>
    ${a.problems.length || a.kind === "warn" || a.kind === "stale" ? html`<div class="stack under">
      ${a.kind === "stale" && html`<${Note} cls="held" icon="clock">config.json has a mistake: its last good version is in force.</${Note}>`}
      ${a.kind === "bad" && html`<${Note} cls="bad" icon="no">Closed: config.json has had a mistake since CodeForge started.</${Note}>`}
      ${a.kind === "warn" && html`<${Note} cls="held">${formatNumber(a.wrong.slice(-2).reduce((x, y) => x + y, 0))} of its last requests were refused or failed. <a class="soft" href=${makeAddress("runs", "", "api:" + a.name + " status:refused")}>Which runs</a></${Note}>`}
      ${a.problems.map((p) => html`<div class="frame" tabindex="0"><span class="soft">${escapeNodes(p.file)}: </span>${p.field && html`<span class="u">${escapeNodes(p.field)}</span>: `}${escapeNodes(p.text)}</div>`)}</div>` : null}
    ${tested && html`<div class="under"><${TestResult} result=${tested} /></div>`}</article>`;
}

function TestResult({ result }) {
  const hints = result.hints ?? [];
  const verdict = result.ok ? ["ok", "ok", "Works"] : result.unclear ? ["warn", "held", "Unclear"] : ["no", "bad", "Does not work"];
  return html`<section class="card" aria-label="Test"><header><h2 class="grow">Test</h2>${result.busy ? html`<span class="faint">…</span>` : html`<span class=${"status " + verdict[1]}><span class=${"row " + verdict[1]}><${Icon} name=${verdict[0]} />${verdict[2]}</span></span>`}</header>
    <div class="body">${result.text && html`<p>${escapeNodes(result.text)}</p>`}${hints.map((hint) => html`<p class="faint">${escapeNodes(hint)}</p>`)}</div></section>`;
}

const testResults = new Map();
export async function testAPI(name) {
  if (!name) return;
  testResults.set(name, { busy: true }); updateApp({});
  try { testResults.set(name, await requestJSON(`apis/${encodeURIComponent(name)}/test`, "POST")); } catch (e) { testResults.set(name, { ok: false, text: e.message }); }
  updateApp({});
}
let names = [];
export function handleKeyOnAPIs(key) {
  const i = names.indexOf(app.route.id);
  if (key === "t") return testAPI(app.route.id || names[0]);
  const to = names[Math.max(0, Math.min(names.length - 1, i + (key === "j" ? 1 : -1)))];
  if (to) { openPage("apis", to, "", true); document.getElementById("api-" + to)?.scrollIntoView({ block: "nearest" }); }
}

export function APIs() {
  const now = useNow(60000), state = useData("apis", app.versions.apis), d = state.data;
  const all = d ? buildEntries(d, now) : [], id = app.route.id;
  names = all.map((a) => a.name);
  useEffect(() => { if (d) updateApp({ problems: all.filter((a) => a.kind === "bad" || a.kind === "stale").length }); }, [d]);
  useEffect(() => { if (id && d) document.getElementById("api-" + id)?.scrollIntoView({ block: "nearest" }); }, [id, !!d]);
  const countKinds = (k) => all.filter((a) => k.includes(a.kind)).length;
  const parts = [countKinds(["ok", "warn"]) + " active", countKinds(["stale"]) && countKinds(["stale"]) + " stale", countKinds(["bad"]) && countKinds(["bad"]) + " closed", countKinds(["off"]) && countKinds(["off"]) + " off"].filter(Boolean);
  return html`<main id="main"><div class="page" tabindex="-1">
    <div class="row wrap"><h1 class="grow title">APIs</h1><span class="faint">as the proxy has loaded <span class="mono">apis/</span></span><${CopyButton} text="codeforge api add NAME" what="the command" label="codeforge api add NAME" /></div>
    ${!d ? html`<${DataState} state=${state} />` : html`<${Card} title=${parts.join(", ")} label="APIs" side=${html`<span class="faint small">keys are not here: only the proxy has them</span>`}>${all.length ? all.map((a) => html`<${APIEntry} key=${a.name} a=${a} chosen=${a.name === id} tested=${testResults.get(a.name)} test=${testAPI} />`) : html`<p class="pad faint">There is no API yet: codeforge api add NAME asks for all details.</p>`}</${Card}>`}
  </div></main>`;
}
