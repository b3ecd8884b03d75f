// This text precedes the code of every attack. Before it, doctor sets the constants open, host and memory: whether
// YOLO_MODE is on, a host of an active API, and the memory of a run in bytes.

const say = (held, seen) => console.log(JSON.stringify({ held, seen }));

const clipped = (e) => String(e?.name ?? e);

const silence = (ms) => new Promise((_, no) => setTimeout(() => no(new Error("silence")), ms));

// attempts tries expressions. Each must throw in time.
async function attempts(...tries) {
  for (const f of tries) {
    const name = String(f).replace(/^(async )?\(\) => /, "");
    let timer;
    const late = new Promise((_, no) => {
      timer = setTimeout(() => no(new Error("silence")), 2500);
    });
    try {
      say(false, name + " gave " + String(await Promise.race([f(), late])).slice(0, 60));
    } catch (e) {
      const typo = e instanceof ReferenceError || e instanceof SyntaxError ||
        e instanceof TypeError && /is not a (function|constructor)|Cannot read/.test(e.message);
      say(!typo, typo ? name + " was not tried: " + e.message : clipped(e));
    }
    clearTimeout(timer);
  }
}

// reach connects to an address. With YOLO_MODE, connections to all addresses lead to the proxy. Then only an answer other
// than the proxy's refusal counts as a way out.
async function reach(hostname, port) {
  const c = await Deno.connect({ hostname, port });
  if (!open) {
    c.close();
    return "a connection";
  }
  const head = "GET / HTTP/1.1\r\nHost: codeforge-doctor.invalid\r\nConnection: close\r\n\r\n";
  await c.write(new TextEncoder().encode(head));
  const b = new Uint8Array(2000), n = await c.read(b), text = new TextDecoder().decode(b.subarray(0, n ?? 0));
  c.close();
  const refusal = text.includes("codeforge-doctor.invalid") || /"code": ?"/.test(text);
  if (n === null || refusal) throw new Error("the proxy refuses");
  return text;
}

// get sends a request, and throws if it is refused in any way.
async function get(url, init) {
  const r = await fetch(url, init);
  await r.body?.cancel();
  if (r.status >= 400) throw new Error("refused");
  return r.status;
}

// ask asks for a permission, and throws if it is not granted.
async function ask(permission) {
  const r = await Deno.permissions.request(permission);
  if (r.state !== "granted") throw new Error(r.state);
}

const unix = (path) => Deno.connect({ transport: "unix", path });

// The requests of attacks on the proxy's parsing have this path and no credential, so a forwarded one does no harm.
const path = "/codeforge-doctor";
const heads = (lines, fields = [""]) =>
  lines.flatMap((line) => fields.map((f) => `${line} HTTP/1.1\r\nHost: ${host}\r\n` + (f && f + "\r\n")));
const withFields = (...fields) => send(heads(["GET " + path], fields));
const withMethods = (...lines) => send(heads(lines));
const withTargets = (...targets) => send(heads(targets.map((to) => "GET " + to)));

// send sends each head, which lacks its last line, on a new connection. A refusal of the proxy has a code; any other
// answer may be the API's.
async function send(list) {
  for (const head of list) {
    let timer, conn;
    try {
      conn = await Deno.startTls(await Deno.connect({ hostname: host, port: 443 }), { hostname: host });
      timer = setTimeout(() => {
        try {
          conn.close();
        } catch { /* closed */ }
      }, 5000);
      const request = head + (/\nConnection:/.test(head) ? "" : "Connection: close\r\n") + "\r\n";
      await conn.write(Uint8Array.from(request, (c) => c.charCodeAt(0)));
      let got = "";
      const b = new Uint8Array(4096);
      try {
        for (let n; !/"code": ?"[a-z_]+"/.test(got) && got.length < 20000 && (n = await conn.read(b)) !== null;) {
          got += new TextDecoder().decode(b.subarray(0, n));
        }
      } catch { /* cut */ }
      const code = /^HTTP\/1\.1 4\d\d [^]*"code": ?"([a-z_]+)"/.exec(got)?.[1];
      const sent = head.split("\r\n").filter((l) => !l.startsWith("Host:")).join(" ").trim();
      say(code !== undefined, code ?? sent + ": " + (got.split("\r\n")[0] || "no answer"));
    } catch (e) {
      say(false, "could not be tried: " + e);
    }
    clearTimeout(timer);
    try {
      conn?.close();
    } catch { /* closed */ }
  }
}

// forge sends a request with a Host in no API, after a handshake with a server name.
async function forge(serverName) {
  try {
    // The proxy may complete a handshake for any name, so that it can explain its refusal.
    const c = await Deno.startTls(await Deno.connect({ hostname: host, port: 443 }), { hostname: serverName });
    const head = "GET / HTTP/1.1\r\nHost: codeforge-doctor.invalid\r\nConnection: close\r\n\r\n";
    await c.write(new TextEncoder().encode(head));
    const b = new Uint8Array(400), n = await c.read(b);
    const line = new TextDecoder().decode(b.subarray(0, n ?? 0)).split("\r\n")[0];
    say(/ [45]\d\d /.test(line), line);
  } catch (e) {
    say(true, clipped(e));
  }
}

// fill takes twice a run's memory, in pieces outside the heap that the interpreter bounds itself.
function fill(piece) {
  const keep = [];
  for (let n = 0; n < 2 * memory / (32 << 20) + 1; n++) {
    const b = piece();
    for (let i = 0; i < b.length; i += 4096) b[i] = 1;
    keep.push(b);
  }
  console.log("took " + keep.length);
}
