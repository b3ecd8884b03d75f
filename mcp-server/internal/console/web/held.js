// The page of held requests and plans: the whole request, its invisible characters, and the last approved one like it.
import { html, useEffect } from "./preact.js";
import { Card, Chip, Command, Diff, Fact, Note } from "./parts.js";
import { formatBytes, diffLines, formatTime, formatLeft, formatDuration, countOdd, escapeText, formatCount, escapeNodes } from "./text.js";
import { requestJSON } from "./session.js";
import { makeAddress, app, openPage, isSeen, listWaiting, showToast, updateApp, useData, useNow, useSeen } from "./state.js";
import { Icon } from "./draw.js";
import { Body, Headers, splitURL, formatBody } from "./request.js";
import { stopRun } from "./run.js";
import { list as runs } from "./runs.js";
import { Plan, PlanRow, isOpen, handleKeyOnPlan } from "./plans.js";

let latestLoad = 0, shownLoad = 0, retryTimer = 0;
/** loadHeld loads the held requests and plans for all pages. If the latest load fails, it tries again after 2 s. An
 * answer to an earlier load than the shown one is dropped. */
export async function loadHeld() {
  const mine = ++latestLoad;
  clearTimeout(retryTimer);
  try {
    const answer = await requestJSON("held");
    if (mine < shownLoad) return;
    shownLoad = mine;
    updateApp({ held: answer.held ?? [], decided: answer.decided ?? [], plans: answer.plans ?? [], heldError: "" });
  } catch (e) {
    if (mine !== latestLoad) return;
    updateApp({ heldError: e.message });
    if (app.in) retryTimer = setTimeout(loadHeld, 2000);
  }
}

export async function decideRequest(h, approve) {
  try {
    const done = await requestJSON("held/" + encodeURIComponent(h.id), "POST", { approve });
    showToast(!approve ? "Refused. A hint tells the code to ask you, and not to try another way." : done.waiting ? "Approved, and sent." : "Approved. Its run no longer waits: the same request passes once within 15 minutes.");
  } catch (e) { showToast(e.message); }
  await loadHeld();
  if (app.route.id === h.id && !app.held.some((x) => x.id === h.id)) openPage("held", "", "", true); // without an id the page shows the next one
}
export const canDecide = (h) => !h.operator;
/** isFromRun reports whether a request belongs to a run. An MCP server can also send requests without one. */
const isFromRun = (h) => !h.run.startsWith("server-");
/** findShown returns the request or plan to show: the one with the id in the address, or undefined if it has gone.
 * Without an id it returns the first one that needs a decision, or else the first of the list. */
const findShown = () => app.route.id ? [...app.held, ...app.plans].find((x) => x.id === app.route.id) : listWaiting()[0] ?? app.held[0] ?? app.plans[0];

/** handleKeyOnHeld handles a key on this page. It decides only about an item on the screen for at least 1 s. */
export function handleKeyOnHeld(e) {
  const list = [...app.held, ...app.plans], h = findShown();
  if (e.key === "j" || e.key === "k") {
    const i = list.findIndex((x) => x.id === h?.id), to = list[Math.max(0, Math.min(list.length - 1, i + (e.key === "j" ? 1 : -1)))];
    if (to) openPage("held", to.id, "", true);
    return;
  }
  if (!h || !isSeen(h.id)) return;
  if (h.picture) return handleKeyOnPlan(e.key, h.id);
  if (h.approved || !canDecide(h)) return;
  if (e.key === "a") decideRequest(h, true);
  if (e.key === "d") decideRequest(h, false);
  if (e.key === "D") { decideRequest(h, false); stopRun(h.run); }
}

function Request({ h, now }) {
  const u = splitURL(h.url), body = formatBody(h.body ?? ""), strange = countOdd(h.url + (h.headers ?? []).join("\n") + (h.body ?? ""));
  const run = runs.runs.find((r) => r.run === h.run), before = app.decided?.find((x) => x.approve && x.held.api === h.api && x.held.method === h.method && splitURL(x.held.url).host + splitURL(x.held.url).rest.split("?")[0] === u.host + u.rest.split("?")[0]);
  const kind = (h.headers ?? []).find((x) => /^content-type:/i.test(x))?.slice(13).trim();
  return html`<div class="page" tabindex="-1">
    <div class="hero"><div class="row wrap"><a class="btn quiet small back" href=${makeAddress("held")} aria-label="Back to the list">←</a><span class="status held"><span class="held row"><${Icon} name="held" />${h.approved ? "Approved, not used yet" : h.waiting ? "Held " + formatDuration(now - new Date(h.since)) : "Its run has ended"}</span></span><span class="faint">${isFromRun(h) ? html`by run <a class="mono soft" href=${makeAddress("runs", h.run)}>${escapeNodes(h.run)}</a>` : "outside of runs"}</span></div>
      <p class="verb">${escapeNodes(h.method)} <span class="faint">${escapeNodes(u.scheme)}</span>${escapeNodes(u.host)}<span class="ember">${escapeNodes(u.rest)}</span></p>
      ${run?.title ? html`<p class="soft">${escapeNodes(run.title)}. <span class="faint">The model wrote this in its first comment. The request is below.</span></p>` : null}</div>
    ${strange.hidden ? html`<${Note} cls="held"><b>${formatCount(strange.hidden, "character")} in it cannot be seen</b>${strange.turning ? ", and " + (strange.turning === strange.hidden ? "they turn" : strange.turning + " of them turn") + " the text that follows around" : ""}. They are shown by their number.</${Note}>` : null}
    <div class=${before ? "cols2" : ""}>
      <section class="card" aria-label="Request"><header><h2 class="grow">Request</h2>${kind && html`<${Chip}>${escapeNodes(kind)}</${Chip}>`}<span class="faint num small">${formatBytes(new TextEncoder().encode(h.body ?? "").length)}, all of it</span></header>
        <${Headers} list=${h.headers} />${h.body ? html`<${Body} text=${h.body} />` : html`<p class="faint pad">It has no body.</p>`}</section>
      ${before && html`<section class="card" aria-label="Against the last one that you approved"><header><h2 class="grow">Against the last one that you approved</h2><span class="faint small">${formatTime(before.at, false)}</span></header>${(before.held.body ?? "") === (h.body ?? "") ? html`<p class="pad soft">The same body.</p>` : html`<${Diff} label="Differences" lines=${diffLines(formatBody(before.held.body ?? ""), body)} />`}</section>`}</div>
    <div class=${isFromRun(h) ? "cols2" : ""}>${isFromRun(h) && html`<${RunSoFar} run=${h.run} h=${h} />`}
      <${Card} title="Why it is held"><div class="body"><dl class="facts"><${Fact} title="API">${h.api.split(", ").map((api) => html`<a class="soft" href=${makeAddress("apis", api)}>${escapeNodes(api)} </a>`)}</${Fact}><${Fact} title="Rule"><span class="mono soft wrapany">${escapeNodes(h.rule)}</span></${Fact}>${h.server && html`<${Fact} title="Sent by">the MCP server ${escapeNodes(h.server)}</${Fact}>`}${h.tenant && html`<${Fact} title="Tenant">${escapeNodes(h.tenant)}</${Fact}>`}<${Fact} title="Without a decision">it is not sent, and the model learns that it still waits for approval</${Fact}><${Fact} title="May be approved by">${canDecide(h) ? "you, here or with codeforge approve" : "only the operator, in a terminal"}</${Fact}></dl></div></${Card}></div>
  </div>`;
}

function RunSoFar({ run, h }) {
  const d = useData("runs/" + encodeURIComponent(run), app.versions.held).data;
  const list = (d?.exchanges ?? []).slice(-6);
  return html`<${Card} title="This run so far" side=${d && html`<span class="faint num small">${formatCount(d.count?.exchanges ?? 0, "request")}</span>`}><div class="body sofar">
    ${list.map((x) => html`<div class="row"><span class="mono m">${escapeNodes(x.method)}</span><span class="clip grow" title=${escapeText(x.url)}><span class="soft">${escapeNodes(x.host)}</span>${escapeNodes(splitURL(x.url).rest)}</span><span class=${x.outcome === "served" ? "ok" : "bad"}>${x.status || x.outcome}</span></div>`)}
    <div class="row"><span class="mono m">${escapeNodes(h.method)}</span><span class="clip grow"><span class="soft">${escapeNodes(splitURL(h.url).host)}</span>${escapeNodes(splitURL(h.url).rest)}</span><span class="held">held</span></div></div></${Card}>`;
}

export function Held() {
  const now = useNow(1000), { id } = app.route, list = app.held, any = id || innerWidth > 900 ? findShown() : undefined, plan = any?.picture ? any.id : "", h = plan ? undefined : any, early = !useSeen(h?.id ?? "");
  useEffect(() => { loadHeld(); }, [app.versions.held]);
  const rest = h ? Math.max(0, new Date(h.until) - now) : 0, wholeTime = h ? new Date(h.until) - new Date(h.since) : 1, can = h && canDecide(h) && !h.approved;
  return html`<main id="main" class=${"split " + (id && h ? "one" : "many")}>
    <section class="pane" aria-label="Held requests"><div class="head"><div class="row"><h1 class="grow">Held</h1><span class="faint small">each request waits until you approve it</span></div></div>
      <div class="scroll"><ol>${list.map((x) => { const u = splitURL(x.url); return html`<li key=${x.id}><a class="run three" href=${makeAddress("held", x.id)} aria-current=${x.id === h?.id ? "true" : null}><span class="st held"><${Icon} name=${x.approved ? "ok" : "held"} /></span><span class="row"><span class="t clip grow mono">${escapeNodes(x.method)} ${escapeNodes(u.host + u.rest)}</span><span class="d num held">${formatLeft(x.until, now)}</span></span><span class="sub"><span class="clip">${escapeNodes(runs.runs.find((r) => r.run === x.run)?.title ?? x.run)}</span></span><span></span><span class="sub"><${Chip}>${escapeNodes(x.api)}</${Chip}>${!x.waiting && html`<span>its run has ended</span>`}</span></a></li>`; })}</ol>
        ${app.plans.length ? html`<h2 class="pad">Plans of dry runs</h2><ol>${app.plans.map((p) => html`<${PlanRow} p=${p} now=${now} current=${p.id === plan} />`)}</ol>` : null}
        ${!list.length && !app.plans.some(isOpen) && html`<p class="faint pad">${app.heldError ? escapeNodes(app.heldError) : "No request waits for you."}</p>`}
        ${app.decided?.length ? html`<h2 class="pad">Decided here</h2><ol>${app.decided.map((x) => html`<li class="row decided"><span class=${x.approve ? "ok" : "bad"}><${Icon} name=${x.approve ? "ok" : "no"} /></span><span class="grow clip"><span class="mono soft">${escapeNodes(x.held.method)} ${escapeNodes(splitURL(x.held.url).host + splitURL(x.held.url).rest)}</span></span><span class="faint num">${formatTime(x.at, false)}</span></li>`)}</ol>` : null}</div></section>
    ${plan ? html`<${Plan} key=${plan} id=${plan} now=${now} />` : h ? html`<div class="withbar" key=${h.id}><${Request} h=${h} now=${now} />
      <div class="actions" role="group" aria-label="Decide"><svg class="ring" viewBox="0 0 34 34" role="img" aria-label=${"for " + formatLeft(h.until, now) + " minutes"}><circle cx="17" cy="17" r="14" /><circle cx="17" cy="17" r="14" pathLength="100" stroke-dasharray=${Math.round(rest / wholeTime * 100) + " 100"} /></svg><div class="num hide-s count"><b>${formatLeft(h.until, now)}</b><div class="faint">to decide</div></div><span class="grow"></span>
      ${can ? html`<button type="button" class="btn no" disabled=${early} onClick=${() => decideRequest(h, false)}>Deny <kbd>d</kbd></button><button type="button" class="btn no hide-s" disabled=${early} onClick=${() => { decideRequest(h, false); stopRun(h.run); }}>Deny and stop the run <kbd>shift</kbd><kbd>d</kbd></button><button type="button" class="btn main" disabled=${early} onClick=${() => decideRequest(h, true)}><${Icon} name="touch" />Approve once <kbd>a</kbd></button>`
      : h.approved ? html`<span class="soft">Approved. Run the code again within 15 minutes.</span>` : html`<div class="operator"><p class="soft">Only the operator can approve this, in a terminal:</p><${Command} text=${"codeforge approve " + escapeText(h.id)} /></div>`}</div></div>`
      : html`<div class="page"><div class="empty"><${Icon} name="ok" /><h2>${id ? "This no longer waits" : "No request waits for you"}</h2>${id && listWaiting().length ? html`<a class="btn" href=${makeAddress("held")}>Waiting requests</a>` : null}<p class="faint">A request waits here when a rule of its API says <span class="mono">"then": "approve"</span>.</p></div></div>`}
  </main>`;
}
