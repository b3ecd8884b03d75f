// WebSockets that carry the credential, and frames that nobody may send.

// expected: the connection ends, the server hears nothing

const mine = (name) => [...name].reverse().join("");
type Frame = { fin?: number; rsv?: number; mask?: boolean; head?: number[] };
function frame(op: number, payload: string, { fin = 1, rsv = 0, mask = true, head }: Frame = {}) {
  const data = Uint8Array.from(payload, (c) => c.charCodeAt(0)), n = data.length;
  const size = head ?? (n < 126 ? [n] : [126, n >> 8, n & 255]);
  const key = mask ? [1, 2, 3, 4] : [];
  return Uint8Array.from([
    fin << 7 | rsv << 4 | op,
    size[0] | (mask ? 128 : 0),
    ...size.slice(1),
    ...key,
    ...data.map((b, i) => mask ? b ^ key[i & 3] : b),
  ]);
}
const pieces = (text) => [...text].map((c, i) => frame(i ? 0 : 1, c, { fin: i === text.length - 1 ? 1 : 0 }));
/** speak opens a WebSocket by hand and sends frames of its own making: a client of the interpreter hides control frames,
 * and sends no bad ones. What comes back is printed byte for byte. */
async function speak(query, frames, ms = 2500) {
  try {
    const conn = await Deno.startTls(await Deno.connect({ hostname: "httpbin.test", port: 443 }), {
      hostname: "httpbin.test",
    });
    const write = async (b) => {
      for (let at = 0; at < b.length;) at += await conn.write(b.subarray(at));
    };
    await write(
      new TextEncoder().encode(
        "GET /x/ws?t=TRIAL&" + query +
          " HTTP/1.1\r\nHost: httpbin.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
      ),
    );
    let got = "";
    const b = new Uint8Array(8192);
    while (!got.includes("\r\n\r\n")) {
      const n = await conn.read(b);
      if (n === null) break;
      got += String.fromCharCode(...b.subarray(0, n));
    }
    try {
      for (const f of frames) await write(f);
    } catch { /* cut */ }
    const timer = setTimeout(() => {
      try {
        conn.close();
      } catch { /* closed */ }
    }, ms);
    try {
      for (let n; got.length < 100000 && (n = await conn.read(b)) !== null;) {
        got += String.fromCharCode(...b.subarray(0, n));
      }
    } catch { /* cut */ }
    clearTimeout(timer);
    try {
      conn.close();
    } catch { /* closed */ }
    out({ status: Number(got.slice(9, 12)), text: got.slice(0, 3000) });
  } catch (e) {
    why(e);
  }
}

/** listen is a client of the interpreter, which hangs up after so long. */
async function listen(query, ms = 0) {
  const s = new WebSocket("wss://httpbin.test/x/ws?t=TRIAL&what=known:HTTPBIN_TOKEN&" + query);
  s.binaryType = "arraybuffer";
  const got = [];
  await new Promise<void>((d) => {
    if (ms) s.onopen = () => setTimeout(() => s.close(), ms);
    s.onmessage = (m) => {
      const t = typeof m.data === "string" ? m.data : new TextDecoder("latin1").decode(m.data);
      got.push(t);
      if (t === "done" || got.length > 20) s.close();
    };
    s.onerror = (e) => {
      got.push("error " + ((e as ErrorEvent).message ?? ""));
      d();
    };
    s.onclose = (e) => {
      got.push("closed " + e.code + " " + e.reason);
      d();
    };
    setTimeout(() => {
      s.close();
      d();
    }, 4000);
  });
  out({ status: 101, text: got.join("|") });
}

// name: WebSocket: a text message
// expected: scrubbed
// judge: notEchoed("HTTPBIN_TOKEN")
// seconds: 25
await listen("mode=echo", 800);

// name: WebSocket: permessage-deflate
// expected: scrubbed
// judge: notEchoed("HTTPBIN_TOKEN")
// seconds: 25
await listen("mode=deflate", 800);

// name: WebSocket: the reason of a close, by the interpreter's client
// expected: scrubbed
// judge: notEchoed("HTTPBIN_TOKEN")
// seconds: 25
await listen("mode=close");

// name: WebSocket: {what}
// expected: scrubbed
// judge: notEchoed("HTTPBIN_TOKEN")
// each: what | query
//   a message in one-byte frames | mode=frames&cut=1
//   a message in seven-byte frames | mode=frames&cut=7
//   a message in one-byte frames with pings and empty ones | mode=pinged
//   a frame sent byte by byte | mode=drip
//   a binary message | mode=binary
//   a ping between two fragments | mode=interleaved
//   the reason of a close | mode=close
//   the payload of a ping | mode=ping
//   the payload of a pong | mode=pong
//   a JSON-escaped message | mode=frames&cut=3&form=json-u
//   a base64 message | mode=binary&form=base64-2
//   a percent-encoded ping | mode=ping&form=percent-all
// note: The ways in which a server of RFC 6455 sends the credential.
await speak("what=known:HTTPBIN_TOKEN&{query}", []);

// name: WebSocket: {what}
// expected: the connection ends before it
// judge: hungUp({bye}, "done")
// each: what | mode | bye
//   compressed although nobody offered it    | rsv1         | byeProtocol
//   a reserved bit                           | rsv2         | byeProtocol
//   another reserved bit                     | rsv3         | byeProtocol
//   a compressed continuation                | rsv1-later   | byeProtocol
//   a compressed ping                        | rsv1-ping    | byeProtocol
//   two compressed messages with one context | context      | byeProtocol
//   a masked frame from the server           | masked       | byeProtocol
//   a reserved opcode                        | opcode       | byeProtocol
//   a reserved control opcode                | control      | byeProtocol
//   a continuation of nothing                | continuation | byeProtocol
//   a message within a message               | within       | byeProtocol
//   a ping in fragments                      | split-ping   | byeProtocol
//   a ping that is too long                  | long-ping    | byeProtocol
//   a length in more bytes than it needs     | wasteful     | byeProtocol
//   a frame of 2^63 bytes                    | huge         | byeTooBig
//   a frame of a negative length             | negative     | byeProtocol
//   a close with a code that is none         | bad-close    | byeProtocol
// note: Frames that no server may send: the relay ends the connection before anything of them is passed on.
await speak("what=known:HTTPBIN_TOKEN&mode={mode}", []);

// name: WebSocket: an unmasked frame
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(1, "hostile", { mask: false })]);

// name: WebSocket: a compressed frame of the client
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(1, "hostile", { rsv: 4 })]);

// name: WebSocket: a reserved bit of the client
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(1, "hostile", { rsv: 1 })]);

// name: WebSocket: a reserved opcode of the client
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(3, "hostile")]);

// name: WebSocket: a reserved control opcode of the client
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(11, "hostile")]);

// name: WebSocket: a continuation of nothing by the client
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(0, "hostile")]);

// name: WebSocket: a message within a message by the client
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(1, "hos", { fin: 0 }), frame(1, "hostile")]);

// name: WebSocket: a ping in fragments by the client
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(9, "hostile", { fin: 0 })]);

// name: WebSocket: a ping that is too long by the client
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(9, "hostile" + "x".repeat(130))]);

// name: WebSocket: a 16-bit length of the client that 7 bits hold
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(1, "hostile", { head: [126, 0, 7] })]);

// name: WebSocket: a 64-bit length of the client that 7 bits hold
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(1, "hostile", { head: [127, 0, 0, 0, 0, 0, 0, 0, 7] })]);

// name: WebSocket: a negative length of the client
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(1, "hostile", { head: [127, 255, 255, 255, 255, 255, 255, 255, 255] })]);

// name: WebSocket: a frame of 2^62 bytes of the client
// judge: unheard(byeTooBig)
await speak("mode=listen", [frame(1, "hostile", { head: [127, 64, 0, 0, 0, 0, 0, 0, 0] })]);

// name: WebSocket: a close of one byte
// judge: unheard(byeProtocol)
await speak("mode=listen", [frame(8, "h")]);

// name: WebSocket: control: a frame of the client
// expected: arrives
// judge: heard("hostile", "")
await speak("mode=listen", [frame(1, "hostile")]);

// name: WebSocket: control: a name in a declared field
// expected: swapped
// judge: heard("", "HTTPBIN_BODY")
await speak("mode=listen", [frame(1, JSON.stringify({ client_secret: "HTTPBIN_BODY" }))]);

// name: WebSocket: control: a name in one-byte frames
// expected: swapped
// judge: heard("", "HTTPBIN_BODY")
await speak("mode=listen", [...pieces(JSON.stringify({ client_secret: "HTTPBIN_BODY" }))]);

// name: WebSocket: control: a name with a ping in its middle
// expected: swapped
// judge: heard("", "HTTPBIN_BODY")
await speak("mode=listen", [frame(1, '{"client_secret":"HTTPBIN', { fin: 0 }), frame(9, "p"), frame(0, '_BODY"}')]);

// name: WebSocket: a name in another field
// expected: not swapped
// judge: heard("HTTPBIN_BODY", "")
await speak("mode=listen", [frame(1, JSON.stringify({ text: "HTTPBIN_BODY" }))]);

// name: WebSocket: a name in a binary message
// expected: not swapped
// judge: heard("HTTPBIN_BODY", "")
await speak("mode=listen", [frame(2, JSON.stringify({ client_secret: "HTTPBIN_BODY" }))]);

// name: WebSocket: a name in a ping
// expected: not swapped
// judge: heard("HTTPBIN_BODY", "")
await speak("mode=listen", [frame(9, JSON.stringify({ client_secret: "HTTPBIN_BODY" }))]);

// name: WebSocket: a name in a pong
// expected: not swapped
// judge: heard("HTTPBIN_BODY", "")
await speak("mode=listen", [frame(10, JSON.stringify({ client_secret: "HTTPBIN_BODY" }))]);

// name: WebSocket: a name in the reason of a close
// expected: not swapped
// judge: heard("HTTPBIN_BODY", "")
await speak("mode=listen", [frame(8, "\x03\xe8" + JSON.stringify({ client_secret: "HTTPBIN_BODY" }))]);

// name: WebSocket: a name over two messages
// expected: not swapped
// judge: heard("\"HTTPBIN", "")
await speak("mode=listen", [frame(1, '{"client_secret":"HTTPBIN'), frame(1, '_BODY"}')]);

// name: WebSocket: a value in a text message
// judge: unheard(byePolicy)
{
  const v = mine("REVERSED_HTTPBIN_BODY");
  await speak("mode=listen", [frame(1, "it is " + v)]);
}

// name: WebSocket: a value in a binary message
// judge: unheard(byePolicy)
{
  const v = mine("REVERSED_HTTPBIN_BODY");
  await speak("mode=listen", [frame(2, v)]);
}

// name: WebSocket: a value in one-byte frames
// judge: unheard(byePolicy)
{
  const v = mine("REVERSED_HTTPBIN_BODY");
  await speak("mode=listen", [...pieces(v)]);
}

// name: WebSocket: a value in a ping
// judge: unheard(byePolicy)
{
  const v = mine("REVERSED_HTTPBIN_BODY");
  await speak("mode=listen", [frame(9, v)]);
}

// name: WebSocket: a value in a pong
// judge: unheard(byePolicy)
{
  const v = mine("REVERSED_HTTPBIN_BODY");
  await speak("mode=listen", [frame(10, v)]);
}

// name: WebSocket: a value in the reason of a close
// judge: unheard(byePolicy)
{
  const v = mine("REVERSED_HTTPBIN_BODY");
  await speak("mode=listen", [frame(8, "\x03\xe8" + v)]);
}

// name: WebSocket: a value in a ping, in base64
// judge: unheard(byePolicy)
{
  const v = mine("REVERSED_HTTPBIN_BODY");
  await speak("mode=listen", [frame(9, btoa(v))]);
}

// name: WebSocket: a value in a message, in hexadecimal
// judge: unheard(byePolicy)
{
  const v = mine("REVERSED_HTTPBIN_BODY");
  await speak("mode=listen", [frame(1, [...v].map((c) => c.charCodeAt(0).toString(16)).join(""))]);
}

// name: WebSocket: credential in the handshake, echoed raw
// expected: scrubbed
// judge: scrubbed("HTTPBIN_TOKEN", true)
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET /x/ws?what=auth&mode=binary&t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
  { ms: 4000 },
);

// name: WebSocket: false accept key
// expected: refused
// judge: scrubbed("HTTPBIN_TOKEN", false)
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET /x/raw?mode=switch-ws&t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
  { ms: 4000 },
);
