// The list of runs, and beside it the page of the chosen run.
import { html, useEffect } from "./preact.js";
import { Chip, Search, Switch, Virtual, Wrong } from "./parts.js";
import { ago, shown, thousands } from "./text.js";
import { api } from "./session.js";
import { address, app, go, onRuns, set, useNow } from "./state.js";
import { Histogram, Micro } from "./draw.js";
import { State, kind } from "./status.js";
import { Run } from "./run.js";

// list outlives a change of the page. filter is that of the last load, or null before the first one.
export const list = { filter: null, runs: [], next: "", busy: false, error: "", total: 0 };
const FIELDS = ["api", "host", "skill", "client", "session", "run"];
const STATES = { failed: "failed", refused: "denied", denied: "denied", ok: "ok", active: "running", running: "running", stopped: "stopped", lost: "lost", waiting: "waiting", frozen: "frozen" };

/** query turns a typed filter, e.g. "api:stripe status:failed refund", into the parameters of a request. */
export function query(text) {
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

let asked = 0;
async function load(filter, more) {
  const mine = ++asked, q = query(filter);
  q.set("limit", more ? "500" : "100");
  if (more) q.set("cursor", list.next);
  Object.assign(list, { busy: true, error: "" });
  try {
    const page = await api("runs?" + q);
    if (mine !== asked) return;
    const known = more ? new Set(list.runs.map((r) => r.run)) : null;
    list.runs = more ? list.runs.concat(page.runs.filter((r) => !known.has(r.run))) : page.runs ?? [];
    list.next = page.next ?? "";
    if (!more && !filter) api("kept").then((s) => { list.total = s.runs; set({}); }, () => {});
  } catch (e) {
    if (mine === asked) list.error = e.message;
  }
  if (mine === asked) { list.busy = false; set({}); }
}
const more = () => { if (list.next && !list.busy) load(list.filter, true); };

let soon = 0;
// fresh loads the latest 100 runs after wait ms, and puts them before the older known ones. It ignores further calls
// while it waits.
function fresh(wait) {
  if (soon || list.filter === null) return;
  soon = setTimeout(async () => {
    soon = 0;
    if (app.frozen || !app.in) return;
    const q = query(list.filter), filter = list.filter;
    q.set("limit", "100");
    try {
      const page = await api("runs?" + q);
      if (filter !== list.filter) return;
      const got = page.runs ?? [], known = new Set(got.map((r) => r.run)), last = got.length ? got[got.length - 1].number : 0;
      const rest = page.next && list.runs.some((r) => known.has(r.run)) ? list.runs.filter((r) => !known.has(r.run) && r.number < last) : [];
      list.runs = got.concat(rest);
      if (!rest.length) list.next = page.next ?? "";
      set({});
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
  if (!app.frozen) set({});
  fresh(1500);
}, () => fresh(0));

/** step opens the next run of the list (1) or the previous one (-1). */
export function step(by) {
  const i = list.runs.findIndex((r) => r.run === app.route.id), to = list.runs[Math.max(0, Math.min(list.runs.length - 1, i + by))];
  if (to) go("runs", to.run, app.route.q, true);
}

const SETS = [["", "All"], ["status:active", "Active"], ["status:failed", "Failed"], ["status:refused", "Refused"]];

export function Runs() {
  const { id, q } = app.route, now = useNow(15000);
  useEffect(() => { if (list.filter !== q) { Object.assign(list, { filter: q, runs: [], next: "" }); load(q, false); } }, [q]);
  const wide = innerWidth > 760, chosen = id || (wide ? list.runs[0]?.run : "") || "";
  const set_ = SETS.find(([text]) => text && q.includes(text))?.[0] ?? "";
  const filter = (text) => go("runs", app.route.id, text.trim(), true);
  const choose = (s) => filter([s, ...q.split(/\s+/).filter((w) => !/^(status|is):/.test(w))].filter(Boolean).join(" "));
  const row = (i, top) => {
    const r = list.runs[i];
    if (!r) return null; // the list became shorter after Virtual counted it
    return html`<li key=${r.run}><a class="run" href=${address("runs", r.run, q)} aria-current=${r.run === chosen ? "true" : null} style=${{ top: top + "px" }}>
      <span class="st"><${State} run=${r} /></span><span class="row"><span class="t clip grow">${shown(r.title || "no code")}</span><span class="d num">${ago(r.began, now)}</span></span>
      <span class="sub"><span class="clip client">${shown((r.tenant ? r.tenant + ": " : "") + (r.client || "unknown client"))}</span>${(r.apis ?? []).slice(0, 3).map((a) => html`<${Chip}>${shown(a)}</${Chip}>`)}<span class="grow"></span><${Micro} spans=${r.spans} total=${r.wall_ms} /></span></a></li>`;
  };
  return html`<main id="main" class=${"split " + (id ? "one" : "many")}>
    <section class="pane" aria-label="List of runs">
      <div class="head">
        <div class="row"><h1 class="grow">Runs</h1><button type="button" class="btn quiet small" aria-pressed=${app.frozen ? "true" : "false"} title="Freeze the screen (space)" onClick=${() => set({ frozen: !app.frozen })}><span class=${"dot " + (app.frozen ? "held" : app.connected ? "pulse" : "bad")}></span>${app.frozen ? "Frozen" : app.connected ? "Live" : "Not live"}</button></div>
        <${Search} label="Filter runs" value=${q} hint="api:stripe status:failed host:… or any text" on=${filter} />
        <${Histogram} runs=${list.runs} now=${now} bad=${(r) => ["failed", "denied", "stopped", "lost", "frozen"].includes(kind(r))} />
        <${Switch} label="Which runs" value=${set_} on=${choose} choices=${SETS.map(([v, t]) => [v, t, v === "" && list.total ? thousands(list.total) : undefined])} />
      </div>
      ${list.runs.length ? html`<${Virtual} label="Runs, newest first" count=${list.runs.length} height=${58} row=${row} near=${more} chosen=${list.runs.findIndex((r) => r.run === chosen)} />`
        : html`<div class="pad"><${Wrong} state=${{ error: list.error, data: !list.busy || null }} empty=${q ? "No run matches." : "No run yet. Ask your agent something, or: codeforge run FILE"} /></div>`}
    </section>
    ${chosen ? html`<${Run} key=${chosen} id=${chosen} />` : html`<div class="page"></div>`}
  </main>`;
}
