package attack

import (
	"crypto/rand"
	"encoding/hex"
)

// mark is a name for a trial that nothing else contains.
func mark() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	return "trial" + hex.EncodeToString(b)
}

// prelude is what every attack's code can use: show prints an answer as one line of JSON, raw speaks bytes.
const prelude = `
const auth = (name, more = {}) => ({ ...more, headers: { Authorization: "Bearer " + name, ...(more.headers ?? {}) } });
const out = (x) => console.log(JSON.stringify(x));
const why = (e) => out({ error: String(e?.message ?? e), kind: e?.name });
async function show(p) {
  try {
    const r = await p;
    const text = await r.text();
    let code = "";
    try { code = JSON.parse(text).code ?? ""; } catch { /* no JSON */ }
    out({ status: r.status, code, statusText: r.statusText, headers: [...r.headers], text: text.slice(0, 3000), length: text.length });
    return text;
  } catch (e) { why(e); return ""; }
}
async function readAll(conn, ms) {
  const chunks = []; let n = 0;
  const timer = setTimeout(() => { try { conn.close(); } catch { /* closed */ } }, ms);
  const buf = new Uint8Array(65536);
  try {
    for (;;) {
      const k = await conn.read(buf);
      if (k === null) break;
      chunks.push(...buf.subarray(0, k)); n += k;
      if (n > 400000) break;
    }
  } catch { /* cut */ }
  clearTimeout(timer);
  try { conn.close(); } catch { /* closed */ }
  return new TextDecoder("latin1").decode(new Uint8Array(chunks));
}
// A connection that ends by itself is waited for longer.
async function raw(host, sni, text, { port = 443, ms = /connection: close/i.test(String(text)) ? 15000 : 2500 } = {}) {
  try {
    let conn = await Deno.connect({ hostname: host, port });
    if (sni !== null) conn = await Deno.startTls(conn, { hostname: sni });
    const bytes = typeof text === "string" ? Uint8Array.from(text, (c) => c.charCodeAt(0)) : text;
    let at = 0;
    while (at < bytes.length) at += await conn.write(bytes.subarray(at));
    const got = await readAll(conn, ms);
    const statuses = [...got.matchAll(/HTTP\/1\.[01] (\d\d\d)/g)].map((m) => Number(m[1]));
    const codes = [...got.matchAll(/"code":"([a-z_]+)"/g)].map((m) => m[1]);
    out({ status: statuses[0] ?? 0, statuses, code: codes[0] ?? "", codes, text: got.slice(0, 3000) });
    return got;
  } catch (e) { why(e); return ""; }
}
`
