package attack

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// asked is what every request here asks an API's host for, without a credential: should one go on, nothing is done there.
const asked = "/codeforge-doctor"

// requests are attacks on the proxy's reading of a request, on connections to an API's host: each must be answered by the
// proxy itself, with the code of its refusal, so that the API hears of none. What would have an API do something, such as
// a body that is read in two ways, is left to make attack.
func requests(t Target) []Attack {
	if t.Host == "" {
		return nil
	}
	host := "Host: " + t.Host + "\r\n"
	get := "GET " + asked + " HTTP/1.1\r\n" + host
	row := func(name string, texts ...string) Attack {
		return Attack{Name: name, Expected: "refused by the proxy", Code: ask(t.Host, texts), Seconds: 30}
	}
	with := func(line string, fields ...string) []string {
		var all []string
		for _, f := range fields {
			all = append(all, line+f+"\r\n")
		}
		return all
	}
	target := func(targets ...string) []string {
		var all []string
		for _, to := range targets {
			all = append(all, "GET "+to+" HTTP/1.1\r\n"+host)
		}
		return all
	}
	return []Attack{
		row("methods that show or tunnel a request", "TRACE "+asked+" HTTP/1.1\r\n"+host, "TRACK "+asked+" HTTP/1.1\r\n"+host, "CONNECT "+t.Host+":443 HTTP/1.1\r\n"+host, "trace "+asked+" HTTP/1.1\r\n"+host),
		row("a method overridden in a header", with(get, "X-HTTP-Method-Override: TRACE", "X-HTTP-Method: TRACE", "X-Method-Override: TRACE", "X-Original-Method: TRACE", "x_http_method_override: TRACE", "X-HTTP-Method-Override: GET\r\nX-HTTP-Method-Override: TRACE")...),
		row("a method overridden in the query", target(asked+"?_method=TRACE", asked+"?a=b&%5Fmetho%64=TRACE", asked+"?_METHOD=trace", asked+"?a=b;_method=TRACE", asked+"?.method=TRACE", asked+"?_method[]=TRACE", asked+"?X-HTTP-Method-Override=TRACE")...),
		row("another protocol on the connection", with(get, "Connection: Upgrade\r\nUpgrade: h2c", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", "Connection: Upgrade\r\nUpgrade: TLS/1.2", "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")...),
		row("two lengths, folds and bare line feeds", with(get, "Content-Length: 0\r\nTransfer-Encoding: chunked", "Content-Length: 0\r\nContent-Length: 0", "Content-Length: 0, 0", "Transfer-Encoding: gzip, chunked", "X-A: b\r\n c", "X-A: b\nX-C: d", "X-A: b\rX-C: d", "X-A : b", "Host: "+t.Host)...),
		row("targets that are no path", target("https://codeforge-doctor.invalid"+asked, "https://"+t.Host+asked, "codeforge-doctor", asked+"#a", asked+"\xc2\x9b", "*")...),
		row("a Connection that takes other headers off", with(get, "Content-Type: text/plain\r\nConnection: close, Content-Type", "X-HTTP-Method-Override: GET\r\nConnection: X-HTTP-Method-Override, close")...),
		row("OPTIONS of the server itself", "OPTIONS * HTTP/1.1\r\n"+host),
	}
}

// ask is code that sends each text, a head without its last line, on a connection of its own. A refusal of the proxy has a
// code; any other answer may be the API's.
func ask(host string, texts []string) string {
	list, _ := json.Marshal(latin1(texts))
	return fmt.Sprintf(`for (const text of %s) {
  let timer, conn;
  try {
    conn = await Deno.startTls(await Deno.connect({ hostname: %q, port: 443 }), { hostname: %q });
    timer = setTimeout(() => { try { conn.close(); } catch { /* closed */ } }, 5000);
    await conn.write(Uint8Array.from(text + (/\nConnection:/.test(text) ? "" : "Connection: close\r\n") + "\r\n", (c) => c.charCodeAt(0)));
    let got = ""; const b = new Uint8Array(4096);
    try { for (let n; !/"code": ?"[a-z_]+"/.test(got) && got.length < 20000 && (n = await conn.read(b)) !== null;) got += new TextDecoder().decode(b.subarray(0, n)); } catch { /* cut */ }
    const code = /^HTTP\/1\.1 4\d\d [^]*"code": ?"([a-z_]+)"/.exec(got)?.[1];
    console.log(JSON.stringify({ held: code !== undefined, seen: code ?? text.split("\r\n").filter((l) => !l.startsWith("Host:")).join(" ").trim() + ": " + (got.split("\r\n")[0] || "no answer") }));
  } catch (e) { console.log(JSON.stringify({ held: false, seen: "could not be tried: " + e })); }
  clearTimeout(timer);
  try { conn?.close(); } catch { /* closed */ }
}
`, list, host, host)
}

// latin1 are the bytes of texts as characters, which JSON would replace where they are no UTF-8.
func latin1(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		r := make([]rune, len(s))
		for j := range len(s) {
			r[j] = rune(s[j])
		}
		out[i] = string(r)
	}
	return out
}

// imports are files that are imported as text, which no permission to read covers.
func imports() []Attack {
	var list []Attack
	for _, path := range []string{"/etc/shadow", "/proc/1/environ", "/dev/shm/ca/ca.key", "/apis/config.json"} {
		list = append(list, Attack{Name: "importing " + path + " as text", Expected: "denied", Judge: unread,
			Code: fmt.Sprintf("import t from %q with { type: \"text\" };\nconsole.log(JSON.stringify({ held: t.trim() === \"\", seen: t.length + \" bytes\" }));", "file://"+path)})
	}
	return list
}

// unread: the module did not load, or what it imported is empty.
func unread(r server.Result) (string, bool) {
	const nothing = "nothing read"
	if strings.Contains(r.Output, `"held"`) {
		seen, held := verdicts(r)
		if held {
			seen = nothing
		}
		return seen, held
	}
	if r.Exit == nil || r.Exit.Reason != runapi.Exited || !r.Failed {
		return "could not be tried: " + clip(r.Output), false
	}
	return nothing, true
}

// memories take twice what a run may, outside of the heap that the interpreter bounds by itself.
func memories(t Target) []Attack {
	if t.Memory == 0 {
		return nil
	}
	code := func(piece string) string {
		return fmt.Sprintf(`const keep = []; for (let n = 0; n < %d; n++) { const b = %s; for (let i = 0; i < b.length; i += 4096) b[i] = 1; keep.push(b); } console.log("took " + keep.length);`, 2*t.Memory/pieceSize+1, piece)
	}
	return []Attack{
		{Name: "buffers of twice the memory of a run", Expected: "ended at its limit", Code: code(fmt.Sprintf("new Uint8Array(%d)", pieceSize)), Seconds: 30, Judge: outOfMemory},
		{Name: "WebAssembly memories of twice that", Expected: "ended at its limit", Code: code(fmt.Sprintf("new Uint8Array(new WebAssembly.Memory({ initial: %d }).buffer)", pieceSize>>16)), Seconds: 30, Judge: outOfMemory},
	}
}

const pieceSize = 32 << 20

// outOfMemory: the run was ended by its limit.
func outOfMemory(r server.Result) (string, bool) {
	if r.Exit == nil {
		return "not ended: " + clip(r.Output), false
	}
	return "ended: " + string(r.Exit.Reason), r.Exit.Reason == runapi.OOM
}
