// The page of settings: checks, stored data, sessions, and the values of .env.
import { html, useState } from "./preact.js";
import { Card, Chip, Command, Fact, Note, DataState } from "./parts.js";
import { formatAge, formatBytes, formatTime, escapeText, formatCount, escapeNodes, formatNumber } from "./text.js";
import { requestJSON, signOut } from "./session.js";
import { app, showToast, updateApp, useData, useNow } from "./state.js";
import { Icon } from "./draw.js";

const MEANINGS = {
  YOLO_MODE: "opens hosts that are in no API", DEBUG_MODE: "logs code and output", MCP_PORT: "of /mcp and of this page", MCP_ALLOWED_HOSTS: "names besides localhost", SANDBOX_SLOTS: "runs at the same time", SANDBOX_WARM: "interpreters kept warm", SANDBOX_MEMORY: "of one run", SANDBOX_SERVERS: "MCP servers at the same time", SANDBOX_SERVER_MEMORY: "of one MCP server",
  SKILLS_READONLY: "code cannot write skills", OUTPUT_LIMIT: "characters of output shown to the model", TIMEOUT_DEFAULT: "seconds a run may take", TIMEOUT_MAX: "seconds a run may ask for", ANSWER_AFTER: "seconds until a call answers; its run goes on", HISTORY: "full, receipts or off", LOG_FORMAT: "text or json", MCP_AUTH_TOKEN: "the token that clients send", REDACTING_STRINGS: "replaced in every request",
};
/** nameBrowser returns a short name for a User-Agent header, e.g. "Firefox on Linux". */
function nameBrowser(agent) {
  const name = /Edg\//.test(agent) ? "Edge" : /Firefox\//.test(agent) ? "Firefox" : /Chrom(e|ium)\//.test(agent) ? "Chrome" : /Safari\//.test(agent) ? "Safari" : "A browser";
  const on = /Windows/.test(agent) ? "Windows" : /Android/.test(agent) ? "Android" : /iPhone|iPad/.test(agent) ? "iOS" : /Mac OS/.test(agent) ? "macOS" : /Linux/.test(agent) ? "Linux" : "";
  return on ? name + " on " + on : name;
}

function StoredData() {
  const state = useData("kept", useNow(15000)), k = state.data;
  if (!k) return html`<div class="pad"><${DataState} state=${state} /></div>`;
  const used = k.content_bytes ? Math.min(1, k.content / k.content_bytes) : 0;
  return html`<div class="body stack">${k.problem && html`<${Note} cls="bad">${escapeNodes(k.problem)}</${Note}>`}
    ${k.mode === "full" ? html`<div class="slots" role="img" aria-label=${Math.round(used * 100) + " percent of the room for code and output is used"}>${Array.from({ length: 40 }, (_, i) => html`<i class=${i < Math.ceil(used * 40) ? "on" : ""}></i>`)}</div>` : null}
    <dl class="facts"><${Fact} title="Code and output">${k.mode === "full" ? `${formatBytes(k.content)} of at most ${formatBytes(k.content_bytes)}, for ${k.content_days} days` : "not kept"}</${Fact}><${Fact} title="Receipts">${k.mode === "off" ? "not kept" : `${formatCount(k.runs, "run")}, ${formatCount(k.exchanges, "request")}, for ${k.receipt_days} days`}</${Fact}>${k.path && html`<${Fact} title="Where"><span class="mono wrapany">${escapeNodes(k.path)}</span><span class="faint">, ${formatBytes(k.bytes)}, CodeForge’s alone (0600)</span></${Fact}>`}${k.dropped ? html`<${Fact} title="Lost"><span class="bad">${formatCount(k.dropped, "record")} since the start</span></${Fact}>` : null}</dl>
    <p class="faint">HISTORY=receipts in .env keeps no code and no output, HISTORY=off keeps no runs. The proxy replaces each key in it with its name.</p></div>`;
}

function Sessions() {
  const [n, redraw] = useState(0), state = useData("sessions", n), list = state.data ?? [];
  const endSession = async (s) => { if (s.this) return signOut(); try { await requestJSON("sessions/" + encodeURIComponent(s.id), "DELETE"); } catch (e) { showToast(e.message); } redraw(n + 1); };
  return html`<table><tbody>${list.map((s) => html`<tr key=${s.id}><td>${s.this ? html`<b>This browser</b>, ` : null}<span title=${escapeText(s.agent)}>${nameBrowser(s.agent)}</span></td><td class="faint">opened ${formatTime(s.opened, false)}</td><td class="faint num">until ${formatTime(s.until, false)}</td><td class="r"><button type="button" class="btn small" onClick=${() => endSession(s)}>${s.this ? "Sign out" : "End"}</button></td></tr>`)}</tbody></table>`;
}

/** HostedClients lists clients such as claude.ai. It draws no card if none has logged in. */
function HostedClients() {
  const [n, redraw] = useState(0), list = useData("clients", n).data ?? [], now = useNow(30000);
  const revoke = async (c) => { try { await requestJSON("clients/" + encodeURIComponent(c.id), "DELETE"); } catch (e) { showToast(e.message); } redraw(n + 1); };
  return list.length ? html`<${Card} title="Hosted clients" side=${html`<span class="faint small">each chose its own name</span>`}><table><tbody>${list.map((c) => html`<tr key=${c.id}><td><b class="wrapany">${escapeNodes(c.name)}</b></td><td class="mono wrapany">${escapeNodes(c.hosts.join(" "))}</td><td class="soft">${escapeNodes(c.tenant)}</td><td class="faint num">used ${formatAge(c.used, now)} ago</td><td class="r"><button type="button" class="btn small" aria-label=${"End the access of " + escapeText(c.name)} onClick=${() => revoke(c)}>End access</button></td></tr>`)}</tbody></table></${Card}>` : null;
}

export function Settings() {
  const [n, redraw] = useState(0), status = useData("status", n), s = status.data, settings = useData("settings"), now = useNow(30000);
  const checks = s?.checks ?? [], wrong = checks.filter((c) => !c.ok).length;
  return html`<main id="main"><div class="page" tabindex="-1">
    <div class="row"><h1 class="grow title">Settings and checks</h1><button type="button" class="btn" onClick=${() => redraw(n + 1)}><${Icon} name="again" />Look again</button></div>
    <div class="cols2">
      <div class="stack"><${Card} title="Checks" side=${s && html`<span class="faint num small">${checks.length - wrong} ok${wrong ? `, ${wrong} wrong` : ""}</span>`}>${s ? html`<table><tbody><tr><td class="ok iconcell"><${Icon} name="ok" /></td><td>codeforge</td><td class="soft">${escapeNodes(s.version)}, ${s.mode}, up ${formatAge(s.started, now)}</td></tr>${checks.map((c) => html`<tr key=${c.name}><td class=${(c.ok ? "ok" : "bad") + " iconcell"}><${Icon} name=${c.ok ? "ok" : "no"} /></td><td>${c.name}</td><td class=${(c.ok ? "soft" : "bad") + " wrapany"}>${escapeNodes(c.text)}</td></tr>`)}<tr><td class=${(app.problems ? "held" : "ok") + " iconcell"}><${Icon} name=${app.problems ? "warn" : "ok"} /></td><td>apis/</td><td class=${app.problems ? "held" : "soft"}>${app.problems ? html`<a class="soft" href="#/apis">${formatCount(app.problems, "API")} with mistakes</a>` : "no mistakes"}</td></tr></tbody></table><div class="under stack"><p class="faint">The machine itself (kernel, programs, permissions, hosts, attacks) is checked in a terminal:</p><${Command} text=${(s.mode === "docker" ? "docker compose exec mcp-server " : "") + "codeforge doctor"} /></div>` : html`<div class="pad"><${DataState} state=${status} /></div>`}</${Card}></div>
      <div class="stack"><${Card} title="Stored data"><${StoredData} /></${Card}>
        <${Card} title="Sessions"><${Sessions} /><div class="under"><${Note} cls="held" icon="touch">An agent that has a shell of yours could open this console too. Requests under rules with <span class="mono">"by": "operator"</span> cannot be decided here.</${Note}></div></${Card}><${HostedClients} /></div></div>
    <${Card} title="Settings" side=${html`<span class="faint small">change them in <span class="mono">.env</span>: the console never writes configuration</span>`}><table><tbody>${(settings.data ?? []).map((v) => html`<tr key=${v.name}><td class="mono">${v.name}</td><td><b class="wrapany">${v.value === "" ? html`<span class="faint">empty</span>` : escapeNodes(v.value)}</b></td><td><${Chip} cls=${v.default ? "" : "live"}>${v.default ? "default" : "set"}</${Chip}></td><td class="soft">${MEANINGS[v.name] ?? ""}</td></tr>`)}</tbody></table></${Card}>
  </div></main>`;
}
