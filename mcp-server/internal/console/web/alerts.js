// The page of alerts: unseen ones, seen ones, and the events that raise an alert.
import { html, useEffect } from "./preact.js";
import { Card, Chip, Kbd, Wrong } from "./parts.js";
import { clock, plural, shown } from "./text.js";
import { api } from "./session.js";
import { address, app, say, set, useData } from "./state.js";
import { Icon } from "./draw.js";

// CLASSES has the CSS class, and so the colour, for kinds of alerts. Other kinds have the colour of held requests.
const CLASSES = { alarm: "bad", pinned: "bad", server: "bad", history: "bad", skill: "live" };
const WORTH = [
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

/** count loads the number of unseen alerts, which the rail shows. */
export async function count() {
  try { set({ alertCount: (await api("alerts?unseen=1") ?? []).length }); } catch { /* for instance without a store: the number stays */ }
}
let news = [];
/** seen marks the alerts on the screen and all earlier ones as seen. Later alerts stay unseen. */
export async function seen() {
  const last = Math.max(0, ...news.map((a) => a.number));
  if (!last) return;
  try { await api("alerts/seen/" + last, "POST"); } catch (e) { say(e.message); }
  set({ alerts: app.alerts + 1 });
}

const One = ({ a }) => html`<li class="row alert"><span class=${CLASSES[a.kind] ?? "held"}><${Icon} name="warn" /></span><div class="grow"><h3>${shown(a.title)}</h3>${a.text && html`<p class="soft">${shown(a.text)}</p>`}${a.further ? html`<details><summary class="soft">${plural(a.further, "more alert")} of the same cause</summary><ul>${(a.titles ?? []).map((t) => html`<li class="soft">${shown(t)}</li>`)}</ul></details>` : null}</div><${Chip}>${shown(a.kind)}</${Chip}>${a.run && html`<a class="mono soft" href=${address("runs", a.run)}>${shown(a.run.slice(0, 9))}</a>`}${a.skill && html`<a class="mono soft" href=${address("skills", a.skill)}>${shown(a.skill)}</a>`}${a.api && html`<a class="mono soft" href=${address(a.kind === "server" ? "servers" : "apis", a.api)}>${shown(a.api)}</a>`}<span class="faint num">${clock(a.at, false)}</span></li>`;

export function Alerts() {
  const state = useData("alerts", app.alerts), list = state.data ?? [], old = list.filter((a) => a.seen).slice(0, 50);
  news = list.filter((a) => !a.seen);
  useEffect(() => { count(); }, [state.data]);
  return html`<main id="main"><div class="page" tabindex="-1">
    <div class="row"><h1 class="grow title">Alerts</h1><button type="button" class="btn" disabled=${!news.length} onClick=${seen}>All seen <${Kbd} keys=${["shift", "s"]} /></button></div>
    <${Card} title="Not seen yet">${news.length ? html`<ol>${news.map((a) => html`<${One} key=${a.number} a=${a} />`)}</ol>` : html`<div class="pad"><${Wrong} state=${state} empty="No new alerts." /></div>`}</${Card}>
    ${old.length ? html`<${Card} title="Seen before"><ol>${old.map((a) => html`<${One} key=${a.number} a=${a} />`)}</ol></${Card}>` : null}
    <${Card} title="Events that raise an alert"><table><tbody>${WORTH.map(([text, kind, where]) => html`<tr key=${kind}><td class="dotcell"><span class="dot"></span></td><td>${text}</td><td class="r faint">${where}</td></tr>`)}</tbody></table></${Card}>
  </div></main>`;
}
