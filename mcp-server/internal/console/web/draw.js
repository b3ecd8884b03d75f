// Drawings in SVG: icons, and small charts of runs and traffic.
import { html } from "./preact.js";
import { formatDuration, formatCount } from "./text.js";

// ICONS has one SVG path for each icon, in a square of 16 by 16 units.
const ICONS = {
  runs: "M5 3.2v9.6L13 8z",
  held: "M6 3v10M10 3v10",
  ledger: "M3 3h10v10H3zM3 6.5h10M7 6.5V13",
  api: "M2.5 8h3M10.5 8h3M5.5 5h5v6h-5zM8 2.5V5M8 11v2.5",
  server: "M3 3h10v4H3zM3 9h10v4H3zM5.5 5h.01M5.5 11h.01",
  skill: "M3 3.5c2-.8 3.5-.5 5 .8 1.5-1.3 3-1.6 5-.8v9c-2-.8-3.5-.5-5 .8-1.5-1.3-3-1.6-5-.8zM8 4.3v9",
  bell: "M4 11V7.5a4 4 0 0 1 8 0V11l1 1.2H3zM6.8 14h2.4",
  gear: "M8 5.8a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4zM8 2v1.6M8 12.4V14M2 8h1.6M12.4 8H14M3.8 3.8l1.1 1.1M11.1 11.1l1.1 1.1M12.2 3.8l-1.1 1.1M4.9 11.1l-1.1 1.1",
  search: "M7 3a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM10 10l3.5 3.5",
  ok: "M3.5 8.5l3 3 6-7",
  no: "M4 4l8 8M12 4l-8 8",
  copy: "M6 6h7v7H6zM3 10V3h7",
  stop: "M4.5 4.5h7v7h-7z",
  again: "M12.5 8A4.5 4.5 0 1 1 11 4.6M11 2.5v2.3H8.7",
  warn: "M8 2.5l6 10.5H2zM8 6.5v3M8 11.3h.01",
  clock: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3l2 1.5",
  lock: "M4 7.5h8V13H4zM5.5 7.5V5.5a2.5 2.5 0 0 1 5 0v2",
  key: "M6 6.5a2.8 2.8 0 1 0 0 3zM7.5 8H14v2.5M11.5 8v2",
  out: "M6 3H3v10h10v-3M9 3h4v4M13 3L7.5 8.5",
  sun: "M8 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM8 1.5V3M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1",
  eye: "M1.8 8C3.5 5 5.5 3.8 8 3.8S12.5 5 14.2 8c-1.7 3-3.7 4.2-6.2 4.2S3.5 11 1.8 8zM8 6.3a1.7 1.7 0 1 0 0 3.4 1.7 1.7 0 0 0 0-3.4z",
  bolt: "M9 2L4 9h4l-1 5 5-7H8z",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  touch: "M8 2.5a4 4 0 0 0-4 4v2M8 4.8a1.8 1.8 0 0 0-1.8 1.8V9c0 1.5-.4 2.8-1 4M8 6.5V9c0 2-.4 3.5-1 5M9.8 6.5V9c0 1.8-.2 3.2-.6 4.5M12 6.5V9c0 1-.05 1.8-.2 2.6",
};
export const Icon = ({ name, cls = "" }) => html`<svg class=${("i " + cls).trim()} viewBox="0 0 16 16" aria-hidden="true"><path d=${ICONS[name]} /></svg>`;
export const Mark = () => html`<svg class="mark" viewBox="0 0 22 22" aria-hidden="true"><rect x="1" y="1" width="20" height="20" rx="6" fill="#c2480c" /><path d="M6.5 7.5L3.8 11l2.7 3.5M15.5 7.5l2.7 3.5-2.7 3.5" fill="none" stroke="#fff" stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round" /><path d="M12.6 5.5L8.600 11.6h2.3l-1.5 5 4.2-6.3h-2.3z" fill="#ffd9b0" /></svg>`;

const COLOURS = { served: "var(--ok-solid)", denied: "var(--bad-solid)", failed: "var(--bad-solid)", aborted: "var(--bad-solid)", held: "var(--held-solid)", planned: "var(--held-solid)" };

/** Timeline draws the first requests of a run over time. Parallel requests use up to four lanes. Times are in ms. */
export function Timeline({ spans, total }) {
  if (!spans?.length) return null;
  const w = 104, end = Math.max(total || 0, ...spans.map((x) => x.b), 1), lanes = [];
  return html`<svg class="micro" viewBox="0 0 104 18" role="img" aria-label=${formatCount(spans.length, "request") + " in " + formatDuration(end)}><rect x="0" y="0" width=${w} height="1" fill="var(--line)" />
    ${spans.map((x) => {
      let l = lanes.findIndex((e) => e <= x.a + .5);
      if (l < 0) l = lanes.length < 4 ? lanes.length : 3;
      lanes[l] = x.b;
      return html`<rect x=${x.a / end * (w - 3)} y=${2.5 + l * 4} width=${Math.max(2, (x.b - x.a) / end * (w - 3))} height="3" rx="1" fill=${COLOURS[x.o] ?? COLOURS.served} />`;
    })}</svg>`;
}

/** BarChart draws a bar for each value, and above it a part for bad at the same index, e.g. failed requests. */
export function BarChart({ values, bad = [], fill = "var(--ok-solid)", label }) {
  const w = 128, h = 28, top = Math.max(1, ...values.map((v, i) => v + (bad[i] ?? 0))), bw = w / values.length;
  return html`<svg class="spark" viewBox="0 0 128 28" preserveAspectRatio="none" role="img" aria-label=${label}>${values.map((v, i) => {
    const b = bad[i] ?? 0, y = v / top * (h - 3), z = b / top * (h - 3);
    return html`<rect x=${i * bw + .5} y=${v ? h - y : h - 1} width=${Math.max(1, bw - 1)} height=${v ? y : 1} rx=".8" fill=${v ? fill : "var(--line-strong)"} />${b ? html`<rect x=${i * bw + .5} y=${h - y - z} width=${Math.max(1, bw - 1)} height=${z} rx=".8" fill="var(--bad-solid)" />` : null}`;
  })}</svg>`;
}

/** Histogram draws the start times of the first 500 runs of a list, newest first, in 60 steps of at least 1 s. bad(run)
 * reports whether to colour a run as failed. */
export function Histogram({ runs, now, bad }) {
  const n = 60, w = 360, list = runs.slice(0, 500);
  if (!list.length) return null;
  const first = new Date(list[list.length - 1].began).getTime(), step = Math.max(1000, (now - first) / n);
  const all = new Array(n).fill(0), wrong = new Array(n).fill(0);
  for (const r of list) {
    const i = Math.min(n - 1, Math.max(0, Math.floor((new Date(r.began) - first) / step)));
    (bad(r) ? wrong : all)[i]++;
  }
  const top = Math.max(...all.map((v, i) => v + wrong[i]));
  return html`<svg class="hist" viewBox="0 0 360 34" preserveAspectRatio="none" role="img" aria-label=${`The last ${formatCount(list.length, "run")} of this list, in ${formatDuration(now - first)}: ${wrong.reduce((a, b) => a + b, 0)} failed or had refused requests`}>${all.map((v, i) => {
    const y = v / top * 30, z = wrong[i] / top * 30;
    return html`<rect x=${i * w / n} y=${v ? 33 - y : 32} width="4.6" height=${v ? y : 1} rx="1" fill=${v ? "var(--ok-solid)" : "var(--line-strong)"} opacity=${v ? .75 : 1} />${z ? html`<rect x=${i * w / n} y=${33 - y - z} width="4.6" height=${z} rx="1" fill="var(--bad-solid)" />` : null}`;
  })}</svg>`;
}
