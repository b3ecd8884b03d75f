// The page of one run: its requests with hosts and token names, the reasons of refusals, its code and its output.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { Card, Chip, CopyButton, Fact, Kbd, Name, Note, Tile, DataState } from "./parts.js";
import { formatAge, formatBytes, formatTime, formatDuration, highlightText, escapeText, formatCount, escapeNodes, formatNumber } from "./text.js";
import { requestJSON, sendRequest } from "./session.js";
import { makeAddress, app, copyText, openPage, isSeen, showToast, updateApp, useData, useNow, useSeen, watchRun } from "./state.js";
import { Icon } from "./draw.js";
import { Status, isActive } from "./status.js";

// STEPS are the steps of a request in the proxy. STOPS maps the code of a refusal to the index of its step.
const STEPS = ["slot", "host", "reading", "policy", "redact", "swap", "send", "scrub"];
const STOPS = {
  run_ended: 0, host_unknown: 1, host_mismatch: 1, host_invalid: 1, port_unknown: 1, host_of_server: 1, host_not_servers: 1, host_not_registry: 1, redacted_host: 1, plain_http: 1,
  bad_request: 2, ambiguous_request: 2, request_body_unreadable: 2, upgrade_refused: 2, method_unknown: 2, override_unseen: 2,
  api_inactive: 3, api_not_in_run: 3, method_restricted: 3, method_refused: 3, rule_refused: 3, rule_unreadable: 3, operation_unknown: 3, limit_reached: 3, approval_denied: 3, approval_timeout: 3, approval_stale: 3, approval_unreadable: 3,
  credential_in_request: 5, token_unavailable: 5, secret_unavailable: 5, login_needed: 5, not_signable: 5, private_elsewhere: 5,
  upstream_encoding: 7, upstream_charset: 7, upstream_compressed: 7,
};
const findStop = (x) => x.outcome === "served" ? 8 : x.outcome === "planned" ? 6 : STOPS[x.code] ?? (x.outcome === "denied" ? 3 : 6);

// getPath returns the path and query of a request. Without the scheme, an address begins with the host.
const getPath = (x) => { const rest = (x.url ?? "").replace(/^\w+:\/\//, ""), i = rest.indexOf("/"); return i < 0 ? "" : rest.slice(i); };

/** buildRows returns the rows of the waterfall. Equal served exchanges that follow each other share a row, unless open
 * has the number of the first. Times are in ms after the start of the run. */
function buildRows(run, exchanges, held, open, now) {
  const began = new Date(run.began).getTime(), rows = [];
  exchanges.forEach((x, i) => {
    const a = Math.max(0, new Date(x.at) - began), one = { x, n: i + 1, a, b: a + (x.ms ?? 0), more: [] };
    const last = rows[rows.length - 1], k = [x.method, x.url, x.status, x.outcome, x.code, (x.swapped ?? []).map((s) => s.name)].join("\n");
    if (last && last.k === k && x.outcome === "served" && !open.has(last.n)) { last.more.push(one); last.b = Math.max(last.b, one.b); last.a = Math.min(last.a, one.a); }
    else rows.push({ ...one, k });
  });
  for (const h of held) {
    const url = new URL(h.url.replace(/^(\w+:\/\/)?/, (s) => s || "https://"), location.href);
    const a = Math.max(0, new Date(h.since) - began);
    rows.push({ n: rows.length + 1, a, b: Math.max(a, now - began), held: h, more: [], x: { at: h.since, ms: Math.max(0, now - new Date(h.since)), method: h.method, url: h.url, host: url.host, outcome: "held", swapped: [], bytes_up: (h.body ?? "").length } });
  }
  return rows;
}

/** makeScale maps milliseconds to percent of the width. The longest idle time takes 12 percent and has a break (gap),
 * if it exceeds 2 s and 45 percent of the total. */
function makeScale(total, busy) {
  const times = busy.flat().concat(0, total).sort((a, b) => a - b), isCovered = (a, b) => busy.some(([x, y]) => x < b && y > a);
  let gap = null;
  for (let i = 1; i < times.length; i++) {
    const a = times[i - 1], b = times[i];
    if (b - a > (gap ? gap[1] - gap[0] : Math.max(2000, total * .45)) && !isCovered(a, b)) gap = [a, b];
  }
  if (!gap) return { at: (t) => Math.min(100, t / total * 100), gap: null };
  const [a, b] = gap, rest = total - (b - a), wide = 88 / rest, left = a * wide;
  return { gap, at: (t) => Math.min(100, t <= a ? t * wide : t >= b ? left + 12 + (t - b) * wide : left + 12 * (t - a) / (b - a)) };
}
function placeTicks(total, scale) {
  const shownTime = scale.gap ? total - (scale.gap[1] - scale.gap[0]) : total;
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 120000].find((s) => shownTime / s <= 4) ?? 300000;
  const out = [];
  for (let t = 0; out.length < 12 && scale.at(t) < 86; t += step) { // at most 12 ticks, even if the times are wrong
    if (scale.gap && t > scale.gap[0] && t < scale.gap[1]) t = Math.ceil(scale.gap[1] / step) * step;
    if (scale.at(t) < 86) out.push(t);
  }
  return out;
}

const Bar = ({ cls, from, to, title }) => html`<i class=${cls} title=${title} style=${{ left: from + "%", width: Math.max(0, to - from) + "%" }}></i>`;
function Lane({ row, scale }) {
  const { x } = row, a = scale.at(row.a), b = scale.at(row.b);
  if (row.held) return html`<div class="lane"><${Bar} cls="hol" from=${a} to=${b} /><span class=${"at held" + (a > 40 ? " left" : " inside")} style=${{ left: a + "%" }}>held ${formatDuration(row.b - row.a)}</span></div>`;
  if (x.outcome === "denied") return html`<div class="lane"><${Bar} cls="den" from=${a} to=${a} /><span class=${"at" + (a > 60 ? " left" : "")} style=${{ left: a + "%" }}>refused, not sent</span></div>`;
  if (x.outcome === "planned") return html`<div class="lane"><${Bar} cls="hol" from=${a} to=${a} /><span class=${"at held" + (a > 60 ? " left" : "")} style=${{ left: a + "%" }}>planned, not sent</span></div>`;
  const right = b > 66;
  return html`<div class="lane">${[row, ...row.more].map((r) => html`<${Bar} cls=${x.outcome === "served" && (x.status ?? 0) < 400 ? "rec" : "err"} from=${scale.at(r.a)} to=${scale.at(r.b)} />`)}<span class=${"at" + (right ? " left" : "")} style=${{ left: (right ? a : b) + "%" }}>${formatDuration(row.b - row.a)}</span></div>`;
}

function Waterfall({ run, detail, rows, total, chosen, choose, open }) {
  const prints = [...(detail.output?.head ?? []), ...(detail.output?.tail ?? [])];
  const scale = useMemo(() => makeScale(total, rows.filter((r) => !r.held || rows.length === 1).flatMap((r) => [r, ...r.more].map((o) => [o.a, o.b])).concat(prints.map((p) => [p.ms, p.ms]))), [rows, total]);
  const [all, showAll] = useState(false), some = all ? rows : rows.slice(0, 120);
  return html`<div class="wf" role="table" aria-label="Requests of this run">
    <div class="wr hd" role="row"><span class="no" role="columnheader">#</span><span class="mth" role="columnheader">Method</span><span role="columnheader">Address, as the code wrote it</span><span role="columnheader">Status</span><span class="nm" role="columnheader">Name swapped</span><span class="sz" role="columnheader">Size</span>
      <div class="axis" role="columnheader" aria-label="Time">${placeTicks(total, scale).map((t) => html`<span style=${{ left: scale.at(t) + "%" }}>${t ? formatDuration(t) : "0"}</span>`)}${scale.gap && html`<i class="brk" style=${{ left: (scale.at(scale.gap[0]) + scale.at(scale.gap[1])) / 2 + "%" }}></i>`}<span class="end">${formatDuration(total)}</span></div></div>
    <div class="wr hd" role="row"><span role="cell"></span><span class="mth" role="cell"></span><span class="faint clip" role="cell">the code itself: ${isActive(run) ? "running" : html`${formatDuration(run.cpu_ms)} of processor, ${formatBytes(run.max_rss)} of memory`}</span><span role="cell"></span><span class="nm" role="cell"></span><span role="cell" class="sz"></span><div class="lane" role="cell"><${Bar} cls="run" from=${0} to=${scale.at(total)} />${prints.slice(0, 200).map((p) => html`<i class="prt" title="printed" style=${{ left: scale.at(p.ms) + "%" }}></i>`)}</div></div>
    ${some.map((r) => html`<div class="wr" role="row" tabindex="0" key=${r.n} aria-selected=${r.n === chosen ? "true" : "false"} onClick=${() => choose(r.n)} onKeyDown=${(e) => { if (e.key === "Enter") choose(r.n); }}>
      <span class="no" role="cell">${r.n}</span><span class="mono mth clip" role="cell">${escapeNodes(r.x.method)}</span>
      <span class="clip" role="cell" title=${escapeText(r.x.url)}>${r.more.length ? html`<button type="button" class="chip times" title="Show each" onClick=${(e) => { e.stopPropagation(); open(r.n); }}>×${r.more.length + 1}</button>` : null}<span class=${r.x.outcome === "denied" ? "bad" : "soft"}>${escapeNodes(r.x.host)}</span><span>${escapeNodes(getPath(r.x))}</span></span>
      <span role="cell">${r.held || r.x.outcome === "planned" ? html`<span class="held">${r.held ? "held" : "planned"}</span>` : html`<span class=${r.x.outcome === "served" && r.x.status < 400 ? "ok" : "bad"}>${r.x.status || "none"}</span>`}</span>
      <span class="nm clip" role="cell">${(r.x.swapped ?? []).map((s) => html`<${Name} name=${s.name} />`)}${!r.x.swapped?.length && html`<span class="faint">none</span>`}</span>
      <span class="sz" role="cell">${r.held ? formatBytes(r.x.bytes_up) + " ↑" : r.x.outcome === "denied" ? "0" : formatBytes([r, ...r.more].reduce((n, o) => n + (o.x.bytes_down ?? 0), 0))}</span>
      <div role="cell" class="grow lanecell"><${Lane} row=${r} scale=${scale} /></div></div>`)}
    ${some.length < rows.length && html`<button type="button" class="btn quiet small more" onClick=${() => showAll(true)}>Show all ${formatNumber(rows.length)} requests</button>`}
    ${run.omitted ? html`<p class="faint pad">${formatCount(run.omitted, "more request")} counted, but not stored.</p>` : null}
  </div>`;
}

/** RequestSteps shows how far one request got in the proxy, and the remedy if it was refused or failed. */
function RequestSteps({ row, hints, lines }) {
  const { x } = row, planned = x.outcome === "planned", wait = row.held || planned, stop = row.held ? 3 : findStop(x), bad = stop < 8 && !planned;
  const hint = hints.find((h) => h.code === x.code && (!h.host || h.host === x.host)) ?? hints.find((h) => h.code && h.code === x.code);
  const command = hint?.code === "host_unknown" && /codeforge api add \S+ --domain \S+$/.exec(hint.person || hint.text)?.[0]; // the host is not a look-alike
  return html`<div class="why" role="region" aria-label="The chosen request">
    <div><div class="row whyhead"><h2>${row.n} · ${row.held ? "Waits for you" : planned ? `Step ${x.step} of a plan` : x.outcome === "denied" ? "Why it was refused" : bad ? "Why it failed" : "How it was handled"}</h2>${x.code && html`<${Chip} cls="bad">${escapeNodes(x.code)}</${Chip}>`}</div>
      <ol class="steps">${STEPS.map((t, i) => html`<li class=${i < stop ? "ok" : i === stop ? (wait ? "held" : "bad") : "faint"}>${i <= stop && html`<${Icon} name=${i < stop ? "ok" : wait ? "held" : "no"} />`}<span class=${i < stop ? "soft" : ""}>${t}</span></li>`)}</ol>
      <div class="frame request"><span class="soft">${escapeNodes(x.method)} </span>${escapeNodes(x.host)}${escapeNodes(getPath(x))}${(x.swapped ?? []).map((s) => html`${"\n"}<span class="soft">${escapeNodes(s.in)}: </span><${Name} name=${s.name} /><span class="faint">  became its key in the proxy</span>`)}${x.outcome === "denied" && html`${"\n"}<span class="faint">not sent: every name stayed a name</span>`}</div></div>
    <div><h2>${bad || wait ? "Remedy" : "Result"}</h2>
      ${hint ? html`<p>${escapeNodes(hint.person || hint.text)}</p>` : row.held ? html`<p>It is sent as soon as you approve. <a class="soft" href=${makeAddress("held", row.held.id)}>Look at it</a></p>` : planned ? html`<p>A dry run recorded it and did not send it. <a class="soft" href=${makeAddress("held", x.plan)}>Look at the plan</a></p>` : bad ? html`<p>${x.outcome === "denied" ? "The code got the same text." : "The answer did not arrive whole."}</p>` : null}
      <p class="faint">${formatTime(x.at)}, ${formatDuration((x.ms ?? 0) - (x.held_ms ?? 0))}${x.held_ms >= 1 ? ` after ${formatDuration(x.held_ms)} of waiting for approval` : ""}, ${formatBytes(x.bytes_up)} out, ${formatBytes(x.bytes_down)} in${x.sanitized ? ", " + formatCount(x.sanitized, "key") + " in the answer turned back into names" : ""}${x.redacted ? ", " + formatCount(x.redacted, "word") + " of yours redacted" : ""}${x.among > 1 ? `, one of ${x.among} calls` : ""}.</p>
      <div class="row wrap">${lines.length ? html`<button type="button" class="btn small" onClick=${() => showLine(lines[0])}>Show line ${lines[0]}</button>` : null}${(x.apis ?? []).map((a) => html`<a class="btn small" href=${makeAddress("apis", a)}>API ${escapeNodes(a)}</a>`)}${command && html`<${CopyButton} text=${command} what="the command" label=${command} />`}</div>
      ${(x.caused ?? []).length ? html`<p class="faint">The MCP server then sent: ${x.caused.slice(0, 6).map((c) => html`<br />${escapeNodes(c.method)} ${escapeNodes(c.host)}${escapeNodes(getPath(c))} ${c.status}`)}</p>` : null}</div></div>`;
}
function showLine(n) { const box = document.querySelector(".code"); if (box) { box.scrollIntoView({ block: "nearest" }); box.scrollTop = (n - 3) * 20; } }

/** Flow draws the token names and the hosts they went to, and the requests that the proxy stopped. It draws at most 8
 * pairs. */
function Flow({ rows }) {
  const holder = useRef(null), [wide, setWide] = useState(760);
  useEffect(() => { const measureHolder = () => holder.current && setWide(Math.max(520, holder.current.clientWidth)); const o = new ResizeObserver(measureHolder); o.observe(holder.current); measureHolder(); return () => o.disconnect(); }, []);
  const pairs = new Map();
  for (const r of rows) for (const o of [r, ...r.more]) {
    const names = (o.x.swapped ?? []).map((s) => s.name), state = r.held || o.x.outcome === "planned" ? "held" : o.x.outcome === "denied" ? "denied" : "sent";
    for (const name of names.length ? new Set(names) : [""]) {
      const k = [name, o.x.host, state].join("\n"), p = pairs.get(k) ?? { name, host: o.x.host, state, n: 0, up: 0, down: 0, back: 0 };
      p.n++; p.up += o.x.bytes_up ?? 0; p.down += o.x.bytes_down ?? 0; p.back += o.x.sanitized ?? 0;
      pairs.set(k, p);
    }
  }
  const all = [...pairs.values()].sort((a, b) => (a.state === "denied") - (b.state === "denied") || b.n - a.n), list = all.slice(0, 8);
  const W = wide, gap = 38, H = Math.max(76, list.length * gap + 16), wall = Math.round(W * .45), L = Math.min(212, W * .27), R = W - Math.min(226, W * .3), B = Math.min(60, W * .07);
  const drawLine = (a, y, b) => `M${a} ${y} L${b} ${y}`, back = list.reduce((n, p) => n + p.back, 0);
  const shorten = (t, n) => { t = escapeText(t); return t.length > n ? t.slice(0, n - 1) + "…" : t; };
  const describePair = (p) => `${p.name || "no name"} ${p.n} times to ${p.host}${p.state === "denied" ? ", stopped" : p.state === "held" ? ", held" : ""}${p.back ? `, ${p.back} keys turned back` : ""}`;
  return html`<div ref=${holder} class="flowbox"><svg class="flow" viewBox=${`0 0 ${W} ${H}`} height=${H} role="img" aria-label=${"Names and where their keys went: " + escapeText(list.map(describePair).join("; "))}>
    <rect class="wall" x=${wall - B} y="4" width=${2 * B} height=${H - 8} rx="8" />
    ${list.map((p, i) => {
      const y = 24 + i * gap, cls = "band" + (p.state === "denied" ? " den" : p.state === "held" ? " hold" : p.name ? "" : " plain"), w = p.state === "denied" ? 2 : Math.min(15, 3 + Math.log2(p.n) * 2.4);
      return html`<path class=${cls} stroke-width=${w} d=${drawLine(L, y, wall - B)} />${p.state !== "denied" && html`<path class=${cls} stroke-width=${w} stroke-dasharray=${p.state === "held" ? "6 5" : null} d=${drawLine(wall + B, y, R)} />`}${p.back ? html`<path class="back" d=${drawLine(L, y + 11, wall - B)} /><path class="back" d=${drawLine(wall + B, y + 11, R)} />` : null}
        ${p.state === "denied" && html`<path class="cross" d=${`M${wall - 5} ${y - 5}l10 10m0-10l-10 10`} />`}
        ${p.name ? html`<rect class="boxt" x="1" y=${y - 11} width=${L - 6} height="22" rx="5" /><text class="tn" x="9" y=${y + 4}>${shorten(p.name, Math.floor((L - 44) / 6.7))}</text>${p.n > 1 && html`<text class="small" x=${L - 12} y=${y + 4} text-anchor="end">×${p.n}</text>`}` : html`<text class="small" x="9" y=${y + 4}>no name in it</text>`}
        <text class="hn" x=${R + 8} y=${y - 1}>${shorten(p.host, 30)}</text><text class="small" x=${R + 8} y=${y + 13}>${p.state === "denied" ? "stopped here, not sent" : p.state === "held" ? `held: ${formatBytes(p.up)} not sent yet` : `${formatCount(p.n, "request")} · ${formatBytes(p.up)} out, ${formatBytes(p.down)} in`}</text>`;
    })}
    ${list.length && list[0].state !== "denied" ? html`<text x=${wall} y=${24 - 2} text-anchor="middle">the proxy puts</text><text x=${wall} y=${24 + 13} text-anchor="middle">the keys in</text>` : null}
  </svg>${back ? html`<p class="faint">${back === 1 ? "A key in an answer was turned back into its name" : formatCount(back, "key") + " in answers were turned back into names"} before the code saw it.</p>` : null}${all.length > list.length ? html`<p class="faint">${formatCount(all.length - list.length, "more pair")} of name and host, below.</p>` : null}</div>`;
}

const joinText = (t) => (t?.head ?? "") + (t?.omitted ? `\n… ${formatNumber(t.omitted)} bytes are not kept …\n` : "") + (t?.tail ?? "");

/** Code shows the run's code. A mark beside a line selects its request. */
function Code({ run, code, marks, names }) {
  const pre = useRef(null), text = joinText(code), lines = text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
  useLayoutEffect(() => { highlightText(pre.current, "code", names.size ? names : null, run.language === "python"); return () => highlightText(null, "code"); }, [text, names]);
  return html`<div class="code"><span class="ln" aria-hidden="true">${Array.from({ length: Math.min(lines, 20000) }, (_, i) => i + 1).join("\n")}</span><pre ref=${pre} tabindex="0" aria-label="Code of the run">${escapeNodes(text)}</pre>${marks.map(([line, cls, n, choose]) => html`<span class="mk" style=${{ top: 8 + (line - 1) * 20 + "px" }}><button type="button" class=${cls} title=${`line ${line}: show its request`} aria-label=${`Line ${line}: show its request`} onClick=${choose}></button></span>`)}</div>`;
}

function Output({ output }) {
  const renderLine = (p) => html`<li class=${p.err ? "e" : ""}><span class="at">${formatDuration(p.ms)}</span><span class="tx">${escapeNodes(p.text.replace(/\r?\n$/, ""))}</span></li>`;
  const { head = [], omitted, tail = [] } = output ?? {};
  if (!head.length && !tail.length) return html`<p class="faint pad">No output.</p>`;
  return html`<ol class="out" tabindex="0" aria-label="Output">${head.slice(0, 2000).map(renderLine)}${omitted ? html`<li class="cut">${formatNumber(omitted)} bytes are not kept</li>` : null}${tail.slice(-2000).map(renderLine)}</ol>`;
}

const PICTURE = /^image\/(png|jpeg|webp|gif)$/;
/** Files lists the files that code left in /out or showed. Only pictures keep their type, so a browser opens none as a
 * page. */
function Files({ id, list }) {
  const [seen, setSeen] = useState({});
  useEffect(() => () => Object.values(seen).forEach((u) => URL.revokeObjectURL(u)), [seen]);
  const loadFile = async (f, use) => {
    try {
      const r = await sendRequest(`runs/${encodeURIComponent(id)}/files/${encodeURIComponent(f.name)}`);
      if (!r.ok) throw new Error("The file could not be fetched.");
      use(URL.createObjectURL(new Blob([await r.arrayBuffer()], { type: PICTURE.test(f.type) ? f.type : "application/octet-stream" })));
    } catch (e) { showToast(e.message); }
  };
  const saveFile = (f) => loadFile(f, (url) => { const a = document.createElement("a"); a.href = url; a.download = f.name; a.click(); setTimeout(() => URL.revokeObjectURL(url), 60000); });
  return html`<section class="card" id="files" aria-label="Files"><header><h2 class="grow">Files</h2></header><ul class="files">${list.map((f) => html`<li key=${f.name}>
    <div class="row wrap"><span class="mono clip">${escapeNodes(f.name)}</span><span class="faint grow">${escapeNodes(f.type)}, ${formatBytes(f.size)}</span>
      ${PICTURE.test(f.type) && !seen[f.name] ? html`<button type="button" class="btn quiet small" onClick=${() => loadFile(f, (url) => setSeen({ [f.name]: url }))}>Show</button>` : null}<button type="button" class="btn small" onClick=${() => saveFile(f)}>Download</button></div>
    ${seen[f.name] ? html`<img src=${seen[f.name]} alt=${escapeText(f.name)} />` : null}</li>`)}</ul></section>`;
}

/** findLines returns the numbers of the lines that name a request's host. If some of the lines also have words of its
 * path, it returns those with the most words. */
function findLines(code, x) {
  const lines = code.split("\n"), first = getPath(x).split(/[/?]/).filter((s) => s.length > 2 && /^[a-z_-]+$/i.test(s)), out = [];
  lines.forEach((l, i) => { if (x.host && l.includes(x.host)) out.push([i + 1, first.filter((s) => l.includes(s)).length]); });
  const best = Math.max(0, ...out.map((o) => o[1]));
  return out.filter((o) => o[1] === best).map((o) => o[0]);
}

/** useRun loads a run. While the run is active, it loads only new requests and adds them to the known ones. */
function useRun(id) {
  const known = useRef({ list: [], after: 0 }), k = known.current;
  const state = useData("runs/" + encodeURIComponent(id), app.touched, 400, k.after ? "?after=" + k.after : ""), d = state.data;
  if (d && k.answer !== d) {
    const news = d.exchanges ?? [], live = isActive(d) && k.after > 0, had = new Set(live ? k.list.map((x) => x.number) : []);
    k.answer = d;
    k.list = live ? k.list.concat(news.filter((x) => !had.has(x.number))).sort((a, b) => new Date(a.at) - new Date(b.at)) : news;
    k.after = isActive(d) ? Math.max(k.after, ...news.map((x) => x.number)) : 0;
    k.run = { ...d, exchanges: k.list };
  }
  return { ...state, data: d && k.run };
}

export function Run({ id }) {
  const loadedRun = useRun(id);
  const [chosen, choose] = useState(0), [opened, setOpened] = useState(new Set());
  const d = loadedRun.data, active = d && isActive(d);
  const now = useNow(active ? 500 : 60000), early = !useSeen(active ? id : "");
  useEffect(() => { watchRun(id); return () => watchRun(""); }, [id]);
  const held = app.held.filter((h) => h.run === id && h.waiting);
  const rows = useMemo(() => d ? buildRows(d, d.exchanges ?? [], held, opened, now) : [], [d, opened, held.length, held.length ? now : 0]);
  if (!d) return html`<div class="page"><${DataState} state=${loadedRun} /></div>`;
  const total = Math.max(1, active ? now - new Date(d.began) : d.waited_ms + d.wall_ms, ...rows.map((r) => r.b));
  const code = joinText(d.code), names = new Set((d.exchanges ?? []).flatMap((x) => (x.swapped ?? []).map((s) => s.name)));
  const first = rows.find((r) => r.held) ?? rows.find((r) => r.x.outcome === "denied") ?? rows.find((r) => r.x.outcome !== "served") ?? rows[0];
  const row = rows.find((r) => r.n === chosen) ?? first;
  const planned = rows.find((r) => r.x.outcome === "planned"), marks = new Map();
  if (d.kept) for (const r of rows.slice(0, 200)) for (const l of findLines(code, r.x).slice(0, 1)) { const cls = r.held ? "held" : r.x.outcome === "denied" ? "bad" : ""; if (!marks.has(l) || cls) marks.set(l, [l, cls, r.n, () => choose(r.n)]); }
  const c = d.count ?? {}, swappedAPIs = new Set((d.exchanges ?? []).filter((x) => x.swapped?.length).flatMap((x) => x.apis ?? [])).size;
  return html`<div class="page" tabindex="-1">
    <div class="row wrap top"><a class="btn quiet small back" href=${makeAddress("runs", "", app.route.q)} aria-label="Back to the list">←</a><${Status} run=${d} /><span class="mono faint">${d.run}</span><${CopyButton} text=${d.run} what="the run’s id" /><span class="grow"></span>
      ${held.length ? html`<a class="btn" href=${makeAddress("held", held[0].id)}>Approve or deny <kbd>n</kbd></a>` : null}
      ${active ? html`<button type="button" class="btn no" disabled=${early} onClick=${() => stopRun(id)}><${Icon} name="stop" />Stop <kbd>x</kbd></button>` : null}
      <button type="button" class="btn quiet" onClick=${() => copyReceipt(d)}>Receipt <kbd>c</kbd></button></div>
    <div><h2 class="title">${escapeNodes(d.title || "no code")}</h2><p class="faint">${escapeNodes([d.tenant && d.tenant + ":", d.client || "unknown client", d.client_version].filter(Boolean).join(" "))}${d.session ? html`, session <span class="mono">${escapeNodes(d.session.slice(0, 8))}</span>` : null} · ${d.language} · began ${formatTime(d.began)}, ${formatAge(d.began, now)} ago${d.narrowed?.length ? html` · narrowed to ${d.narrowed.map((a, i) => html`${i ? ", " : ""}<a class="soft" href=${makeAddress("apis", a)}>${escapeNodes(a)}</a>`)}` : null}</p></div>
    ${planned ? html`<${Note} cls="held" icon="held">A dry run: ${formatCount(rows.filter((r) => r.x.outcome === "planned").length, "write")} recorded, not sent. <a href=${makeAddress("held", planned.x.plan)}>Look at the plan</a></${Note}>` : null}
    ${d.state === "frozen" ? html`<${Note} cls="bad" icon="no"><b>Frozen.</b> Code of this session was about to send a credential or a canary. CodeForge ended the session’s runs, and the session runs no more code. <a href=${makeAddress("alerts")}>See the request and its host</a>. If it is harmless: <span class="mono">codeforge unfreeze ${escapeNodes(d.session)}</span></${Note}>` : null}
    ${d.exit && d.state !== "ok" && d.state !== "frozen" ? html`<${Note} cls="bad">${escapeNodes(d.exit)}</${Note}>` : null}
    <dl class="tiles">
      <${Tile} title="Requests" value=${formatNumber(c.exchanges)} sub=${c.denied ? c.denied + " refused" : c.failed ? c.failed + " failed" : "no request refused"} cls=${c.denied || c.failed ? "bad" : ""} />
      <${Tile} title="Left this machine" value=${formatBytes((d.exchanges ?? []).reduce((n, x) => x.outcome === "denied" || x.outcome === "planned" ? n : n + (x.bytes_up ?? 0) + (x.head_up ?? 0), 0))} sub="heads and bodies" />
      <${Tile} title="Came back" value=${formatBytes(c.bytes_down)} sub="read by code only" />
      <${Tile} title="Names swapped" value=${formatNumber(c.swapped)} sub=${swappedAPIs ? "in " + formatCount(swappedAPIs, "API") : "no key left the proxy"} />
      <${Tile} title="Keys scrubbed" value=${formatNumber(c.sanitized)} sub="from answers" />
      <${Tile} title="To the model" value=${formatCount(d.shown, "byte")} sub=${c.bytes_down ? "of " + formatBytes(c.bytes_down) : "no bytes came back"} />
      <${Tile} title="Run" value=${active ? formatDuration(total) : formatDuration(d.wall_ms)} sub=${d.waited_ms ? "+ " + formatDuration(d.waited_ms) + " waited" : active ? "so far" : "at once"} /></dl>
    ${rows.length ? html`<${Card} title="Which names went where" side=${html`<a class="soft small" href=${makeAddress("ledger")} title=${d.audit ? "The ledger’s checkpoint of this run: " + escapeText(d.audit) : null}>in the ledger</a>`}><${Flow} rows=${rows} /></${Card}>
    <section class="card" id="requests" aria-label="Requests"><header><h2 class="grow">Requests</h2><div class="legend" aria-hidden="true">${[["rec", "answered"], ["hol", "held"], ["den", "refused or failed"], ["prt", "printed"]].map(([k, t]) => html`<span><i class=${"k-" + k}></i>${t}</span>`)}</div></header>
      <${Waterfall} run=${d} detail=${d} rows=${rows} total=${total} chosen=${row?.n} choose=${choose} open=${(n) => setOpened(new Set([...opened, n]))} />
      ${row && html`<${RequestSteps} row=${row} hints=${d.hints ?? []} lines=${d.kept ? findLines(code, row.x) : []} />`}</section>` : html`<p class="faint" id="requests">It sent no request.</p>`}
    ${d.files?.length ? html`<${Files} id=${d.run} list=${d.files} />` : null}
    ${d.kept ? html`<div class="duo">
      <section class="card" id="code" aria-label="Code"><header><h2 class="grow">Code</h2>${d.skills?.length ? html`<span class="faint small clip">imports ${d.skills.map((s, i) => html`${i ? ", " : ""}<a class="soft mono" href=${makeAddress("skills", s)}>${escapeNodes(s)}</a>`)}</span>` : null}<${CopyButton} text=${code} what="the code" /></header><${Code} run=${d} code=${d.code} marks=${[...marks.values()]} names=${names} /></section>
      <div class="stack"><section class="card" id="output" aria-label="Output"><header><h2 class="grow">Output</h2><span class="faint num small">${formatBytes(d.stdout_bytes)} out, ${formatBytes(d.stderr_bytes)} error</span></header><${Output} output=${d.output} /></section>
      ${joinText(d.answer) ? html`<section class="card" aria-label="Text for the model"><header><h2 class="grow">Text for the model</h2><span class="faint num small">${formatCount(d.shown, "byte")}</span></header><pre class="answer" tabindex="0">${escapeNodes(joinText(d.answer))}</pre></section>` : null}</div></div>`
    : html`<${Note} cls="held" icon="lock">The code and the output of this run are not kept: HISTORY keeps receipts only, or they are too old.</${Note}>`}
  </div>`;
}

export async function stopRun(id) {
  try { await requestJSON(`runs/${encodeURIComponent(id)}/stop`, "POST"); showToast("The run is being stopped."); } catch (e) { showToast(e.message); }
}
/** copyReceipt copies the receipt of a run to the clipboard: JSON without code and output. */
export function copyReceipt(d) {
  const { code, output, answer, kept, spans, ...rest } = d;
  copyText(JSON.stringify(rest, null, 2), "The receipt");
}
/** handleKeyOnRun handles a key on the page of a run. It stops only a run that has been on the screen for 1 s. */
export async function handleKeyOnRun(key, id) {
  if (key === "x") return isSeen(id) && stopRun(id);
  if (key === "c") { try { copyReceipt(await requestJSON("runs/" + encodeURIComponent(id))); } catch (e) { showToast(e.message); } }
  const part = { 1: "code", 2: "output", 3: "requests" }[key];
  if (part) document.getElementById(part)?.scrollIntoView({ block: "start" });
}
