/**
 * @description Explore an OpenAPI 3 or Swagger 2 document: list operations by word, show one operation with its parameters and schemas.
 *
 *   import { load, find, show } from "/skills/explore-openapi.ts";
 *   const doc = await load("https://api.example.com/openapi.json");
 *   console.log(find(doc, "invoice"));
 *   console.log(show(doc, "POST /v1/invoices"));
 */

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Doc = { [key: string]: Json };

const METHODS = ["get", "put", "post", "delete", "patch", "head", "options"];

/** Fetches a document in JSON, not in YAML. Most YAML documents are also published as JSON. */
export async function load(url: string, init?: RequestInit): Promise<Doc> {
  const answer = await fetch(url, init);
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}: ${(await answer.text()).slice(0, 200)}`);
  const text = await answer.text();
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${url} is no JSON; it begins with: ${text.slice(0, 80)}`);
  }
}

/** Returns one line per operation with the word: method, path, summary or else id, and tags. At most `most` lines. */
export function find(doc: Doc, word = "", most = 50): string {
  const needle = word.toLowerCase();
  const lines = operations(doc)
    .map(({ method, path, op }) => `${method.toUpperCase()} ${path}  ${op.summary ?? op.operationId ?? ""}`.trimEnd() + tags(op))
    .filter((line) => line.toLowerCase().includes(needle));
  const more = lines.length > most ? `\n... and ${lines.length - most} more; search for a longer word` : "";
  return lines.slice(0, most).join("\n") + more;
}

/** Returns an operation ("POST /v1/invoices") as JSON, with its references resolved to the given depth. */
export function show(doc: Doc, operation: string, depth = 3): string {
  const [method, path] = operation.trim().split(/\s+/);
  const found = operations(doc).find((o) => o.method === method.toLowerCase() && o.path === path);
  if (!found) throw new Error(`no operation ${operation}; find() lists them`);
  return JSON.stringify(resolve(doc, found.op as Json, depth, []), null, 1);
}

function operations(doc: Doc): { method: string; path: string; op: Doc }[] {
  const out: { method: string; path: string; op: Doc }[] = [];
  for (const [path, item] of Object.entries((doc.paths ?? {}) as Doc)) {
    for (const method of METHODS) {
      const op = (item as Doc)?.[method] as Doc | undefined;
      if (op) out.push({ method, path, op });
    }
  }
  return out;
}

function tags(op: Doc): string {
  return Array.isArray(op.tags) && op.tags.length ? `  [${op.tags.join(", ")}]` : "";
}

function resolve(doc: Doc, value: Json, depth: number, seen: string[]): Json {
  if (Array.isArray(value)) return value.map((v) => resolve(doc, v, depth, seen));
  if (value === null || typeof value !== "object") return value;
  const ref = value.$ref;
  if (typeof ref !== "string") {
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolve(doc, v, depth, seen)]));
  }
  if (depth === 0 || seen.includes(ref) || !ref.startsWith("#/")) return { $ref: ref };
  const target = ref.slice(2).split("/").map((p) => p.replaceAll("~1", "/").replaceAll("~0", "~"))
    .reduce<Json | undefined>((at, key) => (at as Doc | undefined)?.[key], doc);
  return target === undefined ? { $ref: ref } : resolve(doc, target, depth - 1, [...seen, ref]);
}
