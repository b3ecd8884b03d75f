// The page of MCP servers, which code calls through CodeForge.
import { html, useState } from "./preact.js";
import { Card, Chip, Command, Note, Tile, DataState } from "./parts.js";
import { formatTime, escapeText, formatCount, escapeNodes, formatNumber } from "./text.js";
import { requestJSON } from "./session.js";
import { makeAddress, app, openPage, showToast, useData } from "./state.js";

const STATES = { stopped: ["stop", "", "Starts when called"], starting: ["clock", "live", "Starting"], running: ["ok", "ok", "Running"], failing: ["warn", "bad", "Failing, paused for a while"], down: ["warn", "bad", "Down, tried when called"] };
const describeState = (s) => STATES[s.down && s.state === "stopped" ? "down" : s.state] ?? STATES.stopped;
const roundToTen = (n) => Math.round(n / 10) * 10;
const PERMISSIONS = { yes: ["ok", "yes"], held: ["held", "not until you accept it"], no: ["", "no"] };
const describeConfig = (c) => !c ? ["", ""] : c.url ? ["HTTP", c.url] : c.package ? ["package", c.package] : ["program", (c.command ?? []).join(" ")];

let names = [];
export function handleKeyOnServers(key) {
  const i = names.indexOf(app.route.id), to = names[Math.max(0, Math.min(names.length - 1, i + (key === "j" ? 1 : -1)))];
  if (to) openPage("servers", to, "", true);
}
async function restartServer(name) {
  try { await requestJSON(`servers/${encodeURIComponent(name)}/restart`, "POST"); showToast(name + " stops, and starts again with its next call."); } catch (e) { showToast(e.message); }
}

function Log({ name }) {
  const log = useData(`servers/${encodeURIComponent(name)}/log`, app.versions.servers);
  return html`<${Card} title=${"Log of " + escapeText(name) + ": output, starts and stops"}>${log.data?.length ? html`<ol class="out" tabindex="0" aria-label="Log">${log.data.map((l) => html`<li><span class="at">${formatTime(l.at)}</span><span class="tx">${escapeNodes(l.text)}</span></li>`)}</ol>` : html`<div class="pad"><${DataState} state=${log} empty="No lines yet." /></div>`}</${Card}>`;
}

function Tools({ name }) {
  const state = useData(`servers/${encodeURIComponent(name)}/tools`, app.versions.servers), list = state.data ?? [];
  return html`<${Card} title=${"Tools of " + escapeText(name)} side=${list[0] && html`<span class="faint small clip">as code calls them: <span class="mono">await mcp.${escapeNodes(name)}.${escapeNodes(list[0].name)}(…)</span></span>`}>${list.length ? html`<div class="wide" tabindex="0"><table><thead><tr>${["Tool", "Its own description", "Arguments", "May be called"].map((t) => html`<th>${t}</th>`)}</tr></thead><tbody>${list.map((t) => html`<tr key=${t.name}><td class="mono">${escapeNodes(t.name)}</td><td class="soft wrapany">${escapeNodes(t.description?.length > 200 ? t.description.slice(0, 199) + "…" : t.description ?? "")}</td><td class="mono small wrapany">${escapeNodes(t.arguments.join(" "))}</td><td><${Chip} cls=${PERMISSIONS[t.may]?.[0]}>${PERMISSIONS[t.may]?.[1] ?? escapeNodes(t.may)}</${Chip}></td></tr>`)}</tbody></table></div>` : html`<div class="pad"><${DataState} state=${state} empty="Not known yet: CodeForge asks the server with its first call." /></div>`}</${Card}>`;
}

export function Servers() {
  const state = useData("servers", app.versions.servers + app.versions.apis), d = state.data, id = app.route.id;
  const list = d?.states ?? [], configs = new Map((d?.configs ?? []).map((c) => [c.name, c.config]));
  names = list.map((s) => s.name);
  const known = list.filter((s) => s.tools !== undefined), held = list.filter((s) => s.held), failing = list.filter((x) => x.down), tokens = list.reduce((n, s) => n + (s.bytes ?? 0), 0) / 4;
  return html`<main id="main"><div class="page" tabindex="-1">
    <div class="row wrap"><h1 class="grow title">MCP servers behind CodeForge</h1><span class="faint">called from code, never listed to the model</span></div>
    ${!d ? html`<${DataState} state=${state} />` : html`
    <dl class="tiles"><${Tile} title="Servers" value=${list.length} sub=${failing.length ? failing.length + " down" : "all up"} cls=${failing.length ? "bad" : ""} /><${Tile} title="Tools" value=${known.reduce((n, s) => n + s.tools, 0)} sub=${known.length < list.length ? formatCount(list.length - known.length, "server") + " not asked yet" : "callable from code"} /><${Tile} title="The model pays" value="0 tokens" sub=${tokens ? "about " + formatNumber(roundToTen(tokens)) + " if it saw them" : "for their descriptions"} cls="ok" /><${Tile} title="Processes" value=${list.reduce((n, s) => n + s.processes, 0)} sub="${formatCount(list.reduce((n, s) => n + s.calls, 0), "call")} in flight" /><${Tile} title="Tools held back" value=${held.reduce((n, s) => n + s.held, 0)} sub="new or changed" cls=${held.length ? "held" : ""} /></dl>
    <${Card} title="Servers">${list.length ? html`<div class="wide" tabindex="0"><table><thead><tr>${["State", "Name", "Reached by", "Tools", "Kept from the model", "Processes", "Calls now", ""].map((t, i) => html`<th class=${i > 2 ? "r" : ""}>${t || html`<span class="sr">Action</span>`}</th>`)}</tr></thead><tbody>${list.map((s) => { const [icon, cls, text] = describeState(s), [how, where] = describeConfig(configs.get(s.name)); return html`<tr key=${s.name} aria-current=${s.name === id ? "true" : null}><td><${Chip} cls=${cls} icon=${icon}>${text}</${Chip}></td><td><a class="soft" href=${makeAddress("servers", s.name)}><b>${escapeNodes(s.name)}</b></a></td><td class="path"><${Chip}>${how}</${Chip}> <span class="mono soft">${escapeNodes(where)}</span></td><td class="r">${s.tools ?? "not asked"}</td><td class="r soft">${s.bytes ? "about " + formatNumber(roundToTen(s.bytes / 4)) + " tokens" : "–"}</td><td class="r">${s.processes}</td><td class="r">${s.calls}</td><td class="r"><button type="button" class="btn small" onClick=${() => restartServer(s.name)}>Restart</button></td></tr>`; })}</tbody></table></div>
      <div class="under stack">${list.filter((s) => s.problem).map((s) => html`<${Note} cls=${s.down ? "bad" : "held"}><b>${escapeNodes(s.name)}</b>: ${escapeNodes(s.problem)}${s.state === "failing" ? " During the pause, code gets an error at once. Then CodeForge lets one call through as a test." : s.down ? " Its next call starts it again." : ""}</${Note}>`)}
      ${held.map((s) => html`<${Note} cls="held" icon="lock"><b>${escapeNodes(s.name)}</b>: ${formatCount(s.held, "tool")} ${s.held === 1 ? "is" : "are"} not as you accepted ${s.held === 1 ? "it" : "them"}, and not called until you have seen the difference.</${Note}><${Command} text=${"codeforge mcp approve " + escapeText(s.name)} />`)}</div>` : html`<p class="pad faint">There is no MCP server yet. codeforge mcp add NAME adds one; codeforge mcp import takes over existing ones.</p>`}</${Card}>
    ${id && names.includes(id) ? html`<${Tools} key=${"tools " + id} name=${id} /><${Log} key=${id} name=${id} />` : list.length ? html`<p class="faint">Choose one to see its tools and output.</p>` : null}`}
  </div></main>`;
}
