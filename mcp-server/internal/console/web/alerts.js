// The page of alerts: unseen ones, seen ones, and the events that raise an alert.
import { html, useEffect } from "./preact.js";
import { Card, Chip, Kbd, DataState } from "./parts.js";
import { formatTime, formatCount, escapeNodes } from "./text.js";
import { requestJSON } from "./session.js";
import { makeAddress, app, showToast, updateApp, useData } from "./state.js";
import { Icon } from "./draw.js";

// CLASSES has the CSS class, and so the colour, for kinds of alerts. Other kinds have the colour of held requests.
const CLASSES = { alarm: "bad", pinned: "bad", server: "bad", history: "bad", skill: "live" };
const EVENTS = [
  ["Code sends the value of a key, or a canary", "alarm", "always on"],
  ["An API fails more than half of 20 requests", "api", "always on"],
  ["An MCP server does not start, or its tools changed since you accepted them", "server", "always on"],
  ["Data goes from one API to another for the first time", "new_pair", "always on"],
  ["A run or a tool changes a skill", "skill", "once an hour for each"],
  ["The file of a pinned skill is changed, without effect", "pinned", "always on"],
  ["Data of a run could not be stored", "history", "always on"],
  ["An API is closed or stale", "apis", "on the page of APIs"],
  ["A request waits for you", "held", "on the page of held requests, and in the title of this tab"],
];

/** loadUnseenCount loads the number of unseen alerts, which the rail shows. */
export async function loadUnseenCount() {
  try { updateApp({ alertCount: (await requestJSON("alerts?unseen=1") ?? []).length }); } catch { /* for instance without a store: the number stays */ }
}
let unseenAlerts = [];
/** markSeen marks the alerts on the screen and all earlier ones as seen. Later alerts stay unseen. */
export async function markSeen() {
  const last = Math.max(0, ...unseenAlerts.map((a) => a.number));
  if (!last) return;
  try { await requestJSON("alerts/seen/" + last, "POST"); } catch (e) { showToast(e.message); }
  updateApp({ alerts: app.alerts + 1 });
}

const AlertRow = ({ a }) => html`<li class="row alert"><span class=${CLASSES[a.kind] ?? "held"}><${Icon} name="warn" /></span><div class="grow"><h3>${escapeNodes(a.title)}</h3>${a.text && html`<p class="soft">${escapeNodes(a.text)}</p>`}${a.further ? html`<details><summary class="soft">${formatCount(a.further, "more alert")} of the same cause</summary><ul>${(a.titles ?? []).map((t) => html`<li class="soft">${escapeNodes(t)}</li>`)}</ul></details>` : null}</div><${Chip}>${escapeNodes(a.kind)}</${Chip}>${a.run && html`<a class="mono soft" href=${makeAddress("runs", a.run)}>${escapeNodes(a.run.slice(0, 9))}</a>`}${a.skill && html`<a class="mono soft" href=${makeAddress("skills", a.skill)}>${escapeNodes(a.skill)}</a>`}${a.api && html`<a class="mono soft" href=${makeAddress(a.kind === "server" ? "servers" : "apis", a.api)}>${escapeNodes(a.api)}</a>`}<span class="faint num">${formatTime(a.at, false)}</span></li>`;

export function Alerts() {
  const state = useData("alerts", app.alerts), list = state.data ?? [], old = list.filter((a) => a.seen).slice(0, 50);
  unseenAlerts = list.filter((a) => !a.seen);
  useEffect(() => { loadUnseenCount(); }, [state.data]);
  return html`<main id="main"><div class="page" tabindex="-1">
    <div class="row"><h1 class="grow title">Alerts</h1><button type="button" class="btn" disabled=${!unseenAlerts.length} onClick=${markSeen}>All seen <${Kbd} keys=${["shift", "s"]} /></button></div>
    <${Card} title="Not seen yet">${unseenAlerts.length ? html`<ol>${unseenAlerts.map((a) => html`<${AlertRow} key=${a.number} a=${a} />`)}</ol>` : html`<div class="pad"><${DataState} state=${state} empty="No new alerts." /></div>`}</${Card}>
    ${old.length ? html`<${Card} title="Seen before"><ol>${old.map((a) => html`<${AlertRow} key=${a.number} a=${a} />`)}</ol></${Card}>` : null}
    <${Card} title="Events that raise an alert"><table><tbody>${EVENTS.map(([text, kind, where]) => html`<tr key=${kind}><td class="dotcell"><span class="dot"></span></td><td>${text}</td><td class="r faint">${where}</td></tr>`)}</tbody></table></${Card}>
  </div></main>`;
}
