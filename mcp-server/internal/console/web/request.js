// A request, as the pages show it to the person who decides.
import { html } from "./preact.js";
import { Fact, Name } from "./parts.js";
import { escapeNodes } from "./text.js";

export const splitURL = (url) => { const m = /^(\w+:\/\/)?([^/?#]*)(.*)$/s.exec(url); return { scheme: m?.[1] ?? "", host: m?.[2] ?? "", rest: m?.[3] ?? "" }; };
const TOKEN = /\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b/g;
/** markNames returns a text as nodes, with an element for each token name. */
export function markNames(text) {
  const out = [];
  let at = 0;
  for (const m of text.matchAll(TOKEN)) { out.push(escapeNodes(text.slice(at, m.index)), html`<${Name} name=${m[0]} />`); at = m.index + m[0].length; }
  out.push(escapeNodes(text.slice(at)));
  return out;
}
/** formatBody returns a JSON body with one field per line. If that changes more than white space outside of strings, it
 * returns the body unchanged. */
export function formatBody(body) {
  try {
    const v = JSON.parse(body), text = JSON.stringify(v, null, 2), stripSpace = (s) => s.replace(/"(?:\\.|[^"\\])*"|\s+/g, (m) => m[0] === "\"" ? m : "");
    return typeof v === "object" && stripSpace(text) === stripSpace(body) ? text : body;
  } catch { return body; }
}

export const Headers = ({ list }) => list?.length ? html`<div class="body"><dl class="facts">${list.map((line) => { const i = line.indexOf(":"); return html`<${Fact} title=${escapeNodes(line.slice(0, i))}><span class="mono soft wrapany">${markNames(line.slice(i + 1).trim())}</span></${Fact}>`; })}</dl></div>` : null;
export const Body = ({ text }) => text ? html`<div class="code wrapped"><pre class="lined" tabindex="0" aria-label="Body of the request">${formatBody(text).split("\n").map((l, i) => html`<span class="l"><span class="ln" aria-hidden="true">${i + 1}</span><span>${markNames(l)}${"\n"}</span></span>`)}</pre></div>` : null;
