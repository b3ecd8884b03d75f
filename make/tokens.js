// Counts the tokens that a model reads in three ways: all operations as tools, the right one in JSON, and a search.
// Writes a table and a picture. A count is the larger one of two tokenizers, o200k and Claude's published one.
const { readFileSync, writeFileSync } = require("node:fs");
const { getEncoding } = require("js-tiktoken");
const claude = require("@anthropic-ai/tokenizer").getTokenizer();
const o200k = getEncoding("o200k_base");
const out = process.argv[2];

const count = (text) => Math.max(o200k.encode(text, "all").length, claude.encode(text.normalize("NFKC"), "all").length);
const at = (list, share) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))];

// resolve replaces references up to depth levels deep. A deeper or unknown reference becomes {}.
function resolve(doc, value, depth) {
  if (Array.isArray(value)) return value.map((v) => resolve(doc, v, depth));
  if (typeof value !== "object" || value === null) return value;
  if (typeof value.$ref === "string") {
    const target = value.$ref.split("/").slice(1).reduce((v, k) => v?.[k.replaceAll("~1", "/").replaceAll("~0", "~")], doc);
    return depth === 0 || target === undefined ? {} : resolve(doc, target, depth - 1);
  }
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolve(doc, v, depth)]));
}

// tool returns an operation as a tool of an MCP server. It resolves references one level deep.
function tool(doc, path, method, item, op) {
  const properties = {};
  for (const p of [...(item.parameters ?? []), ...(op.parameters ?? [])].map((p) => resolve(doc, p, 1))) {
    properties[p.name] = { ...(p.schema ?? {}), description: p.description };
  }
  const body = resolve(doc, op.requestBody, 0)?.content ?? resolve(doc, op.requestBody, 1)?.content;
  const schema = body && resolve(doc, Object.values(op.requestBody.content ?? body)[0]?.schema, 1);
  Object.assign(properties, schema?.properties ?? {});
  const name = (op.operationId ?? method + path).replace(/[^A-Za-z0-9_-]+/g, "_").slice(0, 64);
  return { name, description: op.summary || op.description || "", input_schema: { type: "object", properties } };
}

const answers = JSON.parse(readFileSync(out + "/answers.json", "utf8"));
const rows = [];
for (const line of readFileSync(out + "/documents.txt", "utf8").trim().split("\n")) {
  const [api, file] = line.split(" ");
  const doc = JSON.parse(readFileSync(file, "utf8"));
  const operations = new Map();
  let tools = 0;
  for (const [path, item] of Object.entries(doc.paths)) {
    for (const [method, op] of Object.entries(item)) {
      if (!["get", "put", "post", "delete", "patch", "head", "options"].includes(method)) continue;
      operations.set(method.toUpperCase() + " " + path.split("#")[0], op);
      tools += count(JSON.stringify(tool(doc, path, method, item, op)));
    }
  }
  const mine = answers.filter((a) => a.API === api);
  const raw = mine.map((a) => operations.get(a.Right)).filter(Boolean)
    .map((op) => count(JSON.stringify(resolve(doc, op, 2))));
  rows.push({ api, operations: operations.size, tools, raw: at(raw, 0.5), searched: mine.map((a) => count(a.Answer)) });
}
const searched = rows.flatMap((r) => r.searched);
const n = (x) => String(x).replace(/\B(?=(\d{3})+$)/g, ",");
let table = "| API | operations | each one a tool | the right one in JSON, p50 | a search, p50 | most |\n|---|--:|--:|--:|--:|--:|\n";
for (const r of rows) {
  table += `| ${r.api} | ${n(r.operations)} | ${n(r.tools)} | ${n(r.raw)} | ${n(at(r.searched, 0.5))} | ${n(Math.max(...r.searched))} |\n`;
}
const total = (f) => rows.reduce((s, r) => s + f(r), 0);
table += `| all | ${n(total((r) => r.operations))} | ${n(total((r) => r.tools))} | | ${n(at(searched, 0.5))} | ${n(Math.max(...searched))} |\n`;
table += `\n${searched.length} searches: p50 ${n(at(searched, 0.5))}, p95 ${n(at(searched, 0.95))}, at most ${n(Math.max(...searched))} tokens\n`;
process.stdout.write(table);
writeFileSync(out + "/tokens.md", table);

// The scale of the picture is logarithmic, because the ways differ by a factor of thousands.
const width = 760, left = 120, step = 26, longest = Math.log10(Math.max(...rows.map((r) => r.tools)));
const x = (v) => left + (width - left - 90) * Math.log10(v) / longest;
let svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${step * rows.length + 50}" font-family="sans-serif" font-size="12">` +
  `<rect width="100%" height="100%" fill="#fff"/><text x="${left}" y="18">tokens that a model reads, on a logarithmic scale: ` +
  `<tspan fill="#888">each operation a tool</tspan>, <tspan fill="#07c">one search</tspan></text>`;
rows.forEach((r, i) => {
  const y = 36 + i * step;
  svg += `<text x="${left - 8}" y="${y + 10}" text-anchor="end">${r.api}</text>`;
  [[r.tools, "#bbb", 0], [at(r.searched, 0.5), "#07c", 9]].forEach(([v, color, down]) => {
    svg += `<rect x="${left}" y="${y + down}" width="${(x(v) - left).toFixed(1)}" height="8" fill="${color}"/>` +
      `<text x="${(x(v) + 5).toFixed(1)}" y="${y + down + 8}" font-size="9">${n(v)}</text>`;
  });
});
writeFileSync(out + "/tokens.svg", svg + "</svg>\n");
