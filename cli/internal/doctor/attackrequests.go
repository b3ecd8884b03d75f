package doctor

import (
	"encoding/json"
	"fmt"
)

// attackPath is the path of every request. The requests have no credential, so a forwarded one does no harm.
const attackPath = "/codeforge-doctor"

// requestAttacks attack the proxy's parsing of requests, on connections to an API's host. The proxy must answer each
// with the code of its refusal, so that the API receives no request. Requests that could change something at an API,
// such as ambiguous bodies, are left to make attack.
func requestAttacks(t attackTarget) []attackAttempt {
	if t.host == "" {
		return nil
	}
	host := "Host: " + t.host + "\r\n"
	get := "GET " + attackPath + " HTTP/1.1\r\n" + host
	row := func(name string, heads ...string) attackAttempt {
		return attackAttempt{name: name, expected: "refused by the proxy", code: sendEach(t.host, heads), seconds: 30}
	}
	fields := func(fields ...string) (heads []string) {
		for _, f := range fields {
			heads = append(heads, get+f+"\r\n")
		}
		return heads
	}
	methods := func(lines ...string) (heads []string) {
		for _, line := range lines {
			heads = append(heads, line+" HTTP/1.1\r\n"+host)
		}
		return heads
	}
	targets := func(targets ...string) (heads []string) {
		for _, to := range targets {
			heads = append(heads, "GET "+to+" HTTP/1.1\r\n"+host)
		}
		return heads
	}
	return []attackAttempt{
		row("methods that show or tunnel a request", methods("TRACE "+attackPath, "TRACK "+attackPath,
			"CONNECT "+t.host+":443", "trace "+attackPath)...),
		row("a method overridden in a header", fields("X-HTTP-Method-Override: TRACE", "X-HTTP-Method: TRACE",
			"X-Method-Override: TRACE", "X-Original-Method: TRACE", "x_http_method_override: TRACE",
			"X-HTTP-Method-Override: GET\r\nX-HTTP-Method-Override: TRACE")...),
		row("a method overridden in the query", targets(attackPath+"?_method=TRACE",
			attackPath+"?a=b&%5Fmetho%64=TRACE", attackPath+"?_METHOD=trace", attackPath+"?a=b;_method=TRACE",
			attackPath+"?.method=TRACE", attackPath+"?_method[]=TRACE",
			attackPath+"?X-HTTP-Method-Override=TRACE")...),
		row("another protocol on the connection", fields("Connection: Upgrade\r\nUpgrade: h2c",
			"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
			"Connection: Upgrade\r\nUpgrade: TLS/1.2",
			"Connection: Upgrade\r\nUpgrade: websocket, h2c\r\nSec-WebSocket-Version: 13\r\n"+
				"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")...),
		row("two lengths, folds and bare line feeds", fields("Content-Length: 0\r\nTransfer-Encoding: chunked",
			"Content-Length: 0\r\nContent-Length: 0", "Content-Length: 0, 0", "Transfer-Encoding: gzip, chunked",
			"X-A: b\r\n c", "X-A: b\nX-C: d", "X-A: b\rX-C: d", "X-A : b", "Host: "+t.host)...),
		row("targets that are not a path", targets("https://codeforge-doctor.invalid"+attackPath,
			"https://"+t.host+attackPath, "codeforge-doctor", attackPath+"#a", attackPath+"\xc2\x9b", "*")...),
		row("a Connection that removes other headers", fields(
			"Content-Type: text/plain\r\nConnection: close, Content-Type",
			"X-HTTP-Method-Override: GET\r\nConnection: X-HTTP-Method-Override, close")...),
		row("OPTIONS of the server itself", methods("OPTIONS *")...),
	}
}

// sendEach returns code that sends each head, which lacks its last line, on a new connection. A refusal of the proxy
// has a code; any other answer may be the API's.
func sendEach(host string, heads []string) string {
	list, _ := json.Marshal(encodeLatin1(heads))
	return fmt.Sprintf(`const say = (held, seen) => console.log(JSON.stringify({ held, seen }));
for (const head of %s) {
  let timer, conn;
  try {
    conn = await Deno.startTls(await Deno.connect({ hostname: %q, port: 443 }), { hostname: %q });
    timer = setTimeout(() => { try { conn.close(); } catch { /* closed */ } }, 5000);
    const request = head + (/\nConnection:/.test(head) ? "" : "Connection: close\r\n") + "\r\n";
    await conn.write(Uint8Array.from(request, (c) => c.charCodeAt(0)));
    let got = ""; const b = new Uint8Array(4096);
    try {
      for (let n; !/"code": ?"[a-z_]+"/.test(got) && got.length < 20000 && (n = await conn.read(b)) !== null;)
        got += new TextDecoder().decode(b.subarray(0, n));
    } catch { /* cut */ }
    const code = /^HTTP\/1\.1 4\d\d [^]*"code": ?"([a-z_]+)"/.exec(got)?.[1];
    const sent = head.split("\r\n").filter((l) => !l.startsWith("Host:")).join(" ").trim();
    say(code !== undefined, code ?? sent + ": " + (got.split("\r\n")[0] || "no answer"));
  } catch (e) { say(false, "could not be tried: " + e); }
  clearTimeout(timer);
  try { conn?.close(); } catch { /* closed */ }
}
`, list, host, host)
}

// encodeLatin1 turns each byte into a character, because JSON would replace bytes that are not UTF-8.
func encodeLatin1(texts []string) []string {
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
