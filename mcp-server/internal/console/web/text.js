// Text and numbers. Text of code, APIs and models becomes text nodes, never markup. The console never makes HTML from a
// string, and the page's policy (trusted-types 'none') would refuse that.
import { html } from "./preact.js";

// ODD matches characters that are invisible or undefined, or that change the direction of text, like internal/safetext.
// The console shows the number of each, so that a person can read the whole text.
const ODD = /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/gu;
const isHarmless = (text, at, c) => c === "\n" || c === "\t" || (c === "\r" && text[at + 1] === "\n") ||
  ((c === "\ufe0e" || c === "\ufe0f") && at > 0 && text[at - 1] > " " && !text[at - 1].match(ODD));
const formatCodePoint = (c) => "U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

// MOST is the number of odd characters that one text shows by number. It shows U+FFFD for a later sequence.
const MOST = 400;

/** escapeNodes returns a text as children of an element, with a number in place of each odd character. A repeated
 * character has one number with a count. */
export function escapeNodes(text) {
  text = String(text ?? "");
  const out = [];
  let at = 0, n = 0, last = null;
  for (const m of text.matchAll(ODD)) {
    if (isHarmless(text, m.index, m[0])) continue;
    if (m.index > at) { out.push(text.slice(at, m.index)); last = null; }
    at = m.index + m[0].length;
    if (last && last.c === m[0]) last.n++;
    else if (n < MOST) { last = { c: m[0], n: 1 }; out.push(last); n++; }
    else if (out[out.length - 1] !== "\ufffd") { out.push("\ufffd"); last = null; }
  }
  if (at === 0) return text;
  out.push(text.slice(at));
  return out.map((o) => typeof o === "string" ? o : html`<span class="odd" title="an invisible character, by its number">${formatCodePoint(o.c)}${o.n > 1 ? "\u00d7" + o.n : ""}</span>`);
}

/** countOdd counts the odd characters of a text (hidden), and those of them that change its direction (turning). */
export function countOdd(text) {
  let hidden = 0, turning = 0;
  for (const m of String(text ?? "").matchAll(ODD)) {
    if (isHarmless(text, m.index, m[0])) continue;
    hidden++;
    if (/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(m[0])) turning++;
  }
  return { hidden, turning };
}

/** escapeText returns a text for an attribute: one line of at most 300 characters, with odd characters as numbers. */
export const escapeText = (text) => String(text ?? "").replace(ODD, (c) => c === "\n" || c === "\t" ? " " : formatCodePoint(c)).slice(0, 300);

// Numbers with units for people: formatBytes takes bytes, and formatDuration takes milliseconds.
export const formatBytes = (n) => !n ? "0" : n < 1000 ? n + " B" : n < 1e6 ? (n / 1e3).toFixed(n < 1e4 ? 1 : 0) + " kB" : n < 1e9 ? (n / 1e6).toFixed(n < 1e7 ? 1 : 0) + " MB" : (n / 1e9).toFixed(1) + " GB";
export const formatDuration = (n) => n < 1000 ? Math.round(n) + " ms" : n < 60000 ? (n / 1000).toFixed(n < 10000 ? 2 : 1) + " s" : Math.floor(n / 60000) + " m " + String(Math.floor(n % 60000 / 1000)).padStart(2, "0") + " s";
export const formatNumber = (n) => String(Math.round(n ?? 0)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
export const formatCount = (n, one, many = one + "s") => formatNumber(n) + " " + (n === 1 ? one : many);

const toDate = (t) => t instanceof Date ? t : new Date(t);
const isNever = (t) => !t || String(t).startsWith("0001-");
/** formatAge returns the time since t in one unit, e.g. "5 min". */
export function formatAge(t, now = Date.now()) {
  if (isNever(t)) return "never";
  const s = Math.max(0, (now - toDate(t)) / 1000);
  return s < 60 ? Math.floor(s) + " s" : s < 3600 ? Math.floor(s / 60) + " min" : s < 86400 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d";
}
const padNumber = (n) => String(n).padStart(2, "0");
/** formatTime returns the local time of t, with the day unless that is today. */
export function formatTime(t, seconds = true) {
  if (isNever(t)) return "never";
  const d = toDate(t), day = d.toDateString() === new Date().toDateString() ? "" : `${d.getDate()} ${d.toLocaleString("en", { month: "short" })} `;
  return day + padNumber(d.getHours()) + ":" + padNumber(d.getMinutes()) + (seconds ? ":" + padNumber(d.getSeconds()) : "");
}
/** formatLeft returns the time left until a moment, in minutes and seconds: "4:05". */
export const formatLeft = (until, now) => { const s = Math.max(0, Math.ceil((toDate(until) - now) / 1000)); return Math.floor(s / 60) + ":" + padNumber(s % 60); };

// Colours for code: ranges over text nodes, which need no elements (CSS Custom Highlight API).
const WORDS = /\/\/[^\n]*|#[^\n]*|\/\*[\s\S]*?\*\/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`|\b(?:import|from|export|const|let|var|function|return|await|async|new|throw|if|else|for|of|in|while|type|interface|as|true|false|null|undefined|typeof|class|def|elif|with|None|True|False|lambda|try|except|raise|catch|finally)\b|\b\d[\d_.]*\b/g;
const TOKEN = /\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b/g;
const highlights = new Map();

/** highlightText colours the text nodes of an element, and removes the earlier colours of the same key. Without an
 * element (null) it only removes colours. If names is set, it colours only token names in it. */
export function highlightText(element, key, names, python) {
  if (!globalThis.CSS?.highlights) return;
  for (const [kind, r] of highlights.get(key) ?? []) CSS.highlights.get(kind)?.delete(r);
  highlights.delete(key);
  if (!element) return;
  const mine = [];
  const addRange = (node, kind, a, b) => {
    const r = new Range();
    r.setStart(node, a); r.setEnd(node, b);
    if (!CSS.highlights.has(kind)) { const h = new Highlight(); h.priority = kind === "tok" ? 2 : 1; CSS.highlights.set(kind, h); }
    CSS.highlights.get(kind).add(r);
    mine.push([kind, r]);
  };
  const walk = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node && mine.length < 20000; node = walk.nextNode()) {
    if (node.parentElement.className === "odd") continue;
    for (const m of node.data.matchAll(WORDS)) {
      const c = m[0][0];
      if (c === "#" && !python) continue;
      addRange(node, m[0].startsWith("//") || m[0].startsWith("/*") || c === "#" ? "com" : "\"'`".includes(c) ? "str" : /\d/.test(c) ? "num" : "kw", m.index, m.index + m[0].length);
    }
    for (const m of node.data.matchAll(TOKEN)) if (!names || names.has(m[0])) addRange(node, "tok", m.index, m.index + m[0].length);
  }
  highlights.set(key, mine);
}

/** diffLines returns the difference of two texts in lines, by their longest common subsequence. Changed parts with more
 * than 4 million pairs of lines are replaced whole. */
export function diffLines(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let from = 0, ea = a.length, eb = b.length;
  while (from < ea && from < eb && a[from] === b[from]) from++;
  while (ea > from && eb > from && a[ea - 1] === b[eb - 1]) { ea--; eb--; }
  const n = ea - from, m = eb - from, out = [];
  const addSame = (i, j) => out.push({ k: " ", n: j + 1, t: b[j] });
  for (let i = 0; i < from; i++) addSame(i, i);
  if (n * m > 4e6) {
    for (let i = from; i < ea; i++) out.push({ k: "-", n: i + 1, t: a[i] });
    for (let j = from; j < eb; j++) out.push({ k: "+", n: j + 1, t: b[j] });
  } else {
    const w = m + 1, best = new Uint16Array((n + 1) * w);
    for (let i = n - 1; i >= 0; i--) for (let j = m - 1; j >= 0; j--) best[i * w + j] = a[from + i] === b[from + j] ? best[(i + 1) * w + j + 1] + 1 : Math.max(best[(i + 1) * w + j], best[i * w + j + 1]);
    let i = 0, j = 0;
    while (i < n || j < m) {
      if (i < n && j < m && a[from + i] === b[from + j]) { addSame(from + i, from + j); i++; j++; }
      else if (i < n && (j >= m || best[(i + 1) * w + j] >= best[i * w + j + 1])) { out.push({ k: "-", n: from + i + 1, t: a[from + i] }); i++; }
      else { out.push({ k: "+", n: from + j + 1, t: b[from + j] }); j++; }
    }
  }
  for (let i = 0; i < a.length - ea; i++) addSame(ea + i, eb + i);
  return out;
}
