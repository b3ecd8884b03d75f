// Who is here: a bearer in this tab's own storage, asked of sibling tabs, or exchanged for a code. No cookie, so that no
// other page or port can make the browser send it.
const KEY = "codeforge-bearer", BASE = "/console/api/";
let bearer = sessionStorage.getItem(KEY) ?? "";
let over = () => {};
const siblings = new BroadcastChannel("codeforge-console");

function take(text) {
  bearer = text;
  if (text) sessionStorage.setItem(KEY, text); else sessionStorage.removeItem(KEY);
}
let found = () => {};
siblings.addEventListener("message", (e) => {
  if (e.data?.bearer && !bearer) { take(String(e.data.bearer)); found(); }
  if (e.data?.ask && bearer) siblings.postMessage({ bearer });
  if (e.data?.over === true && bearer) { take(""); over(""); }
});

/** onOver is called when the session has ended, with why; onFound when another tab has one. */
export const onOver = (f) => { over = f; };
export const onFound = (f) => { found = f; };
export const signedIn = () => bearer !== "";

/** signIn exchanges a code or MCP_AUTH_TOKEN. It throws what is wrong. */
export async function signIn(secret) {
  const r = await fetch(BASE + "session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ secret }), credentials: "omit" });
  const body = await r.json().catch(() => ({}));
  if (!r.ok) throw new Error(body.error ?? "CodeForge answered " + r.status);
  take(body.bearer);
}

/** enter uses the code in the address, which it erases first, or asks the tabs that are open. */
export async function enter() {
  const code = /^#code=([A-Z0-9]+)$/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, "", location.pathname);
    await signIn(code);
    return true;
  }
  if (bearer) return true;
  siblings.postMessage({ ask: true });
  for (let i = 0; i < 10 && !bearer; i++) await new Promise((done) => setTimeout(done, 15)); // no sign-in page for a blink
  return bearer !== "";
}

export async function signOut() {
  try { await api("sessions/this", "DELETE"); } catch { /* it is over in any case */ }
  take("");
  siblings.postMessage({ over: true });
  over("");
}

/** Lost is for what was asked and not answered: it may have counted. */
export class Lost extends Error {
  constructor(method) { super("CodeForge does not answer" + (method === "GET" ? "." : ", so it is not known whether that counted. It is shown here when it answers again.")); }
}

/** request is a fetch with the bearer. */
export async function request(path, init = {}) {
  const sent = bearer, method = init.method ?? "GET", changes = method !== "GET";
  const r = await fetch(BASE + path, { ...init, headers: { ...init.headers, Authorization: "Bearer " + sent }, credentials: "omit" }).catch((e) => { throw e instanceof TypeError ? new Lost(method) : e; });
  if (r.status === 401 && (changes ? sent === bearer || !bearer : sent && sent === bearer)) { take(""); over("The session has ended" + (changes ? ", so the change was not made." : ".")); }
  return r;
}

/** api asks for JSON. It throws what CodeForge says is wrong. */
export async function api(path, method = "GET", body = undefined, signal = undefined) {
  const init = { method, signal };
  if (body !== undefined) { init.body = JSON.stringify(body); init.headers = { "Content-Type": "application/json" }; }
  const r = await request(path, init);
  const v = await r.json().catch(() => undefined);
  if (!r.ok) throw new Error(v?.error ?? "CodeForge answered " + r.status);
  if (v === undefined) throw new Lost(method);
  return v;
}
