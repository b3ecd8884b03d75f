// The plan of a dry run: the requests that it would send. A person approves the chosen steps, or refuses the plan.
import { html, useState } from "./preact.js";
import { Chip, Command, Fact, Name, Note, DataState } from "./parts.js";
import { formatBytes, formatTime, formatLeft, countOdd, escapeText, formatCount, escapeNodes } from "./text.js";
import { requestJSON } from "./session.js";
import { makeAddress, app, showToast, useData, useSeen } from "./state.js";
import { Icon } from "./draw.js";
import { Body, Headers, splitURL } from "./request.js";

const STATES = {
  open: ["held", "held", "Waits for you"], running: ["runs", "live", "Being sent"], done: ["ok", "ok", "Sent"], stopped: ["warn", "bad", "Sent in part"],
  refused: ["no", "bad", "Refused"], stale: ["warn", "bad", "The configuration has changed since"],
};
const describeState = (p) => STATES[p.state] ?? ["warn", "bad", escapeText(p.state)];
export const isOpen = (p) => p.state === "open" && new Date(p.until) > Date.now();
const splitTarget = (s) => s.server ? ["CALL", s.server, "." + s.tool] : [s.method, ...((u) => [u.host, u.rest])(splitURL(s.url))];

// leftOut has the steps that a person left out, by plan. It is not part of a component, because keys decide too.
const leftOut = new Map();
const listChosen = (p) => (p.steps ?? []).map((s) => s.n).filter((n) => !leftOut.get(p.id)?.has(n));

/** decidePlan approves the chosen steps of a plan, or refuses the whole plan. */
export async function decidePlan(p, approve) {
  const steps = listChosen(p);
  if (approve && !steps.length) return showToast("No request is chosen.");
  try {
    await requestJSON("plans/" + encodeURIComponent(p.id), "POST", { approve, digest: p.digest, steps: approve ? steps : [] });
    showToast(approve ? `Approved: ${formatCount(steps.length, "request")}, one after the other.` : "Refused. No request is sent.");
  } catch (e) { showToast(e.message); }
}

let shownPlan = null; // the plan on the screen
/** handleKeyOnPlan handles a key on a plan: a approves, d refuses. It ignores a plan that is not on the screen. */
export function handleKeyOnPlan(key, id) {
  if (shownPlan?.id !== id || !isOpen(shownPlan) || shownPlan.operator) return;
  if (key === "a") decidePlan(shownPlan, true);
  if (key === "d") decidePlan(shownPlan, false);
}

/** PlanRow shows a plan in the list. */
export const PlanRow = ({ p, now, current }) => { const [icon, cls, text] = describeState(p); return html`<li key=${p.id}><a class="run three" href=${makeAddress("held", p.id)} aria-current=${current ? "true" : null}><span class=${"st " + cls}><${Icon} name=${icon} /></span><span class="row"><span class="t clip grow">Plan of ${formatCount(p.writes, "write")}</span><span class="d num held">${isOpen(p) ? formatLeft(p.until, now) : ""}</span></span><span class="sub"><span class="clip mono">${escapeNodes((p.picture?.[1] ?? "").trim())}</span></span><span></span><span class="sub">${p.ended ? html`<${Chip} cls="bad">incomplete</${Chip}> ` : null}<${Chip} cls=${cls}>${text}</${Chip}></span></a></li>`; };

function Change({ c }) {
  const renderValue = (v, cls) => html`<span class=${"mono wrapany " + cls}>${escapeNodes(v)}</span>`;
  return html`<${Fact} title=${escapeNodes(c.field)}>${c.before ? renderValue(c.before, "bad") : html`<span class="faint">was not there</span>`} → ${c.after ? renderValue(c.after, "ok") : html`<span class="faint">is gone</span>`}</${Fact}>`;
}

function Step({ s, p, can, again }) {
  const [verb, host, rest] = splitTarget(s), isLeftOut = leftOut.get(p.id)?.has(s.n), a = s.answer;
  const toggleStep = () => { const set = leftOut.get(p.id) ?? new Set(); if (!set.delete(s.n)) set.add(s.n); leftOut.set(p.id, set); again(); };
  return html`<section class="card step" aria-label=${"Step " + s.n}><header>${can ? html`<input type="checkbox" checked=${!isLeftOut} aria-label=${`Send step ${s.n}`} onChange=${toggleStep} />` : null}<span class="faint num">${s.n}</span><h2 class="grow wrapany"><span class="mono">${escapeNodes(verb)}</span> ${escapeNodes(host)}<span class="ember">${escapeNodes(rest)}</span></h2>
      ${(s.tokens ?? []).map((name) => html`<${Name} name=${name} />`)}${s.rule ? html`<${Chip} title=${escapeText(s.rule)}>asked for by a rule</${Chip}>` : null}
      ${a ? html`<span class=${a.code || a.status >= 300 ? "bad" : "ok"}>${a.status || escapeNodes(a.code)}</span>` : isLeftOut ? html`<span class="faint">left out</span>` : null}</header>
    ${s.changes?.length ? html`<div class="body"><dl class="facts">${s.changes.map((c) => html`<${Change} c=${c} />`)}</dl></div>` : null}
    ${s.headers?.length || s.body ? html`<details open=${p.writes <= 3}><summary class="pad soft">All that is sent${s.body ? ", " + formatBytes(new TextEncoder().encode(s.body).length) + " of body" : ""}</summary><${Headers} list=${s.headers} /><${Body} text=${s.body} /></details>` : null}
    ${a?.why || a?.body ? html`<details><summary class="pad soft">Answer</summary>${a.why ? html`<p class="pad">${escapeNodes(a.why)}</p>` : null}${a.body ? html`<pre class="answer" tabindex="0">${escapeNodes(a.body)}</pre>` : null}</details>` : null}</section>`;
}

/** Plan shows a plan with all its requests, and the buttons for a decision. */
export function Plan({ id, now }) {
  const state = useData("plans/" + encodeURIComponent(id), app.versions.held), p = state.data, [, redraw] = useState(0), early = !useSeen(p?.id ?? "");
  if (!p) return html`<div class="page"><${DataState} state=${state} /></div>`;
  shownPlan = p;
  const [icon, cls, text] = describeState(p), steps = p.steps ?? [], can = isOpen(p) && !p.operator, n = listChosen(p).length;
  const strange = countOdd(steps.map((s) => [s.url, s.server, s.tool, s.body, ...(s.headers ?? [])].join("\n")).join("\n"));
  const chooseAll = (on) => { leftOut.set(p.id, new Set(on ? [] : steps.map((s) => s.n))); redraw((x) => x + 1); };
  return html`<div class="withbar"><div class="page" tabindex="-1">
      <div class="hero"><div class="row wrap"><a class="btn quiet small back" href=${makeAddress("held")} aria-label="Back to the list">←</a><span class=${"status " + cls}><span class=${"row " + cls}><${Icon} name=${icon} />${text}</span></span><span class="faint">by dry run <a class="mono soft" href=${makeAddress("runs", p.run)}>${escapeNodes(p.run)}</a>, ${formatTime(p.since, false)}</span></div>
        <p class="verb">${formatCount(p.writes, "write")} <span class="faint">would be sent; ${formatCount(p.reads, "read")} done</span></p></div>
      ${p.ended ? html`<${Note} cls="held"><b>The plan is incomplete.</b> ${escapeNodes(p.ended)}</${Note}>` : null}
      ${strange.hidden ? html`<${Note} cls="held"><b>${formatCount(strange.hidden, "character")} in it cannot be seen</b>. They are shown by their number.</${Note}>` : null}
      ${can && steps.length > 1 ? html`<div class="row"><button type="button" class="btn small" onClick=${() => chooseAll(true)}>Choose all</button><button type="button" class="btn small" onClick=${() => chooseAll(false)}>Choose none</button><span class="faint">${n} of ${steps.length} chosen, sent in this order until one fails</span></div>` : null}
      ${steps.length > 3 && p.picture?.length ? html`<pre class="answer" tabindex="0" aria-label="In few lines">${p.picture.slice(1).map((line) => [escapeNodes(line), "\n"])}</pre>` : null}
      ${steps.map((s) => html`<${Step} key=${s.n} s=${s} p=${p} can=${can} again=${() => redraw((x) => x + 1)} />`)}
      ${p.audit ? html`<p class="faint">In the ledger: <span class="mono">${escapeNodes(p.audit)}</span></p>` : null}</div>
    <div class="actions" role="group" aria-label="Decide">${isOpen(p) ? html`<div class="num count"><b>${formatLeft(p.until, now)}</b><div class="faint">to decide</div></div>` : null}<span class="grow"></span>
      ${can ? html`<button type="button" class="btn no" disabled=${early} onClick=${() => decidePlan(p, false)}>Refuse <kbd>d</kbd></button><button type="button" class="btn main" disabled=${early || !n} onClick=${() => decidePlan(p, true)}><${Icon} name="touch" />Approve ${n === steps.length ? (n === 1 ? "it" : "all " + n) : `${n} of ${steps.length}`} <kbd>a</kbd></button>`
      : isOpen(p) ? html`<div class="operator"><p class="soft">The operator decides about this plan, in a terminal:</p><${Command} text=${"codeforge plan approve " + escapeText(p.id)} /></div>` : html`<span class="soft">${text}.</span>`}</div></div>`;
}
