package attack

import (
	"fmt"
	"strings"
)

// charsets are the credential in character sets that are no superset of ASCII, in forms that its text may have inside.
func charsets() []Attack {
	var list []Attack
	add := func(name, query, header string) {
		list = append(list, Attack{Section: "B", Name: "echo in " + name, Expected: "transcoded and scrubbed, or refused", Judge: scrubbed("HTTPBIN_TOKEN", false), Code: readings + fmt.Sprintf(
			`await readings(fetch("https://httpbin.test/x/echo?t=TRIAL&%s", auth("HTTPBIN_TOKEN", { headers: { %s } })));`, query, header)})
	}
	for _, set := range []string{"utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "cp037", "cp1047", "cp1140", "iso-2022-jp"} {
		for _, form := range []string{"raw", "json-u", "base64-1", "hex"} {
			add(set+" as "+form, "cs="+set+"&form="+form, "")
		}
		if set != "iso-2022-jp" {
			add(set+" without a label", "type=application/octet-stream&cs="+set+":none", "")
			add(set+" labelled utf-8", "cs="+set+":utf-8", "")
		}
		for i, h := range []string{`"Accept-Charset": "%s"`, `"Accept_Charset": "%s"`, `Accept: "text/plain;charset=%s"`} {
			add(fmt.Sprintf("the character set %s, asked for in way %d", set, i+1), "cs=asked&form=json-u", fmt.Sprintf(h, set))
		}
	}
	add("JSON as UTF-16 without a label", "pre=1&fill=%5B&form=json-u&type=application/json&cs=utf-16-be:none", "")
	add("JSON as UTF-32 without a label", "pre=1&fill=%5B&form=json-u&type=application/json&cs=utf-32-le:none", "")
	add("two labels", "form=json-u&cs=utf-16-le:utf-8;charset=utf-16le", "")
	add("a label in quotes and capitals", `form=json-u&cs=utf-32-be:%22UTF-32BE%22`, "")
	add("an unknown character set", "form=raw&cs=cp037:x-mystery", "")
	add("ASCII under the label utf-16le", "cs=ascii:utf-16le", "")
	add("ASCII under the label cp037", "cs=ascii:cp037", "")
	return list
}

// readings is code that reads an answer in every character set it knows, and takes off what is inside.
const readings = `
const ebcdic = {}; for (const [from, text] of [[0x81, "abcdefghi"], [0x91, "jklmnopqr"], [0xa2, "stuvwxyz"], [0xc1, "ABCDEFGHI"], [0xd1, "JKLMNOPQR"], [0xe2, "STUVWXYZ"], [0xf0, "0123456789"], [0xe0, "\\"], [0x6d, "_"], [0x7e, "="]]) [...text].forEach((c, i) => ebcdic[from + i] = c);
async function readings(p) {
  const r = await p, b = new Uint8Array(await r.arrayBuffer());
  const ways = [[...b].map((x) => String.fromCharCode(x)).join(""), [...b].filter((x) => x).map((x) => String.fromCharCode(x)).join(""), [...b].map((x) => ebcdic[x] ?? ".").join("")];
  ways.push(ways[0].replaceAll("\x1b(J", "").replaceAll("\x1b(B", ""));
  for (const label of ["utf-8", "utf-16le", "utf-16be"]) ways.push(new TextDecoder(label).decode(b));
  const wide = new TextDecoder().decode(b); ways.push([...wide].map((c) => String.fromCharCode(c.charCodeAt(0) & 255, c.charCodeAt(0) >> 8)).join(""));
  for (const w of [...ways]) {
    ways.push(w.replace(/\\u([0-9a-f]{4})/gi, (_, h) => String.fromCharCode(parseInt(h, 16))));
    for (const m of w.match(/[A-Za-z0-9+\/]{40,}/g) ?? []) try { ways.push(atob(m.slice(0, m.length & ~3))); } catch { /* another form */ }
    for (const m of w.match(/[0-9a-f]{40,}/gi) ?? []) ways.push(m.replace(/../g, (h) => String.fromCharCode(parseInt(h, 16))));
  }
  out({ status: r.status, text: [...new Set(ways.map((w) => w.replace(/[^\x20-\x7e]/g, "")))].join(" | ") });
}
`

// breaches are guesses of a credential that a compressed page shows beside them, told apart by time.
func breaches() []Attack {
	var list []Attack
	for name, more := range map[string][2]string{
		"asked for":                                  {"", ""},
		"asked for as Accept_Encoding":               {"", `"Accept_Encoding": "gzip"`},
		"asked for as X-Accept-Encoding and A-IM":    {"", `"X-Accept-Encoding": "gzip", "A-IM": "gzip"`},
		"of a server that compresses without asking": {"&force=1", ""},
	} {
		list = append(list, Attack{
			Section: "B", Name: "compression as an oracle, " + name, Expected: "a right and a wrong guess take as long and are as long", Seconds: 60, Alone: true, Judge: verdicts(),
			Code: strings.NewReplacer("QUERY", more[0], "HEADER", more[1]).Replace(`
async function take(guess) {
  const start = performance.now();
  const r = await fetch("https://other.test/x/breach?t=TRIALQUERY&guess=" + guess, auth("OTHER_TOKEN", { headers: { "Accept-Encoding": "gzip", HEADER } }));
  const text = await r.text();
  return { ms: performance.now() - start, length: text.length, status: r.status, ok: r.status === 200 && text.includes("OTHER_TOKEN") || text.includes("upstream_compressed") };
}
let apart = 0, seen = "", ok = true;
for (let tries = 0; tries < 4; tries++) { // a machine that is busy tells two alike apart, but not every time
  let right = Infinity, wrong = Infinity, lengths = new Set();
  for (let i = 0; i < 5; i++) for (const [kind, n] of [["right", 9], ["wrong", 9]]) {
    const a = await take(kind + ":" + n); ok &&= a.ok; lengths.add(a.length + "/" + a.status);
    if (kind === "right") right = Math.min(right, a.ms); else wrong = Math.min(wrong, a.ms);
  }
  apart = wrong - right; seen = apart.toFixed(1) + " ms apart, lengths and statuses " + [...lengths];
  if (lengths.size > 1) ok = false;
  if (apart < 8 || !ok) break; // what compresses better is faster
}
out({ held: ok && apart < 8, seen });`),
		})
	}
	return list
}
