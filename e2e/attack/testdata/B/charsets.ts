// The credential in character sets that are no superset of ASCII, in forms that its text may have inside.

// expected: transcoded and scrubbed, or refused
// judge: scrubbed("HTTPBIN_TOKEN", false)

const ebcdic = {};
for (
  const [from, text] of [
    [0x81, "abcdefghi"],
    [0x91, "jklmnopqr"],
    [0xa2, "stuvwxyz"],
    [0xc1, "ABCDEFGHI"],
    [0xd1, "JKLMNOPQR"],
    [0xe2, "STUVWXYZ"],
    [0xf0, "0123456789"],
    [0xe0, "\\"],
    [0x6d, "_"],
    [0x7e, "="],
  ] as [number, string][]
) [...text].forEach((c, i) => ebcdic[from + i] = c);
/** readings reads an answer in every character set it knows, and takes off what is inside. */
async function readings(p) {
  const r = await p, b = new Uint8Array(await r.arrayBuffer());
  const ways = [
    [...b].map((x) => String.fromCharCode(x)).join(""),
    [...b].filter((x) => x).map((x) => String.fromCharCode(x)).join(""),
    [...b].map((x) => ebcdic[x] ?? ".").join(""),
  ];
  ways.push(ways[0].replaceAll("\x1b(J", "").replaceAll("\x1b(B", ""));
  for (const label of ["utf-8", "utf-16le", "utf-16be"]) ways.push(new TextDecoder(label).decode(b));
  const wide = new TextDecoder().decode(b);
  ways.push([...wide].map((c) => String.fromCharCode(c.charCodeAt(0) & 255, c.charCodeAt(0) >> 8)).join(""));
  for (const w of [...ways]) {
    ways.push(w.replace(/\\u([0-9a-f]{4})/gi, (_, h) => String.fromCharCode(parseInt(h, 16))));
    for (const m of w.match(/[A-Za-z0-9+\/]{40,}/g) ?? []) {
      try {
        ways.push(atob(m.slice(0, m.length & ~3)));
      } catch { /* another form */ }
    }
    for (const m of w.match(/[0-9a-f]{40,}/gi) ?? []) {
      ways.push(m.replace(/../g, (h) => String.fromCharCode(parseInt(h, 16))));
    }
  }
  out({ status: r.status, text: [...new Set(ways.map((w) => w.replace(/[^\x20-\x7e]/g, "")))].join(" | ") });
}

// name: echo in {set} as {form}
// each: set = utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be cp037 cp1047 cp1140 iso-2022-jp
// each: form = raw json-u base64-1 hex
await readings(fetch("https://httpbin.test/x/echo?t=TRIAL&cs={set}&form={form}", auth("HTTPBIN_TOKEN")));

// name: echo in {set} without a label
// each: set = utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be cp037 cp1047 cp1140
await readings(
  fetch("https://httpbin.test/x/echo?t=TRIAL&type=application/octet-stream&cs={set}:none", auth("HTTPBIN_TOKEN")),
);

// name: echo in {set} labelled utf-8
// each: set = utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be cp037 cp1047 cp1140
await readings(fetch("https://httpbin.test/x/echo?t=TRIAL&cs={set}:utf-8", auth("HTTPBIN_TOKEN")));

// name: echo in the character set {set}, asked for in way 1
// each: set = utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be cp037 cp1047 cp1140 iso-2022-jp
await readings(
  fetch(
    "https://httpbin.test/x/echo?t=TRIAL&cs=asked&form=json-u",
    auth("HTTPBIN_TOKEN", { headers: { "Accept-Charset": "{set}" } }),
  ),
);

// name: echo in the character set {set}, asked for in way 2
// each: set = utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be cp037 cp1047 cp1140 iso-2022-jp
await readings(
  fetch(
    "https://httpbin.test/x/echo?t=TRIAL&cs=asked&form=json-u",
    auth("HTTPBIN_TOKEN", { headers: { "Accept_Charset": "{set}" } }),
  ),
);

// name: echo in the character set {set}, asked for in way 3
// each: set = utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be cp037 cp1047 cp1140 iso-2022-jp
await readings(
  fetch(
    "https://httpbin.test/x/echo?t=TRIAL&cs=asked&form=json-u",
    auth("HTTPBIN_TOKEN", { headers: { Accept: "text/plain;charset={set}" } }),
  ),
);

// name: echo in {what}
// each: what | query
//   JSON as UTF-16 without a label | pre=1&fill=%5B&form=json-u&type=application/json&cs=utf-16-be:none
//   JSON as UTF-32 without a label | pre=1&fill=%5B&form=json-u&type=application/json&cs=utf-32-le:none
//   two labels                     | form=json-u&cs=utf-16-le:utf-8;charset=utf-16le
//   a label in quotes and capitals | form=json-u&cs=utf-32-be:%22UTF-32BE%22
//   an unknown character set       | form=raw&cs=cp037:x-mystery
//   ASCII under the label utf-16le | cs=ascii:utf-16le
//   ASCII under the label cp037    | cs=ascii:cp037
await readings(fetch("https://httpbin.test/x/echo?t=TRIAL&{query}", auth("HTTPBIN_TOKEN")));
