// State that all pages share: the route, the stream of changes, and data that loads again after a change.
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "./preact.js";
import { api, Lost, request, signedIn } from "./session.js";

const readers = new Set();
export const app = {
  in: false, why: "", route: { page: "runs", id: "", q: "" }, frozen: false, connected: false,
  versions: { held: 0, apis: "", servers: 0, down: 0, skills: 0, load: { slots: 0, busy: 0, waiting: 0 } },
  alerts: 0, alertCount: 0, touched: 0, held: [], plans: [], problems: 0, about: null, dialog: "", toast: "",
};
/** set changes fields of app, and draws all components that use app again. */
export function set(change) { Object.assign(app, change); for (const f of readers) f(); }
/** useApp returns app, and draws the component again after each change. */
export function useApp() {
  const [, again] = useReducer((n) => n + 1, 0);
  useLayoutEffect(() => { readers.add(again); return () => readers.delete(again); }, []);
  return app;
}

/** needs returns the requests and then the plans that wait for a decision now. */
export const needs = () => [...app.held.filter((h) => h.waiting && !h.approved), ...app.plans.filter((p) => p.state === "open" && new Date(p.until) > Date.now())];

// parse reads the route from the address behind the #: a page, the id of the chosen item, and a filter.
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

let saying = 0;
/** say shows a sentence for 5 s. */
export function say(text) { clearTimeout(saying); set({ toast: text }); saying = setTimeout(() => set({ toast: "" }), 5000); }

export async function copy(text, what) {
  try { await navigator.clipboard.writeText(text); say(what + " copied."); } catch { say("The browser does not allow copying here."); }
}

/** useData loads a path, and loads it again if the version changes and the screen is not frozen. It ignores an empty
 * path. least is the shortest pause after an answer, in ms. more is added to the address; the data still counts as that
 * of path. */
export function useData(path, version = 0, least = 0, more = "") {
  const [state, put] = useState({ path: "", data: undefined, error: "" });
  const at = useRef({ path: "", stop: null, timer: 0, next: 0, wanted: false }).current;
  at.more = more;
  const ask = () => { // one request at a time: a new version does not abort the present one
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

/** useNow returns the time in ms. It draws again at each interval of every ms, unless the page is frozen or hidden. */
export function useNow(every) {
  const [now, put] = useState(Date.now());
  useEffect(() => { const t = setInterval(() => { if (!app.frozen && !document.hidden) put(Date.now()); }, every); return () => clearInterval(t); }, [every]);
  return now;
}

// seen is the id of the item that has been on the screen for 1 s. Before that, a person cannot decide, because a key or
// a click may be meant for the item that was there before.
let seen = "";
/** useSeen reports whether the item with this id has been on the screen for 1 s. isSeen reports the same to keys. */
export function useSeen(id) {
  const [it, put] = useState("");
  useEffect(() => {
    let timer = 0;
    const begin = () => { clearTimeout(timer); put(seen = ""); if (id && !document.hidden) timer = setTimeout(() => put(seen = id), 1000); };
    begin();
    // If another window closes itself, keys for it arrive here. So the second begins again.
    addEventListener("focus", begin);
    document.addEventListener("visibilitychange", begin);
    return () => { removeEventListener("focus", begin); document.removeEventListener("visibilitychange", begin); clearTimeout(timer); seen = ""; };
  }, [id]);
  return it === id;
}
export const isSeen = (id) => seen === id;

// The stream of changes: there is one while the page is visible. A new stream begins at the end of the last one. After
// a gap, the pages load their data again.
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

// SILENCE is the time in ms after which a stream without a line counts as broken. CodeForge sends one at least every 15
// s.
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
    } catch { /* the loop tries again */ }
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
