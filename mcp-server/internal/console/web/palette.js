// The dialogs: search and actions (ctrl-k), and the list of keys (?).
import { html, useEffect, useRef, useState } from "./preact.js";
import { Icon } from "./draw.js";
import { formatAge, formatLeft, escapeNodes } from "./text.js";
import { requestJSON } from "./session.js";
import { app, openPage, listWaiting, updateApp } from "./state.js";
import { testAPI } from "./apis.js";
import { stopRun } from "./run.js";
import { isActive } from "./status.js";

export const PAGES = [["runs", "Runs", "runs", "r"], ["held", "Held", "held", "h"], ["ledger", "Ledger", "ledger", "l"], ["apis", "APIs", "api", "a"], ["servers", "Servers", "server", "s"], ["skills", "Skills", "skill", "k"], null, ["alerts", "Alerts", "bell", "b"], ["settings", "Settings", "gear", "e"]];

/** Dialog is a modal dialog. Escape or a click beside it closes it. */
function Dialog({ cls, label, children }) { // cls is also its name in app.dialog, so a late close event does not close another dialog
  const d = useRef(null);
  useEffect(() => { d.current.showModal(); }, []);
  return html`<dialog ref=${d} class=${cls} aria-label=${label} onClose=${() => { if (app.dialog === cls) updateApp({ dialog: "" }); }} onClick=${(e) => { if (e.target === d.current) d.current.close(); }}>${children}</dialog>`;
}

export function Palette() {
  const [text, setText] = useState(""), [n, choose] = useState(0), [found, setFound] = useState({ runs: [], apis: [], skills: [] });
  useEffect(() => { requestJSON("apis").then((d) => setFound((f) => ({ ...f, apis: d.apis ?? [] })), () => {}); requestJSON("skills").then((d) => setFound((f) => ({ ...f, skills: d.skills ?? [] })), () => {}); }, []);
  useEffect(() => {
    const stop = new AbortController(), timer = setTimeout(() => requestJSON("runs?" + new URLSearchParams(text.trim() ? { grep: text.trim(), limit: 8 } : { limit: 6 }), "GET", undefined, stop.signal).then((p) => setFound((f) => ({ ...f, runs: p.runs ?? [] })), () => {}), 140);
    return () => { clearTimeout(timer); stop.abort(); };
  }, [text]);
  const hasText = (...s) => s.join(" ").toLowerCase().includes(text.trim().toLowerCase()), rows = [], now = Date.now();
  const addSection = (title, list) => { if (list.length) rows.push({ title }, ...list); };
  addSection("Needs you", listWaiting().map((h) => [h, h.picture ? "Plan " + h.id + " " + h.picture[1].trim() : h.method + " " + h.url]).filter(([, text]) => hasText(text, "held approve")).map(([h, text]) => ({ icon: "held", text, hint: formatLeft(h.until, now) + " left", act: () => openPage("held", h.id) })));
  addSection("Go to", PAGES.filter((p) => p && hasText(p[1])).map(([page, name, icon, k]) => ({ icon, text: name, hint: "g " + k, act: () => openPage(page) })).concat(hasText("runs that failed") ? [{ icon: "no", text: "Runs that failed", hint: "status:failed", act: () => openPage("runs", "", "status:failed") }] : [], hasText("runs with refused requests") ? [{ icon: "warn", text: "Runs with refused requests", hint: "status:refused", act: () => openPage("runs", "", "status:refused") }] : []));
  addSection("Do", found.apis.filter((a) => a.active && text.trim() && hasText("test the api", a.name)).slice(0, 5).map((a) => ({ icon: "bolt", text: "Test the API " + a.name, hint: "one request, no change", act: () => { openPage("apis", a.name); testAPI(a.name); } }))
    .concat(found.runs.filter((r) => isActive(r) && hasText("stop run", r.title)).map((r) => ({ icon: "stop", text: "Stop " + (r.title || r.run), hint: "x", act: () => stopRun(r.run) }))));
  if (text.trim()) {
    addSection("APIs", found.apis.filter((a) => hasText(a.name, a.description)).slice(0, 5).map((a) => ({ icon: "api", text: a.name, hint: a.description, act: () => openPage("apis", a.name) })));
    addSection("Skills", found.skills.filter((k) => hasText(k.name, k.description)).slice(0, 5).map((k) => ({ icon: "skill", text: k.name, hint: k.description, act: () => openPage("skills", k.name) })));
  }
  addSection(text.trim() ? "Runs that mention it" : "Latest runs", found.runs.map((r) => ({ icon: "runs", text: r.title || r.run, hint: formatAge(r.began) + " ago", act: () => openPage("runs", r.run) })));
  const acts = rows.filter((r) => r.act), at = Math.min(n, acts.length - 1);
  const runAction = (r) => { updateApp({ dialog: "" }); r?.act(); };
  const handleKey = (e) => {
    if (e.key === "ArrowDown" || e.key === "ArrowUp") { e.preventDefault(); choose(Math.max(0, Math.min(acts.length - 1, at + (e.key === "ArrowDown" ? 1 : -1)))); }
    if (e.key === "Enter") { e.preventDefault(); runAction(acts[at]); }
  };
  useEffect(() => { document.getElementById("pl-" + at)?.scrollIntoView({ block: "nearest" }); }, [at]);
  return html`<${Dialog} cls="palette" label="Find anything or do something"><div class="field"><${Icon} name="search" /><input type="text" role="combobox" aria-expanded="true" aria-controls="pl" aria-activedescendant=${at >= 0 ? "pl-" + at : null} aria-label="Find anything or do something" placeholder="Find anything, or do something" spellcheck="false" autocomplete="off" value=${text} onInput=${(e) => { setText(e.currentTarget.value); choose(0); }} onKeyDown=${handleKey} /><kbd>esc</kbd></div>
    <ul id="pl" role="listbox" aria-label="Results">${rows.map((r) => { if (!r.act) return html`<li class="sec" role="presentation">${r.title}</li>`; const i = acts.indexOf(r); return html`<li role="option" id=${"pl-" + i} aria-selected=${i === at ? "true" : "false"} onClick=${() => runAction(r)}><${Icon} name=${r.icon} /><span class="clip">${escapeNodes(r.text)}</span><span class="faint num clip">${escapeNodes(r.hint ?? "")}</span></li>`; })}${!acts.length && html`<li class="sec" role="presentation">No match.</li>`}</ul></${Dialog}>`;
}

const KEYS = [["Next, previous", ["j"], ["k"]], ["Find anything, do something", ["ctrl"], ["k"]], ["Filter this list", ["/"]], ["Go to a page: r h l a s k b e", ["g"], ["r"]], ["Next that needs you", ["n"]], ["Approve once", ["a"]], ["Deny", ["d"]], ["Deny and stop the run", ["shift"], ["d"]], ["Stop the run", ["x"]], ["Copy the receipt", ["c"]], ["Code, output, requests", ["1"], ["2"], ["3"]], ["Freeze the screen", ["space"]], ["Test the API (on APIs)", ["t"]], ["Light, dark", ["t"]], ["Export the ledger", ["e"]], ["All alerts seen", ["shift"], ["s"]], ["These keys", ["?"]]];
export const Help = () => html`<${Dialog} cls="help" label="Keys"><h1>Keys</h1><div class="k">${KEYS.map(([text, ...keys]) => html`<div><span>${text}</span><span class="row">${keys.map((k) => html`<kbd>${k}</kbd>`)}</span></div>`)}</div></${Dialog}>`;
