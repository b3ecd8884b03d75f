package attack

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
)

// speak is code that opens a WebSocket by hand and sends frames of its own making: a client of the interpreter hides
// control frames, and sends no bad ones. What comes back is printed byte for byte.
const speak = `
const mine = (name) => [...name].reverse().join("");
function frame(op, payload, { fin = 1, rsv = 0, mask = true, head } = {}) {
  const data = Uint8Array.from(payload, (c) => c.charCodeAt(0)), n = data.length;
  const size = head ?? (n < 126 ? [n] : [126, n >> 8, n & 255]);
  const key = mask ? [1, 2, 3, 4] : [];
  return Uint8Array.from([fin << 7 | rsv << 4 | op, size[0] | (mask ? 128 : 0), ...size.slice(1), ...key, ...data.map((b, i) => mask ? b ^ key[i & 3] : b)]);
}
const pieces = (text) => [...text].map((c, i) => frame(i ? 0 : 1, c, { fin: i === text.length - 1 ? 1 : 0 }));
async function speak(query, frames, ms = 2500) {
  try {
    const conn = await Deno.startTls(await Deno.connect({ hostname: "httpbin.test", port: 443 }), { hostname: "httpbin.test" });
    const write = async (b) => { for (let at = 0; at < b.length;) at += await conn.write(b.subarray(at)); };
    await write(new TextEncoder().encode("GET /x/ws?t=TRIAL&" + query + " HTTP/1.1\r\nHost: httpbin.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"));
    let got = ""; const b = new Uint8Array(8192);
    while (!got.includes("\r\n\r\n")) { const n = await conn.read(b); if (n === null) break; got += String.fromCharCode(...b.subarray(0, n)); }
    try { for (const f of frames) await write(f); } catch { /* cut */ }
    const timer = setTimeout(() => { try { conn.close(); } catch { /* closed */ } }, ms);
    try { for (let n; got.length < 100000 && (n = await conn.read(b)) !== null;) got += String.fromCharCode(...b.subarray(0, n)); } catch { /* cut */ }
    clearTimeout(timer);
    try { conn.close(); } catch { /* closed */ }
    out({ status: Number(got.slice(9, 12)), text: got.slice(0, 3000) });
  } catch (e) { why(e); }
}
`

// What the relay says goodbye with, as the code sees it: a close frame of the server with the code 1002, 1008 or 1009.
const (
	byeProtocol = "\u0088\u0002\u0003\u00ea"
	byePolicy   = "\u0088\u0002\u0003\u00f0"
	byeTooBig   = "\u0088\u0002\u0003\u00f1"
)

// sockets are WebSockets that carry the credential.
func sockets() []Attack {
	list := append(honestSockets(), brokenServers()...)
	list = append(list, brokenClients()...)
	list = append(list, clientFrames()...)
	return append(list, Attack{
		Section: "B", Name: "WebSocket: credential in the handshake, echoed raw", Expected: "scrubbed", Judge: scrubbed("HTTPBIN_TOKEN", true),
		Code: `await raw("httpbin.test", "httpbin.test", "GET /x/ws?what=auth&mode=binary&t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", { ms: 4000 });`,
	}, Attack{
		Section: "B", Name: "WebSocket: false accept key", Expected: "refused", Judge: scrubbed("HTTPBIN_TOKEN", false),
		Code: `await raw("httpbin.test", "httpbin.test", "GET /x/raw?mode=switch-ws&t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", { ms: 4000 });`,
	})
}

// honestSockets are messages and control frames that the interpreter's own client and a raw one get.
func honestSockets() []Attack {
	ws := func(name, query, message string) Attack {
		return Attack{
			Section: "B", Name: "WebSocket: " + name, Expected: "scrubbed", Judge: notEchoed("HTTPBIN_TOKEN"), Seconds: 25,
			Code: fmt.Sprintf(`
const s = new WebSocket("wss://httpbin.test/x/ws?t=TRIAL&what=known:HTTPBIN_TOKEN&%s"); s.binaryType = "arraybuffer"; const got = [];
await new Promise((d) => { s.onopen = () => { %s }; s.onmessage = (m) => { const t = typeof m.data === "string" ? m.data : new TextDecoder("latin1").decode(m.data); got.push(t); if (t === "done" || got.length > 20) s.close(); };
  s.onerror = (e) => { got.push("error " + (e.message ?? "")); d(); }; s.onclose = (e) => { got.push("closed " + e.code + " " + e.reason); d(); }; setTimeout(() => { s.close(); d(); }, 4000); });
out({ status: 101, text: got.join("|") });`, query, message),
		}
	}
	list := []Attack{
		ws("a text message", "mode=echo", `setTimeout(() => s.close(), 800);`),
		ws("permessage-deflate", "mode=deflate", `setTimeout(() => s.close(), 800);`),
		ws("the reason of a close, by the interpreter's client", "mode=close", ""),
	}
	for _, r := range knownSockets {
		list = append(list, Attack{
			Section: "B", Name: "WebSocket: " + r.name, Expected: "scrubbed", Judge: notEchoed("HTTPBIN_TOKEN"),
			Code: speak + fmt.Sprintf(`await speak("what=known:HTTPBIN_TOKEN&%s", []);`, r.query),
		})
	}
	return list
}

// knownSockets are the ways in which a server of RFC 6455 sends the credential.
var knownSockets = []struct{ name, query string }{
	{"a message in one-byte frames", "mode=frames&cut=1"},
	{"a message in seven-byte frames", "mode=frames&cut=7"},
	{"a message in one-byte frames with pings and empty ones", "mode=pinged"},
	{"a frame sent byte by byte", "mode=drip"},
	{"a binary message", "mode=binary"},
	{"a ping between two fragments", "mode=interleaved"},
	{"the reason of a close", "mode=close"},
	{"the payload of a ping", "mode=ping"},
	{"the payload of a pong", "mode=pong"},
	{"a JSON-escaped message", "mode=frames&cut=3&form=json-u"},
	{"a base64 message", "mode=binary&form=base64-2"},
	{"a percent-encoded ping", "mode=ping&form=percent-all"},
}

// brokenServers are frames that no server may send: the relay ends the connection before anything of them is passed on.
func brokenServers() []Attack {
	var list []Attack
	for _, r := range []struct{ name, mode, bye string }{
		{"compressed although nobody offered it", "rsv1", byeProtocol}, {"a reserved bit", "rsv2", byeProtocol}, {"another reserved bit", "rsv3", byeProtocol},
		{"a compressed continuation", "rsv1-later", byeProtocol}, {"a compressed ping", "rsv1-ping", byeProtocol},
		{"two compressed messages with one context", "context", byeProtocol},
		{"a masked frame from the server", "masked", byeProtocol}, {"a reserved opcode", "opcode", byeProtocol}, {"a reserved control opcode", "control", byeProtocol},
		{"a continuation of nothing", "continuation", byeProtocol}, {"a message within a message", "within", byeProtocol},
		{"a ping in fragments", "split-ping", byeProtocol}, {"a ping that is too long", "long-ping", byeProtocol},
		{"a length in more bytes than it needs", "wasteful", byeProtocol}, {"a frame of 2^63 bytes", "huge", byeTooBig}, {"a frame of a negative length", "negative", byeProtocol},
		{"a close with a code that is none", "bad-close", byeProtocol},
	} {
		list = append(list, Attack{
			Section: "B", Name: "WebSocket: " + r.name, Expected: "the connection ends before it", Judge: hungUp(r.bye, "done"),
			Code: speak + fmt.Sprintf(`await speak("what=known:HTTPBIN_TOKEN&mode=%s", []);`, r.mode),
		})
	}
	return list
}

// brokenClients are frames that no client may send.
func brokenClients() []Attack {
	var list []Attack
	for _, r := range []struct{ name, frames, bye string }{
		{"an unmasked frame", `[frame(1, "hostile", { mask: false })]`, byeProtocol},
		{"a compressed frame of the client", `[frame(1, "hostile", { rsv: 4 })]`, byeProtocol},
		{"a reserved bit of the client", `[frame(1, "hostile", { rsv: 1 })]`, byeProtocol},
		{"a reserved opcode of the client", `[frame(3, "hostile")]`, byeProtocol},
		{"a reserved control opcode of the client", `[frame(11, "hostile")]`, byeProtocol},
		{"a continuation of nothing by the client", `[frame(0, "hostile")]`, byeProtocol},
		{"a message within a message by the client", `[frame(1, "hos", { fin: 0 }), frame(1, "hostile")]`, byeProtocol},
		{"a ping in fragments by the client", `[frame(9, "hostile", { fin: 0 })]`, byeProtocol},
		{"a ping that is too long by the client", `[frame(9, "hostile" + "x".repeat(130))]`, byeProtocol},
		{"a 16-bit length of the client that 7 bits hold", `[frame(1, "hostile", { head: [126, 0, 7] })]`, byeProtocol},
		{"a 64-bit length of the client that 7 bits hold", `[frame(1, "hostile", { head: [127, 0, 0, 0, 0, 0, 0, 0, 7] })]`, byeProtocol},
		{"a negative length of the client", `[frame(1, "hostile", { head: [127, 255, 255, 255, 255, 255, 255, 255, 255] })]`, byeProtocol},
		{"a frame of 2^62 bytes of the client", `[frame(1, "hostile", { head: [127, 64, 0, 0, 0, 0, 0, 0, 0] })]`, byeTooBig},
		{"a close of one byte", `[frame(8, "h")]`, byeProtocol},
	} {
		list = append(list, Attack{
			Section: "B", Name: "WebSocket: " + r.name, Expected: "the connection ends, the server hears nothing", Judge: unheard(r.bye),
			Code: speak + fmt.Sprintf(`await speak("mode=listen", %s);`, r.frames),
		})
	}
	return list
}

// clientFrames are names and values that code sends.
func clientFrames() []Attack {
	const value = `mine("REVERSED_HTTPBIN_BODY")`
	field := `JSON.stringify({ client_secret: "HTTPBIN_BODY" })`
	list := []Attack{
		{Name: "control: a frame of the client", Expected: "arrives", Judge: heard("hostile", ""), Code: `frame(1, "hostile")`},
		{Name: "control: a name in a declared field", Expected: "swapped", Judge: heard("", "HTTPBIN_BODY"), Code: `frame(1, ` + field + `)`},
		{Name: "control: a name in one-byte frames", Expected: "swapped", Judge: heard("", "HTTPBIN_BODY"), Code: `...pieces(` + field + `)`},
		{Name: "control: a name with a ping in its middle", Expected: "swapped", Judge: heard("", "HTTPBIN_BODY"),
			Code: `frame(1, '{"client_secret":"HTTPBIN', { fin: 0 }), frame(9, "p"), frame(0, '_BODY"}')`},
		{Name: "a name in another field", Expected: "not swapped", Judge: heard("HTTPBIN_BODY", ""), Code: `frame(1, JSON.stringify({ text: "HTTPBIN_BODY" }))`},
		{Name: "a name in a binary message", Expected: "not swapped", Judge: heard("HTTPBIN_BODY", ""), Code: `frame(2, ` + field + `)`},
		{Name: "a name in a ping", Expected: "not swapped", Judge: heard("HTTPBIN_BODY", ""), Code: `frame(9, ` + field + `)`},
		{Name: "a name in a pong", Expected: "not swapped", Judge: heard("HTTPBIN_BODY", ""), Code: `frame(10, ` + field + `)`},
		{Name: "a name in the reason of a close", Expected: "not swapped", Judge: heard("HTTPBIN_BODY", ""), Code: `frame(8, "\x03\xe8" + ` + field + `)`},
		{Name: "a name over two messages", Expected: "not swapped", Judge: heard(`"HTTPBIN`, ""), Code: `frame(1, '{"client_secret":"HTTPBIN'), frame(1, '_BODY"}')`},
	}
	for i := range list {
		list[i].Section, list[i].Name = "B", "WebSocket: "+list[i].Name
		list[i].Code = speak + fmt.Sprintf(`await speak("mode=listen", [%s]);`, list[i].Code)
	}
	for _, r := range []struct{ name, frames string }{
		{"a text message", `frame(1, "it is " + v)`}, {"a binary message", `frame(2, v)`}, {"one-byte frames", `...pieces(v)`}, {"a ping", `frame(9, v)`},
		{"a pong", `frame(10, v)`}, {"the reason of a close", `frame(8, "\x03\xe8" + v)`}, {"a ping, in base64", `frame(9, btoa(v))`},
		{"a message, in hexadecimal", `frame(1, [...v].map((c) => c.charCodeAt(0).toString(16)).join(""))`},
	} {
		list = append(list, Attack{
			Section: "B", Name: "WebSocket: a value in " + r.name, Expected: "the connection ends, the server hears nothing", Judge: unheard(byePolicy),
			Code: speak + fmt.Sprintf(`const v = %s; await speak("mode=listen", [%s]);`, value, r.frames),
		})
	}
	return list
}

// hungUp: the server got the handshake and sent its frame, the code saw a 101 and then this goodbye, and nothing of what
// the server sent besides.
func hungUp(bye, behind string) Judge {
	return func(e *Evidence) (string, bool) {
		ls := e.lines()
		switch {
		case len(e.Arrived) != 1 || len(ls) != 1 || ls[0].Status != 101:
			return fmt.Sprintf("no relay began: %s; %d arrived", e.brief(), len(e.Arrived)), false
		case !strings.HasSuffix(ls[0].Text, "\r\n\r\n"+bye):
			_, seen, _ := strings.Cut(ls[0].Text, "\r\n\r\n")
			return fmt.Sprintf("%q came through, with %q: %t", clip(seen, 60), behind, strings.Contains(seen, behind)), false
		}
		return fmt.Sprintf("closed with %d", int([]rune(bye)[2])<<8|int([]rune(bye)[3])), true
	}
}

// unheard is hungUp for frames of the client, of which the server hears a close only.
func unheard(bye string) Judge {
	return func(e *Evidence) (string, bool) {
		if seen, held := hungUp(bye, "")(e); !held {
			return seen, false
		}
		frames, err := e.spoken()
		if err != nil || slices.ContainsFunc(frames, func(f spokenFrame) bool { return f.op != 8 || len(f.payload) != 2 }) {
			return fmt.Sprintf("the server heard %q, %v", frames, err), false
		}
		seen, _ := hungUp(bye, "")(e)
		return seen, len(frames) > 0
	}
}

// heard: the server heard these words, and with token its credential, else no credential.
func heard(words, token string) Judge {
	return func(e *Evidence) (string, bool) {
		frames, err := e.spoken()
		if err != nil {
			return err.Error() + ": " + e.brief(), false
		}
		var all strings.Builder
		for _, f := range frames {
			all.WriteString(f.payload)
		}
		if token != "" {
			return fmt.Sprintf("%d bytes heard", all.Len()), strings.Contains(all.String(), e.World.Canaries[token].Value())
		}
		if where := e.World.Leak(all.String()); where != "" {
			return "SENT: " + where, false
		}
		return fmt.Sprintf("%d bytes heard", all.Len()), strings.Contains(all.String(), words)
	}
}

// spokenFrame is one frame that the upstream received.
type spokenFrame struct {
	op      byte
	payload string
}

// spoken are the frames that came behind the handshake of the trial, unmasked.
func (e *Evidence) spoken() ([]spokenFrame, error) {
	for _, w := range e.World.Upstream.Wires(upstream.HTTPBin) {
		_, rest, found := strings.Cut(string(w.Bytes), e.Trial)
		if !found {
			continue
		}
		_, data, _ := strings.Cut(rest, "\r\n\r\n")
		return parseFrames([]byte(data))
	}
	return nil, fmt.Errorf("the upstream saw no handshake")
}

// parseFrames reads masked frames.
func parseFrames(b []byte) ([]spokenFrame, error) {
	var out []spokenFrame
	for len(b) > 0 {
		if len(b) < 6 || b[1]&0x80 == 0 {
			return out, fmt.Errorf("no masked frame: %q", b)
		}
		op, n, at := b[0]&15, int(b[1]&0x7f), 2
		switch n {
		case 126:
			n, at = int(binary.BigEndian.Uint16(b[2:])), 4
		case 127:
			return out, fmt.Errorf("a frame of more than 64 KiB")
		}
		if len(b) < at+4+n {
			return out, fmt.Errorf("a frame that is cut")
		}
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = b[at+4+i] ^ b[at+i%4]
		}
		out = append(out, spokenFrame{op, string(payload)})
		b = b[at+4+n:]
	}
	return out, nil
}
