// What all pages share: where we are, what is live, and data that is asked for again when it has changed.
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "./preact.js";
import { api, Lost, request, signedIn } from "./session.js";

const readers = new Set();
export const app = {
  in: false, why: "", route: { page: "runs", id: "", q: "" }, frozen: false, connected: false,
  versions: { held: 0, apis: "", servers: 0, down: 0, skills: 0, load: { slots: 0, busy: 0, waiting: 0 } },
  alerts: 0, alertCount: 0, touched: 0, held: [], plans: [], problems: 0, about: null, dialog: "", toast: "",
};
/** set changes it and draws again. */
export function set(change) { Object.assign(app, change); for (const f of readers) f(); }
/** useApp draws the component again whenever it changes. */
export function useApp() {
  const [, again] = useReducer((n) => n + 1, 0);
  useLayoutEffect(() => { readers.add(again); return () => readers.delete(again); }, []);
  return app;
}

/** needs is what waits for somebody now: requests, and then plans. */
export const needs = () => [...app.held.filter((h) => h.waiting && !h.approved), ...app.plans.filter((p) => p.state === "open" && new Date(p.until) > Date.now())];

// Where we are is in the address, behind the #: a page, what is chosen on it, and a filter.
export function parse(hash) {
  const m = /^#\/([a-z]+)(?:\/([^?]*))?(?:\?(.*))?$/.exec(hash);
  const text = (s) => { try { return decodeURIComponent(s ?? ""); } catch { return ""; } };
  return m ? { page: m[1], id: text(m[2]), q: text(m[3]) } : { page: "runs", id: "", q: "" };
}
export const address = (page, id = "", q = "") => "#/" + page + (id ? "/" + encodeURIComponent(id) : "") + (q ? "?" + encodeURIComponent(q) : "");
export function go(page, id = "", q = "", replace = false) {
  const to = address(page, id, q);
  if (to === location.hash) return;
  if (replace) { history.replaceState(null, "", to); set({ route: parse(to) }); } else location.hash = to;
}

/** say shows a sentence for a while. */
let saying = 0;
export function say(text) { clearTimeout(saying); set({ toast: text }); saying = setTimeout(() => set({ toast: "" }), 5000); }

export async function copy(text, what) {
  try { await navigator.clipboard.writeText(text); say(what + " copied."); } catch { say("The browser does not allow copying here."); }
}

/** useData asks for a path, and again when the version changes, unless the screen is frozen. An empty path: nothing.
 * Least is the time between two questions, in milliseconds; more is added to what is asked, and makes no other path. */
export function useData(path, version = 0, least = 0, more = "") {
  const [state, put] = useState({ path: "", data: undefined, error: "" });
  const at = useRef({ path: "", stop: null, timer: 0, next: 0, wanted: false }).current;
  at.more = more;
  const ask = () => { // one question at a time: what is under way is not given up because there is more to ask
    if (at.stop || at.timer || !at.wanted || (app.frozen && at.has === at.path)) return;
    if (at.next > Date.now()) { at.timer = setTimeout(() => { at.timer = 0; ask(); }, at.next - Date.now()); return; }
    const stop = at.stop = new AbortController(), began = Date.now();
    const ended = (to, lost) => {
      if (at.stop !== stop) return;
      at.stop = null;
      at.next = Date.now() + least + (lost ? 2000 : 4 * (Date.now() - began));
      at.wanted ||= lost;
      put(to);
      ask();
    };
    at.wanted = false;
    api(path + at.more, "GET", undefined, stop.signal).then(
      (data) => { at.has = path; ended({ path, data, error: "" }, false); },
      (e) => ended((s) => ({ path, data: s.path === path ? s.data : undefined, error: e.message }), e instanceof Lost));
  };
  const leave = () => { at.stop?.abort(); clearTimeout(at.timer); Object.assign(at, { stop: null, timer: 0, next: 0, has: "" }); };
  useEffect(() => {
    if (at.path !== path) { leave(); at.path = path; }
    at.wanted = !!path;
    ask();
  }, [path, version, app.frozen]);
  useEffect(() => leave, []);
  return state.path === path ? state : { path, data: undefined, error: "" };
}

/** useNow draws again every so often, and gives the time. */
export function useNow(every) {
  const [now, put] = useState(Date.now());
  useEffect(() => { const t = setInterval(() => { if (!app.frozen && !document.hidden) put(Date.now()); }, every); return () => clearInterval(t); }, [every]);
  return now;
}

// What has been on the screen for a second, so that a key or a click that was meant for what was there before does nothing.
let seen = "";
/** useSeen says whether this has been on the screen for long enough to be decided about; isSeen says so to keys. */
export function useSeen(id) {
  const [it, put] = useState("");
  useEffect(() => {
    let timer = 0;
    const begin = () => { clearTimeout(timer); put(seen = ""); if (id && !document.hidden) timer = setTimeout(() => put(seen = id), 1000); };
    begin();
    // A page that closes itself must not pass the keys that were meant for it to this window.
    addEventListener("focus", begin);
    document.addEventListener("visibilitychange", begin);
    return () => { removeEventListener("focus", begin); document.removeEventListener("visibilitychange", begin); clearTimeout(timer); seen = ""; };
  }, [id]);
  return it === id;
}
export const isSeen = (id) => seen === id;

// The stream of what changes: one, while the page is visible. It goes on where it ended; what it missed is asked anew.
let stop = null, after = "", watched = "", gapped = () => {}, told = () => {};
export const onRuns = (runs, gap) => { told = runs; gapped = gap; };

export function watch(run) {
  if (run === watched) return;
  watched = run;
  restart();
}
export function restart() {
  stop?.abort();
  stop = null;
  if (app.in && signedIn() && !document.hidden) { stop = new AbortController(); follow(stop.signal); }
}
document.addEventListener("visibilitychange", restart);

// SILENCE is after how many milliseconds a stream without a line is taken for dead: there is one every 15 s.
const SILENCE = 40000;

async function follow(signal) {
  for (let pause = 300; !signal.aborted; pause = Math.min(pause * 2, 5000)) {
    const dead = new AbortController();
    let silent = setTimeout(() => dead.abort(), SILENCE);
    try {
      const r = await request("live?" + new URLSearchParams({ after, run: watched }), { signal: AbortSignal.any([signal, dead.signal]) });
      if (!r.ok) throw new Error("status " + r.status);
      const lines = r.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      set({ connected: true });
      for (;;) {
        const { value, done } = await lines.read();
        if (done) break;
        clearTimeout(silent);
        silent = setTimeout(() => dead.abort(), SILENCE);
        pause = 300;
        rest += value;
        const whole = rest.split("\n");
        rest = whole.pop();
        for (const line of whole) if (line) hear(JSON.parse(line));
      }
    } catch { /* it is tried again */ }
    clearTimeout(silent);
    if (signal.aborted) return;
    set({ connected: false });
    await new Promise((done) => setTimeout(done, pause));
  }
}

function hear(news) {
  const change = {};
  if (news.versions) change.versions = news.versions;
  if (news.touched || news.gap) change.touched = app.touched + 1;
  if (news.alerts || news.gap) change.alerts = app.alerts + 1;
  if (news.after) after = news.after;
  if (Object.keys(change).length) set(change);
  if (news.gap) gapped();
  if (news.runs) told(news.runs);
}
