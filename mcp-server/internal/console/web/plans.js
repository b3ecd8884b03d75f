// The plan of a dry run: the requests that it would send. A person approves the chosen steps, or refuses the plan.
import { html, useState } from "./preact.js";
import { Chip, Command, Fact, Name, Note, Wrong } from "./parts.js";
import { bytes, clock, left, odd, plain, plural, shown } from "./text.js";
import { api } from "./session.js";
import { address, app, say, useData, useSeen } from "./state.js";
import { Icon } from "./draw.js";
import { Body, Headers, parts } from "./request.js";

const STATES = {
  open: ["held", "held", "Waits for you"], running: ["runs", "live", "Being sent"], done: ["ok", "ok", "Sent"], stopped: ["warn", "bad", "Sent in part"],
  refused: ["no", "bad", "Refused"], stale: ["warn", "bad", "The configuration has changed since"],
};
const stateOf = (p) => STATES[p.state] ?? ["warn", "bad", plain(p.state)];
export const open = (p) => p.state === "open" && new Date(p.until) > Date.now();
const target = (s) => s.server ? ["CALL", s.server, "." + s.tool] : [s.method, ...((u) => [u.host, u.rest])(parts(s.url))];

// out has the steps that a person left out, by plan. It is not part of a component, because keys decide too.
const out = new Map();
const chosen = (p) => (p.steps ?? []).map((s) => s.n).filter((n) => !out.get(p.id)?.has(n));

/** decide approves the chosen steps of a plan, or refuses the whole plan. */
export async function decide(p, approve) {
  const steps = chosen(p);
  if (approve && !steps.length) return say("No request is chosen.");
  try {
    await api("plans/" + encodeURIComponent(p.id), "POST", { approve, digest: p.digest, steps: approve ? steps : [] });
    say(approve ? `Approved: ${plural(steps.length, "request")}, one after the other.` : "Refused. No request is sent.");
  } catch (e) { say(e.message); }
}

let seen = null; // the plan on the screen
/** planKeys handles a key on a plan: a approves, d refuses. It ignores a plan that is not on the screen. */
export function planKeys(key, id) {
  if (seen?.id !== id || !open(seen) || seen.operator) return;
  if (key === "a") decide(seen, true);
  if (key === "d") decide(seen, false);
}

/** Row shows a plan in the list. */
export const Row = ({ p, now, current }) => { const [icon, cls, text] = stateOf(p); return html`<li key=${p.id}><a class="run three" href=${address("held", p.id)} aria-current=${current ? "true" : null}><span class=${"st " + cls}><${Icon} name=${icon} /></span><span class="row"><span class="t clip grow">Plan of ${plural(p.writes, "write")}</span><span class="d num held">${open(p) ? left(p.until, now) : ""}</span></span><span class="sub"><span class="clip mono">${shown((p.picture?.[1] ?? "").trim())}</span></span><span></span><span class="sub">${p.ended ? html`<${Chip} cls="bad">incomplete</${Chip}> ` : null}<${Chip} cls=${cls}>${text}</${Chip}></span></a></li>`; };

function Change({ c }) {
  const one = (v, cls) => html`<span class=${"mono wrapany " + cls}>${shown(v)}</span>`;
  return html`<${Fact} title=${shown(c.field)}>${c.before ? one(c.before, "bad") : html`<span class="faint">was not there</span>`} → ${c.after ? one(c.after, "ok") : html`<span class="faint">is gone</span>`}</${Fact}>`;
}

function Step({ s, p, can, again }) {
  const [verb, host, rest] = target(s), left_ = out.get(p.id)?.has(s.n), a = s.answer;
  const turn = () => { const set = out.get(p.id) ?? new Set(); if (!set.delete(s.n)) set.add(s.n); out.set(p.id, set); again(); };
  return html`<section class="card step" aria-label=${"Step " + s.n}><header>${can ? html`<input type="checkbox" checked=${!left_} aria-label=${`Send step ${s.n}`} onChange=${turn} />` : null}<span class="faint num">${s.n}</span><h2 class="grow wrapany"><span class="mono">${shown(verb)}</span> ${shown(host)}<span class="ember">${shown(rest)}</span></h2>
      ${(s.tokens ?? []).map((name) => html`<${Name} name=${name} />`)}${s.rule ? html`<${Chip} title=${plain(s.rule)}>asked for by a rule</${Chip}>` : null}
      ${a ? html`<span class=${a.code || a.status >= 300 ? "bad" : "ok"}>${a.status || shown(a.code)}</span>` : left_ ? html`<span class="faint">left out</span>` : null}</header>
    ${s.changes?.length ? html`<div class="body"><dl class="facts">${s.changes.map((c) => html`<${Change} c=${c} />`)}</dl></div>` : null}
    ${s.headers?.length || s.body ? html`<details open=${p.writes <= 3}><summary class="pad soft">All that is sent${s.body ? ", " + bytes(new TextEncoder().encode(s.body).length) + " of body" : ""}</summary><${Headers} list=${s.headers} /><${Body} text=${s.body} /></details>` : null}
    ${a?.why || a?.body ? html`<details><summary class="pad soft">Answer</summary>${a.why ? html`<p class="pad">${shown(a.why)}</p>` : null}${a.body ? html`<pre class="answer" tabindex="0">${shown(a.body)}</pre>` : null}</details>` : null}</section>`;
}

/** Plan shows a plan with all its requests, and the buttons for a decision. */
export function Plan({ id, now }) {
  const state = useData("plans/" + encodeURIComponent(id), app.versions.held), p = state.data, [, again] = useState(0), early = !useSeen(p?.id ?? "");
  if (!p) return html`<div class="page"><${Wrong} state=${state} /></div>`;
  seen = p;
  const [icon, cls, text] = stateOf(p), steps = p.steps ?? [], can = open(p) && !p.operator, n = chosen(p).length;
  const strange = odd(steps.map((s) => [s.url, s.server, s.tool, s.body, ...(s.headers ?? [])].join("\n")).join("\n"));
  const all = (on) => { out.set(p.id, new Set(on ? [] : steps.map((s) => s.n))); again((x) => x + 1); };
  return html`<div class="withbar"><div class="page" tabindex="-1">
      <div class="hero"><div class="row wrap"><a class="btn quiet small back" href=${address("held")} aria-label="Back to the list">←</a><span class=${"status " + cls}><span class=${"row " + cls}><${Icon} name=${icon} />${text}</span></span><span class="faint">by dry run <a class="mono soft" href=${address("runs", p.run)}>${shown(p.run)}</a>, ${clock(p.since, false)}</span></div>
        <p class="verb">${plural(p.writes, "write")} <span class="faint">would be sent; ${plural(p.reads, "read")} done</span></p></div>
      ${p.ended ? html`<${Note} cls="held"><b>The plan is incomplete.</b> ${shown(p.ended)}</${Note}>` : null}
      ${strange.hidden ? html`<${Note} cls="held"><b>${plural(strange.hidden, "character")} in it cannot be seen</b>. They are shown by their number.</${Note}>` : null}
      ${can && steps.length > 1 ? html`<div class="row"><button type="button" class="btn small" onClick=${() => all(true)}>Choose all</button><button type="button" class="btn small" onClick=${() => all(false)}>Choose none</button><span class="faint">${n} of ${steps.length} chosen, sent in this order until one fails</span></div>` : null}
      ${steps.length > 3 && p.picture?.length ? html`<pre class="answer" tabindex="0" aria-label="In few lines">${p.picture.slice(1).map((line) => [shown(line), "\n"])}</pre>` : null}
      ${steps.map((s) => html`<${Step} key=${s.n} s=${s} p=${p} can=${can} again=${() => again((x) => x + 1)} />`)}
      ${p.audit ? html`<p class="faint">In the ledger: <span class="mono">${shown(p.audit)}</span></p>` : null}</div>
    <div class="actions" role="group" aria-label="Decide">${open(p) ? html`<div class="num count"><b>${left(p.until, now)}</b><div class="faint">to decide</div></div>` : null}<span class="grow"></span>
      ${can ? html`<button type="button" class="btn no" disabled=${early} onClick=${() => decide(p, false)}>Refuse <kbd>d</kbd></button><button type="button" class="btn main" disabled=${early || !n} onClick=${() => decide(p, true)}><${Icon} name="touch" />Approve ${n === steps.length ? (n === 1 ? "it" : "all " + n) : `${n} of ${steps.length}`} <kbd>a</kbd></button>`
      : open(p) ? html`<div class="operator"><p class="soft">The operator decides about this plan, in a terminal:</p><${Command} text=${"codeforge plan approve " + plain(p.id)} /></div>` : html`<span class="soft">${text}.</span>`}</div></div>`;
}
