// The session: a bearer in the storage of this tab. The tab gets it in exchange for a code, or from another tab. It is
// not a cookie, so other pages and ports cannot make the browser send it.
const KEY = "codeforge-bearer", BASE = "/console/api/";
let bearer = sessionStorage.getItem(KEY) ?? "";
let handleEnd = () => {};
const siblings = new BroadcastChannel("codeforge-console");

function storeBearer(text) {
  bearer = text;
  if (text) sessionStorage.setItem(KEY, text); else sessionStorage.removeItem(KEY);
}
let handleFound = () => {};
siblings.addEventListener("message", (e) => {
  if (e.data?.bearer && !bearer) { storeBearer(String(e.data.bearer)); handleFound(); }
  if (e.data?.ask && bearer) siblings.postMessage({ bearer });
  if (e.data?.over === true && bearer) { storeBearer(""); handleEnd(""); }
});

/** onSessionEnd sets the function that gets the reason when the session ends. onSessionFound sets the function that is
 * called when another tab sends a session. */
export const onSessionEnd = (f) => { handleEnd = f; };
export const onSessionFound = (f) => { handleFound = f; };
export const isSignedIn = () => bearer !== "";

/** signIn exchanges a code or MCP_AUTH_TOKEN for a bearer. It throws an Error with the reason of CodeForge. */
export async function signIn(secret) {
  const r = await fetch(BASE + "session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ secret }), credentials: "omit" });
  const body = await r.json().catch(() => ({}));
  if (!r.ok) throw new Error(body.error ?? "CodeForge answered " + r.status);
  storeBearer(body.bearer);
}

/** startSession starts a session with the code in the address, or else with the bearer of this tab or another one. It
 * reports whether there is a session. */
export async function startSession() {
  const code = /^#code=([A-Z0-9]+)$/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, "", location.pathname); // first, so that the history does not keep the code
    await signIn(code);
    return true;
  }
  if (bearer) return true;
  siblings.postMessage({ ask: true });
  for (let i = 0; i < 10 && !bearer; i++) await new Promise((done) => setTimeout(done, 15)); // at most 150 ms, so that the sign-in page does not flash
  return bearer !== "";
}

export async function signOut() {
  try { await requestJSON("sessions/this", "DELETE"); } catch { /* this browser forgets the session in any case */ }
  storeBearer("");
  siblings.postMessage({ over: true });
  handleEnd("");
}

/** NoAnswerError is the error of a request without a usable answer. CodeForge may have made the change. */
export class NoAnswerError extends Error {
  constructor(method) { super("CodeForge does not answer" + (method === "GET" ? "." : ", so it is not known whether that counted. This page shows it when CodeForge answers again.")); }
}

/** sendRequest is fetch with the bearer. It throws NoAnswerError without an answer. A 401 ends the session. */
export async function sendRequest(path, init = {}) {
  const sent = bearer, method = init.method ?? "GET", changes = method !== "GET";
  const r = await fetch(BASE + path, { ...init, headers: { ...init.headers, Authorization: "Bearer " + sent }, credentials: "omit" }).catch((e) => { throw e instanceof TypeError ? new NoAnswerError(method) : e; });
  if (r.status === 401 && (changes ? sent === bearer || !bearer : sent && sent === bearer)) { storeBearer(""); handleEnd("The session has ended" + (changes ? ", so the change was not made." : ".")); }
  return r;
}

/** requestJSON returns the JSON of an answer. It throws NoAnswerError, or an Error with the reason of CodeForge. */
export async function requestJSON(path, method = "GET", body = undefined, signal = undefined) {
  const init = { method, signal };
  if (body !== undefined) { init.body = JSON.stringify(body); init.headers = { "Content-Type": "application/json" }; }
  const r = await sendRequest(path, init);
  const v = await r.json().catch(() => undefined);
  if (!r.ok) throw new Error(v?.error ?? "CodeForge answered " + r.status);
  if (v === undefined) throw new NoAnswerError(method);
  return v;
}
