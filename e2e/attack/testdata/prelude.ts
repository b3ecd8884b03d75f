// What every attack's code can use. The runner puts it in front; globals.d.ts declares it to `deno check`.

export const auth = (name: string, more: RequestInit = {}): RequestInit => ({
  ...more,
  headers: { Authorization: "Bearer " + name, ...((more.headers ?? {}) as Record<string, string>) },
});

export const out = (x: unknown) => console.log(JSON.stringify(x));

export const why = (e) => out({ error: String(e?.message ?? e), kind: e?.name });

/** show prints an answer, or why there is none, as one line of JSON. */
export async function show(p: Promise<unknown>): Promise<string> {
  try {
    const r = await p as Response;
    const text = await r.text();
    let code = "";
    try {
      code = JSON.parse(text).code ?? "";
    } catch { /* no JSON */ }
    out({
      status: r.status,
      code,
      statusText: r.statusText,
      headers: [...r.headers],
      text: text.slice(0, 3000),
      length: text.length,
    });
    return text;
  } catch (e) {
    why(e);
    return "";
  }
}

/** readAll reads a connection to its end, or for so long. */
export async function readAll(conn: Deno.Conn, ms: number): Promise<string> {
  const chunks = [];
  let n = 0;
  const timer = setTimeout(() => {
    try {
      conn.close();
    } catch { /* closed */ }
  }, ms);
  const buf = new Uint8Array(65536);
  try {
    for (;;) {
      const k = await conn.read(buf);
      if (k === null) break;
      chunks.push(...buf.subarray(0, k));
      n += k;
      if (n > 400000) break;
    }
  } catch { /* cut */ }
  clearTimeout(timer);
  try {
    conn.close();
  } catch { /* closed */ }
  return new TextDecoder("latin1").decode(new Uint8Array(chunks));
}

/** raw sends bytes, over TLS unless sni is null, and prints what came back. A connection that ends by itself is waited
 * for longer. */
export async function raw(
  host: string,
  sni: string | null,
  text: string | Uint8Array,
  { port = 443, ms = /connection: close/i.test(String(text)) ? 15000 : 2500 } = {},
): Promise<string> {
  try {
    let conn: Deno.Conn = await Deno.connect({ hostname: host, port });
    if (sni !== null) conn = await Deno.startTls(conn as Deno.TcpConn, { hostname: sni });
    const bytes = typeof text === "string" ? Uint8Array.from(text, (c) => c.charCodeAt(0)) : text;
    let at = 0;
    while (at < bytes.length) at += await conn.write(bytes.subarray(at));
    const got = await readAll(conn, ms);
    const statuses = [...got.matchAll(/HTTP\/1\.[01] (\d\d\d)/g)].map((m) => Number(m[1]));
    const codes = [...got.matchAll(/"code":"([a-z_]+)"/g)].map((m) => m[1]);
    out({ status: statuses[0] ?? 0, statuses, code: codes[0] ?? "", codes, text: got.slice(0, 3000) });
    return got;
  } catch (e) {
    why(e);
    return "";
  }
}

/** attempts tries each: it must fail, and not for a mistake in itself. */
export async function attempts(...tries: (() => unknown)[]) {
  for (const f of tries) {
    const name = String(f).replace("() => ", "");
    let r;
    try {
      r = await f();
    } catch (e) {
      const typo = e instanceof ReferenceError || e instanceof SyntaxError ||
        e instanceof TypeError && /is not a (function|constructor)|is not defined|Cannot read/.test(e.message);
      out({ held: !typo, seen: typo ? name + " was not tried: " + e.message : String(e?.name ?? e) });
      continue;
    }
    out({ held: false, seen: name + " gave " + String(r).slice(0, 60) });
  }
}
