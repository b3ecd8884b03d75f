const counts: Record<string, number> = {};
let last = "", done = false;
for (let attempt = 0; !done && attempt < 5; attempt++) {
  const headers: Record<string, string> = { Authorization: "Bearer PLAIN_TOKEN" };
  if (last) headers["Last-Event-ID"] = last;
  const r = await fetch("https://d.wild.test/events", { headers });
  if (!r.ok) throw new Error(`${r.status} ${await r.text()}`);
  let text = "";
  try {
    for await (const chunk of r.body!.pipeThrough(new TextDecoderStream())) {
      const events = (text + chunk).split("\n\n");
      text = events.pop()!;
      for (const event of events) {
        const of = (name: string) => [...event.matchAll(new RegExp(`^${name}: ?(.*)$`, "gm"))].map((m) => m[1]);
        if (of("event")[0] === "done") done = true;
        if (done || of("data").length === 0) continue;
        const { level } = JSON.parse(of("data").join("\n"));
        counts[level] = (counts[level] ?? 0) + 1;
        last = of("id")[0];
      }
    }
  } catch {
    // The stream broke off: the next request goes on after the last event.
  }
}
const cities: Record<string, number> = {};
let rest = "";
const r = await fetch("https://d.wild.test/export.ndjson", { headers: { Authorization: "Bearer PLAIN_TOKEN" } });
for await (const chunk of r.body!.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop()!;
  for (const line of lines) cities[JSON.parse(line).city] = (cities[JSON.parse(line).city] ?? 0) + 1;
}
console.log(counts.error, counts.info, counts.warn, last, cities["東京"], cities["São Paulo"]);
