// The page of skills: their source, their versions, and the run that wrote each version.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { Card, Chip, CopyButton, Diff, Fact, Name, Note, Search, DataState } from "./parts.js";
import { formatAge, formatBytes, diffLines, formatTime, highlightText, escapeText, formatCount, escapeNodes } from "./text.js";
import { requestJSON } from "./session.js";
import { makeAddress, app, openPage, showToast, useData, useNow, useSeen } from "./state.js";
import { Icon } from "./draw.js";

let names = [];
export function handleKeyOnSkills(key) {
  const i = names.indexOf(app.route.id), to = names[Math.max(0, Math.min(names.length - 1, i + (key === "j" ? 1 : -1)))];
  if (to) openPage("skills", to, app.route.q, true);
}

function Source({ text, python }) {
  const pre = useRef(null), lines = text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
  useLayoutEffect(() => { highlightText(pre.current, "skill", null, python); return () => highlightText(null, "skill"); }, [text]);
  return html`<div class="code"><span class="ln" aria-hidden="true">${Array.from({ length: Math.min(lines, 20000) }, (_, i) => i + 1).join("\n")}</span><pre ref=${pre} tabindex="0" aria-label="Source">${escapeNodes(text)}</pre></div>`;
}

const ORIGINS = { run: "written in a run", tool: "update_skill", outside: "changed outside of runs", pin: "put back: it is pinned", console: "in the console" };
/** changeSkill sends a change of a skill, and shows the text said, or the error. */
async function changeSkill(method, path, said, body) {
  try { await requestJSON("skills/" + path, method, body); showToast(said); } catch (e) { showToast(e.message); }
}
function Version({ name, version, before }) {
  const buildPath = (n) => n ? `skills/${encodeURIComponent(name)}/versions/${n}` : "";
  const was = before && !before.deleted, a = useData(buildPath(was ? before.version : 0)), b = useData(version.deleted ? "" : buildPath(version.version));
  const old = was ? a.data?.source : "", now = version.deleted ? "" : b.data?.source;
  if (old === undefined || now === undefined) return html`<div class="pad"><${DataState} state=${a.error ? a : b} /></div>`;
  return html`<${Diff} label=${"Changes of version " + version.version} lines=${diffLines(old, now)} />`;
}

function Skill({ name, use, most, readOnly }) {
  const state = useData("skills/" + encodeURIComponent(name), app.versions.skills), d = state.data, [picked, setPicked] = useState(0), [sure, setSure] = useState(false), path = encodeURIComponent(name), now = useNow(30000), early = !useSeen(d?.sum ?? "");
  if (!d) return html`<div class="page"><${DataState} state=${state} /></div>`;
  const versions = d.versions ?? [], chosen = versions.find((v) => v.version === picked) ?? versions[0], before = chosen && versions.find((v) => v.version < chosen.version);
  const tokens = [...new Set(d.source.match(/\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b/g) ?? [])].slice(0, 12), hosts = [...new Set([...d.source.matchAll(/https?:\/\/([A-Za-z0-9.-]+)/g)].map((m) => m[1]))].slice(0, 12);
  const imports = [...new Set([...d.source.matchAll(/\/skills\/([\w-]+(?:\.py)?)(?:\.ts)?/g)].map((m) => m[1]))].filter((n) => n !== name);
  return html`<div class="page" tabindex="-1">
    <div class="row wrap"><a class="btn quiet small back" href=${makeAddress("skills", "", app.route.q)} aria-label="Back to the list">←</a><h2 class="mono grow title">${escapeNodes(name)}</h2>${d.deleted ? null : html`<${CopyButton} text=${d.source} what="the source" />${d.pinned ? html`<${Chip} cls="ok" icon="lock">pinned</${Chip}>` : null}${d.read_only ? null : html`
      <button type="button" class="btn" key=${d.sum} disabled=${early} onClick=${() => changeSkill(d.pinned ? "DELETE" : "POST", path + "/pin", d.pinned ? "Unpinned: code and tools may change it again." : "Pinned: runs import this source, even if code changes the file.", d.pinned ? undefined : { sum: d.sum })}><${Icon} name="lock" />${d.pinned ? "Unpin" : "Pin this version"}</button>
      ${sure ? html`<button type="button" class="btn no" onClick=${() => { setSure(false); changeSkill("DELETE", path, versions.length ? "Deleted. Its versions stay: each can be restored." : "Deleted."); }}>Yes, delete</button><button type="button" class="btn quiet" onClick=${() => setSure(false)}>Keep it</button>` : html`<button type="button" class="btn no" disabled=${d.pinned} onClick=${() => setSure(true)}>Delete</button>`}`}`}</div>
    <p class="soft">${d.deleted ? "It was deleted. Restore a version to get it back." : d.description ? escapeNodes(d.description) : "It has no description."}</p>
    <div class="m2"><div class="stack">
      ${chosen && html`<section class="card" aria-label="Changes"><header><h2 class="grow">${before ? `Version ${chosen.version} against ${before.version}` : `Version ${chosen.version}, the first`}</h2><span class="ok num">+${chosen.added}</span><span class="bad num">−${chosen.removed}</span></header><${Version} key=${chosen.version} name=${name} version=${chosen} before=${before} /></section>`}
      ${!d.deleted && html`<section class="card" aria-label="Source"><header><h2 class="grow">Source</h2><span class="faint small">a model wrote this: read it before you trust it</span></header><${Source} text=${d.source} python=${name.endsWith(".py")} /></section>`}</div>
      <div class="stack">
        <${Card} title="History">${versions.length ? html`<ol>${versions.map((v) => html`<li class="row version" key=${v.version} aria-current=${v === chosen ? "true" : null}><button type="button" class=${"chip " + (v === versions[0] ? "ok" : "")} onClick=${() => setPicked(v.version)} aria-pressed=${v === chosen ? "true" : "false"} aria-label=${"Show version " + v.version}>v${v.version}</button><div class="grow clip"><div class="clip">${v.run ? html`<a class="mono soft" href=${makeAddress("runs", v.run)}>${escapeNodes(v.run.slice(0, 9))}</a> ` : null}${escapeNodes(v.client || (v.run ? "" : ORIGINS[v.by] ?? v.by))}</div><div class="faint clip small">${v.deleted ? "deleted" : ORIGINS[v.by] ?? escapeNodes(v.by)} · ${formatAge(v.at, now)} ago</div></div><span class="soft num small">+${v.added} −${v.removed}</span>${v.deleted || d.read_only || (v === versions[0] && !d.deleted) ? null : html`<button type="button" class="btn quiet small" disabled=${d.pinned} aria-label=${"Restore version " + v.version} onClick=${() => changeSkill("POST", `${path}/versions/${v.version}/restore`, `Version ${v.version} is restored.`)}>Restore</button>`}</li>`)}</ol>` : html`<p class="pad faint">No change is recorded.</p>`}</${Card}>
        ${!d.deleted && html`<${Card} title="Names, hosts and imports"><div class="body"><dl class="facts"><${Fact} title="Names in it">${tokens.length ? tokens.map((n) => html`<${Name} name=${n} /> `) : html`<span class="faint">none</span>`}</${Fact}><${Fact} title="Hosts in it"><span class="mono wrapany">${hosts.length ? hosts.map((h) => html`${escapeNodes(h)}<br />`) : html`<span class="faint">none</span>`}</span></${Fact}><${Fact} title="Imports">${imports.length ? imports.map((n) => html`<a class="mono soft" href=${makeAddress("skills", n)}>${escapeNodes(n)}</a> `) : html`<span class="faint">no other skill</span>`}</${Fact}><${Fact} title="Used by">${use ? html`<a class="soft" href=${makeAddress("runs", "", "skill:" + name)}>${formatCount(use.runs, "run")}</a>${use.runs ? `, ${use.ok} of them fine` : ""}` : html`<span class="faint">not known</span>`}</${Fact}><${Fact} title="Size">${formatBytes(d.size)}, changed ${formatTime(d.modified, false)}</${Fact}></dl></div></${Card}>`}</div></div></div>`;
}

export function Skills() {
  const now = useNow(30000), state = useData("skills", app.versions.skills), d = state.data, { id, q } = app.route;
  const list = (d?.skills ?? []).filter((s) => !q || (s.name + " " + s.description).toLowerCase().includes(q.toLowerCase()));
  names = list.map((s) => s.name);
  const chosen = id || (innerWidth > 900 ? names[0] ?? "" : "");
  return html`<main id="main" class=${"split " + (id ? "one" : "many")}>
    <section class="pane" aria-label="Skills"><div class="head"><div class="row"><h1 class="grow">Skills</h1><span class="faint num small">${d ? `${d.count} of ${d.most}${d.read_only ? ", read-only" : ""}, last changed first` : ""}</span></div><${Search} label="Filter skills" value=${q} hint="Filter" on=${(v) => openPage("skills", id, v, true)} /></div>
      <div class="scroll"><ol>${list.map((s) => html`<li key=${s.name}><a class="run two" href=${makeAddress("skills", s.name, q)} aria-current=${s.name === chosen ? "true" : null}><span class="row"><b class="mono grow clip">${escapeNodes(s.name)}</b>${s.pinned ? html`<span class="ok" title="pinned"><${Icon} name="lock" /></span>` : null}${s.last?.version > 1 && !s.deleted ? html`<${Chip}>v${s.last.version}</${Chip}>` : null}<span class="d num">${s.deleted ? "deleted" : s.last ? formatAge(s.last.at, now) + " ago" : s.use?.runs ? formatCount(s.use.runs, "run") : s.use ? "unused" : ""}</span></span><span class="sub"><span class="clip">${s.last && !s.deleted ? html`<span class="num">+${s.last.added} −${s.last.removed}</span> ${escapeNodes(s.last.client || (ORIGINS[s.last.by] ?? s.last.by))} · ` : ""}${escapeNodes(s.description)}</span></span></a></li>`)}</ol>${!list.length && html`<div class="pad"><${DataState} state=${state} empty=${q ? "No skill matches." : "There is no skill yet."} /></div>`}</div></section>
    ${chosen ? html`<${Skill} key=${chosen} name=${chosen} use=${list.find((s) => s.name === chosen)?.use} />` : html`<div class="page"></div>`}
  </main>`;
}
