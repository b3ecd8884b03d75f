// State that all pages share: the route, the stream of changes, and data that loads again after a change.
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "./preact.js";
import { requestJSON, NoAnswerError, sendRequest, isSignedIn } from "./session.js";

const readers = new Set();
export const app = {
  in: false, why: "", route: { page: "runs", id: "", q: "" }, frozen: false, connected: false,
  versions: { held: 0, apis: "", servers: 0, down: 0, skills: 0, load: { slots: 0, busy: 0, waiting: 0, connected: false } },
  alerts: 0, alertCount: 0, touched: 0, held: [], plans: [], problems: 0, about: null, dialog: "", toast: "",
};
/** updateApp changes fields of app, and draws all components that use app again. */
export function updateApp(change) { Object.assign(app, change); for (const f of readers) f(); }
/** useApp returns app, and draws the component again after each change. */
export function useApp() {
  const [, redraw] = useReducer((n) => n + 1, 0);
  useLayoutEffect(() => { readers.add(redraw); return () => readers.delete(redraw); }, []);
  return app;
}

/** listWaiting returns the requests and then the plans that wait for a decision now. */
export const listWaiting = () => [...app.held.filter((h) => h.waiting && !h.approved), ...app.plans.filter((p) => p.state === "open" && new Date(p.until) > Date.now())];

// parseRoute reads the route from the address behind the #: a page, the id of the chosen item, and a filter.
export function parseRoute(hash) {
  const m = /^#\/([a-z]+)(?:\/([^?]*))?(?:\?(.*))?$/.exec(hash);
  const decode = (s) => { try { return decodeURIComponent(s ?? ""); } catch { return ""; } };
  return m ? { page: m[1], id: decode(m[2]), q: decode(m[3]) } : { page: "runs", id: "", q: "" };
}
export const makeAddress = (page, id = "", q = "") => "#/" + page + (id ? "/" + encodeURIComponent(id) : "") + (q ? "?" + encodeURIComponent(q) : "");
export function openPage(page, id = "", q = "", replace = false) {
  const to = makeAddress(page, id, q);
  if (to === location.hash) return;
  if (replace) { history.replaceState(null, "", to); updateApp({ route: parseRoute(to) }); } else location.hash = to;
}

let toastTimer = 0;
/** showToast shows a sentence for 5 s. */
export function showToast(text) { clearTimeout(toastTimer); updateApp({ toast: text }); toastTimer = setTimeout(() => updateApp({ toast: "" }), 5000); }

export async function copyText(text, what) {
  try { await navigator.clipboard.writeText(text); showToast(what + " copied."); } catch { showToast("The browser does not allow copying here."); }
}

/** useData loads a path, and loads it again if the version changes and the screen is not frozen. It ignores an empty
 * path. least is the shortest pause after an answer, in ms. more is added to the address; the data still counts as that
 * of path. */
export function useData(path, version = 0, least = 0, more = "") {
  const [state, setState] = useState({ path: "", data: undefined, error: "" });
  const at = useRef({ path: "", stop: null, timer: 0, next: 0, wanted: false }).current;
  at.more = more;
  const loadData = () => { // one request at a time: a new version does not abort the present one
    if (at.stop || at.timer || !at.wanted || (app.frozen && at.has === at.path)) return;
    if (at.next > Date.now()) { at.timer = setTimeout(() => { at.timer = 0; loadData(); }, at.next - Date.now()); return; }
    const stop = at.stop = new AbortController(), began = Date.now();
    const finishLoad = (to, lost) => {
      if (at.stop !== stop) return;
      at.stop = null;
      at.next = Date.now() + least + (lost ? 2000 : 4 * (Date.now() - began));
      at.wanted ||= lost;
      setState(to);
      loadData();
    };
    at.wanted = false;
    requestJSON(path + at.more, "GET", undefined, stop.signal).then(
      (data) => { at.has = path; finishLoad({ path, data, error: "" }, false); },
      (e) => finishLoad((s) => ({ path, data: s.path === path ? s.data : undefined, error: e.message }), e instanceof NoAnswerError));
  };
  const resetLoad = () => { at.stop?.abort(); clearTimeout(at.timer); Object.assign(at, { stop: null, timer: 0, next: 0, has: "" }); };
  useEffect(() => {
    if (at.path !== path) { resetLoad(); at.path = path; }
    at.wanted = !!path;
    loadData();
  }, [path, version, app.frozen]);
  useEffect(() => resetLoad, []);
  return state.path === path ? state : { path, data: undefined, error: "" };
}

/** useNow returns the time in ms. It draws again at each interval of every ms, unless the page is frozen or hidden. */
export function useNow(every) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => { const t = setInterval(() => { if (!app.frozen && !document.hidden) setNow(Date.now()); }, every); return () => clearInterval(t); }, [every]);
  return now;
}

// seenID is the id of the item that has been on the screen for 1 s. Before that, a person cannot decide, because a key
// or a click may be meant for the item that was there before.
let seenID = "";
/** useSeen reports whether the item with this id has been on the screen for 1 s. isSeen reports the same to keys. */
export function useSeen(id) {
  const [it, setSeen] = useState("");
  useEffect(() => {
    let timer = 0;
    const restartTimer = () => { clearTimeout(timer); setSeen(seenID = ""); if (id && !document.hidden) timer = setTimeout(() => setSeen(seenID = id), 1000); };
    restartTimer();
    // If another window closes itself, keys for it arrive here. So the second begins again.
    addEventListener("focus", restartTimer);
    document.addEventListener("visibilitychange", restartTimer);
    return () => { removeEventListener("focus", restartTimer); document.removeEventListener("visibilitychange", restartTimer); clearTimeout(timer); seenID = ""; };
  }, [id]);
  return it === id;
}
export const isSeen = (id) => seenID === id;

// The stream of changes: there is one while the page is visible. A new stream begins at the end of the last one. After
// a gap, the pages load their data again.
let streamAbort = null, streamPosition = "", watchedRun = "", handleGap = () => {}, handleRuns = () => {};
export const onRuns = (runs, gap) => { handleRuns = runs; handleGap = gap; };

export function watchRun(run) {
  if (run === watchedRun) return;
  watchedRun = run;
  restartStream();
}
export function restartStream() {
  streamAbort?.abort();
  streamAbort = null;
  if (app.in && isSignedIn() && !document.hidden) { streamAbort = new AbortController(); readStream(streamAbort.signal); }
}
document.addEventListener("visibilitychange", restartStream);

// SILENCE is the time in ms after which a stream without a line counts as broken. CodeForge sends one at least every 15
// s.
const SILENCE = 40000;

async function readStream(signal) {
  for (let pause = 300; !signal.aborted; pause = Math.min(pause * 2, 5000)) {
    const dead = new AbortController();
    let silent = setTimeout(() => dead.abort(), SILENCE);
    try {
      const r = await sendRequest("live?" + new URLSearchParams({ after: streamPosition, run: watchedRun }), { signal: AbortSignal.any([signal, dead.signal]) });
      if (!r.ok) throw new Error("status " + r.status);
      const lines = r.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      updateApp({ connected: true });
      for (;;) {
        const { value, done } = await lines.read();
        if (done) break;
        clearTimeout(silent);
        silent = setTimeout(() => dead.abort(), SILENCE);
        pause = 300;
        rest += value;
        const whole = rest.split("\n");
        rest = whole.pop();
        for (const line of whole) if (line) applyChanges(JSON.parse(line));
      }
    } catch { /* the loop tries again */ }
    clearTimeout(silent);
    if (signal.aborted) return;
    updateApp({ connected: false });
    await new Promise((done) => setTimeout(done, pause));
  }
}

function applyChanges(news) {
  const change = {};
  if (news.versions) change.versions = news.versions;
  if (news.touched || news.gap) change.touched = app.touched + 1;
  if (news.alerts || news.gap) change.alerts = app.alerts + 1;
  if (news.after) streamPosition = news.after;
  if (Object.keys(change).length) updateApp(change);
  if (news.gap) handleGap();
  if (news.runs) handleRuns(news.runs);
}
