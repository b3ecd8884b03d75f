// The list of runs, and beside it the page of the chosen run.
import { html, useEffect } from "./preact.js";
import { Chip, Command, Search, Switch, VirtualList, DataState } from "./parts.js";
import { formatAge, escapeNodes, formatNumber } from "./text.js";
import { requestJSON } from "./session.js";
import { makeAddress, app, openPage, onRuns, updateApp, useData, useNow } from "./state.js";
import { Histogram, Icon, Timeline } from "./draw.js";
import { StateIcon, findKind } from "./status.js";
import { Run } from "./run.js";

// list outlives a change of the page. filter is that of the last load, or null before the first one.
export const list = { filter: null, runs: [], next: "", busy: false, error: "", total: 0 };
const FIELDS = ["api", "host", "skill", "client", "session", "run"];
const STATES = { failed: "failed", refused: "denied", denied: "denied", ok: "ok", active: "running", running: "running", stopped: "stopped", lost: "lost", waiting: "waiting", frozen: "frozen" };

/** parseFilter turns a typed filter, e.g. "api:stripe status:failed refund", into the parameters of a request. */
export function parseFilter(text) {
  const q = new URLSearchParams(), words = [];
  for (const word of text.split(/\s+/)) {
    const [, field, value] = /^(\w+):(.+)$/.exec(word) ?? [];
    if (FIELDS.includes(field)) q.set(field, value);
    else if ((field === "status" || field === "is") && STATES[value]) q.set("state", STATES[value]);
    else if (word) words.push(field === "name" ? value : word);
  }
  if (words.length) q.set("grep", words.join(" "));
  return q;
}

let latestLoad = 0;
async function loadRuns(filter, more) {
  const mine = ++latestLoad, q = parseFilter(filter);
  q.set("limit", more ? "500" : "100");
  if (more) q.set("cursor", list.next);
  Object.assign(list, { busy: true, error: "" });
  try {
    const page = await requestJSON("runs?" + q);
    if (mine !== latestLoad) return;
    const known = more ? new Set(list.runs.map((r) => r.run)) : null;
    list.runs = more ? list.runs.concat(page.runs.filter((r) => !known.has(r.run))) : page.runs ?? [];
    list.next = page.next ?? "";
    if (!more && !filter) requestJSON("kept").then((s) => { list.total = s.runs; updateApp({}); }, () => {});
  } catch (e) {
    if (mine === latestLoad) list.error = e.message;
  }
  if (mine === latestLoad) { list.busy = false; updateApp({}); }
}
const loadMore = () => { if (list.next && !list.busy) loadRuns(list.filter, true); };

let reloadTimer = 0;
// reloadSoon loads the latest 100 runs after wait ms, and puts them before the older known ones. It ignores further
// calls while it waits.
function reloadSoon(wait) {
  if (reloadTimer || list.filter === null) return;
  reloadTimer = setTimeout(async () => {
    reloadTimer = 0;
    if (app.frozen || !app.in) return;
    const q = parseFilter(list.filter), filter = list.filter;
    q.set("limit", "100");
    try {
      const page = await requestJSON("runs?" + q);
      if (filter !== list.filter) return;
      const got = page.runs ?? [], known = new Set(got.map((r) => r.run)), last = got.length ? got[got.length - 1].number : 0;
      const rest = page.next && list.runs.some((r) => known.has(r.run)) ? list.runs.filter((r) => !known.has(r.run) && r.number < last) : [];
      list.runs = got.concat(rest);
      if (!rest.length) list.next = page.next ?? "";
      updateApp({});
    } catch { /* the next change loads them */ }
  }, wait);
}
onRuns((runs) => {
  if (list.filter === null) return;
  for (const r of runs) {
    const i = list.runs.findIndex((x) => x.run === r.run);
    if (i >= 0) list.runs[i] = { ...r, spans: r.spans ?? list.runs[i].spans };
    else if (list.filter === "" && !app.frozen && r.number > (list.runs[0]?.number ?? 0)) { list.runs = [r, ...list.runs]; list.total++; }
  }
  if (!app.frozen) updateApp({});
  reloadSoon(1500);
}, () => reloadSoon(0));

/** openNext opens the next run of the list (1) or the previous one (-1). */
export function openNext(by) {
  const i = list.runs.findIndex((r) => r.run === app.route.id), to = list.runs[Math.max(0, Math.min(list.runs.length - 1, i + by))];
  if (to) openPage("runs", to.run, app.route.q, true);
}

const FILTERS = [["", "All"], ["status:active", "Active"], ["status:failed", "Failed"], ["status:refused", "Refused"]];

/** FirstSteps lists the three steps to a first run, and marks those that are done. */
function FirstSteps() {
  const apis = useData("apis", app.versions.apis).data?.apis ?? [];
  const steps = [
    ["Connect a client", "codeforge connect", app.versions.load.connected],
    ["Add an API", "codeforge api add NAME", apis.some((a) => a.active)],
    ["Ask your agent something, or run a file", "codeforge run FILE", false],
  ];
  return html`<ol class="pad stack" aria-label="First steps">${steps.map(([text, command, done]) => html`<li class="stack">
    <span class="row"><span class=${done ? "ok" : "faint"}><${Icon} name=${done ? "ok" : "stop"} /></span><b>${text}</b><span class="faint">${done ? "done" : "not yet"}</span></span>
    <${Command} text=${command} /></li>`)}</ol>`;
}

export function Runs() {
  const { id, q } = app.route, now = useNow(15000);
  useEffect(() => { if (list.filter !== q) { Object.assign(list, { filter: q, runs: [], next: "" }); loadRuns(q, false); } }, [q]);
  const wide = innerWidth > 900, chosen = id || (wide ? list.runs[0]?.run : "") || "";
  const chosenFilter = FILTERS.find(([text]) => text && q.includes(text))?.[0] ?? "";
  const setFilter = (text) => openPage("runs", app.route.id, text.trim(), true);
  const chooseState = (s) => setFilter([s, ...q.split(/\s+/).filter((w) => !/^(status|is):/.test(w))].filter(Boolean).join(" "));
  const renderRow = (i, top) => {
    const r = list.runs[i];
    if (!r) return null; // the list became shorter after VirtualList counted it
    return html`<li key=${r.run}><a class="run" href=${makeAddress("runs", r.run, q)} aria-current=${r.run === chosen ? "true" : null} style=${{ top: top + "px" }}>
      <span class="st"><${StateIcon} run=${r} /></span><span class="row"><span class="t clip grow">${escapeNodes(r.title || "no code")}</span><span class="d num">${formatAge(r.began, now)}</span></span>
      <span class="sub"><span class="clip client">${escapeNodes((r.tenant ? r.tenant + ": " : "") + (r.client || "unknown client"))}</span>${(r.apis ?? []).slice(0, 3).map((a) => html`<${Chip}>${escapeNodes(a)}</${Chip}>`)}<span class="grow"></span><${Timeline} spans=${r.spans} total=${r.wall_ms} /></span></a></li>`;
  };
  return html`<main id="main" class=${"split " + (id ? "one" : "many")}>
    <section class="pane" aria-label="List of runs">
      <div class="head">
        <div class="row"><h1 class="grow">Runs</h1><button type="button" class="btn quiet small" aria-pressed=${app.frozen ? "true" : "false"} title="Freeze the screen (space)" onClick=${() => updateApp({ frozen: !app.frozen })}><span class=${"dot " + (app.frozen ? "held" : app.connected ? "pulse" : "bad")}></span>${app.frozen ? "Frozen" : app.connected ? "Live" : "Not live"}</button></div>
        <${Search} label="Filter runs" value=${q} hint="api:stripe status:failed host:… or any text" on=${setFilter} />
        <${Histogram} runs=${list.runs} now=${now} bad=${(r) => ["failed", "denied", "stopped", "lost", "frozen"].includes(findKind(r))} />
        <${Switch} label="Which runs" value=${chosenFilter} on=${chooseState} choices=${FILTERS.map(([v, t]) => [v, t, v === "" && list.total ? formatNumber(list.total) : undefined])} />
      </div>
      ${list.runs.length ? html`<${VirtualList} label="Runs, newest first" count=${list.runs.length} height=${58} row=${renderRow} near=${loadMore} chosen=${list.runs.findIndex((r) => r.run === chosen)} />`
        : html`<div class="pad"><${DataState} state=${{ error: list.error, data: !list.busy && list.filter === q || null }} empty=${q ? "No run matches." : "No run yet. Three steps lead to the first:"} /></div>${!q && list.filter === q && !list.busy && !list.error && html`<${FirstSteps} />`}`}
    </section>
    ${chosen ? html`<${Run} key=${chosen} id=${chosen} />` : html`<div class="page"></div>`}
  </main>`;
}
