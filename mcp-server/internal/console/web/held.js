// The page of held requests and plans: the whole request, its invisible characters, and the last approved one like it.
import { html, useEffect } from "./preact.js";
import { Card, Chip, Command, Diff, Fact, Note } from "./parts.js";
import { bytes, changes, clock, left, ms, odd, plain, plural, shown } from "./text.js";
import { api } from "./session.js";
import { address, app, go, isSeen, needs, say, set, useData, useNow, useSeen } from "./state.js";
import { Icon } from "./draw.js";
import { Body, Headers, parts, pretty } from "./request.js";
import { stopRun } from "./run.js";
import { list as runs } from "./runs.js";
import { Plan, Row, open as isOpen, planKeys } from "./plans.js";

let asked = 0, got = 0, later = 0;
/** read loads the held requests and plans for all pages. If the latest load fails, it tries again after 2 s. An answer
 * to an earlier load than the shown one is dropped. */
export async function read() {
  const mine = ++asked;
  clearTimeout(later);
  try {
    const answer = await api("held");
    if (mine < got) return;
    got = mine;
    set({ held: answer.held ?? [], decided: answer.decided ?? [], plans: answer.plans ?? [], heldError: "" });
  } catch (e) {
    if (mine !== asked) return;
    set({ heldError: e.message });
    if (app.in) later = setTimeout(read, 2000);
  }
}

export async function decide(h, approve) {
  try {
    const done = await api("held/" + encodeURIComponent(h.id), "POST", { approve });
    say(!approve ? "Refused. A hint tells the code to ask you, and not to try another way." : done.waiting ? "Approved, and sent." : "Approved. Its run no longer waits: the same request passes once within 15 minutes.");
  } catch (e) { say(e.message); }
  await read();
  if (app.route.id === h.id && !app.held.some((x) => x.id === h.id)) go("held", "", "", true); // without an id the page shows the next one
}
export const mine = (h) => !h.operator;
/** ofRun reports whether a request belongs to a run. An MCP server can also send requests without one. */
const ofRun = (h) => !h.run.startsWith("server-");
/** current returns the request or plan to show: the one with the id in the address, or undefined if it has gone.
 * Without an id it returns the first one that needs a decision, or else the first of the list. */
const current = () => app.route.id ? [...app.held, ...app.plans].find((x) => x.id === app.route.id) : needs()[0] ?? app.held[0] ?? app.plans[0];

/** heldKeys handles a key on this page. Only a request or plan that has been on the screen for 1 s can be decided. */
export function heldKeys(e) {
  const list = [...app.held, ...app.plans], h = current();
  if (e.key === "j" || e.key === "k") {
    const i = list.findIndex((x) => x.id === h?.id), to = list[Math.max(0, Math.min(list.length - 1, i + (e.key === "j" ? 1 : -1)))];
    if (to) go("held", to.id, "", true);
    return;
  }
  if (!h || !isSeen(h.id)) return;
  if (h.picture) return planKeys(e.key, h.id);
  if (h.approved || !mine(h)) return;
  if (e.key === "a") decide(h, true);
  if (e.key === "d") decide(h, false);
  if (e.key === "D") { decide(h, false); stopRun(h.run); }
}

function Request({ h, now }) {
  const u = parts(h.url), body = pretty(h.body ?? ""), strange = odd(h.url + (h.headers ?? []).join("\n") + (h.body ?? ""));
  const run = runs.runs.find((r) => r.run === h.run), before = app.decided?.find((x) => x.approve && x.held.api === h.api && x.held.method === h.method && parts(x.held.url).host + parts(x.held.url).rest.split("?")[0] === u.host + u.rest.split("?")[0]);
  const kind = (h.headers ?? []).find((x) => /^content-type:/i.test(x))?.slice(13).trim();
  return html`<div class="page" tabindex="-1">
    <div class="hero"><div class="row wrap"><a class="btn quiet small back" href=${address("held")} aria-label="Back to the list">←</a><span class="status held"><span class="held row"><${Icon} name="held" />${h.approved ? "Approved, not used yet" : h.waiting ? "Held " + ms(now - new Date(h.since)) : "Its run has ended"}</span></span><span class="faint">${ofRun(h) ? html`by run <a class="mono soft" href=${address("runs", h.run)}>${shown(h.run)}</a>` : "outside of runs"}</span></div>
      <p class="verb">${shown(h.method)} <span class="faint">${shown(u.scheme)}</span>${shown(u.host)}<span class="ember">${shown(u.rest)}</span></p>
      ${run?.title ? html`<p class="soft">${shown(run.title)}. <span class="faint">The model wrote this in its first comment. The request is below.</span></p>` : null}</div>
    ${strange.hidden ? html`<${Note} cls="held"><b>${plural(strange.hidden, "character")} in it cannot be seen</b>${strange.turning ? ", and " + (strange.turning === strange.hidden ? "they turn" : strange.turning + " of them turn") + " the text that follows around" : ""}. They are shown by their number.</${Note}>` : null}
    <div class=${before ? "cols2" : ""}>
      <section class="card" aria-label="Request"><header><h2 class="grow">Request</h2>${kind && html`<${Chip}>${shown(kind)}</${Chip}>`}<span class="faint num small">${bytes(new TextEncoder().encode(h.body ?? "").length)}, all of it</span></header>
        <${Headers} list=${h.headers} />${h.body ? html`<${Body} text=${h.body} />` : html`<p class="faint pad">It has no body.</p>`}</section>
      ${before && html`<section class="card" aria-label="Against the last one that you approved"><header><h2 class="grow">Against the last one that you approved</h2><span class="faint small">${clock(before.at, false)}</span></header>${(before.held.body ?? "") === (h.body ?? "") ? html`<p class="pad soft">The same body.</p>` : html`<${Diff} label="Differences" lines=${changes(pretty(before.held.body ?? ""), body)} />`}</section>`}</div>
    <div class=${ofRun(h) ? "cols2" : ""}>${ofRun(h) && html`<${SoFar} run=${h.run} h=${h} />`}
      <${Card} title="Why it is held"><div class="body"><dl class="facts"><${Fact} title="API">${h.api.split(", ").map((api) => html`<a class="soft" href=${address("apis", api)}>${shown(api)} </a>`)}</${Fact}><${Fact} title="Rule"><span class="mono soft wrapany">${shown(h.rule)}</span></${Fact}>${h.server && html`<${Fact} title="Sent by">the MCP server ${shown(h.server)}</${Fact}>`}${h.tenant && html`<${Fact} title="Tenant">${shown(h.tenant)}</${Fact}>`}<${Fact} title="Without a decision">it is not sent, and the model learns that it still waits for approval</${Fact}><${Fact} title="May be approved by">${mine(h) ? "you, here or with codeforge approve" : "only the operator, in a terminal"}</${Fact}></dl></div></${Card}></div>
  </div>`;
}

function SoFar({ run, h }) {
  const d = useData("runs/" + encodeURIComponent(run), app.versions.held).data;
  const list = (d?.exchanges ?? []).slice(-6);
  return html`<${Card} title="This run so far" side=${d && html`<span class="faint num small">${plural(d.count?.exchanges ?? 0, "request")}</span>`}><div class="body sofar">
    ${list.map((x) => html`<div class="row"><span class="mono m">${shown(x.method)}</span><span class="clip grow" title=${plain(x.url)}><span class="soft">${shown(x.host)}</span>${shown(parts(x.url).rest)}</span><span class=${x.outcome === "served" ? "ok" : "bad"}>${x.status || x.outcome}</span></div>`)}
    <div class="row"><span class="mono m">${shown(h.method)}</span><span class="clip grow"><span class="soft">${shown(parts(h.url).host)}</span>${shown(parts(h.url).rest)}</span><span class="held">held</span></div></div></${Card}>`;
}

export function Held() {
  const now = useNow(1000), { id } = app.route, list = app.held, any = id || innerWidth > 760 ? current() : undefined, plan = any?.picture ? any.id : "", h = plan ? undefined : any, early = !useSeen(h?.id ?? "");
  useEffect(() => { read(); }, [app.versions.held]);
  const rest = h ? Math.max(0, new Date(h.until) - now) : 0, whole_ = h ? new Date(h.until) - new Date(h.since) : 1, can = h && mine(h) && !h.approved;
  return html`<main id="main" class=${"split " + (id && h ? "one" : "many")}>
    <section class="pane" aria-label="Held requests"><div class="head"><div class="row"><h1 class="grow">Held</h1><span class="faint small">each request waits until you approve it</span></div></div>
      <div class="scroll"><ol>${list.map((x) => { const u = parts(x.url); return html`<li key=${x.id}><a class="run three" href=${address("held", x.id)} aria-current=${x.id === h?.id ? "true" : null}><span class="st held"><${Icon} name=${x.approved ? "ok" : "held"} /></span><span class="row"><span class="t clip grow mono">${shown(x.method)} ${shown(u.host + u.rest)}</span><span class="d num held">${left(x.until, now)}</span></span><span class="sub"><span class="clip">${shown(runs.runs.find((r) => r.run === x.run)?.title ?? x.run)}</span></span><span></span><span class="sub"><${Chip}>${shown(x.api)}</${Chip}>${!x.waiting && html`<span>its run has ended</span>`}</span></a></li>`; })}</ol>
        ${app.plans.length ? html`<h2 class="pad">Plans of dry runs</h2><ol>${app.plans.map((p) => html`<${Row} p=${p} now=${now} current=${p.id === plan} />`)}</ol>` : null}
        ${!list.length && !app.plans.some(isOpen) && html`<p class="faint pad">${app.heldError ? shown(app.heldError) : "No request waits for you."}</p>`}
        ${app.decided?.length ? html`<h2 class="pad">Decided here</h2><ol>${app.decided.map((x) => html`<li class="row decided"><span class=${x.approve ? "ok" : "bad"}><${Icon} name=${x.approve ? "ok" : "no"} /></span><span class="grow clip"><span class="mono soft">${shown(x.held.method)} ${shown(parts(x.held.url).host + parts(x.held.url).rest)}</span></span><span class="faint num">${clock(x.at, false)}</span></li>`)}</ol>` : null}</div></section>
    ${plan ? html`<${Plan} key=${plan} id=${plan} now=${now} />` : h ? html`<div class="withbar" key=${h.id}><${Request} h=${h} now=${now} />
      <div class="actions" role="group" aria-label="Decide"><svg class="ring" viewBox="0 0 34 34" role="img" aria-label=${"for " + left(h.until, now) + " minutes"}><circle cx="17" cy="17" r="14" /><circle cx="17" cy="17" r="14" pathLength="100" stroke-dasharray=${Math.round(rest / whole_ * 100) + " 100"} /></svg><div class="num hide-s count"><b>${left(h.until, now)}</b><div class="faint">to decide</div></div><span class="grow"></span>
      ${can ? html`<button type="button" class="btn no" disabled=${early} onClick=${() => decide(h, false)}>Deny <kbd>d</kbd></button><button type="button" class="btn no hide-s" disabled=${early} onClick=${() => { decide(h, false); stopRun(h.run); }}>Deny and stop the run <kbd>shift</kbd><kbd>d</kbd></button><button type="button" class="btn main" disabled=${early} onClick=${() => decide(h, true)}><${Icon} name="touch" />Approve once <kbd>a</kbd></button>`
      : h.approved ? html`<span class="soft">Approved. Run the code again within 15 minutes.</span>` : html`<div class="operator"><p class="soft">Only the operator can approve this, in a terminal:</p><${Command} text=${"codeforge approve " + plain(h.id)} /></div>`}</div></div>`
      : html`<div class="page"><div class="empty"><${Icon} name="ok" /><h2>${id ? "This no longer waits" : "No request waits for you"}</h2>${id && needs().length ? html`<a class="btn" href=${address("held")}>Waiting requests</a>` : null}<p class="faint">A request waits here when a rule of its API says <span class="mono">"then": "approve"</span>.</p></div></div>`}
  </main>`;
}
