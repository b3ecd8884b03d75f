// Prints its port, and answers each request with what Node's servers take from it, a line each: the paths, and the kinds
// of all GraphQL operations that a server may run, whichever way it takes documents in. NODE_PATH has the package graphql.
"use strict";
const { createServer } = require("node:http");
const { parse } = require("graphql");

function operations(text) {
  try {
    return parse(text).definitions.filter((d) => d.kind === "OperationDefinition").map((d) => d.operation);
  } catch {
    return [];
  }
}

// documents are the texts that may be documents in a value that was sent.
function documents(value) {
  if (Array.isArray(value)) return value.flatMap(documents);
  if (value === null || typeof value !== "object") return [];
  const out = [];
  for (const [name, inner] of Object.entries(value)) {
    if (typeof inner === "string" && name.toLowerCase() === "query") out.push(inner);
    else if (name === "operations" && typeof inner === "string") out.push(...documents(json(inner)));
    else if (["doc_id", "id", "documentId", "queryId", "extensions"].includes(name) && inner !== "" && JSON.stringify(inner) !== "{}" && inner !== null) out.push("mutation { persisted }");
    else if (name === "__proto__") out.push(...documents(inner));
  }
  return out;
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const form = (text) => Array.from(new URLSearchParams(text), ([k, v]) => ({ [k.replace(/\[\d*\]$/, "")]: k === "variables" ? {} : v }));

createServer((q, r) => {
  const chunks = [];
  q.on("data", (c) => chunks.push(c));
  q.on("end", () => {
    const body = Buffer.concat(chunks).toString();
    const [path, query = ""] = q.url.split("?");
    const out = [path, new URL("http://h" + path).pathname];
    for (const p of [...out]) {
      try {
        out.push(decodeURIComponent(p));
      } catch { /* none */ }
    }
    const list = [...documents(form(query)), ...documents(form(body)), ...documents(json(body)), body];
    for (const part of body.split(/\r?\n--[^\r\n]*\r?\n/)) {
      const [head, ...rest] = part.split(/\r?\n\r?\n/);
      if (/name="?operations/i.test(head)) list.push(...documents(json(rest.join("\n\n"))));
      if (/name="?query/i.test(head)) list.push(rest.join("\n\n"));
    }
    r.end(out.map((p) => `reading ${p}\n`).join("") + list.flatMap(operations).map((o) => `operation ${o}\n`).join(""));
  });
}).listen(0, "127.0.0.1", function () {
  console.log(this.address().port);
});
