// The page of the ledger: the requests and bytes that left this machine.
import { html, useState } from "./preact.js";
import { Card, Chip, Name, Note, Search, Switch, Tile, DataState } from "./parts.js";
import { formatBytes, formatTime, escapeText, formatCount, escapeNodes, formatNumber } from "./text.js";
import { makeAddress, app, openPage, useData, useNow } from "./state.js";
import { Icon } from "./draw.js";

const COLOURS = ["var(--ember-solid)", "var(--live-solid)", "var(--ok-solid)", "var(--held-solid)", "var(--violet)", "var(--grey)"];
const TIMES = { "1h": 3600e3, "24h": 86400e3, "7d": 7 * 86400e3, "90d": 90 * 86400e3 };

/** Chart draws the bytes sent in each step of time, by API. A mark below a step stands for refused requests. step is in
 * ms; there are at most 120 steps. */
function Chart({ hours, since, until, step, apis }) {
  const n = Math.max(1, Math.min(120, Math.ceil((until - since) / step))), W = 1120, H = 128, w = W / n;
  const sums = Array.from({ length: n }, () => ({ by: new Map(), denied: 0 }));
  for (const h of hours) {
    const s = sums[Math.min(n - 1, Math.max(0, Math.floor((new Date(h.at) - since) / step)))];
    const k = apis.includes(h.api) ? h.api : "";
    s.by.set(k, (s.by.get(k) ?? 0) + h.bytes_up);
    s.denied += h.denied;
  }
  const top = Math.max(1, ...sums.map((s) => [...s.by.values()].reduce((a, b) => a + b, 0)));
  return html`<svg class="chart" viewBox=${`0 0 ${W} ${H}`} preserveAspectRatio="none" role="img" aria-label="Bytes that left in each step of time, by API, and refused requests">
    ${[0, 1, 2, 3, 4].map((i) => html`<rect x="0" y=${8 + i * 26} width=${W} height="1" fill="var(--line)" />`)}
    ${sums.map((s, i) => { let y = 112; return [...apis, ""].map((a, k) => { const v = s.by.get(a); if (!v) return null; const z = Math.max(1, v / top * 102); y -= z; return html`<rect x=${i * w + 1} y=${y} width=${Math.max(1, w - 2.5)} height=${Math.max(1, z - .8)} fill=${COLOURS[Math.min(k, 5)]} opacity=".9" />`; }).concat(s.denied ? html`<rect x=${i * w + 1} y="117" width=${Math.max(1, w - 2.5)} height="7" rx="1.5" fill="var(--bad-solid)" />` : null); })}</svg>`;
}

function Matrix({ cells }) {
  const names = [...new Set(cells.map((c) => c.name))].slice(0, 30), hosts = [...new Set(cells.map((c) => c.host))].slice(0, 12);
  const at = new Map(cells.map((c) => [c.name + "\n" + c.host, c]));
  return html`<div class="wide" tabindex="0"><table class="matrix"><caption class="sr">How often each name was turned into its key, by host</caption><thead><tr><th>Name</th>${hosts.map((h) => html`<th class="c mono">${escapeNodes(h)}</th>`)}</tr></thead>
    <tbody>${names.map((n) => html`<tr><th scope="row"><${Name} name=${n} /></th>${hosts.map((h) => { const c = at.get(n + "\n" + h); return html`<td class="c">${c?.swapped ? html`<span class="cell" style=${{ background: `color-mix(in oklab, var(--ember-solid) ${Math.round(14 + Math.log10(c.swapped) * 13)}%, transparent)` }} title=${c.scrubbed ? formatCount(c.scrubbed, "key") + " came back and became a name again" : null}>${formatNumber(c.swapped)}</span>` : html`<span class="cell none">–</span>`}</td>`; })}</tr>`)}</tbody></table></div>`;
}

const MOST = 1000; // entries; the history returns no more at once
const FIELD_FILTER = /^(host|run|name|api|outcome):(.+)$/;
function Entries({ version }) {
  const [q, setFilter] = useState(""), [most, setMost] = useState(100), params = new URLSearchParams();
  for (const word of q.split(/\s+/)) { const m = FIELD_FILTER.exec(word); if (m) params.set(m[1], m[2]); else if (word) params.set("host", word); }
  const list = useData("exchanges?" + params, version + most, 2000, "&limit=" + most);
  return html`<section class="card" aria-label="Entries"><header class="wrap"><h2>Entries</h2><${LedgerState} /><span class="grow"></span><div class="narrow"><${Search} label="Filter entries" value=${q} hint="host, or name:… run:… api:…" on=${setFilter} /></div></header>
    ${list.data?.exchanges?.length ? html`<div class="wide" tabindex="0"><table><thead><tr>${["Time", "Run", "Method", "Host and path", "Names turned into keys", "Sent", "Answer", "Outcome"].map((t, i) => html`<th class=${i === 5 ? "r" : ""}>${t}</th>`)}</tr></thead><tbody>
      ${list.data.exchanges.map((x) => html`<tr key=${x.number}><td class="num faint">${formatTime(x.at)}</td><td>${x.run && /^r/.test(x.run) ? html`<a class="mono soft" href=${makeAddress("runs", x.run)}>${escapeNodes(x.run.slice(0, 9))}</a>` : html`<span class="mono faint">${escapeNodes(x.run ?? "")}</span>`}</td><td class="mono">${escapeNodes(x.method)}</td><td class="path"><span class=${x.outcome === "denied" ? "bad" : ""}>${escapeNodes(x.host)}</span><span class="soft">${escapeNodes((x.url ?? "").replace(/^\w+:\/\/[^/]*/, ""))}</span></td><td>${(x.swapped ?? []).map((s) => html`<${Name} name=${s.name} /> `)}${x.unlisted ? html`<span class="faint">and ${formatNumber(x.unlisted)} more</span>` : null}</td><td class="r">${x.outcome === "denied" ? "0" : formatBytes(x.bytes_up)}</td><td class=${x.outcome === "served" && x.status < 400 ? "ok" : "bad"}>${x.outcome === "denied" ? "refused" : x.outcome === "served" ? x.status : x.outcome}</td><td>${x.sanitized ? html`<${Chip} cls="ok">${x.sanitized} scrubbed</${Chip}>` : null}${x.redacted ? html`<${Chip} cls="ok">${x.redacted} redacted</${Chip}>` : null}${x.code ? html`<${Chip} cls="bad">${escapeNodes(x.code)}</${Chip}>` : null}</td></tr>`)}</tbody></table></div>
      ${list.data.next ? html`<div class="body row wrap"><span class="faint">These are the latest ${formatNumber(list.data.exchanges.length)}.</span>${most < MOST ? html`<button type="button" class="btn small" onClick=${() => setMost(MOST)}>Older ones too</button>` : html`<span class="faint">Filter them, or read all of them: <span class="mono">codeforge audit show</span></span>`}</div>` : null}`
    : html`<div class="pad"><${DataState} state=${list} empty="No exchange matches." /></div>`}</section>`;
}

/** LedgerState shows whether the ledger is unbroken. The proxy reads it and compares it with the runs' checkpoints. */
function LedgerState() {
  const state = useData("ledger/check", useNow(60000)), d = state.data;
  if (!d || state.error) return html`<span class="faint small clip">${state.error ? escapeNodes(state.error) : "The ledger is being read…"}</span>`;
  const bad = d.findings.length > 0;
  return html`<span class=${"status " + (bad ? "bad" : "ok")}><span class=${"row " + (bad ? "bad" : "ok")}><${Icon} name=${bad ? "no" : "ok"} />${bad ? "Broken" : "Unbroken"}</span></span>
    <span class="faint clip num small" title="codeforge audit verify compares with more">${formatCount(d.records, "record")} chained by the proxy${d.head ? html`, head <span class="mono">${escapeNodes(d.head.split(" ")[1].slice(0, 12))}</span>` : ""}${d.compared ? `, matches ${formatCount(d.compared, "run")}` : ""}${d.lost ? `, ${formatNumber(d.lost)} lost` : ""}, checked ${formatTime(d.checked, false)}</span>
    ${bad && html`<${Note} cls="bad">${d.findings.map((f, i) => html`${i ? html`<br />` : null}${escapeNodes(f)}`)}</${Note}>`}`;
}

/** saveSums saves the sums of the page as a JSON file. The key e calls it, and Ledger sets it. */
export let saveSums = () => {};

export function Ledger() {
  const time = TIMES[app.route.q] ? app.route.q : "24h", version = useNow(10000);
  const l = useData("ledger?time=" + time, version, 5000), d = l.data;
  saveSums = () => {
    if (!d) return;
    const a = document.createElement("a");
    a.href = URL.createObjectURL(new Blob([JSON.stringify(d, null, 2)], { type: "application/json" }));
    a.download = `codeforge-ledger-${time}.json`;
    a.click();
    URL.revokeObjectURL(a.href);
  };
  const apis = d ? [...new Set((d.traffic ?? []).map((t) => t.api).filter(Boolean))].slice(0, 5) : [];
  const hosts = d ? new Set((d.traffic ?? []).filter((t) => t.requests > t.denied).map((t) => t.host)).size : 0;
  return html`<main id="main"><div class="page" tabindex="-1">
    <div class="row wrap"><h1 class="grow title">Sent from this machine</h1><${Switch} label="Time" value=${time} on=${(v) => openPage("ledger", "", v, true)} choices=${[["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"], ["90d", "90 d"]]} /><button type="button" class="btn" onClick=${() => saveSums()}><${Icon} name="out" />Export <kbd>e</kbd></button></div>
    ${!d ? html`<${DataState} state=${l} />` : html`
    <dl class="tiles">
      <${Tile} title="Requests" value=${formatNumber(d.requests)} sub="in ${formatCount(d.runs, "run")}" />
      <${Tile} title="To" value=${formatCount(hosts, "host")} sub=${formatCount(apis.length, "API")} />
      <${Tile} title="Sent" value=${formatBytes(d.bytes_up)} sub=${d.failed ? formatCount(d.failed, "request") + " failed" : "no request failed"} />
      <${Tile} title="Came back" value=${formatBytes(d.bytes_down)} sub="${formatBytes(d.shown)} reached a model" />
      <${Tile} title="Names swapped" value=${formatNumber(d.swapped)} sub="each for its own host" />
      <${Tile} title="Keys scrubbed" value=${formatNumber(d.sanitized)} sub="from answers" />
      <${Tile} title="Redacted" value=${formatNumber(d.redacted)} sub="words of yours" />
      <${Tile} title="Stopped" value=${formatNumber(d.denied)} sub="not sent" cls=${d.denied ? "bad" : ""} /></dl>
    <${Card} title="Sent, by API" side=${html`<div class="legend">${[...apis, ...((d.traffic ?? []).some((t) => !apis.includes(t.api)) ? ["others"] : [])].map((a, i) => html`<span><i style=${{ background: COLOURS[a === "others" ? 5 : i] }}></i>${escapeNodes(a)}</span>`)}<span><i class="k-den wideden"></i>refused</span></div>`}><div class="body"><${Chart} hours=${d.hours ?? []} since=${new Date(d.since)} until=${new Date(d.until)} step=${d.step_ms} apis=${apis} /><div class="row faint num small ends"><span>${formatTime(d.since, false)}</span><span>now</span></div></div></${Card}>
    <div class="m1">
      <${Card} title="Which key went to which host" side=${html`<span class="faint small">each key belongs to one API</span>`}>${d.matrix?.length ? html`<${Matrix} cells=${d.matrix} />` : html`<p class="pad faint">No name was turned into its key in this time.</p>`}</${Card}>
      <${Card} title="Carried from one API to another">${d.carried?.length ? html`<table><thead><tr><th>Read, then written</th><th class="r">Runs</th><th class="r">Written</th></tr></thead><tbody>${d.carried.map((c) => html`<tr><td><span class="row"><${Chip}>${escapeNodes(c.from)}</${Chip}><span class="faint"><${Icon} name="right" /></span><${Chip}>${escapeNodes(c.to)}</${Chip}></span></td><td class="r">${formatNumber(c.runs)}</td><td class="r soft">${formatBytes(c.bytes)}</td></tr>`)}</tbody></table>` : html`<p class="pad faint">No run read from one API and then wrote to another.</p>`}</${Card}></div>
    <${Entries} version=${version} />`}
  </div></main>`;
}
