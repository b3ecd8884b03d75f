// The state of a run, as the pages show it.
import { html } from "./preact.js";
import { escapeText } from "./text.js";
import { app } from "./state.js";
import { Icon } from "./draw.js";

const KINDS = {
  ok: ["ok", "ok", "Done"], denied: ["warn", "bad", "Done, some refused"], failed: ["no", "bad", "Failed"], held: ["held", "held", "Held, waits for you"],
  running: ["runs", "live", "Running"], waiting: ["clock", "live", "Waits for a slot"], stopped: ["stop", "bad", "Stopped"], frozen: ["no", "bad", "Frozen by an alarm"], lost: ["stop", "bad", "Its end was not stored"],
};
export const isActive = (run) => run.state === "running" || run.state === "waiting";
/** findKind returns the key of KINDS for a run: "held" if a request of an active run waits for approval, "denied" if a
 * run without an error had a refused request, or else the state of the run. */
export function findKind(run) {
  if (isActive(run) && app.held.some((h) => h.run === run.run && h.waiting)) return "held";
  return run.state === "ok" && run.count?.denied ? "denied" : KINDS[run.state] ? run.state : "failed";
}
export const StateIcon = ({ run }) => { const [icon, cls, text] = KINDS[findKind(run)]; return html`<span class=${cls} title=${text}><${Icon} name=${icon} /><span class="sr">${text}</span></span>`; };
export const Status = ({ run }) => { const k = findKind(run), [icon, cls, text] = KINDS[k]; return html`<span class=${"status " + cls}><span class=${"row " + cls}><${Icon} name=${icon} />${k === "failed" && run.reason && run.reason !== "exited" ? text + ": " + escapeText(run.reason) : text}</span></span>`; };
