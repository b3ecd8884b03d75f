// Components that several pages use.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { Icon } from "./draw.js";
import { escapeNodes } from "./text.js";
import { copyText } from "./state.js";

export const Name = ({ name }) => html`<span class="name">${escapeNodes(name)}</span>`;
export const Chip = ({ cls = "", icon, title, children }) => html`<span class=${"chip " + cls} title=${title}>${icon && html`<${Icon} name=${icon} />`}<span class="clip">${children}</span></span>`;
export const Kbd = ({ keys }) => keys.map((k) => html`<kbd>${k}</kbd>`);
export const Tile = ({ title, value, sub, cls }) => html`<div><dt>${title}</dt><dd class=${cls}>${value}${sub && html`<small>${sub}</small>`}</dd></div>`;
export const Fact = ({ title, children }) => html`<dt>${title}</dt><dd>${children}</dd>`;
export const CopyButton = ({ text, what, label }) => html`<button class="btn quiet small" title=${"Copy " + what} aria-label=${"Copy " + what} onClick=${() => copyText(text, what[0].toUpperCase() + what.slice(1))}><${Icon} name="copy" />${label}</button>`;
export const Command = ({ text }) => html`<div class="row frame command"><span class="clip">${text}</span><${CopyButton} text=${text} what="the command" /></div>`;
export const Note = ({ cls, icon = "warn", children }) => html`<div class=${"note " + cls}><${Icon} name=${icon} /><p>${children}</p></div>`;
/** DataState stands in for missing data. It shows the error, or "…" during a load, or else the text in empty. */
export const DataState = ({ state, empty }) => state.error ? html`<${Note} cls="bad">${escapeNodes(state.error)}</${Note}>` : !state.data ? html`<p class="faint pad" aria-busy="true">…</p>` : empty ? html`<div class="pad faint">${empty}</div>` : null;
export const Card = ({ title, side, label, cls = "", children }) => html`<section class=${"card " + cls} aria-label=${label ?? title}><header><h2 class="grow">${title}</h2>${side}</header>${children}</section>`;
/** Switch shows a button for each choice [value, text, count], and calls on(value) after a click. */
export const Switch = ({ label, value, choices, on }) => html`<div class="seg" role="group" aria-label=${label}>${choices.map(([v, text, count]) => html`<button type="button" aria-pressed=${v === value ? "true" : "false"} onClick=${() => on(v)}>${text}${count === undefined ? null : html` <b class="num">${count}</b>`}</button>`)}</div>`;
/** Search is a filter field. It calls on(text) 180 ms after the last change, or at Enter. The key / focuses it. */
export function Search({ label, value, hint, on }) {
  const [text, setText] = useState(value), timer = useRef(0), reported = useRef(value);
  // The reported text returns as value, maybe after more typing. So only another value replaces the text.
  useEffect(() => { if (value !== reported.current) setText(reported.current = value); }, [value]);
  const report = (v) => { clearTimeout(timer.current); on(reported.current = v); };
  const handleInput = (e) => { const v = e.currentTarget.value; setText(v); clearTimeout(timer.current); timer.current = setTimeout(() => report(v), 180); };
  const handleKey = (e) => { if (e.key === "Escape") { clearTimeout(timer.current); e.currentTarget.blur(); if (text) { setText(""); report(""); } } if (e.key === "Enter") { report(text); e.currentTarget.blur(); } };
  return html`<label class="field"><${Icon} name="search" /><span class="sr">${label}</span><input type="search" spellcheck="false" autocomplete="off" value=${text} placeholder=${hint} onInput=${handleInput} onKeyDown=${handleKey} /><kbd>/</kbd></label>`;
}

/** VirtualList is a list of any length. The document has only its visible rows and 8 on each side. height is that of a
 * row in px. VirtualList calls near() if fewer than 300 rows follow. */
export function VirtualList({ count, height, row, near, label, chosen }) {
  const box = useRef(null), [view, setView] = useState({ top: 0, size: 900 });
  const measureBox = () => { const b = box.current; if (b) setView((v) => v.top === b.scrollTop && v.size === b.clientHeight ? v : { top: b.scrollTop, size: b.clientHeight }); };
  useEffect(() => { const o = new ResizeObserver(measureBox); o.observe(box.current); measureBox(); return () => o.disconnect(); }, []);
  useLayoutEffect(() => {
    const b = box.current;
    if (!b || chosen < 0) return;
    if (chosen * height < b.scrollTop) b.scrollTop = chosen * height;
    else if ((chosen + 1) * height > b.scrollTop + b.clientHeight) b.scrollTop = (chosen + 1) * height - b.clientHeight;
  }, [chosen]);
  const from = Math.max(0, Math.floor(view.top / height) - 8), to = Math.min(count, Math.ceil((view.top + view.size) / height) + 8);
  useEffect(() => { if (to > count - 300) near?.(); }, [to, count]);
  const rows = [];
  for (let i = from; i < to; i++) rows.push(row(i, i * height));
  return html`<div class="scroll" ref=${box} onScroll=${measureBox} tabindex="-1"><ol class="runs" aria-label=${label} style=${{ height: count * height + "px" }}>${rows}</ol></div>`;
}

/** Diff shows changed lines, and up to 3 lines before and after each. It shows at most 2,000 lines. */
export function Diff({ lines, label }) {
  const near = new Set(), out = [];
  lines.forEach((l, i) => { if (l.k !== " ") for (let j = i - 3; j <= i + 3; j++) near.add(j); });
  let skipped = false;
  lines.forEach((l, i) => {
    if (!near.has(i)) { skipped = true; return; }
    if (skipped && out.length) out.push(html`<div class="hunk"><span></span><span></span><span>…</span></div>`);
    skipped = false;
    if (out.length < 2000) out.push(html`<div class=${{ "+": "add", "-": "del", " ": "" }[l.k]}><span class="n">${l.n}</span><span class="s">${{ "+": "+", "-": "\u2212", " ": "" }[l.k]}</span><span>${escapeNodes(l.t)}</span></div>`);
  });
  return html`<div class="diff" tabindex="0" role="region" aria-label=${label}>${out}</div>`;
}
